"""The step method of mixtures of rows in chunks."""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Variable

from pymc_dpgmm.chunked.partition import ChunkedPartition, DrawnPartition, Scheme
from pymc_dpgmm.chunked.records import as_dataset
from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.concentration import Concentration
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.variables import as_numbers, dependents
from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.sampler.amounts import EFFORT_AFTER_PART
from pymc_dpgmm.sampler.tuning.preparation import prepare
from pymc_dpgmm.sampler.tuning.schedule import Options, searched
from pymc_dpgmm.tables.checks import check_count

# The first tuning draws search: at most SEARCH_DRAWS and at most SEARCH_SHARE of all tuning draws. The search ends
# after SETTLED_DRAWS draws in a row that find nothing better.
SEARCH_DRAWS, SEARCH_SHARE, SETTLED_DRAWS = 10, 0.5, 2
# Statistic with the clusters of a draw, from which its labels are computed. It is moved to a separate group of the
# results.
DRAWN = "drawn"
STATISTICS: dict[str, Any] = OF_PARTITIONS | {"searching": np.bool_, "rows_per_second": np.float64, DRAWN: object}


class ChunkOptions(NamedTuple):
    """Options of a draw; see :class:`~pymc_dpgmm.chunked.partition.Scheme`."""

    scanned: int | None = None
    births: int = Scheme().n_births
    carvings: int = Scheme().n_carvings
    search: bool = True

    def check(self) -> "ChunkOptions":
        """Return self.

        Raises
        ------
        TypeError, ValueError
            If a number is not an integer of at least 0, or search is not a bool.
        """
        for name in ("scanned", "births", "carvings"):
            value = getattr(self, name)
            if name != "scanned" or value is not None:
                check_count(name, value, 0)
        if not isinstance(self.search, bool | np.bool_):
            raise TypeError(f"search must be True or False, got {self.search!r}")
        if self.births == 0 and self.scanned == 0:
            raise ValueError("scanned and births must not both be 0: the number of clusters would never change")
        return self


@dataclass_state
class ChunkedStepState(StepMethodState):
    """Sampling state: the partitions, as sums and leaders, and the remaining draws of the search."""

    tune: bool
    states: list[Any]
    search_left: list[tuple[int, int]]


