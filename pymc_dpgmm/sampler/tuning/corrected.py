r"""Moves of labels on which other parts of a model depend, by a density that only the model knows.

The target is :math:`\pi(z) \propto \pi_0(z) L(z)`: the posterior of the labels given the prior on partitions and
the mixtures on them, times the density of everything else. A move that is reversible with respect to
:math:`\pi_0` is a proposal of which prior and mixtures cancel, so that it is accepted with probability
:math:`\min(1, L(z') / L(z))` (Tierney 1994, section 2.3; Neal 2000, section 5, where :math:`\pi_0` is the prior).

Gibbs draws of single rows are reversible, and so is a sequence of them followed by the same in reverse. Scans
therefore become there-and-back scans of random sets of rows; their size, chosen in tuning, keeps the share of
accepted ones away from zero and one. Split and merge moves are reversible one by one.

Where labels index other unknowns, a proposal renames these together with the clusters: otherwise a cluster that
takes another place in the order of first appearance would leave behind what belongs to it. The renaming follows
from both labellings, and the way back is its inverse, so that the ratio of densities is all that counts.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import MERGES_TRIED, SPLITS_TRIED, WORK
from pymc_dpgmm.sampler.moves.sweep import gibbs_scan, make_moves, redraw_alpha
from pymc_dpgmm.sampler.state.provided import N_TALLIED
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import DrawReport, LabelsSchedule, Options, no_tally


class Rest(Protocol):
    """Whatever else depends on the labels, at some labels."""

    @property
    def value(self) -> float:
        """Its log density."""

    def proposed(self, state: State) -> Self:
        """Return it at the labels of another state, renamed as they are."""


# Shares of accepted sets of rows between which the size of the sets stays what it is.
RARELY, OFTEN = 0.3, 0.6


@dataclass
class CorrectedSchedule(LabelsSchedule):
    """Draws of labels on which other parts of the model depend.

    Parameters
    ----------
    options : Options

    Raises
    ------
    NotImplementedError
        If a user asks for moves that are not reversible: they cannot be proposals.
    """

    options: Options
    block: float = 8.0

    def __post_init__(self) -> None:
        for move in MOVES.values():
            if not move.reversible and self.options.moves.get(move.name):
                raise NotImplementedError(
                    f"moves of the kind {move.name} are not reversible, and cannot move labels on which other "
                    f"variables depend: leave out {move.name}"
                )

    def draw(self, rng: np.random.Generator, state: State, tuning: bool, rest: Any) -> tuple[State, DrawReport]:
        """Move the labels, and draw the prior's alpha if its law is given; in tuning, learn from it.

        ``rest`` is a :class:`Rest` at the labels of the state.
        """
        n, options = state.n, self.options
        tally = no_tally()
        spare = state.copy()
        n_moved, tried, accepted = 0, 0, 0
        for _ in range(options.n_sweeps or 1):
            redraw_alpha(rng, state)
            for _ in range(options.n_scans):
                order = rng.permutation(n)
                size = min(max(int(self.block), 1), n)
                for start in range(0, n, size):
                    rows = order[start : start + size]
                    proposed, labels = state.copied_to(spare), state.labels()
                    gibbs_scan(rng, proposed, np.concatenate([rows, rows[::-1]]))
                    others = proposed.labels()
                    spare = proposed
                    if np.array_equal(others, labels):
                        continue
                    moved = int(np.sum(others[rows] != labels[rows]))
                    state, spare, rest, took = _decide(rng, state, rest, proposed)
                    n_moved += moved * took
                    tried += 1
                    accepted += took
            for kind, move in enumerate(MOVES.values()):
                number = options.moves.get(move.name)
                for _ in range(int(move.reversible and move.is_usual) if number is None else number):
                    proposed = spare = state.copied_to(spare)
                    proposed.tally[:] = 0
                    make_moves(rng, proposed, *([0] * kind), 1)
                    counted = proposed.tally.copy()
                    if not np.array_equal(proposed.labels(), state.labels()):
                        state, spare, rest, took = _decide(rng, state, rest, proposed)
                        counted *= _TRIED_ONLY if not took else 1
                    tally += counted
        if tuning and tried:
            if accepted < RARELY * tried:
                self.block = max(self.block / 1.2, 1.0)
            elif accepted > OFTEN * tried:
                self.block = min(self.block * 1.2, float(n))
        return state, DrawReport(n_moved, state.log_joint() + rest.value, tally, False, rest)


# Of a tally, the columns that a move leaves which the model refuses: tried, not accepted, and the work.
_TRIED_ONLY = np.isin(np.arange(N_TALLIED), [SPLITS_TRIED, MERGES_TRIED, WORK]).astype(np.int64)


def _decide(
    rng: np.random.Generator, state: State, rest: Rest, proposed: State
) -> tuple[State, State, Rest, bool]:
    """Accept or reject a proposal; return the state, the other one, the rest, and whether it was accepted."""
    proposed_rest = rest.proposed(proposed)
    if rest.value == -math.inf or math.log(rng.random()) < proposed_rest.value - rest.value:
        return proposed, state, proposed_rest, True
    return state, proposed, rest, False
