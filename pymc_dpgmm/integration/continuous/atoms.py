r"""Atoms of a Dirichlet process, as a part of a joint density.

The rest of the model tells of the free form of a row's atom about as much as a normal pseudo-observation
:math:`y_{ij}` with the precision :math:`\rho_{ij}` does, both learnt in tuning, and the base about as much as a
normal distribution with the mean :math:`\mu_j` and the precision :math:`\tau_j`. If they told just this, then

.. math:: \theta_{kj} \sim N\Big(\mu_j + \frac{\sum_i \rho_{ij} (y_{ij} - \mu_j)}{P_{kj}}, \frac{1}{P_{kj}}\Big),
          \qquad P_{kj} = \tau_j + \sum_i \rho_{ij},

with sums over the rows of cluster k. Atoms move as the standard normal numbers in which these are written. Of a
base with a location and a scale, these are its :math:`\mu` and :math:`\tau^{-1/2}`, so that atoms of which the
data tell little follow them, and those of which they tell much do not. Of any other base, both are learnt.
"""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.process_density.atom_densities import AtomDensities
from pymc_dpgmm.integration.variables.models import values_behind

# Where distributions have a location and a scale, or a covariance, among their parameters.
_SCALED = {
    basic.NormalRV: (0, 1),
    basic.LogNormalRV: (0, 1),
    basic.LaplaceRV: (0, 1),
    basic.LogisticRV: (0, 1),
    basic.GumbelRV: (0, 1),
    basic.CauchyRV: (0, 1),
    basic.StudentTRV: (1, 2),
    basic.MvNormalRV: (0, 1),
}


class AtomsPart:
    """The graphs of the atoms of a process, without discrete values.

    Parameters
    ----------
    model : pm.Model
    parameters : sequence of variables
        The rows' parameters.
    labels : variable
    densities : AtomDensities
    n : int
        Rows.
    compile_kwargs : dict, optional

    Attributes
    ----------
    known : variable
        The precisions P (K, D).
    inputs : list of str
        Names of the value variables that ``standardized`` takes last.
    standardized : DirectFunction
        ``(free, *fixed, *inputs)``: what moves (K, D), of atoms in free form.
    """

    def __init__(
        self,
        model: pm.Model,
        parameters: Sequence[Variable],
        labels: Variable,
        densities: AtomDensities,
        n: int,
        compile_kwargs: Any,
    ) -> None:
        d = densities.n_free
        self.variables = list(parameters)
        self.numbers = pt.tensor(dtype="float64", shape=(n, d))
        rows, _ = densities.unfolded(self.numbers)
        values = [model.rvs_to_values[rv] for rv in parameters]
        self.values = {
            value: pt.specify_shape(own, value.type.shape) for value, own in zip(values, rows, strict=True)
        }
        of_rows = model.rvs_to_values[labels]
        n_atoms = pt.max(of_rows).astype("int64") + 1
        seen, precisions = (pt.tensor(dtype="float64", shape=(n, d)) for _ in range(2))
        of_base = pt.tensor(dtype="float64", shape=(2, d))
        moving = pt.tensor(dtype="float64", shape=(None, d))
        self.of_rows: list[Variable] = []
        self.fixed, self.of_clusters = [seen, precisions, of_base], [moving]
        self.shape_of_clusters = n_atoms, d
        nothing = pt.zeros((n_atoms, d))
        location, precision = self._location_and_precision(densities, of_base)
        self.known = known = pt.inc_subtensor(nothing[of_rows], precisions) + precision
        said = pt.inc_subtensor(nothing[of_rows], precisions * (seen - location))
        free = location + said / known + moving / pt.sqrt(known)
        self.expression = free[of_rows]
        atoms, jacobians = densities.unfolded(free)
        self.log_density = (
            densities.base_density(atoms).sum()
            + sum(jacobian.sum() for jacobian in jacobians)
            - 0.5 * pt.log(known).sum()
        )
        # What moves, from atoms in free form.
        own = pt.dmatrix("free")
        numbers = (own - location - said / known) * pt.sqrt(known)
        behind = values_behind(model, [numbers])
        self.inputs = [str(value.name) for value in behind]
        self.standardized = DirectFunction([own, *self.fixed, *behind], numbers, **(compile_kwargs or {}))

    @staticmethod
    def _location_and_precision(densities: AtomDensities, of_base: Variable) -> tuple[Variable, Variable]:
        """Return location and precision of the base in free form, (1, D) each, or what is learnt."""
        locations, precisions = [], []
        for entry, shape, columns in densities.continuous:
            found = _location_and_scale(entry.drawn, densities.atoms)
            if found is None:
                locations.append(of_base[:1, columns])
                precisions.append(of_base[1:, columns])
                continue
            full = [pt.broadcast_to(part, (1, *shape)).reshape((1, -1)).astype("float64") for part in found]
            locations.append(full[0])
            precisions.append(full[1] ** -2.0)
        return pt.concatenate(locations, axis=1), pt.concatenate(precisions, axis=1)


def _location_and_scale(drawn: Variable, others: Sequence[Variable]) -> tuple[Variable, Variable] | None:
    """Return those of a base's distribution, in free form, unless it has none or they are those of other atoms."""
    op = drawn.owner.op
    places = next((own for kind, own in _SCALED.items() if isinstance(op, kind)), None)
    if places is None:
        return None
    params = op.dist_params(drawn.owner)
    location, scale = params[places[0]], params[places[1]]
    if isinstance(op, basic.MvNormalRV):
        scale = pt.sqrt(pt.diagonal(scale, axis1=-2, axis2=-1))
    return None if set(others) & set(ancestors([location, scale])) else (location, scale)
