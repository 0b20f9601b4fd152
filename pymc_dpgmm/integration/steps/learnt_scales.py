"""Draws of learnt scales of base measures together with labels: points and variables to numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.families.contract.scale import NormalScale
from pymc_dpgmm.integration.steps.evidence import ClustersOfMixture
from pymc_dpgmm.integration.steps.targets import LabelsTarget
from pymc_dpgmm.integration.variables.learnt_scale import LearntScale
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.sampler.amounts import COLUMNS_FOR_EACH_SCALE, LEAST_SCALES, ROWS_FOR_EACH_SCALE
from pymc_dpgmm.sampler.hyperparameters.learnt_scales import KERNELS, Scale, ScalePrior, draw_scale
from pymc_dpgmm.sampler.state.state import State


def kernels_of_scales(mixtures: Iterable[Variable]) -> list[CFunction]:
    """Return what draws of the scales of some mixtures call."""
    return [KERNELS[mixture.owner.op.layout.family.scale.covariances] for mixture in mixtures]


class LearntScaleDraw:
    """The learnt scale of one mixture, which a step draws given its clusters.

    Parameters
    ----------
    model : pm.Model
    mixture : variable
    scale : LearntScale
    targets : sequence of LabelsTarget
        All labels of the step, in the order in which states are given.

    Attributes
    ----------
    moves_rows : bool
        False: see ``Hyperparameters``.
    """

    moves_rows = False

    def __init__(
        self, model: pm.Model, mixture: Variable, scale: LearntScale, targets: Sequence[LabelsTarget]
    ) -> None:
        values = [model.rvs_to_values[rv] for rv in scale.variables]
        self.names = [value.name for value in values]
        self.kernels = kernels_of_scales([mixture])
        self._dtypes = [value.dtype for value in values]
        self._clusters = ClustersOfMixture(mixture, targets)
        self._target = targets[self._clusters.target].mixtures[self._clusters.view]
        self._prior = ScalePrior(*scale.law)
        # Whether the parameters that were read last are inside their support.
        self._is_inside = False
        self._variances, self._least = scale.variances, scale.known / scale.variances
        # All parameters, of which those that do not change matter.
        self._params = self._target.params_at(self._point_of(Scale(1.0, 1.0, np.ones(self.n_columns))))
        self._target.read_params_by(self._params_at, lambda params: self._is_inside)

    @property
    def form(self) -> NormalScale:
        """How the family reads and writes a scale."""
        form: NormalScale = self._clusters.family.scale
        return form

    def _point_of(self, scale: Scale) -> dict[str, np.ndarray]:
        """Return the value variables, which are logarithms."""
        with np.errstate(divide="ignore"):
            return {
                name: np.asarray(np.log(np.asarray(number)), dtype=dtype)
                for name, dtype, number in zip(self.names, self._dtypes, scale, strict=True)
            }

    def _scale_at(self, point: dict[str, np.ndarray]) -> Scale:
        kappa, degrees, within = (np.exp(point[name]) for name in self.names)
        return Scale(float(kappa), float(degrees), within)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self._variances)

    @property
    def place(self) -> tuple[int, int]:
        """The number of the labels among those of the step, and of the mixture among those on them."""
        return self._clusters.target, self._clusters.view

    def log_prior(self, point: dict[str, np.ndarray]) -> float:
        """Return the log density of the scale in a point, without its clusters."""
        return self._scale_at(point).log_prior(self._prior)

    def _params_at(self, point: dict[str, np.ndarray]) -> Any:
        """Return the parameters of the base measure, as the model's graph would."""
        scale = self._scale_at(point)
        typical = self._variances * (scale.within + self._least)
        largest = (len(typical) + scale.degrees) * typical.max()
        self._is_inside = bool(min(scale.kappa, scale.degrees, typical.min()) > 0.0) and math.isfinite(
            largest + scale.kappa
        )
        return self.form.write(self._params, scale.kappa, scale.degrees, typical)

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        states: Sequence[State | None],
        widths: dict[str, np.ndarray],
        tuning: bool,
    ) -> None:
        """Draw the scale in a point; ``widths`` and ``tuning`` are for hyperparameters drawn by slices."""
        state = states[self._clusters.target]
        if state is None:
            return
        rows, columns = state.tables[self._clusters.view].n_rows, len(self._variances)
        share = min(ROWS_FOR_EACH_SCALE / rows, (COLUMNS_FOR_EACH_SCALE / columns) ** 2)
        share = max(share, LEAST_SCALES)
        if share < 1.0 and rng.random() >= share:
            # Whether it is drawn does not depend on the state.
            return
        table, n_clusters = self._clusters.take(state)
        params = self._clusters.family.shift(state.tables[self._clusters.view].params, table.origin)
        clusters = self.form.clusters(params, table.sums(0, n_clusters))
        known = self._prior, self._variances, self._least
        drawn = draw_scale(rng, self._scale_at(point), *known, clusters, self.form.covariances)
        point.update(self._point_of(drawn))
