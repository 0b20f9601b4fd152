"""The rows of a table that change, as compiled code has them."""

from typing import Any

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER
from pymc_dpgmm.native.compiled import address_of, inlined
from pymc_dpgmm.sampler.state.memory import N_CLUSTERS, memory_at
from pymc_dpgmm.sampler.state.slots import refit
from pymc_dpgmm.sampler.state.state import State

# Fields of blocks.
TABLE_ROWS: dict[str, Any] = {
    # The head of the state.
    "state": blocks.INTS,
    "n": NUMBER,
    "d": NUMBER,
    # The table's numbers (n, stride), and what the family subtracts from rows there.
    "numbers": blocks.FLOATS,
    "subtracted": blocks.FLOATS,
    "stride": NUMBER,
}


def filled_table_rows(state: State, v: int, d: int) -> dict[str, Any]:
    """Return what the fields hold for rows (n, d) of a view, after ``State.make_own_rows``."""
    table = state.tables[v]
    return {
        "state": state.address,
        "n": table.n_rows,
        "d": d,
        "numbers": address_of(table.rows),
        "subtracted": address_of(table.subtracted),
        "stride": table.rows.shape[1],
    }


@inlined
def put_rows(f, rows):
    """Write rows (n, d) to the table."""
    for i in range(f.n):
        for j in range(f.d):
            f.numbers[i * f.stride + j] = rows[i * f.d + j] - f.subtracted[i * f.stride + j]


@inlined
def put_and_refit(f, rows):
    """Write rows (n, d) to the table, and sum up its clusters; predictives in clusters of their own stay."""
    put_rows(f, rows)
    s = memory_at(f.state)
    for place in range(s.head[N_CLUSTERS]):
        refit(s, s.order[place])
