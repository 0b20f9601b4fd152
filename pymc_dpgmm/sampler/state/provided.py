"""The kernels that a state calls by address and that moves define, and the names of the kinds of moves.

Moves are defined after the state, which imports none of them: each registers its kernels here, and a state keeps
the addresses. A function that is called so is compiled once, and not into all that call it.
"""

from collections.abc import Callable

from pymc_dpgmm.native.compiled import CFunction

# By their fields in the head of a state: for all states, and for those whose rows come in groups.
PROVIDED: dict[str, CFunction] = {}
PROVIDED_TO_GROUPS: dict[str, CFunction] = {}
# Names of the kinds of moves, each of which has a row of a state's tally: see ``sampler/moves/move.py``.
KINDS_OF_MOVES: list[str] = []
# Columns of the tally.
N_TALLIED = 7


def provided(field: str, *, to_groups: bool = False) -> Callable[[CFunction], CFunction]:
    """Register the decorated function under its field in the head of a state."""

    def register(function: CFunction) -> CFunction:
        (PROVIDED_TO_GROUPS if to_groups else PROVIDED)[field] = function
        return function

    return register
