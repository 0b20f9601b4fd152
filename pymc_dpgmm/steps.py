"""PyMC step methods: read the point, call a kernel, write the point. No numerics."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from pymc.logprob.transforms import LogTransform
from pymc.pytensorf import compile as compile_function
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.linker import JAXLinker
from pytensor.tensor.random.basic import GammaRV
from pytensor.tensor.subtensor import AdvancedSubtensor
from rich.progress import TextColumn
from rich.table import Column

from pymc_dpgmm.constraints import allow, blocks_of
from pymc_dpgmm.distributions import (
    CRPRV,
    NO_JAX,
    CollapsedMixtureRV,
    MissingEntriesRV,
    PartitionRV,
    SparseValues,
    as_numbers,
    constraints_on,
    dependents,
    mixture_values,
    of_units,
    split_inputs,
)
from pymc_dpgmm.distributions.observed import check_values, count_missing
from pymc_dpgmm.families import FAMILIES, Family, View, constrained
from pymc_dpgmm.kernels.concentration import GammaConcentration, Given, redraw
from pymc_dpgmm.kernels.corrected import CorrectedSchedule
from pymc_dpgmm.kernels.imputation import impute_views
from pymc_dpgmm.kernels.marginal import same_values
from pymc_dpgmm.kernels.schedule import Drawn, Options, Schedule, check_count
from pymc_dpgmm.kernels.split_merge import (
    MERGED_ROWS,
    MERGES,
    MERGES_TRIED,
    MOVES,
    N_TALLIED,
    SPLIT_ROWS,
    SPLITS,
    SPLITS_TRIED,
)
from pymc_dpgmm.kernels.state import State, initial_state
from pymc_dpgmm.partitions import GibbsType, canonical_labels, chinese_restaurant, cluster_sizes, matched_names

# Graphs that turn a point into a handful of numbers: interpreting them takes microseconds, compiling them
# would take a good part of a second.
_SMALL_GRAPH = Mode(linker="py", optimizer="fast_compile")


class PointFunction:
    """Evaluates expressions of a model's random variables at a point of its value variables.

    Parameters
    ----------
    model : pm.Model
    expressions : sequence of variables
    """

    def __init__(self, model: pm.Model, expressions: Sequence[Variable]) -> None:
        outputs = model.replace_rvs_by_values(list(expressions))
        needed = set(ancestors(outputs))
        inputs = [value for value in model.value_vars if value in needed]
        self._names = [value.name for value in inputs]
        self._shared = [v for v in needed if isinstance(v, SharedVariable)]
        self._function = compile_function(inputs, outputs, mode=_SMALL_GRAPH)
        self._last: list[np.ndarray] | None = None
        self._last_shared: list[Any] = []

    def __call__(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the values. Without random inputs they are kept until ``pm.set_data`` changes the data."""
        if self._names:
            return self._evaluate(*(point[name] for name in self._names))
        shared = [variable.get_value(borrow=True) for variable in self._shared]
        if self._last is None or any(new is not old for new, old in zip(shared, self._last_shared, strict=True)):
            self._last = self._evaluate()
            self._last_shared = shared
        return self._last

    def _evaluate(self, *inputs: np.ndarray) -> list[np.ndarray]:
        # PyMC masks missing entries of pm.Data.
        return [
            np.ma.filled(value, np.nan) if isinstance(value, np.ma.MaskedArray) else value
            for value in self._function(*inputs)
        ]


class Kept(NamedTuple):
    """What a step keeps of one partition between draws, and what it was made from."""

    labels: np.ndarray
    views: list[View]
    state: State


NOTHING_OBSERVED = FAMILIES["Unobserved"].params(0.0)


