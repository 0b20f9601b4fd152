"""The kinds of moves that draws of labels have beside their scans, one in a line."""

from pymc_dpgmm.sampler.moves import carving, reallocation, split_merge
from pymc_dpgmm.sampler.moves.move import MOVES, add_kind

for move in (
    split_merge.RANDOM_MOVE,
    split_merge.SEQUENTIAL_MOVE,
    carving.CARVING,
    reallocation.REALLOCATION,
):
    add_kind(move)

__all__ = ["MOVES"]
