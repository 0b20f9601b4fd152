"""What a learnt scale of a base measure is: the priors of its variables, and where a model records it.

:mod:`pymc_dpgmm.sampler.hyperparameters.learnt_scales` has the density.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import LogTransform, constant_fold
from pymc_dpgmm.integration.variables.models import dependents
from pymc_dpgmm.integration.variables.records import parse_numbers, record_of

# Medians of kappa in one column and in several, and the standard deviation of its logarithm. That of several is
# the kappa of from_data, and the data may say more: a narrower prior would keep clusters from parting where many
# columns tell nothing, which asks for a large kappa. A cluster costs a factor of sqrt(kappa) in each column: with
# the kappa of several, one column of normal numbers would be divided by chance.
KAPPA_OF_ONE, KAPPA_OF_SEVERAL, SD_OF_KAPPA = 0.001, 0.01, 1.0
# Of the logarithm of the degrees of freedom.
SD_OF_DEGREES = 1.5
# Shares within clusters are exponential with mean 1 / 2.
RATE_OF_SHARES = 2.0
# The smallest part of a column's variance that clusters are expected to have.
LEAST_SHARE = 1e-6


class LearntScale(NamedTuple):
    """The variables of a learnt scale, with the numbers of their priors and of its variances.

    Parameters
    ----------
    kappa, degrees, within : variables
    law : tuple of five floats
        Means and standard deviations of log kappa and log degrees, and the rate of the shares.
    variances, known : (d,) arrays
        Typical variances are ``variances * within + known``.
    """

    kappa: Variable
    degrees: Variable
    within: Variable
    law: tuple[float, ...]
    variances: np.ndarray
    known: np.ndarray

    @property
    def variables(self) -> list[Variable]:
        """The three of them."""
        return [self.kappa, self.degrees, self.within]


def learnt_scale(model: pm.Model, mixture: Variable) -> LearntScale | None:
    """Return the learnt scale of a mixture, None if it has none.

    The record of a mixture whose base measure ``models/learnt_base.py`` has made says that its parameters are
    products of linear functions of three named variables. Parameters that a user computes from variables have no
    such record, whatever they look like.
    """
    layout = mixture.owner.op.layout
    form, entries = layout.family.scale, record_of(model, mixture.name).get("parameters", {})
    if form is None or layout.power != 1.0 or not all("product" in entries[name] for name in form.powers):
        return None
    kappa, factors = entries["kappa"]["variable"], [f for name in form.powers for f in entries[name]["product"]]
    # The factors of typical variances have a number for each column.
    shares = next(factor for factor in factors if np.ndim(parse_numbers(factor["slope"])))
    degrees = next(factor["variable"] for factor in factors if factor["variable"] != shares["variable"])
    free = {rv.name: rv for rv in model.free_RVs}
    found = [free[name] for name in (kappa, degrees, shares["variable"]) if name in free]
    # They may be fixed by pm.do or pm.observe, have other transformations, and a user may use them elsewhere.
    are_own = all(dependents(model, rv) == [mixture] for rv in found)
    if len(found) < 3 or not (
        are_own and all(isinstance(model.rvs_to_transforms[rv], LogTransform) for rv in found)
    ):
        return None
    laws = constant_fold([number for rv in found for number in rv.owner.op.dist_params(rv.owner)])
    *of_logs, scale = (float(law.item()) for law in laws)
    variances, known = (parse_numbers(shares[name]) for name in ("slope", "constant"))
    return LearntScale(found[0], found[1], found[2], (*of_logs, 1.0 / scale), variances, known)