class MixtureTarget:
    """One mixture on the labels at hand: its family, and how to read its numbers from a point."""

    def __init__(self, model: pm.Model, mixture: Variable) -> None:
        self.name = mixture.name
        op = mixture.owner.op
        self.family: Family = FAMILIES[op.family]
        inputs = split_inputs(op, mixture.owner.inputs)
        rows = mixture if mixture in model.free_RVs else model.rvs_to_values[mixture]
        self._values = PointFunction(model, [mixture_values(op, rows, inputs)])
        self._params = PointFunction(model, inputs.params)
        self.missing: Any = None
        self.positions: Any = None
        if inputs.missing:
            self.missing, self.positions = inputs.missing
        self._offset = PointFunction(model, inputs.offset) if inputs.offset else None
        _, unit = of_units(inputs.labels)
        self._unit = None if unit is None else PointFunction(model, [unit])
        self._sparse = SparseValues() if op.is_sparse else None
        op.witness.see(mixture.owner.inputs[2:])
        self._checked: Any = None
        self._checked_unit: Any = None

    def view(self, point: dict[str, np.ndarray], n: int) -> View:
        """Return the numbers at a point.

        Raises
        ------
        ValueError
            If there are not as many rows as labels, or values that are not data of the family's kind.
        """
        (values,) = self._values(point)
        unit = None if self._unit is None else self._unit(point)[0]
        params = self.family.params(*as_numbers(self._params(point)))
        if self._sparse is not None:
            values = self._sparse(values, (n if unit is None else len(unit), len(params[0])))
        if unit is not self._checked_unit:
            if unit is not None:
                self._check_unit(unit, values.shape[0], n)
            self._checked_unit = unit
        if values is not self._checked:
            if unit is None and values.shape[0] != n:
                raise ValueError(
                    f"there are {n} labels, but {self.name} has {values.shape[0]} rows: labels, also starting "
                    "labels, need one per row"
                )
            check_values(values)
            n_missing = count_missing(values)
            if n_missing and not self.family.takes_missing:
                raise ValueError(
                    f"{self.name} has {n_missing} missing entries (NaN), and none when the model was built"
                )
            self.family.check_values(params, values)
            self._checked = values
        return View(self.family, params, values, unit)

    def absent(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return where entries are missing: an array of bools."""
        found = np.zeros(shape, dtype=np.bool_)
        found.flat[self.positions.data] = True
        return found

    def write_missing(self, point: dict[str, np.ndarray], entries: np.ndarray, absent: np.ndarray) -> None:
        """Set the missing entries in a point, given them less the offset."""
        if self._offset is not None:
            (offset,) = self._offset(point)
            entries = entries + offset.reshape(absent.shape)[absent]
        point[self.missing.name] = entries

    def _check_unit(self, unit: np.ndarray, n_rows: int, n: int) -> None:
        if len(unit) != n_rows:
            raise ValueError(f"{self.name} has {n_rows} rows, but {len(unit)} of them have a unit")
        if unit.min() < 0 or unit.max() >= n:
            raise ValueError(
                f"there are {n} labels, but the units of {self.name} reach from {unit.min()} to {unit.max()}"
            )


class Dependents:
    """Whatever depends on labels but is no mixture on them: random variables and potentials.

    Free variables that labels index along their first axis, as in ``theta[labels]``, are renamed with clusters.

    Parameters
    ----------
    model : pm.Model
    labels, value : variables
        The random variable and its value.
    others : list of variables
    """

    def __init__(self, model: pm.Model, labels: Variable, value: Variable, others: Sequence[Variable]) -> None:
        self.names = ", ".join(other.name for other in others)
        indexed = _indexed_by(model, labels, others)
        behind = [other for theta in indexed for other in (theta, *dependents(model, theta))]
        logp = model.logp(vars=list(dict.fromkeys([*others, *behind])))
        needed = set(ancestors([logp]))
        inputs = [v for v in model.value_vars if v in needed and v is not value]
        self.inputs = [v.name for v in inputs]
        self.renamed = [model.rvs_to_values[theta].name for theta in indexed]
        # Compiled code would not notice an index out of range.
        function = compile_function([value, *inputs], logp, mode=_SMALL_GRAPH, on_unused_input="ignore")
        self._function = lambda labels, point: function(
            labels.astype(value.dtype), *(point[name] for name in self.inputs)
        )

    def at(
        self, point: dict[str, np.ndarray], labels: np.ndarray, labels_of: Callable[[State], np.ndarray]
    ) -> "DependentsAt":
        """Return their density at a point, with labels that a function reads from states of the kernels.

        Raises
        ------
        ValueError
            If the labels index out of range.
        """
        try:
            return DependentsAt(self, labels_of, labels, point, float(self._function(labels, point)))
        except IndexError as error:
            raise ValueError(
                f"labels up to {labels.max()} index something shorter in {self.names} ({error}): give it one "
                "entry per row, or bound the number of clusters with dp.FiniteMixture or dp.FiniteDirichlet"
            ) from None

    def log_density(self, labels: np.ndarray, point: dict[str, np.ndarray]) -> float:
        """Return the log density, -inf where labels index out of range."""
        try:
            value = float(self._function(labels, point))
        except IndexError:
            return -np.inf
        return -np.inf if np.isnan(value) else value


class DependentsAt(NamedTuple):
    """Dependents of labels, at some labels and a point, and their log density."""

    dependents: Dependents
    labels_of: Callable[[State], np.ndarray]
    labels: np.ndarray
    point: dict[str, np.ndarray]
    value: float

    def proposed(self, state: State) -> "DependentsAt":
        """Return them at the labels of another state, with what labels index renamed."""
        point, renamed = self.point, self.dependents.renamed
        labels = self.labels_of(state)
        if renamed:
            names, point = matched_names(self.labels, labels), dict(point)
            if any(len(point[name]) < len(names) for name in renamed):
                return self._replace(labels=labels, value=-np.inf)
            for name in renamed:
                point[name] = point[name].copy()
                point[name][names] = self.point[name][: len(names)]
        return self._replace(labels=labels, point=point, value=self.dependents.log_density(labels, point))


def _indexed_by(model: pm.Model, labels: Variable, others: Sequence[Variable]) -> list[Variable]:
    """Return the free variables that expressions index as ``theta[labels]``, and whose entries may be permuted."""
    roots = [root for other in others for root in (other.owner.inputs if other in model.basic_RVs else [other])]
    found = []
    for variable in ancestors(roots, blockers=model.basic_RVs):
        node = variable.owner
        if node is None or not isinstance(node.op, AdvancedSubtensor) or node.op.idx_list[0] != 0:
            continue
        theta, index = node.inputs[:2]
        if theta not in model.free_RVs or theta in found or of_units(index)[0] is not labels:
            continue
        transform = model.rvs_to_transforms[theta]
        if transform is None or transform.ndim_supp == 0:
            found.append(theta)
    return found


class LabelsTarget:
    """One vector of labels in a model: its prior, the mixtures on it, the rest, and its place in the point."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        if not _is_partition(rv):
            raise TypeError(
                f"{value.name} has no prior on partitions; this step method samples labels of a dp.CRP, "
                "dp.PitmanYor, dp.FiniteDirichlet or dp.MFM only"
            )
        self.name = value.name
        self.dtype = value.dtype
        mixtures, others = self._dependents(model, rv)
        self.mixtures = [MixtureTarget(model, mixture) for mixture in mixtures]
        self.dependents = Dependents(model, rv, value, others) if others else None
        self._op = rv.owner.op
        self._constraints = constraints_on(rv)
        self._blocks = None if self._constraints is None else blocks_of(self._constraints)
        self._parameters = PointFunction(model, rv.owner.inputs[2:-1])
        self._last: tuple[Any, int, GibbsType | None] = (None, 0, None)

    @staticmethod
    def _dependents(model: pm.Model, rv: Variable) -> tuple[list[Variable], list[Variable]]:
        """Return the mixtures that the kernels know, and whatever else depends on the labels."""
        mixtures: list[Variable] = []
        others: list[Variable] = []
        for other in dependents(model, rv):
            (mixtures if _is_plain_mixture(model, rv, other) else others).append(other)
        return mixtures, others

    def prior(self, point: dict[str, np.ndarray]) -> GibbsType | None:
        """Return the prior on partitions at a point; None where its parameters are outside their support."""
        parameters, n = self._parameters(point), len(point[self.name])
        if parameters is not self._last[0] or n != self._last[1]:
            prior = self._op.prior(*as_numbers(parameters), n)
            if prior is not None and self._blocks is not None:
                prior = prior._replace(extra=float(n - len(self._blocks.first)))
            self._last = (parameters, n, prior)
        return self._last[2]

    def state(self, point: dict[str, np.ndarray], prior: GibbsType, kept: Kept | None) -> Kept | None:
        """Return the state at a point: the kept one if nothing it was made from has changed.

        It is one of rows, or of the blocks of rows that constraints make. Returns None where the base measures'
        parameters are outside their support.
        """
        labels = point[self.name]
        views = [mixture.view(point, len(labels)) for mixture in self.mixtures]
        if self._blocks is not None:
            block = self._blocks.of_row
            views = [v._replace(unit=block if v.unit is None else block[v.unit]) for v in views]
            views.append(View(constrained.FAMILY, constrained.Params(prior.discount), self._blocks.table))
        if not views:
            views = [View(FAMILIES["Unobserved"], NOTHING_OBSERVED, np.zeros((len(labels), 0)))]
        if kept is not None and np.array_equal(labels, kept.labels) and all(map(_same_view, views, kept.views)):
            return kept
        if not len(cluster_sizes(labels)):
            raise ValueError(
                f"{self.name} must lie in 0..n-1 = 0..{len(labels) - 1}, got values from {labels.min()} to "
                f"{labels.max()}"
            )
        if self._constraints is not None and not allow(self._constraints, labels):
            raise ValueError(f"{self.name} contradicts its known_labels or must_link")
        if not all(view.family.supports(view.params) for view in views):
            return None
        own = labels if self._blocks is None else canonical_labels(labels)[0][self._blocks.first]
        return Kept(labels, views, initial_state(views, own))

    def impute(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        prior: GibbsType,
        kept: Kept,
        imputed: Sequence[str],
    ) -> Kept:
        """Draw what is missing, of the named variables, with the rows' clusters, and set it in a point."""
        if not any(mixture.missing is not None and mixture.missing.name in imputed for mixture in self.mixtures):
            return kept
        absent = [
            mixture.absent(view.values.shape)
            if mixture.missing is not None and mixture.missing.name in imputed
            else None
            for mixture, view in zip(self.mixtures, kept.views, strict=True)
        ]
        values = [view.values for view in kept.views]
        state, entries = impute_views(rng, prior, kept.state, values, absent)
        views = []
        for mixture, view, drawn, gaps in zip(self.mixtures, kept.views, entries, absent, strict=True):
            if drawn is not None and gaps is not None:
                mixture.write_missing(point, drawn, gaps)
                completed = view.values.copy()
                completed[gaps] = drawn
                view = view._replace(values=completed)
            views.append(view)
        return Kept(self.labels_of(state), views, state)

    def labels_of(self, state: State) -> np.ndarray:
        """Return the labels of rows that a state stands for."""
        labels = (state.slots - 1).astype(self.dtype)
        return labels if self._blocks is None else labels[self._blocks.of_row]


def _is_plain_mixture(model: pm.Model, labels: Variable, other: Variable) -> bool:
    """Tell whether a variable depends on labels as a mixture on them, or on those of units, and not otherwise."""
    if other not in model.basic_RVs or not isinstance(other.owner.op, CollapsedMixtureRV):
        return False
    own, unit = of_units(other.owner.inputs[2])
    if own is not labels or labels in set(ancestors(other.owner.inputs[3:], blockers=model.basic_RVs)):
        return False
    return unit is None or not set(ancestors([unit])) & set(model.basic_RVs)


def _same_view(view: View, other: View) -> bool:
    return (
        same_values(view.values, other.values)
        and (view.unit is other.unit or np.array_equal(view.unit, other.unit))
        and all(np.array_equal(new, old) for new, old in zip(view.params, other.params, strict=True))
    )


STATISTICS: dict[str, Any] = {
    "n_clusters": np.int64,
    "largest_share": np.float64,
    "entropy": np.float64,
    "n_moved": np.int64,
    "log_joint": np.float64,
    "searching": np.bool_,
    "seconds": np.float64,
}
# Of each kind of split and merge move: names and columns of the tally, and sizes as ratios of two columns.
COUNTED = {
    "splits_tried": SPLITS_TRIED,
    "splits": SPLITS,
    "merges_tried": MERGES_TRIED,
    "merges": MERGES,
}
SIZES = {"split_size": (SPLIT_ROWS, SPLITS), "merge_size": (MERGED_ROWS, MERGES)}


def _tallied(tally: np.ndarray) -> dict[str, Any]:
    """Return the statistics of split and merge moves."""
    statistics: dict[str, Any] = {}
    for kind, counts in zip(MOVES, tally, strict=True):
        statistics |= {f"{kind}_{name}": counts[column] for name, column in COUNTED.items()}
        for name, (rows, number) in SIZES.items():
            statistics[f"{kind}_{name}"] = counts[rows] / counts[number] if counts[number] else np.nan
    return statistics


STATISTICS |= {
    name: np.int64 if name.rsplit("_", 1)[1] != "size" else np.float64
    for name in _tallied(np.zeros((len(MOVES), N_TALLIED), dtype=np.int64))
}


GIVEN = Given(0.0)
NOTHING_DRAWN = Drawn(0, -np.inf, np.zeros((len(MOVES), N_TALLIED), dtype=np.int64), False)


@dataclass_state
class LabelsStepState(StepMethodState):
    """Sampling state of a labels step: the kept states make a repeated draw equal to the last bit."""

    tune: bool
    kept: list[Any]
    schedules: list[Any]


class LabelsStep(BlockedStep):
    """Samples labels by moves each of which leaves their posterior invariant, except while tuning.

    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``; ``largest_share``, the share of
    rows in the largest cluster; ``entropy`` of the clusters' shares, in nats; ``n_moved``, relocations of single
    rows; ``log_joint``, the log density of labels and data given everything else; ``searching``, whether the draw
    was a search; ``seconds``; and for each kind of split and merge move, prefixed by its name: ``splits_tried``,
    ``splits`` (accepted), ``split_size`` (mean rows in the smaller halves, NaN where none was accepted), and the
    same for merges.
    """

    _state_class = LabelsStepState

    def _setup(
        self,
        vars: Sequence[Any] | None,
        model: pm.Model,
        options: Options,
        rng: Any,
        compile_kwargs: dict[str, Any] | None,
        concentrations: Sequence[Variable] = (),
        imputed: Sequence[Variable] = (),
    ) -> None:
        if isinstance(get_mode((compile_kwargs or {}).get("mode")).linker, JAXLinker):
            raise NotImplementedError(NO_JAX)
        labels = [rv for rv in model.free_RVs if _is_partition(rv)] if vars is None else vars
        self.vars = get_value_vars_from_user_vars(labels, model)
        self.targets = [LabelsTarget(model, value) for value in self.vars]
        self.vars += [*concentrations, *imputed]
        self.imputed = [value.name for value in imputed]
        drawn = {c.labels: c for c in (_Concentration(model, value) for value in concentrations)}
        strangers = [c.name for labels, c in drawn.items() if labels not in {t.name for t in self.targets}]
        if strangers:
            raise ValueError(
                f"{', '.join(strangers)} can be drawn here together with its own labels only; use "
                "dp.ConcentrationGibbs for a concentration alone"
            )
        self.concentrations = [drawn.get(target.name) for target in self.targets]
        self.options = options
        self.kept: list[Kept | None] = [None] * len(self.targets)
        self.schedules = self._new_schedules(0)
        self.tune = True
        self.rng = pm.util.get_random_generator(rng)
        self.stats_dtypes_shapes: dict[str, Any] = {
            f"{target.name}_{statistic}": (dtype, [])
            for target in self.targets
            for statistic, dtype in STATISTICS.items()
        }
        self.stats_dtypes = [{name: dtype for name, (dtype, _) in self.stats_dtypes_shapes.items()}]

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain: its own random numbers, and nothing kept from the last one."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.kept = [None] * len(self.targets)
        self.schedules = self._new_schedules(tune)

    def _new_schedules(self, tune: int) -> list[Any]:
        return [
            Schedule(self.options, tune) if target.dependents is None else CorrectedSchedule(self.options)
            for target in self.targets
        ]

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the labels given everything else in the point."""
        point = dict(point)
        statistics: dict[str, Any] = {}
        for position, target in enumerate(self.targets):
            drawn = self._draw(position, target, point)
            statistics |= {f"{target.name}_{key}": value for key, value in drawn.items()}
        return point, [statistics]

    def _draw(self, position: int, target: LabelsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        concentration = self.concentrations[position]
        prior = target.prior(point)
        law = GIVEN if concentration is None else concentration.law(point)
        kept = None if prior is None else target.state(point, prior, self.kept[position])
        drawn = NOTHING_DRAWN
        if kept is not None and prior is not None and self.imputed:
            kept = target.impute(self.rng, point, prior, kept, self.imputed)
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if kept is not None and prior is not None:
            given = (self.rng, prior, law, kept.state, self.tune)
            if target.dependents is None:
                state, prior, drawn = self.schedules[position].draw(*given)
            else:
                rest = target.dependents.at(point, target.labels_of(kept.state), target.labels_of)
                state, prior, drawn, rest = self.schedules[position].draw(*given, rest)
                point.update({name: rest.point[name] for name in target.dependents.renamed})
            if concentration is not None:
                concentration.write(point, prior.alpha)
            labels = target.labels_of(state)
            self.kept[position] = kept._replace(labels=labels, state=state)
            point[target.name] = labels
        sizes = cluster_sizes(point[target.name])
        shares = sizes / sizes.sum()
        return {
            "n_clusters": len(sizes),
            "largest_share": shares.max(),
            "entropy": -float(shares @ np.log(shares)),
            "n_moved": drawn.n_moved,
            "log_joint": drawn.log_joint,
            "searching": drawn.searching,
            **_tallied(drawn.tally),
            "seconds": time.perf_counter() - started,
        }

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[Any], dict[str, Any]]:  # type: ignore[override]
        columns, stats = [], {}
        for target in self.targets:
            for statistic, title in (("n_clusters", "Clusters"), ("n_moved", "Moved")):
                name = f"{target.name}_{statistic}"
                header = title if len(self.targets) == 1 else f"{title} {target.name}"
                columns.append(TextColumn(f"{{task.fields[{name}]}}", table_column=Column(header, ratio=1)))
                stats[name] = [0] * n_chains
        return columns, stats

    def _make_progressbar_update_functions(self) -> tuple[Callable[..., Any], ...]:  # type: ignore[override]
        shown = [f"{t.name}_{statistic}" for t in self.targets for statistic in ("n_clusters", "n_moved")]
        return (lambda stats: {name: stats[name] for name in shown if name in stats},)


ASSIGNED = ("n_sweeps", "gibbs", "split_merge", "threads")
GIBBS_OPTIONS = ("n_scans",)
SPLIT_MERGE_OPTIONS = (*MOVES, "search")


def _chosen(owner: str, options: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return a user's options, top-level or nested.

    Raises
    ------
    TypeError, ValueError
        If they are not a dict, or one is unknown.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"{owner} must be a dict of options ({', '.join(allowed)}), got {options!r}")
    unknown = [str(name) for name in options if name not in allowed]
    if unknown:
        # The nested options of the assigned step are easily given one level too high.
        homes = {"n_scans": "gibbs", **dict.fromkeys(SPLIT_MERGE_OPTIONS, "split_merge")}
        misplaced = [name for name in unknown if owner == "dpmixture" and name in homes]
        hints = "".join(f"; {name} belongs into {homes[name]}" for name in misplaced)
        raise ValueError(
            f"unknown options for {owner}: {', '.join(unknown)}; allowed are {', '.join(allowed)}{hints}"
        )
    return dict(options)


class DPMixtureStep(LabelsStep):
    """The step that ``pm.sample`` assigns to labels by itself; it runs all moves.

    It is also assigned to a concentration with a gamma prior, where one CRP and nothing else depends on it: alpha
    is then drawn exactly (Escobar and West 1995) before every sweep. Other concentrations go to PyMC's own step
    methods. Options are passed as ``pm.sample(dpmixture={"gibbs": {...}, "split_merge": {...}})``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of CRPs, and concentrations of some of them; by default all labels in the model.
    n_sweeps : int, >= 1, optional
        Sweeps per draw, each of Gibbs scans and then split and merge moves. By default tuning decides: more than
        one for small data, where a draw would cost more than its moves.
    gibbs : dict, optional
        ``n_scans``, as in :class:`CollapsedGibbs`, per sweep; 0 is allowed.
    split_merge : dict, optional
        ``sequential``, ``random`` and ``search``, as in :class:`SplitMerge`, per sweep.
    threads : int, >= 1, optional
        Threads for data of 20,000 rows or more; draws do not depend on it. By default 1 where chains run in
        processes of their own, and elsewhere numba's number (``NUMBA_NUM_THREADS``, by default all cores).

    Raises
    ------
    TypeError, ValueError
        If an option is unknown or out of range, or a concentration comes without its labels.
    """

    name = "dpmixture"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Hand concentrations that turn out not to fit to other steps, where PyMC assigned them by itself."""
        # PyMC assigns steps without showing the model, so only here can the rest of it be looked at.
        if not ("compile_kwargs" in kwargs and "vars" in kwargs):
            return super().__new__(cls, *args, **kwargs)
        model, values = kwargs["model"], kwargs["vars"]
        given = [model.values_to_rvs[value] for value in values]
        labels = [rv for rv in given if _is_partition(rv)]
        others = {name: option for name, option in kwargs.items() if name not in (*ASSIGNED, "vars")}
        own: list[Any] = []
        alone: list[Any] = []
        strange: list[Any] = []
        for value, rv in zip(values, given, strict=True):
            if _is_missing(rv):
                (own if _labels_of_missing(model, rv) in labels else strange).append(value)
                continue
            crp = None if _is_partition(rv) else _sole_crp(model, rv)
            if _is_partition(rv) or crp in labels:
                own.append(value)
            else:
                (strange if crp is None else alone).append(value)
        if len(own) == len(values):
            return super().__new__(cls, *args, **kwargs)
        steps = [cls(**(kwargs | {"vars": own}))] if own else []
        steps += [ConcentrationGibbs(vars=alone, **others)] if alone else []
        steps += [pm.NUTS(vars=strange, **others)] if strange else []
        return steps[0] if len(steps) == 1 else CompoundStep(steps)

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        n_sweeps: int | None = None,
        gibbs: Mapping[str, Any] | None = None,
        split_merge: Mapping[str, Any] | None = None,
        threads: int | None = None,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
        **unknown: Any,
    ) -> None:
        _chosen("dpmixture", unknown, ASSIGNED)
        chosen = _chosen("gibbs", gibbs, GIBBS_OPTIONS) | _chosen("split_merge", split_merge, SPLIT_MERGE_OPTIONS)
        options = Options(n_sweeps=n_sweeps, threads=threads, **chosen).check()
        model = pm.modelcontext(model)
        if vars is None:
            own = [rv for rv in model.free_RVs if _is_partition(rv) or _labels_of_missing(model, rv) is not None]
            values = get_value_vars_from_user_vars(own, model)
        else:
            values = get_value_vars_from_user_vars(vars, model)
        kinds: dict[str, list[Variable]] = {"labels": [], "imputed": [], "concentrations": []}
        for value in values:
            rv = model.values_to_rvs[value]
            kind = "labels" if _is_partition(rv) else "imputed" if _is_missing(rv) else "concentrations"
            kinds[kind].append(value)
        self._setup(
            kinds["labels"], model, options, rng, compile_kwargs, kinds["concentrations"], kinds["imputed"]
        )

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Ideal for labels, missing entries and the gamma concentration of one CRP, incompatible otherwise."""
        if _is_partition(var) or _is_missing(var):
            return Competence.IDEAL
        if not getattr(var.tag, "is_concentration", False) or not _is_gamma(var):
            return Competence.INCOMPATIBLE
        model = pm.Model.get_context(error_if_none=False)
        if model is not None and var in model.free_RVs and _sole_crp(model, var) is None:
            return Competence.INCOMPATIBLE
        return Competence.IDEAL


class CollapsedGibbs(LabelsStep):
    """Collapsed Gibbs scans over labels (Neal 2000, Algorithm 3), for use alone in ``step=[...]``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of CRPs; by default all in the model.
    n_scans : int, >= 1
        Scans per draw.

    Raises
    ------
    TypeError, ValueError
        If ``n_scans`` is not an integer of at least 1.
    """

    name = "collapsed_gibbs"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        n_scans: int = 1,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        check_count("n_scans", n_scans, 1)
        options = Options(n_sweeps=n_scans, n_scans=1, random=0, sequential=0, search=False)
        self._setup(vars, pm.modelcontext(model), options, rng, compile_kwargs)


class SplitMerge(LabelsStep):
    """Split and merge moves over labels, for use alone in ``step=[...]``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of CRPs; by default all in the model.
    sequential : int, >= 0, optional
        Data-driven moves per draw: sequentially allocated splits (Dahl 2005) and the merges that undo them. By
        default tuning decides.
    random : int, >= 0, optional
        Moves per draw that divide small clusters at random (Chang and Fisher 2013, section 5.5), and the merges
        that undo them. 1 by default.
    search : bool
        Whether tuning begins with a search that divides and unites clusters without leaving the posterior
        invariant. The draws that are kept are exact either way.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer of at least 0, or both are 0.
    """

    name = "split_merge"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        sequential: int | None = None,
        random: int | None = None,
        search: bool = True,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        options = Options(n_sweeps=1, n_scans=0, random=random, sequential=sequential, search=search).check()
        self._setup(vars, pm.modelcontext(model), options, rng, compile_kwargs)


def _is_partition(var: Any) -> bool:
    return var.owner is not None and isinstance(var.owner.op, PartitionRV)


def _is_missing(var: Any) -> bool:
    return var.owner is not None and isinstance(var.owner.op, MissingEntriesRV)


def _labels_of_missing(model: pm.Model, missing: Variable) -> Variable | None:
    """Return the labels together with which missing entries can be drawn, or None if there are none.

    That is so where nothing but a mixture on labels of rows depends on them, and nothing else on the labels.
    """
    depending = dependents(model, missing) if _is_missing(missing) else []
    if len(depending) != 1:
        return None
    (mixture,) = depending
    labels = mixture.owner.inputs[2]
    if labels not in model.free_RVs or constraints_on(labels) is not None:
        return None
    for other in dependents(model, labels):
        if not _is_plain_mixture(model, labels, other) or other.owner.inputs[2] is not labels:
            return None
    return labels


@dataclass_state
class ConcentrationGibbsState(StepMethodState):
    """Sampling state: the random numbers are all."""


class ConcentrationGibbs(BlockedStep):
    """Exact Gibbs draw of a CRP's concentration under a gamma prior (Escobar and West 1995).

    For use alone, beside a step of one's own choice for the labels: :class:`DPMixtureStep` draws such
    concentrations itself.

    Parameters
    ----------
    vars : list of variables
        Concentrations.

    Raises
    ------
    TypeError
        If the prior of one is not a scalar gamma distribution, or anything but one CRP depends on it.
    """

    name = "concentration_gibbs"
    stats_dtypes_shapes: dict[str, Any] = {}
    _state_class = ConcentrationGibbsState

    def __init__(
        self,
        vars: Sequence[Any],
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        self.vars = get_value_vars_from_user_vars(vars, model)
        self.rng = pm.util.get_random_generator(rng)
        self._targets = [_Concentration(model, value) for value in self.vars]

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Never assigned by itself."""
        return Competence.INCOMPATIBLE

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the concentrations given the labels."""
        point = dict(point)
        for target in self._targets:
            prior, law = chinese_restaurant(target.concentration(point)), target.law(point)
            sizes = cluster_sizes(target.labels_at(point))
            if len(sizes) and prior is not None and law is not GIVEN:
                target.write(point, redraw(law, self.rng, prior, len(sizes), int(sizes.sum())).alpha)
        return point, [{}]


class _Concentration:
    """One concentration in a model, and how to read and write it in a point."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        labels = _sole_crp(model, rv)
        if labels is None:
            raise TypeError(
                f"{rv.name} can be drawn from its exact conditional only with a scalar gamma prior, PyMC's "
                "default transform or none, and where one CRP, and nothing else, depends on it"
            )
        self.name = value.name
        # None where the labels are observed.
        self.labels = model.rvs_to_values[labels].name
        self._labels = PointFunction(model, [labels])
        shape, scale = rv.owner.inputs[2:]
        self._alpha = PointFunction(model, [rv])
        self._numbers = PointFunction(model, [shape, scale])
        transform = model.rvs_to_transforms[rv]
        self._to_value: Callable[..., Any] | None = None
        if transform is not None:
            free = pytensor.tensor.dscalar()
            inputs = model.replace_rvs_by_values([transform.forward(free, *rv.owner.inputs)])
            needed = set(ancestors(inputs))
            self._behind = [v for v in model.value_vars if v in needed]
            self._to_value = compile_function([free, *self._behind], inputs, mode=_SMALL_GRAPH)

    def concentration(self, point: dict[str, np.ndarray]) -> float:
        """Return the concentration at a point."""
        return float(self._alpha(point)[0])

    def law(self, point: dict[str, np.ndarray]) -> Given | GammaConcentration:
        """Return the law of the concentration, as given where its own parameters are outside their support."""
        shape, scale = (float(value) for value in self._numbers(point))
        return GammaConcentration(shape, 1.0 / scale) if shape > 0 and scale > 0 else GIVEN

    def labels_at(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """Return the labels at a point."""
        return self._labels(point)[0]

    def write(self, point: dict[str, np.ndarray], alpha: float) -> None:
        """Replace the concentration in a point."""
        value: Any = alpha
        if self._to_value is not None:
            (value,) = self._to_value(alpha, *(point[v.name] for v in self._behind))
        point[self.name] = np.asarray(value, dtype=point[self.name].dtype)


def _is_gamma(var: Any) -> bool:
    return var.owner is not None and isinstance(var.owner.op, GammaRV) and var.ndim == 0


def _sole_crp(model: pm.Model, alpha: Variable) -> Variable | None:
    """Return the CRP whose concentration is ``alpha`` itself, if that is gamma and nothing else depends on it.

    Other transforms than PyMC's own may leave out a part of the positive numbers.
    """
    if not _is_gamma(alpha) or not isinstance(model.rvs_to_transforms[alpha], LogTransform | None):
        return None
    depending = dependents(model, alpha)
    if len(depending) != 1:
        return None
    (labels,) = depending
    is_crp = labels.owner is not None and isinstance(labels.owner.op, CRPRV)
    return labels if is_crp and labels.owner.inputs[2] is alpha else None
