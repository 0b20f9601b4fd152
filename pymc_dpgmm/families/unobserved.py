"""No data: rows without columns, whose clusters say nothing. The posterior of labels is then their prior."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """No parameters; numba needs a field to tell the class by."""

    nothing: float


@slotted("size")
class Summary(NamedTuple):
    """Nothing to summarise."""

    size: np.ndarray


@slotted("size")
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


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    stats.size[k] += 1


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    stats.size[k] -= 1
    return True


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    return 0.0


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    return 0.0


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    return 0.0


FAMILY = Family(
    name="Unobserved",
    params=Params,
    axes={"nothing": ""},
    check=lambda name, value: None,
    allocate_summary=lambda params, capacity: Summary(np.zeros(capacity, dtype=np.int64)),
    allocate_stats=lambda params, n, capacity: Stats(np.zeros(capacity, dtype=np.int64)),
    component=Component(
        axes={},
        draw=lambda rng, params, summary: {},
        draw_rows=lambda rng, drawn, labels, given: np.zeros((len(labels), 0)),
        log_density=lambda drawn, values: np.zeros((len(values), 1)),
    ),
)
