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
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits, standard_normal, uniform
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, NOTHING, address_of, bits_of_generator, c_function
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.state.memory import N_CLUSTERS, memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import EVIDENCE, call_evidence


@c_function(NOTHING(INTS, INTS, INTS, INT, INT, FLOATS, FLOATS, INTS, FLOATS, FLOAT, FLOATS, INT, INT))
def propose(head, view, slots, n, d, rows, log_ratios, sizes, sums, step, distances, next_double, bit_state):
    """Shift and stretch the rows (n, d) in place, and write the log Jacobian of each cluster, less its evidence.

    Parameters
    ----------
    head, view : of the state, and of the table of the rows
    slots : (n,)
        Of the rows.
    log_ratios : (capacity + 1,)
        Written at the slots in use.
    sizes : (capacity + 1,)
        Written at the slots in use: how many of the rows they have.
    sums : (capacity + 1, 2 d + 1)
        Scratch memory.
    step : float
    distances : (d,)
    next_double, bit_state
        The generator.
    """
    s, bits, width = memory_at(head), Bits(next_double, bit_state), 2 * d + 1
    for place in range(head[N_CLUSTERS]):
        slot = s.order[place]
        sizes[slot] = 0
        for entry in range(width):
            sums[slot * width + entry] = 0.0
    for i in range(n):
        sizes[slots[i]] += 1
        for j in range(d):
            sums[slots[i] * width + j] += rows[i * d + j]
    for place in range(head[N_CLUSTERS]):
        slot = s.order[place]
        scale = step / math.sqrt(sizes[slot]) if sizes[slot] > 1 else 0.0
        log_factor = math.sqrt(0.5) * scale * standard_normal(bits)
        for j in range(d):
            mean, shift = slot * width + j, slot * width + d + j
            sums[mean] /= max(sizes[slot], 1)
            sums[shift] = scale * distances[j] * standard_normal(bits)
        sums[slot * width + 2 * d] = math.exp(log_factor)
        log_ratios[slot] = d * (sizes[slot] - 1.0) * log_factor - call_evidence(view[EVIDENCE], view, slot)
    for i in range(n):
        first = slots[i] * width
        if sizes[slots[i]] > 1:
            for j in range(d):
                mean = sums[first + j]
                rows[i * d + j] = mean + sums[first + d + j] + sums[first + 2 * d] * (rows[i * d + j] - mean)


@c_function(INT(INTS, INTS, INTS, INT, INT, FLOATS, FLOATS, INTS, FLOATS, FLOATS, FLOATS, INT, INT))
def decide(head, view, slots, n, d, new, log_ratios, sizes, new_values, rows, values, next_double, bit_state):
    """Undo the moves of clusters that are not accepted, in ``new`` (n, d) and ``new_values``; return how many are.

    The tables hold the clusters of the new rows.
    """
    s, bits = memory_at(head), Bits(next_double, bit_state)
    for i in range(n):
        log_ratios[slots[i]] += new_values[i] - values[i]
    n_accepted = 0
    for place in range(head[N_CLUSTERS]):
        slot = s.order[place]
        if sizes[slot] > 1:
            log_ratio = log_ratios[slot] + call_evidence(view[EVIDENCE], view, slot)
            # A comparison with what is not a number is false.
            if math.log(1.0 - uniform(bits)) < log_ratio:
                n_accepted += 1
            else:
                sizes[slot] = -sizes[slot]
    for i in range(n):
        if sizes[slots[i]] < 0:
            new_values[i] = values[i]
            for j in range(d):
                new[i * d + j] = rows[i * d + j]
    return n_accepted


KERNELS = (propose, decide)


class Stretched(NamedTuple):
    """What stretches have made.

    Parameters
    ----------
    rows : (n, d) array
    values : (n,) array
        The log densities that the rest of the model gives to them.
    accepted : float
        The share of accepted moves; NaN where no cluster has two rows.
    """

    rows: np.ndarray
    values: np.ndarray
    accepted: float


def stretch(
    rng: np.random.Generator,
    state: State,
    v: int,
    density: RowDensity,
    values: np.ndarray,
    distances: np.ndarray,
    step: float,
) -> Stretched:
    """Shift and stretch the rows of each cluster that has several.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place, the rows of the view too.
    v : int
        The view.
    density : RowDensity
        Of rows as the view has them.
    values : (n,) array
        What it is at the present rows.
    distances : (d,) array
        The scale of shifts of one row; must not depend on the present rows.
    step : float
        By what shifts and logarithms of stretches are multiplied.
    """
    table, slots, bits = state.tables[v], state.slots_of_rows(v), bits_of_generator(rng)
    in_use, d, room = state.order[: state.n_clusters], len(distances), state.capacity + 1
    old = np.ascontiguousarray(table.values[:, :d])
    new, distances = old.copy(), np.ascontiguousarray(distances, dtype=np.float64)
    sizes, log_ratios, sums = np.empty(room, dtype=np.int64), np.empty(room), np.empty((room, 2 * d + 1))
    given = state.address, address_of(table.block), address_of(slots), *old.shape
    given += address_of(new), address_of(log_ratios), address_of(sizes)
    propose(*given, address_of(sums), step, address_of(distances), *bits)
    n_several = int(np.count_nonzero(sizes[in_use] > 1))
    if not n_several:
        return Stretched(old, values, math.nan)
    new_values = density(new[None])[0]
    state.take_rows(v, new)
    n_accepted = int(decide(*given, address_of(new_values), address_of(old), address_of(values), *bits))
    if n_accepted < n_several:
        state.take_rows(v, new)
    return Stretched(new, new_values, n_accepted / n_several)
