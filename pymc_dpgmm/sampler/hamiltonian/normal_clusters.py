r"""Latent rows of normal clusters for Hamiltonian moves: clusters are drawn, and rows are partly centred.

A cluster has the mean m and the precision :math:`R^\top R`, for an upper triangle R, drawn from their posterior
given its rows. Precisions stay. Means and rows move as

.. math:: u_{ij} = x_{ij} - \frac{r_{ij}^2}{t_j^2 + r_{ij}^2} m_j, \qquad
          v_j = m_j - \frac{\kappa}{\kappa + w_j} \mu_j, \qquad w_j = \sum_i \frac{t_j^2}{t_j^2 + r_{ij}^2}

where t are the standard deviations of the cluster's columns, :math:`\mu` is the mean of the base measure, which
tells of m as much as :math:`\kappa` rows do, and the rest of the model tells of an entry of a row as much as a
normal observation with the standard deviation r does. For such a model u, v and :math:`\mu` are independent
given the data (Papaspiliopoulos, Roberts and Sköld 2007, for each row alone): rows that the data knows move by
themselves, and others with the mean of their cluster. The shares are functions of the labels, the precisions and
what tuning has learnt, so that the Jacobian is constant.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    INT,
    INTS,
    NOTHING,
    address_of,
    bits_of_generator,
    c_function,
    floats_at,
    inlined,
    ints_at,
    shifted,
)
from pymc_dpgmm.native.triangles import cholesky_in_place
from pymc_dpgmm.sampler.state.all_clusters import refit_clusters
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import DRAW_NORMAL, call_draw_normal

ROWS = Block(
    # Heads of the state, and of the table of the rows.
    state=blocks.INTS,
    table=blocks.INTS,
    n=NUMBER,
    d=NUMBER,
    # 1 where columns of a cluster depend on each other.
    is_full=NUMBER,
    # The table's numbers (n, stride), what is subtracted from rows there, what is subtracted from all rows, 0 if
    # nothing is, and the address of the rows' units, 0 if labels are those of rows.
    rows=blocks.FLOATS,
    subtracted=blocks.FLOATS,
    stride=NUMBER,
    origin=NUMBER,
    unit=NUMBER,
    # By label: the slot; and memory for draws.
    slots=blocks.INTS,
    scratch=blocks.FLOATS,
    # How far what the rest of the model says of rows reaches (n, d), and of the base measure its mean (d,) and as
    # how many rows it counts (d,).
    reach=blocks.FLOATS,
    centre=blocks.FLOATS,
    weight=blocks.FLOATS,
    # What is written. Of rows (n, d): what moves, its scales, and the shares of the means. By label: roots, (d,)
    # or (d, d), and, (d,) each, means, what moves, its scales, and the shares of the centre.
    moving=blocks.FLOATS,
    spreads=blocks.FLOATS,
    shares=blocks.FLOATS,
    roots=blocks.FLOATS,
    means=blocks.FLOATS,
    moving_means=blocks.FLOATS,
    spreads_of_means=blocks.FLOATS,
    shares_of_centre=blocks.FLOATS,
    next_double=NUMBER,
    bit_state=NUMBER,
)
_at = ROWS.reader()


@inlined
def _label(r, s):
    """Write the slots of the clusters by label, and list the labels by slot; return how many there are."""
    for k in range(s.capacity + 1):
        s.listed[k] = -1
    n_clusters = 0
    for i in range(s.n):
        slot = s.slots[i]
        if s.listed[slot] < 0:
            s.listed[slot] = n_clusters
            r.slots[n_clusters] = slot
            n_clusters += 1
    return n_clusters


@inlined
def _draw_cluster(r, k):
    """Draw a cluster; write its mean and its root, and, as ``spreads_of_means`` for now, standard deviations."""
    d = r.d
    mean, deviations = shifted(r.means, k * d), shifted(r.spreads_of_means, k * d)
    precision, rest = r.scratch, shifted(r.scratch, d * (d + 1) // 2)
    call_draw_normal(r.table[DRAW_NORMAL], r.table, r.slots[k], mean, precision, rest, r.next_double, r.bit_state)
    if r.origin != 0:
        for j in range(d):
            mean[j] += floats_at(r.origin)[j]
    if r.is_full != 0:
        cholesky_in_place(precision, d)
    for j in range(d):
        place = j * (j + 1) // 2 + j
        root = precision[place] if r.is_full != 0 else math.sqrt(precision[place])
        # Of the column given the following ones: a scale, no more.
        deviations[j] = 1.0 / root
        if r.is_full == 0:
            r.roots[k * d + j] = root
            continue
        for q in range(d):
            r.roots[(k * d + j) * d + q] = precision[q * (q + 1) // 2 + j] if q >= j else 0.0


@c_function(INT(INTS))
def begin_rows(block):
    """Draw the clusters, and write what moves, with scales and shares; return how many clusters there are."""
    r = _at(block)
    s, d, n = memory_at(r.state), r.d, r.n
    n_clusters = _label(r, s)
    for k in range(n_clusters):
        _draw_cluster(r, k)
        for j in range(d):
            r.shares_of_centre[k * d + j] = r.weight[j]
    for i in range(n):
        k = s.listed[s.slots[ints_at(r.unit)[i] if r.unit != 0 else i]]
        for j in range(d):
            at, deviation, reach = i * d + j, r.spreads_of_means[k * d + j], r.reach[i * d + j]
            larger = max(deviation, reach)
            length = larger * math.sqrt((deviation / larger) ** 2 + (reach / larger) ** 2)
            share = (reach / length) ** 2
            r.shares[at], r.spreads[at] = share, deviation * (reach / length)
            r.shares_of_centre[k * d + j] += (deviation / length) ** 2
            x = r.rows[i * r.stride + j] + r.subtracted[i * r.stride + j]
            r.moving[at] = x - share * r.means[k * d + j]
    for k in range(n_clusters):
        for j in range(d):
            at = k * d + j
            known = r.shares_of_centre[at]
            r.spreads_of_means[at] /= math.sqrt(known)
            r.shares_of_centre[at] = r.weight[j] / known
            r.moving_means[at] = r.means[at] - r.shares_of_centre[at] * r.centre[j]
    return n_clusters


@c_function(NOTHING(INTS, INT))
def end_rows(block, moved):
    """Write rows (n, d), at an address, to the table, and compute all that the state knows of them."""
    r = _at(block)
    for i in range(r.n):
        for j in range(r.d):
            at = i * r.stride + j
            r.rows[at] = floats_at(moved)[i * r.d + j] - r.subtracted[at]
    refit_clusters(memory_at(r.state))


KERNELS = (begin_rows, end_rows)


class CentredRows:
    """The rows of a view of a state, and what of them and of their clusters moves.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    v : int
        The view, whose family has ``draw_normal``.
    d : int
        Columns of the rows.
    is_full : bool
        Whether columns of a cluster depend on each other.

    Attributes
    ----------
    n_clusters : int
    moving, spreads : (n, d) arrays
    """

    def __init__(self, rng: np.random.Generator, state: State, v: int, d: int, is_full: bool) -> None:
        state.make_own_rows(v)
        table = state.tables[v]
        table.prepare((DRAW_NORMAL,))
        self._of = rng, state, table.rows, table.subtracted, state.address, table.origin
        self._v, self._d, self._is_full, self.n_clusters = v, d, is_full, 0
        self._room = room = state.capacity + 1
        n = table.n_rows
        unit = None if table.unit is None else np.ascontiguousarray(table.unit, dtype=np.int64)
        self.moving, self.spreads, self._shares, self._reach = np.empty((4, n, d))
        self._centre, self._weight = np.empty((2, d))
        self._of_clusters = np.empty((4, room, d))
        self._roots = np.empty((room, d, d) if is_full else (room, d))
        self._kept = unit, np.empty(room, dtype=np.int64), np.empty(4 * d + 2 * d * d + d * (d + 1) // 2)
        means, moving_means, spreads_of_means, shares_of_centre = self._of_clusters
        next_double, bit_state = bits_of_generator(rng)
        self._block = ROWS.filled(
            state=state.address,
            table=table.block,
            n=n,
            d=d,
            is_full=int(is_full),
            rows=table.rows,
            subtracted=table.subtracted,
            stride=table.rows.shape[1],
            origin=0 if table.origin is None else address_of(table.origin),
            unit=0 if unit is None else address_of(unit),
            slots=self._kept[1],
            scratch=self._kept[2],
            reach=self._reach,
            centre=self._centre,
            weight=self._weight,
            moving=self.moving,
            spreads=self.spreads,
            shares=self._shares,
            roots=self._roots,
            means=means,
            moving_means=moving_means,
            spreads_of_means=spreads_of_means,
            shares_of_centre=shares_of_centre,
            next_double=next_double,
            bit_state=bit_state,
        )
        self._address = address_of(self._block)

    def is_of(self, rng: np.random.Generator, state: State) -> bool:
        """Tell whether this is the memory of a state, with room for its clusters."""
        table, own = state.tables[self._v], self._of
        if not (own[0] is rng and own[1] is state and own[4] == state.address and table.has_own_rows):
            return False
        return (
            own[5] is table.origin
            and own[2] is table.rows
            and own[3] is table.subtracted
            and state.capacity < self._room
        )

    def begin(self, reach: np.ndarray, centre: Any, weight: Any) -> None:
        """Draw the clusters, and compute what moves: see :data:`ROWS`."""
        self._reach[:], self._centre[:], self._weight[:] = reach, centre, weight
        self.n_clusters = begin_rows(self._address)

    @property
    def moving_means(self) -> np.ndarray:
        """What moves of the means of clusters (K, d), in the order of their labels."""
        return self._of_clusters[1, : self.n_clusters]

    @property
    def spreads_of_means(self) -> np.ndarray:
        """About how far this reaches (K, d)."""
        return self._of_clusters[2, : self.n_clusters]

    @property
    def fixed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What stays: shares (n, d) of means in rows, roots (K, ...), and shares (K, d) of the centre in means."""
        return self._shares, self._roots[: self.n_clusters], self._of_clusters[3, : self.n_clusters]

    def end(self, rows: np.ndarray) -> None:
        """Let the state have rows (n, d), a C-contiguous array."""
        end_rows(self._address, address_of(rows))
