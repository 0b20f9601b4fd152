"""The scans of draws of labels, and the kinds of moves that they have beside these, one in a line."""

from pymc_dpgmm.sampler.moves import carving, grouped_scans, reallocation, scans, split_merge
from pymc_dpgmm.sampler.moves.move import MOVES, add_kind

# They register themselves with states, which call them by their addresses.
SCANS = (scans.scan_rows, grouped_scans.scan_grouped_rows)
for move in (
    split_merge.RANDOM_MOVE,
    split_merge.SEQUENTIAL_MOVE,
    carving.CARVING,
    reallocation.REALLOCATION,
):
    add_kind(move)

__all__ = ["MOVES", "SCANS"]
