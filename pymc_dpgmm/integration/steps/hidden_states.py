"""The step of hidden states: scans, whole sequences, splits and merges, and the concentrations with them."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.dependents import DependentsAt
from pymc_dpgmm.integration.steps.hyperparameters import governing
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.prior_slices import PriorSlices
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared
from pymc_dpgmm.integration.variables.hidden_labels import is_hidden, is_hidden_openers
from pymc_dpgmm.integration.variables.models import dependents
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.partitions.hidden_states import count_hidden, log_hidden
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.sampler.hidden_states.hidden_states import TALLIED, HiddenStates
from pymc_dpgmm.sampler.hidden_states.splits import split_or_merge

STATISTICS: dict[str, Any] = OF_PARTITIONS | dict.fromkeys(TALLIED, np.int64)
# Scans and draws of whole sequences take turns, ``N_SWEEPS`` times in a draw of no more than ``FEW_ROWS``. Each
# time there are so many scans that about ``FEW_ROWS`` are drawn, ``MOST_SCANS`` at most, or there is one of
# ``MOST_SCANNED`` rows: where states overlap, scans open and close small ones, and where they do not, only
# sequences move. A split or merge is tried in a draw; more of them in tuning, which they pay for.
FEW_ROWS, N_SWEEPS, MOST_SCANS, MOST_SCANNED, N_SPLITS_IN_TUNING = 2_000, 3, 10, 1_000, 10
# Rows and parts of sequences whose states are proposed where other variables depend on them.
N_ROWS_BESIDE, N_PARTS_BESIDE = 5, 5


@dataclass_state
class HiddenStatesStepState(StepMethodState):
    """Sampling state: widths of slices."""

    tune: bool
    widths: dict[str, Any]


class HiddenStatesTarget(LabelsTarget):
    """Hidden states of rows in order, their openers, and the mixtures on them."""

    has_moves = False
    openers: Variable

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        alpha, gamma, kappa, most, known, rows, starts = rv.owner.op.dist_params(rv.owner)
        self.concentrations = [alpha, gamma, kappa]
        self._numbers = PointFunction(model, self.concentrations)
        self.sequences = Sequences(rows.data, starts.data)
        self.openers = model.rvs_to_values[openers_of(model, rv)]
        self.moves = HiddenStates(self.sequences, float(most.data), known.data)

    @staticmethod
    def _dependents(model: pm.Model, rv: Variable) -> tuple[list[Variable], list[Variable]]:
        mixtures, others = LabelsTarget._dependents(model, rv)
        return mixtures, [other for other in others if not is_hidden_openers(other)]

    def numbers_at(self, point: dict[str, np.ndarray]) -> tuple[float, float, float] | None:
        """Return alpha, gamma and kappa at a point, None outside their support."""
        alpha, gamma, kappa = (float(number) for number in self._numbers(point))
        inside = 0.0 < alpha < math.inf and 0.0 < gamma < math.inf and 0.0 <= kappa < math.inf
        return (alpha, gamma, kappa) if inside else None

    def state(self, point: dict[str, np.ndarray], prior: Any, prepared: Prepared | None) -> Prepared | None:
        """Return the state at a point: see :meth:`LabelsTarget.state`. Sums of columns serve any rows."""
        found = super().state(point, prior, prepared)
        if found is not None and found is not prepared and any(table.is_wide for table in found.state.tables):
            for table in found.state.tables:
                if table.is_wide:
                    table.narrow()
            found.state.relabel(found.state.labels())
        return found

    def log_prior_at(self, point: Mapping[str, np.ndarray]) -> Callable[[float, float, float], float]:
        """Return the log density of states and openers at a point, as a function of alpha, gamma and kappa."""
        counts = count_hidden(point[self.name], point[self.openers.name], self.sequences)
        return partial(log_hidden, counts, len(self.sequences.starts) - 1, most=self.moves.most)


class HiddenStatesStep(PartitionStep):
    """Draws hidden states of rows in order, given everything else.

    ``pm.sample`` assigns it automatically to the labels of :func:`HDPHMM` and their openers. A draw has scans of
    the rows, one after the other (of 1,000 of them, where there are more), draws of whole sequences, and a split
    or merge of states that is tried.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of hidden states with their openers, and continuous variables that govern nothing but alpha, gamma
        and kappa, which are then drawn by slices. By default all of the model.

    Notes
    -----
    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``, the number of states,
    ``largest_share``, ``entropy``, ``log_joint``, ``n_moved`` (moves of rows by scans and sequences), ``seconds``,
    ``splits_tried``, ``splits``, ``merges_tried`` and ``merges``, as for other labels. Where other variables or
    potentials depend on the states, each of these moves is a proposal, accepted by how much more probable they are
    with it.
    """

    name = "hidden_states"
    _state_class = HiddenStatesStepState

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        by_labels = governing_states(model)
        everything = [rv for labels, own in by_labels.items() for rv in (labels, openers_of(model, labels), *own)]
        self.vars = get_value_vars_from_user_vars(everything if vars is None else vars, model)
        given = [model.values_to_rvs[value] for value in self.vars]
        labels = [rv for rv in given if is_hidden(rv)]
        own = {
            rv for of_labels in labels for rv in (of_labels, openers_of(model, of_labels), *by_labels[of_labels])
        }
        strangers = [rv.name for rv in given if rv not in own]
        if strangers:
            raise TypeError(
                f"{', '.join(strangers)} cannot be drawn with hidden states, whose step draws labels, their "
                "openers, and continuous variables that govern nothing but alpha, gamma and kappa: leave them out"
            )
        without = [openers_of(model, rv).name for rv in labels if openers_of(model, rv) not in given]
        if without:
            raise TypeError(f"{', '.join(without)} is drawn together with its labels: name both")
        targets = [HiddenStatesTarget(model, model.rvs_to_values[rv]) for rv in labels]
        self._set_targets(targets, STATISTICS, rng, compile_kwargs)
        self._slices: list[PriorSlices | None] = []
        for target, rv in zip(targets, labels, strict=True):
            values = [model.rvs_to_values[own] for own in by_labels[rv] if own in given]
            self._slices.append(
                PriorSlices(model, target.concentrations, values, compile_kwargs) if values else None
            )
        self._watch([target.dependents for target in targets if target.dependents is not None])
        self.prepared: list[Prepared | None] = [None] * len(self.targets)
        self.widths: dict[str, np.ndarray] = {}

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC that the step takes hidden states and their openers."""
        return Competence.IDEAL if is_hidden(var) or is_hidden_openers(var) else Competence.INCOMPATIBLE

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Note with which data the labels are sampled; compile before chains begin."""
        with compiling.announced("the draws of hidden states"), np.errstate(all="ignore"):
            for target in self.targets:
                for mixture in target.mixtures:
                    mixture.note_sampling()
                started, numbers = dict(point), target.numbers_at(dict(point))
                prepared = None if numbers is None else target.state(started, None, None)
                if prepared is not None and numbers is not None:
                    target.moves.set_concentrations(*numbers)
                    target.moves.take(np.random.default_rng(0), prepared.state, started[target.openers.name])
                    target.moves.scan(1)
                    target.moves.draw_sequences()
                    split_or_merge(target.moves)
                    target.moves.end()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers."""
        super().setup_chain(rng, tune, draws)
        self.tune, self.prepared, self.widths = tune > 0, [None] * len(self.targets), {}

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the states, their openers, and the concentrations, given everything else in the point."""
        with np.errstate(all="ignore"):
            point, statistics = super().step(point)
        statistics[0].update(self._impossible())
        return point, statistics

    def _draw(self, position: int, target: HiddenStatesTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        n_moved, log_joint, tally = 0, -math.inf, dict.fromkeys(TALLIED, 0)
        numbers = target.numbers_at(point)
        prepared = None if numbers is None else target.state(point, None, self.prepared[position])
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if prepared is not None and numbers is not None:
            state, moves = prepared.state, target.moves
            moves.set_concentrations(*numbers)
            moves.take(self.rng, state, point[target.openers.name])
            self._draw_concentrations(position, target, point)
            rest = target.rest(point, state)
            if rest is None:
                few, n_scans = state.n <= FEW_ROWS, min(max(FEW_ROWS // state.n, 1), MOST_SCANS)
                for _ in range(N_SWEEPS if few else 1):
                    n_moved += moves.scan(state.n if few else MOST_SCANNED, n_scans)
                    n_moved += moves.draw_sequences()
                for _ in range(N_SPLITS_IN_TUNING if self.tune else 1):
                    split_or_merge(moves)
            else:
                rest, n_moved = _moved_with(self.rng, moves, rest)
                rest.write(point)
            openers, labels, tally = moves.end(), target.labels_of(state), moves.tally
            self.prepared[position] = prepared._replace(labels=labels)
            point[target.name], point[target.openers.name] = labels, openers.astype(target.openers.dtype)
            slots = state.order[: state.n_clusters].tolist()
            evidence = sum(table.log_evidence(k) for table in state.tables for k in slots)
            log_joint = evidence + target.log_prior_at(point)(*moves.concentrations)
            log_joint += 0.0 if rest is None else rest.value
        sizes = np.bincount(point[target.name])
        return {
            **of_partition(sizes[sizes > 0], n_moved, log_joint),
            **tally,
            "seconds": time.perf_counter() - started,
        }

    def _draw_concentrations(
        self, position: int, target: HiddenStatesTarget, point: dict[str, np.ndarray]
    ) -> None:
        """Draw what governs the concentrations, given openers, then given shared weights, and these anew.

        Given openers shared weights are summed out, and the other way round. By the first gamma knows the number
        of states, and by the second alpha and kappa the transitions.
        """
        slices, moves, openers = self._slices[position], target.moves, point[target.openers.name]
        if slices is None:
            return
        for given_openers in (True, False):
            log_density = target.log_prior_at(point) if given_openers else moves.log_density()
            slices.draw(self.rng, point, self.widths, self.tune, log_density)
            numbers = target.numbers_at(point)
            assert numbers is not None
            moves.set_concentrations(*numbers)
            moves.draw_shares(openers if given_openers else moves.end())


def _moved_with(rng: np.random.Generator, moves: HiddenStates, rest: DependentsAt) -> tuple[DependentsAt, int]:
    """Make moves that are accepted by what else depends on the states; return it, and how many rows have moved."""
    n_moved = 0
    one_row, part, split = lambda: moves.scan(1), moves.draw_part, lambda: split_or_merge(moves)
    for move in (*[one_row] * N_ROWS_BESIDE, *[part] * N_PARTS_BESIDE, split):
        kept = moves.copy()
        moved = move()
        proposed = rest.proposed(moves.state)
        if rest.value == -math.inf or math.log1p(-rng.random()) < proposed.value - rest.value:
            rest, n_moved = proposed, n_moved + moved
        else:
            moves.restore(kept)
    return rest, n_moved


def openers_of(model: pm.Model, labels: Variable) -> Variable:
    """Return the openers of hidden states."""
    return next(other for other in dependents(model, labels) if is_hidden_openers(other))


def governing_states(model: pm.Model) -> dict[Variable, list[Variable]]:
    """Return, by labels of hidden states, continuous variables that govern nothing but their concentrations."""
    by_labels = {
        rv: governing(model, {rv, openers_of(model, rv)}, set()) for rv in model.free_RVs if is_hidden(rv)
    }
    return {rv: [own for own in model.free_RVs if own in of_labels] for rv, of_labels in by_labels.items()}
