r"""Latent rows of normal clusters for Hamiltonian moves: clusters are drawn, and all of it is standardized.

A cluster has the mean m and the precision :math:`R^\top R`, for an upper triangle R, drawn from their posterior
given its rows. The rest of the model tells of an entry :math:`x_{ij}` of a row about as much as a normal
*pseudo-observation* :math:`y_{ij}` with the precision :math:`\rho_{ij}` does, both learnt in tuning. If it told
just this, and columns were independent with precisions :math:`\tau_j = R_{jj}^2`, then

.. math:: m_j \sim N\Big(\mu_j + \frac{\sum_i h_{ij} (y_{ij} - \mu_j)}{P_j}, \frac{1}{P_j}\Big), \qquad
          P_j = \kappa \tau_j + \sum_i h_{ij}, \qquad h_{ij} = \frac{\rho_{ij} \tau_j}{\rho_{ij} + \tau_j},

.. math:: x_{ij} \sim N\Big(m_j + \frac{\rho_{ij} (y_{ij} - m_j)}{\rho_{ij} + \tau_j},
          \frac{1}{\rho_{ij} + \tau_j}\Big).

Rows and means move as the standard normal numbers z and v in which these are written, so that they follow the
scales of clusters, the base measure and each other as far as the data let them; between rows that the data know
(:math:`\rho \to \infty`) and rows that they do not (:math:`\rho = 0`) nothing has to be chosen (Papaspiliopoulos,
Roberts and Sköld 2007 for why neither is best). Scales of clusters move too: the precision is that of the columns
divided by :math:`e^l`, for numbers l by column,

.. math:: l_j = \ell_j + \frac{4 a}{4 a + q_j} \log s_j, \qquad q_j = 2 \sum_i w_{ij}^2,

where s are the base measure's standard deviations, a is its shape, and w is the share of what is known of a row
that does not come from its cluster. Shapes and shares are learnt, and do not follow what moves. What is drawn of
R besides its scales stays: given this, the scales have the density under the measure that does not change with
them (Liu and Sabatti 2000).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    INT,
    INTS,
    NOTHING,
    address_of,
    c_function,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.native.triangles import cholesky_in_place
from pymc_dpgmm.sampler.state.all_clusters import refit_clusters
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import view_at

# Bounds of the squares of typical shares, from 0 and 1.
LEAST_SQUARE = 1e-6

ROWS = Block(
    # Heads of the state, and of the table of the rows.
    state=blocks.INTS,
    table=blocks.INTS,
    n=NUMBER,
    d=NUMBER,
    # 1 where columns of a cluster depend on each other.
    is_full=NUMBER,
    # The table's numbers (n, stride), what is subtracted from rows there, what is subtracted from all rows, if
    # anything is, and the rows' units, if labels are not those of rows.
    rows=blocks.FLOATS,
    subtracted=blocks.FLOATS,
    stride=NUMBER,
    origin=blocks.FLOATS,
    unit=blocks.INTS,
    # By label: the slot; and memory for draws.
    slots=blocks.INTS,
    scratch=blocks.FLOATS,
    # Pseudo-observations of rows, their precisions, and the squares of shares that are typical: (n, d) each.
    seen=blocks.FLOATS,
    precisions=blocks.FLOATS,
    typical=blocks.FLOATS,
    # Of the base measure, (d,) each: mean, as how many rows it counts, logarithms of standard deviations, shapes.
    centre=blocks.FLOATS,
    weight=blocks.FLOATS,
    log_scale=blocks.FLOATS,
    shape=blocks.FLOATS,
    # What is written. Of rows (n, d): standard numbers, and squares of shares. By label: roots, (d,) or (d, d),
    # and, (d,) each, means, standard numbers, precisions, scales, how far these reach, and how much of the base
    # measure's there is in them.
    moving=blocks.FLOATS,
    squares=blocks.FLOATS,
    roots=blocks.FLOATS,
    means=blocks.FLOATS,
    moving_means=blocks.FLOATS,
    known=blocks.FLOATS,
    moving_scales=blocks.FLOATS,
    spreads=blocks.FLOATS,
    lags=blocks.FLOATS,
    next_double=NUMBER,
    bit_state=NUMBER,
)
_at = ROWS.reader()
_OF_BASE = ("centre", "weight", "log_scale", "shape")
_OF_CLUSTERS = ("means", "moving_means", "known", "moving_scales", "spreads", "lags")


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
    """Draw a cluster; write its mean and its root."""
    d = r.d
    mean = shifted(r.means, k * d)
    precision, rest = r.scratch, shifted(r.scratch, d * (d + 1) // 2)
    view_at(r.table).draw_normal(r.table, r.slots[k], mean, precision, rest, r.next_double, r.bit_state)
    if r.has_origin:
        for j in range(d):
            mean[j] += r.origin[j]
    if r.is_full != 0:
        cholesky_in_place(precision, d)
    for j in range(d):
        if r.is_full == 0:
            r.roots[k * d + j] = math.sqrt(precision[j * (j + 1) // 2 + j])
            continue
        for q in range(d):
            r.roots[(k * d + j) * d + q] = precision[q * (q + 1) // 2 + j] if q >= j else 0.0


@inlined
def _precision(r, k, j):
    """Return that of a column of a cluster given the following ones."""
    root = r.roots[k * r.d + j] if r.is_full == 0 else r.roots[(k * r.d + j) * r.d + j]
    return root * root


@inlined
def _cluster_of(r, s, i):
    return s.listed[s.slots[r.unit[i] if r.has_unit else i]]


@c_function(INT(INTS))
def begin_rows(block):
    """Draw the clusters, and write what moves; return how many clusters there are."""
    r = _at(block)
    s, d, n = memory_at(r.state), r.d, r.n
    n_clusters = _label(r, s)
    for k in range(n_clusters):
        _draw_cluster(r, k)
        for j in range(d):
            r.known[k * d + j] = r.weight[j] * _precision(r, k, j)
            # What rows say of the mean, and of the scale, for now.
            r.moving_means[k * d + j] = r.spreads[k * d + j] = 0.0
    for i in range(n):
        k = _cluster_of(r, s, i)
        for j in range(d):
            at, precision = i * d + j, _precision(r, k, j)
            share = r.precisions[at] / (r.precisions[at] + precision)
            r.squares[at] = share * share
            r.known[k * d + j] += share * precision
            r.moving_means[k * d + j] += share * precision * (r.seen[at] - r.centre[j])
            r.spreads[k * d + j] += 2.0 * r.typical[at]
            x = r.rows[i * r.stride + j] + r.subtracted[i * r.stride + j] - r.means[k * d + j]
            pulled = share * (r.seen[at] - r.means[k * d + j])
            r.moving[at] = (x - pulled) * math.sqrt(r.precisions[at] + precision)
    for k in range(n_clusters):
        for j in range(d):
            at = k * d + j
            middle = r.centre[j] + r.moving_means[at] / r.known[at]
            r.moving_means[at] = (r.means[at] - middle) * math.sqrt(r.known[at])
            of_base = 4.0 * r.shape[j]
            r.lags[at] = of_base / (of_base + r.spreads[at])
            r.spreads[at] = 1.0 / math.sqrt(of_base + r.spreads[at])
            r.moving_scales[at] = -r.lags[at] * r.log_scale[j]
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


def means_of_clusters(numbers: np.ndarray, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return the means (K, d) of numbers (n, d) of the rows of each cluster, 0 where it has none."""
    sums = [np.bincount(labels, column, minlength=n_clusters) for column in numbers.T]
    return np.transpose(sums) / np.maximum(np.bincount(labels, minlength=n_clusters), 1)[:, None]


