"""The step of hidden states: scans, whole sequences, splits and merges, and the concentrations with them."""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import Competence
from pymc_dpgmm.integration.steps.dependents import DependentsAt
from pymc_dpgmm.integration.steps.ordered_rows import OrderedRowsStep, OrderedRowsTarget
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget
from pymc_dpgmm.integration.variables.hidden_labels import is_hidden, is_hidden_openers
from pymc_dpgmm.integration.variables.models import dependents
from pymc_dpgmm.partitions.hidden_states import count_hidden, log_hidden
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.sampler.hidden_states.hidden_states import TALLIED, HiddenStates
from pymc_dpgmm.sampler.hidden_states.splits import split_or_merge

# Scans and draws of whole sequences take turns, ``N_SWEEPS`` times in a draw of no more than ``FEW_ROWS``. Each
# time there are so many scans that about ``FEW_ROWS`` are drawn, ``MOST_SCANS`` at most, or there is one of
# ``MOST_SCANNED`` rows: where states overlap, scans open and close small ones, and where they do not, only
# sequences move. A split or merge is tried in a draw; more of them in tuning of many rows, whose states they find.
FEW_ROWS, N_SWEEPS, MOST_SCANS, MOST_SCANNED, N_SPLITS_IN_TUNING = 2_000, 3, 10, 1_000, 10
# Rows and parts of sequences whose states are proposed where other variables depend on them.
N_ROWS_BESIDE, N_PARTS_BESIDE = 5, 5


class HiddenStatesTarget(OrderedRowsTarget):
    """Hidden states of rows in order, their openers, and the mixtures on them."""

    openers: Variable

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        alpha, gamma, kappa, most, known, rows, starts = rv.owner.op.dist_params(rv.owner)
        self.numbers = [alpha, gamma, kappa]
        self._numbers = PointFunction(model, self.numbers)
        self.sequences = Sequences(rows.data, starts.data)
        self.openers = model.rvs_to_values[openers_of(model, rv)]
        self.moves = HiddenStates(self.sequences, float(most.data), known.data)

    @classmethod
    def is_for(cls, rv: Variable) -> bool:
        """Tell whether a variable is a vector of hidden states."""
        return is_hidden(rv)

    @classmethod
    def drawn_together(cls, model: pm.Model, labels: Variable) -> list[Variable]:
        """Return labels and their openers."""
        return [labels, openers_of(model, labels)]

    def compile(self, point: dict[str, np.ndarray]) -> None:
        """Make a draw at a point, in order to compile what it needs."""
        numbers = self.numbers_at(point)
        prepared = None if numbers is None else self.state(point, None, None)
        if prepared is not None and numbers is not None:
            self.moves.set_concentrations(*numbers)
            self.moves.take(np.random.default_rng(0), prepared.state, point[self.openers.name])
            self.moves.scan(1)
            self.moves.draw_sequences()
            split_or_merge(self.moves)
            self.moves.end()

    @staticmethod
    def _dependents(model: pm.Model, rv: Variable) -> tuple[list[Variable], list[Variable]]:
        mixtures, others = LabelsTarget._dependents(model, rv)
        return mixtures, [other for other in others if not is_hidden_openers(other)]

    def numbers_at(self, point: dict[str, np.ndarray]) -> tuple[float, float, float] | None:
        """Return alpha, gamma and kappa at a point, None outside their support."""
        alpha, gamma, kappa = (float(number) for number in self._numbers(point))
        inside = 0.0 < alpha < math.inf and 0.0 < gamma < math.inf and 0.0 <= kappa < math.inf
        return (alpha, gamma, kappa) if inside else None

    def state(self, point: dict[str, np.ndarray], prior: Any, prepared: KeptState | None) -> KeptState | None:
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


class HiddenStatesStep(OrderedRowsStep):
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
    _target, _statistics = HiddenStatesTarget, OF_PARTITIONS | dict.fromkeys(TALLIED, np.int64)
    _what = "hidden states and their openers", "alpha, gamma and kappa"

    @classmethod
    def competence(cls, var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC that the step takes hidden states and their openers."""
        return Competence.IDEAL if is_hidden_openers(var) else super().competence(var)

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
                for _ in range(N_SPLITS_IN_TUNING if self.tune and not few else 1):
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