class ChunkedTarget:
    """One partition of rows in chunks: its prior, and the parameters of its base measure."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        self.clusters = value.name
        self.name = value.name.removesuffix("_n_clusters")
        self.dtype = value.dtype
        others = [str(other.name) for other in dependents(model, rv)]
        if others:
            raise NotImplementedError(
                f"{', '.join(others)} depends on {rv.name}, and so on the partition of rows in chunks, which is "
                "not supported. It is supported for rows in memory: observed=array.compute()"
            )
        op = rv.owner.op
        self.source, self._op = op.source, op.prior
        _, *prior = op.dist_params(rv.owner)
        self._prior = PointFunction(model, prior)
        # Inputs of the density of the rows: sums, an origin, and the parameters.
        _, _, *self.parameters = model[self.name].owner.inputs
        self._params = PointFunction(model, self.parameters)
        self.family = self.source.partition.family
        self.partition: ChunkedPartition
        self.begin()

    def begin(self) -> None:
        """Begin with all rows in one cluster."""
        self.partition = self.source.partition.copy()

    def prior(self, point: dict[str, np.ndarray]) -> GibbsType | None:
        """Return the prior on partitions at a point; None where its parameters are outside their support."""
        return self._op.prior(*as_numbers(self._prior(point)), self.source.n)

    def take_params(self, point: dict[str, np.ndarray]) -> bool:
        """Set the parameters of the base measure to those at a point; return False if outside their support."""
        params = self.family.params(*as_numbers(self._params(point)))
        if not self.family.supports(params):
            return False
        if any(not np.array_equal(a, b) for a, b in zip(params, self.partition.params, strict=True)):
            self.partition.set_params(params)
        return True


class ChunkedStep(PartitionStep):
    """Samples the partition of rows in chunks: each draw is a pass over the chunks, and moves of some rows.

    Sampler statistics, per draw and prefixed by the name of the mixture: ``n_clusters``; ``largest_share``, the
    share of rows in the largest cluster; ``entropy`` of the clusters' shares, in nats; ``n_moved``, relocations
    among the rows that the pass returned; ``log_joint``, the log density of partition and data given everything
    else; ``searching``, whether the draw was a search; ``seconds`` and ``rows_per_second``.
    """

    name = "chunked"
    _state_class = ChunkedStepState

    def __init__(
        self,
        vars: Sequence[Any],
        concentrations: Sequence[Variable] = (),
        *,
        options: ChunkOptions | None = None,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        values = get_value_vars_from_user_vars(vars, model)
        self._set_targets([ChunkedTarget(model, value) for value in values], STATISTICS, rng, compile_kwargs)
        self.vars = [*values, *concentrations]
        self._options = (options or ChunkOptions()).check()
        drawn = [Concentration(model, value) for value in concentrations]
        self._alphas = [next((c for c in drawn if c.labels == t.clusters), None) for t in self.targets]
        options = self._options
        self._scheme = Scheme(options.births, options.scanned, n_carvings=options.carvings)
        prepare([target.family for target in self.targets], Options(search=self._options.search))
        # For each target, the number of draws that may still search, and of the last draws that have found
        # nothing.
        self.search_left = [(0, 0) for _ in self.targets]

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Never assigned automatically: DPMixtureStep delegates to it."""
        return Competence.INCOMPATIBLE

    @property
    def states(self) -> list[Any]:
        """States of the partitions, from which sampling continues."""
        return [target.partition.state for target in self.targets]

    @states.setter
    def states(self, states: list[Any]) -> None:
        for target, state in zip(self.targets, states, strict=True):
            target.partition.state = state
            target.source.show(target.partition)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers and all rows in one cluster."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        n_searches = min(SEARCH_DRAWS, math.ceil(SEARCH_SHARE * tune)) if self._options.search else 0
        self.search_left = [(n_searches, 0) for _ in self.targets]
        for target in self.targets:
            target.begin()
            target.source.show(target.partition)

    def _draw(self, position: int, target: ChunkedTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        partition, concentration = target.partition, self._alphas[position]
        prior, n_moved, log_joint = target.prior(point), 0, -np.inf
        left, settled = self.search_left[position]
        searching = self.tune and left > 0
        # If the rest of the model has density zero, the partition has no posterior and stays unchanged.
        if prior is not None and target.take_params(point):
            if concentration is not None:
                prior = partition.redraw_alpha(self.rng, prior, concentration.law(point))
                concentration.write(point, prior.alpha)
            if searching:
                search = partial(searched, self.rng, Options())
                if len(partition.sums) > 1:
                    search = partial(search, effort=EFFORT_AFTER_PART, settled_draws=SETTLED_DRAWS)
                has_found = partition.search(self.rng, prior, search)
                settled = 0 if has_found else settled + 1
                self.search_left[position] = (0 if settled == SETTLED_DRAWS else left - 1, settled)
            n_moved = partition.draw(self.rng, prior, self._scheme)
            target.source.show(partition)
            log_joint = partition.log_joint(prior)
            point[target.clusters] = np.asarray(len(partition.sums), dtype=target.dtype)
        seconds = time.perf_counter() - started
        return {
            **of_partition(partition.sizes, n_moved, log_joint),
            "searching": searching,
            "seconds": seconds,
            "rows_per_second": target.source.n / seconds,
            DRAWN: None if self.tune else partition.last,
        }

    def _n_rows(self, target: ChunkedTarget) -> int:
        return int(target.source.n)


def with_clusters(idata: Any) -> Any:
    """Return results with the clusters of all draws moved from statistics to groups ``{name}_clusters``."""
    if "sample_stats" not in idata.children:
        return idata
    ending = f"_{DRAWN}"
    for group in [name for name in idata.children if name.endswith("sample_stats")]:
        statistics = idata[group].dataset
        keys = [
            str(name) for name in statistics if str(name).endswith(ending) and statistics[name].dtype == object
        ]
        for key in keys:
            if group == "sample_stats":
                drawn: Sequence[Sequence[DrawnPartition]] = statistics[key].transpose("chain", "draw").to_numpy()
                name = key.removesuffix(ending)
                each = {dim: statistics[dim].to_numpy() for dim in ("chain", "draw")}
                idata[f"{name}_clusters"] = xr.DataTree(as_dataset(drawn, each))
        if keys:
            idata[group] = xr.DataTree(statistics.drop_vars(keys))
    return idata
