"""What a learnt scale of a base measure is: the priors of its variables, and how to find it in a model.

:mod:`pymc_dpgmm.sampler.hyperparameters.learnt_scales` has the density.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import ExponentialRV, LogNormalRV

from pymc_dpgmm.integration.internals.pymc_internals import LogTransform, constant_fold
from pymc_dpgmm.integration.variables.layout import mixture_inputs
from pymc_dpgmm.integration.variables.models import dependents

# Mean and standard deviation of log kappa: the median is that of from_data, and the data may say more. A narrower
# prior would keep clusters from parting where many columns tell nothing, which asks for a large kappa.
PRIOR_OF_KAPPA = (math.log(0.01), 1.0)
# Of the logarithm of the degrees of freedom.
SD_OF_DEGREES = 1.5
# Shares within clusters are exponential with mean 1 / 2.
RATE_OF_SHARES = 2.0
# The smallest part of a column's variance that clusters are expected to have.
LEAST_SHARE = 1e-6


class LearntScale(NamedTuple):
    """The variables of a learnt scale, with the numbers of their priors.

    Parameters
    ----------
    kappa, degrees, within : variables
    law : tuple of five floats
        Means and standard deviations of log kappa and log degrees, and the rate of the shares.
    """

    kappa: Variable
    degrees: Variable
    within: Variable
    law: tuple[float, ...]

    @property
    def variables(self) -> list[Variable]:
        """The three of them."""
        return [self.kappa, self.degrees, self.within]


def learnt_scale(model: pm.Model, mixture: Variable) -> LearntScale | None:
    """Return the learnt scale of a mixture, as far as a graph shows it; None if it has none.

    The graph shows which variables there are, and their priors. That parameters are the right functions of them is
    for numbers to tell.
    """
    layout, inputs = mixture.owner.op.layout, mixture_inputs(mixture)
    if layout.family.scale is None or layout.power != 1.0:
        return None
    powers = layout.family.scale.powers
    params = dict(zip(layout.family.parameters, inputs.params, strict=True))
    free = set(model.free_RVs)
    behind = {name: [a for a in ancestors([param], blockers=free) if a in free] for name, param in params.items()}
    if any(behind[name] for name in params if name != "kappa" and name not in powers):
        return None
    kappas = behind["kappa"]
    degrees = _distinct(behind[name] for name, (_, of_typical) in powers.items() if not of_typical)
    shares = [rv for rv in _distinct(behind[name] for name in powers) if rv not in degrees]
    if len(kappas) != 1 or len(degrees) != 1 or len(shares) != 1 or kappas in (degrees, shares):
        return None
    found = kappas[0], degrees[0], shares[0]
    if shares[0].type.shape not in ((), (None,), (layout.n_columns,)):
        return None
    kinds = LogNormalRV, LogNormalRV, ExponentialRV
    if not all(isinstance(rv.owner.op, kind) for rv, kind in zip(found, kinds, strict=True)):
        return None
    if not all(isinstance(model.rvs_to_transforms[rv], LogTransform) for rv in found):
        return None
    if any(dependents(model, rv) != [mixture] for rv in found):
        return None
    numbers = [constant_fold(rv.owner.op.dist_params(rv.owner), raise_not_constant=False) for rv in found]
    law = [number for of_variable in numbers for number in of_variable]
    if not all(isinstance(number, np.ndarray) and number.size == 1 for number in law):
        return None
    *of_logs, scale = (float(number.item()) for number in law)
    return LearntScale(*found, (*of_logs, 1.0 / scale))


def _distinct(lists: Iterable[list[Variable]]) -> list[Variable]:
    return list(dict.fromkeys(variable for variables in lists for variable in variables))
