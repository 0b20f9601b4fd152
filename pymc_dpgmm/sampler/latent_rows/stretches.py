r"""Moves of all latent rows of a cluster together: a shift, and a stretch about their mean.

Rows that are drawn one by one follow the parameters of their cluster, and the parameters follow the rows: a
cluster as a whole hardly moves where the rest of a model says little of each row. This move changes both. For a
cluster of n rows with mean :math:`\bar x`, all rows move at once,

.. math:: x_i' = \bar x + \delta + c \, (x_i - \bar x),

where :math:`\delta` and :math:`\log c` have normal distributions about 0 that depend on nothing but the number of
rows and on what tuning has learnt. The map of the rows has the Jacobian :math:`c^{(n - 1) d}`, and is undone by
:math:`-\delta` and :math:`1 / c`, so that it is accepted with the probability

.. math:: \min\left(1, c^{(n - 1) d} \, \frac{m(x')}{m(x)} \prod_i \frac{e^{f_i(x_i')}}{e^{f_i(x_i)}}\right)

(Liu and Sabatti 2000), where m is the marginal likelihood of the cluster, so that its parameters need
not be drawn. The labels stay.
"""

import math

from pymc_dpgmm.native.arithmetic import standard_normal, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, c_function, shifted
from pymc_dpgmm.sampler.latent_rows.moving_rows import (
    MovingRows,
    put_and_refit,
    read_moving,
    read_slots,
    take_rows,
)
from pymc_dpgmm.sampler.latent_rows.row_density import log_densities, read_density
from pymc_dpgmm.sampler.state.memory import N_CLUSTERS, memory_at
from pymc_dpgmm.sampler.state.templates import EVIDENCE, call_evidence


@c_function(INT(INTS, FLOAT))
def propose(block, step):
    """Shift and stretch the rows of every cluster that has several, and let the state have them.

    Written are the moved rows, their log densities, and for each slot in use the log Jacobian less its evidence
    before, and how many of the rows it has; see :data:`MOVING_ROWS`. Returns how many clusters have several rows.
    """
    f = read_moving(block)
    s, d, width = memory_at(f.state), f.d, 2 * f.d + 1
    read_slots(f)
    n_clusters, n_several = s.head[N_CLUSTERS], 0
    for place in range(n_clusters):
        slot = s.order[place]
        f.sizes[slot] = 0
        for entry in range(width):
            f.sums[slot * width + entry] = 0.0
    for i in range(f.n):
        f.sizes[f.slots[i]] += 1
        for j in range(d):
            f.sums[f.slots[i] * width + j] += f.rows[i * d + j]
    for place in range(n_clusters):
        slot = s.order[place]
        n_several += f.sizes[slot] > 1
        scale = step / math.sqrt(f.sizes[slot]) if f.sizes[slot] > 1 else 0.0
        log_factor = math.sqrt(0.5) * scale * standard_normal(f.bits)
        for j in range(d):
            mean, shift = slot * width + j, slot * width + d + j
            f.sums[mean] /= max(f.sizes[slot], 1)
            f.sums[shift] = scale * f.reach[j] * standard_normal(f.bits)
        f.sums[slot * width + 2 * d] = math.exp(log_factor)
        before = call_evidence(f.table[EVIDENCE], f.table, slot)
        f.log_ratios[slot] = d * (f.sizes[slot] - 1.0) * log_factor - before
    if n_several == 0:
        return 0
    for i in range(f.n):
        own = shifted(f.sums, f.slots[i] * width)
        for j in range(d):
            entry = i * d + j
            f.moved[entry] = f.rows[entry]
            if f.sizes[f.slots[i]] > 1:
                f.moved[entry] = own[j] + own[d + j] + own[2 * d] * (f.rows[entry] - own[j])
    log_densities(read_density(f.density), f.moved, 1, f.new_values)
    put_and_refit(f, f.moved)
    return n_several


@c_function(INT(INTS))
def decide(block):
    """Accept moves of clusters, or not; let the state have the rows, and return how many are accepted."""
    f = read_moving(block)
    s, d = memory_at(f.state), f.d
    for i in range(f.n):
        f.log_ratios[f.slots[i]] += f.new_values[i] - f.values[i]
    n_accepted = 0
    for place in range(s.head[N_CLUSTERS]):
        slot = s.order[place]
        if f.sizes[slot] > 1:
            log_ratio = f.log_ratios[slot] + call_evidence(f.table[EVIDENCE], f.table, slot)
            # A comparison with what is not a number is false.
            if math.log(1.0 - uniform(f.bits)) < log_ratio:
                n_accepted += 1
            else:
                f.sizes[slot] = -f.sizes[slot]
    for i in range(f.n):
        if f.sizes[f.slots[i]] > 1:
            f.values[i] = f.new_values[i]
            for j in range(d):
                f.rows[i * d + j] = f.moved[i * d + j]
    take_rows(f, f.rows)
    return n_accepted


KERNELS = (propose, decide)


def stretch(rows: MovingRows, step: float) -> float:
    """Shift and stretch the rows of each cluster that has several, after a redraw.

    Parameters
    ----------
    rows : MovingRows
    step : float
        By what shifts and logarithms of stretches are multiplied.

    Returns
    -------
    float
        The share of accepted moves; NaN where no cluster has two rows.
    """
    n_several = int(propose(rows.address, step))
    rows.density.check()
    if not n_several:
        return math.nan
    n_accepted = int(decide(rows.address))
    rows.take()
    return n_accepted / n_several
