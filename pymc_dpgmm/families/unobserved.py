"""No data: rows without columns, whose clusters say nothing. The posterior of labels is then their prior."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import enlarged, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """No parameters; numba needs a field to tell the class by."""

    nothing: float


class Summary(NamedTuple):
    """Nothing to summarise."""

    size: np.ndarray


class Stats(NamedTuple):
    """Nothing to cache."""

    size: np.ndarray


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    summary.size[k] = members.shape[0]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    summary.size[k] += summary.size[j]


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]


@implements(verbs.resize, Summary)
def _(slots, capacity):
    return Summary(enlarged(slots.size, capacity))


@implements(verbs.resize, Stats)
def _(slots, capacity):
    return Stats(enlarged(slots.size, capacity))


@implements(verbs.move, Stats)
def _(stats, source, target):
    stats.size[target] = stats.size[source]


@implements(verbs.add, Stats)
def _(stats, k, x):
    stats.size[k] += 1


@implements(verbs.remove, Stats)
def _(stats, k, x):
    stats.size[k] -= 1
    return True


@implements(verbs.log_predictive, Stats)
def _(stats, k, x):
    return 0.0


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, x):
    return 0.0


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    return 0.0


def _accept(*_: object) -> None:
    """Accept anything: there is nothing to check."""


def _draw_rows(rng: np.random.Generator, params: Params, labels: np.ndarray) -> np.ndarray:
    return np.zeros((len(labels), 0))


FAMILY = Family(
    name="Unobserved",
    params=Params,
    ndims={"nothing": 0},
    check=_accept,
    check_together=_accept,
    allocate_summary=lambda d, capacity: Summary(np.zeros(capacity, dtype=np.int64)),
    allocate_stats=lambda params, n, capacity: Stats(np.zeros(capacity, dtype=np.int64)),
    localize=lambda params, rows: (params, rows),
    draw_rows=_draw_rows,
)
