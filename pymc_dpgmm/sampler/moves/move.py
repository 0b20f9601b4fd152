"""Kinds of moves that go with scans: what a kind tells everything else about itself.

A kind is a kernel and a record. The kernel makes one move. It leaves the posterior of the partition invariant, and
finds as many free slots as the record tells. The record, :class:`Move`, tells how many moves a draw has, whether a
move may serve as a proposal, and what is counted. Sweeps, the schedule, options and statistics read the records. A
new kind is a file with its kernel and its record, and a line in :mod:`pymc_dpgmm.sampler.moves.kinds`.

Where rows come in groups, weights of clusters depend on the group: ``split_merge.py`` asks ``are_grouped``. A kind
that does not know them says so (``in_groups``), and is left out there. A new kind comes last in the list: callers
pass numbers by position. Where other parts of a model depend on the labels, a draw proposes one move of a usual
kind, and one that the model refuses has counted only what is tried and the work.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pymc_dpgmm.native.compiled import CFunction, inlined, shifted
from pymc_dpgmm.sampler.amounts import MOST_MOVES
from pymc_dpgmm.sampler.state.provided import KINDS_OF_MOVES, N_TALLIED

# Free slots that a kernel can work on, where its record does not say.
SLOTS_NEEDED = 3
# What a kernel counts in its row of the tally: for splits and for merges, moves tried, moves accepted, and rows in
# the smaller halves of accepted ones; and the rows that it has looked at.
SPLITS_TRIED, SPLITS, SPLIT_ROWS, MERGES_TRIED, MERGES, MERGED_ROWS, WORK = range(7)


class Paying(NamedTuple):
    """A number of moves that tuning chooses by what they cost and how often they are accepted.

    Parameters
    ----------
    worth : float
        Cost of all moves of a sweep, in units of the cost of its scan.
    worthwhile : float
        The share of accepted moves below which there are fewer of them.
    fade : float
        Below it, the number is multiplied by ``(accepted / worthwhile) ** fade``, of the share that is accepted.
    least : float
        The least number of moves in a sweep, on average.
    most : int
        The most.
    fewest_clusters : int
        With fewer clusters, on average, there are no such moves.
    """

    worth: float
    worthwhile: float
    fade: float
    least: float
    most: int = MOST_MOVES
    fewest_clusters: int = 0


class Move(NamedTuple):
    """A kind of move.

    Parameters
    ----------
    name : str
        Of the option of a user, and the prefix of the sampler statistics.
    kernel : CFunction
        ``(head) -> nothing``: one move.
    beside_scans, beside_leaders : int or Paying
        How many moves go with a scan of all rows, and with leader sweeps, where the user does not say.
    in_search : int
        How many moves go with the scans of a search, with as many clusters as ``beside_scans`` asks for.
    reversible : bool
        Whether the kernel is reversible with respect to the posterior. If it is not, it cannot serve as a proposal
        for labels on which other parts of a model depend, and is left out there.
    in_groups : bool
        Whether the kernel moves rows in groups, where weights of clusters depend on the group.
    slots : int
        Free slots that the kernel works with, at most.
    counts : mapping of str to int
        Statistics that are columns of the tally.
    means : mapping of str to (int, int)
        Statistics that are ratios of two columns of the tally.
    """

    name: str
    kernel: CFunction
    beside_scans: int | Paying
    beside_leaders: int | Paying
    in_search: int = 0
    reversible: bool = True
    in_groups: bool = True
    slots: int = SLOTS_NEEDED
    counts: Mapping[str, int] = MappingProxyType(
        {"splits_tried": SPLITS_TRIED, "splits": SPLITS, "merges_tried": MERGES_TRIED, "merges": MERGES}
    )
    means: Mapping[str, tuple[int, int]] = MappingProxyType(
        {"split_size": (SPLIT_ROWS, SPLITS), "merge_size": (MERGED_ROWS, MERGES)}
    )

    @property
    def fewest_clusters(self) -> int:
        """With fewer clusters, on average, draws have no such moves, where the user does not say."""
        return 0 if isinstance(self.beside_scans, int) else self.beside_scans.fewest_clusters

    @property
    def is_usual(self) -> bool:
        """Whether draws of any number of clusters have such moves, where the user does not say."""
        return self.fewest_clusters == 0


# All kinds, by their names, in the order in which a sweep runs them.
MOVES: dict[str, Move] = {}


def add_kind(move: Move) -> None:
    """Let draws of labels have moves of one more kind.

    Models that are sampled from then on have them. Step methods that exist do not.

    Raises
    ------
    ValueError
        If there is a kind of this name.
    """
    if move.name in MOVES:
        raise ValueError(f"there is a kind of move named {move.name!r} already; choose another name")
    MOVES[move.name] = move
    KINDS_OF_MOVES.append(move.name)


@inlined
def tally_of_kind(s):
    """Return the row of the tally of the kind of move that a sweep is running."""
    return shifted(s.tally, s.kind * N_TALLIED)
