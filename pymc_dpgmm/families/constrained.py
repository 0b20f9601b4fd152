r"""Blocks of rows that are in one cluster for certain, as if that were data.

The kernels move blocks, and weigh a cluster by its number of blocks. This family adds what is missing: with
:math:`J_k` blocks, which have :math:`N_k` rows, and the discount :math:`\sigma` of the prior, its marginal
likelihood is

.. math:: \prod_k \frac{\Gamma(N_k - \sigma)}{\Gamma(J_k - \sigma)},

which turns the product over clusters of a Gibbs-type prior on blocks into that on rows. It is zero where a cluster
has two blocks whose clusters are known to differ.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family

# In place of a known cluster: none, and two at once.
NONE, TORN = -1, -2


class Params(NamedTuple):
    """The prior's discount, below 1."""

    discount: float


class Rows(NamedTuple):
    """Number of rows and known cluster of each block: (m,) int64 arrays."""

    size: np.ndarray
    known: np.ndarray


@slotted("blocks", "rows", "known")
class Summary(NamedTuple):
    """Number of blocks and rows, and known cluster: (capacity,) int64 arrays."""

    blocks: np.ndarray
    rows: np.ndarray
    known: np.ndarray


@slotted("blocks", "rows", "known")
class Stats(NamedTuple):
    """The same, and the discount."""

    discount: float
    blocks: np.ndarray
    rows: np.ndarray
    known: np.ndarray


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    summary.blocks[k] = members.shape[0]
    summary.rows[k] = 0
    summary.known[k] = NONE
    for i in members:
        summary.rows[k] += rows.size[i]
        if rows.known[i] >= 0:
            summary.known[k] = rows.known[i] if summary.known[k] == NONE else TORN


@implements(verbs.combine, Summary)
def _(summary, k, j):
    summary.blocks[k] += summary.blocks[j]
    summary.rows[k] += summary.rows[j]
    if summary.known[j] != NONE:
        summary.known[k] = summary.known[j] if summary.known[k] == NONE else TORN


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.blocks[k] = summary.blocks[j]
    stats.rows[k] = summary.rows[j]
    stats.known[k] = summary.known[j]


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    stats.blocks[k] += 1
    stats.rows[k] += rows.size[i]
    if rows.known[i] >= 0:
        stats.known[k] = rows.known[i]


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    stats.blocks[k] -= 1
    stats.rows[k] -= rows.size[i]
    if rows.known[i] >= 0:
        stats.known[k] = NONE
    return True


@compiled(inline="always")
def _log_weight(discount, n_blocks, n_rows, size):
    """Log ratio of the weights of a cluster with a block of ``size`` rows more and without."""
    if n_blocks == 0:
        return math.lgamma(size - discount) - math.lgamma(1.0 - discount)
    if size == 1:
        return math.log((n_rows - discount) / (n_blocks - discount))
    joined = math.lgamma(n_rows + size - discount) - math.lgamma(n_rows - discount)
    return joined - math.log(n_blocks - discount)


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    if rows.known[i] >= 0 and stats.known[k] != NONE and stats.known[k] != rows.known[i]:
        return -math.inf
    return _log_weight(stats.discount, stats.blocks[k], stats.rows[k], rows.size[i])


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    return _log_weight(stats.discount, stats.blocks[k] - 1, stats.rows[k] - rows.size[i], rows.size[i])


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    if stats.known[k] == TORN:
        return -math.inf
    if stats.blocks[k] == 0:
        return 0.0
    return math.lgamma(stats.rows[k] - stats.discount) - math.lgamma(stats.blocks[k] - stats.discount)


def _represent(params: Params, values: np.ndarray) -> tuple[Rows, None]:
    size, known = values.T.astype(np.int64)
    return Rows(np.ascontiguousarray(size), np.ascontiguousarray(known)), None


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    none = np.zeros(capacity, dtype=np.int64)
    return Stats(float(params.discount), none, none.copy(), np.full(capacity, NONE, dtype=np.int64))


def _allocate_summary(params: Params, capacity: int) -> Summary:
    none = np.zeros(capacity, dtype=np.int64)
    return Summary(none, none.copy(), np.full(capacity, NONE, dtype=np.int64))


def _nothing_drawn(*_: Any) -> Any:
    # Every family has draws, but these rows are no data: the prior refuses to draw before anyone comes here.
    raise NotImplementedError("constraints are not drawn")


FAMILY = Family(
    name="Constrained",
    params=Params,
    axes={"discount": ""},
    check=lambda name, value: None,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    component=Component({}, _nothing_drawn, _nothing_drawn, _nothing_drawn),
    represent=_represent,
)