class StandardizedRows(Memory, block=ROWS):
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
    moving, squares : (n, d) arrays
        Standard numbers of rows, and squares of shares: see above.
    """

    def __init__(self, rng: np.random.Generator, state: State, v: int, d: int, is_full: bool) -> None:
        state.make_own_rows(v)
        table = state.tables[v]
        table.prepare(("draw_normal",))
        n, room, numbers = table.n_rows, state.capacity + 1, table.rows
        super().__init__(state=state, table=table, n=n, d=d, is_full=is_full)
        self._v, self._rng, self.n_clusters = v, rng, 0
        self.rows, self.subtracted, self.stride = numbers, table.subtracted, numbers.shape[1]
        self.origin = table.origin
        self.unit = None if table.unit is None else np.ascontiguousarray(table.unit, dtype=np.int64)
        self._make(slots=room, scratch=4 * d + 2 * d * d + d * (d + 1) // 2)
        self._make(roots=(room, d, d) if is_full else (room, d))
        self._make(**dict.fromkeys(("moving", "squares", "seen", "precisions", "typical"), (n, d)))
        self._make(**dict.fromkeys(_OF_BASE, d), **dict.fromkeys(_OF_CLUSTERS, (room, d)))
        self.draw_from(rng)

    def is_of(self, rng: np.random.Generator, state: State) -> bool:
        """Tell whether this is the memory of a state, with room for its clusters."""
        table = state.tables[self._v]
        if not (self._rng is rng and self.state is state and table is self.table and table.has_own_rows):
            return False
        return (
            self.origin is table.origin
            and self.rows is table.rows
            and self.subtracted is table.subtracted
            and state.capacity < len(self.slots)
        )

    def begin(self, seen: np.ndarray, precisions: np.ndarray, typical: Any, of_base: Sequence[Any]) -> None:
        """Draw the clusters, and compute what moves: see :data:`ROWS` for what is given."""
        self.seen[:], self.precisions[:], self.typical[:] = seen, precisions, typical
        for name, given in zip(_OF_BASE, of_base, strict=True):
            getattr(self, name)[:] = given
        self.n_clusters = begin_rows(self.address)

    @property
    def of_clusters(self) -> list[tuple[np.ndarray, Any]]:
        """What moves of means and scales of clusters, (K, d) in the order of labels, and how far it reaches."""
        k = self.n_clusters
        return [(self.moving_means[:k], 1.0), (self.moving_scales[:k], self.spreads[:k])]

    @property
    def fixed(self) -> list[np.ndarray]:
        """What stays: pseudo-observations and precisions (n, d), roots (K, ...), and how scales lag (K, d)."""
        k = self.n_clusters
        return [self.seen, self.precisions, self.roots[:k], self.lags[:k]]

    def along(
        self, labels: np.ndarray, displaced: np.ndarray, centre: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return how what moves is displaced where rows are, by (n, d), and with them the means of their clusters.

        The mean of the base measure, whose weight is about ``weight``, is displaced by ``centre``. ``labels`` are
        those of the rows' units, 0 to K - 1. The result must not depend on what moves, and scales of clusters do:
        precisions of rows within clusters are those with which shares are typical.
        """
        k, unit = self.n_clusters, self.unit
        labels = labels if unit is None else labels[unit]
        shares = np.sqrt(np.clip(self.typical, LEAST_SQUARE, 1.0 - LEAST_SQUARE))
        totals = self.precisions / shares
        within = totals - self.precisions
        sizes = np.bincount(labels, minlength=k)[:, None]
        means, precisions, heard = (
            means_of_clusters(own, labels, k) for own in (displaced, within, shares * within)
        )
        known = weight * precisions + sizes * heard
        of_rows = (displaced - (1.0 - shares) * means[labels]) * np.sqrt(totals)
        of_means = (means - centre * weight * precisions / known) * np.sqrt(known)
        return of_rows, [of_means, np.zeros((k, self.d))]

    def end(self, rows: np.ndarray) -> None:
        """Let the state have rows (n, d), a C-contiguous array."""
        end_rows(self.address, address_of(rows))
