r"""Draws of latent rows together with their labels.

The rest of a model says of row i that its log density is :math:`f_i(x_i)`. Rows are chosen at random. They are
*movable* if their cluster has rows that were not chosen, or none but them. The parameters of the clusters are
drawn given labels and rows, except those of movable rows that are alone, and forgotten afterwards. Given them,
label and value of a movable row have the density

.. math:: p(k, x) \propto v_k \, N(x \mid m_{ki}, \Lambda_k^{-1}) \, e^{f_i(x)}, \qquad
          p(\text{alone}, x) \propto v_0 \, t_i(x) \, e^{f_i(x)}

for the clusters that have rows which were not chosen: what these are does not depend on movable rows. Here
:math:`v_k` and :math:`v_0` are the weights with which a row joins a cluster and opens one, given all other rows,
and :math:`t_i` is the predictive density of a row in a cluster of its own. All other rows keep their label.
``docs/moves.md`` has the proof.

Label and value are proposed at once, whatever they are now, as if the rest of the model were a normal
*pseudo-observation* of each row, :math:`f_i(x) = -\frac{1}{2} (x - y_i)^\top \Lambda_i (x - y_i)`, which is learnt
in tuning (``information.py``) and does not depend on the present rows. The cluster is proposed with a probability
proportional to its integral over x, and the value from a multivariate t about the mode in it (Gelman et al. 2013,
section 13.3), whose precision is the sum of the two. The proposal is accepted by the ratio of Metropolis and
Hastings, in which target and proposal are evaluated at the new and at the present value. The tails of a t are
heavier than those of a normal cluster, so that no value in it can hold a chain for long (Tierney 1994, corollary
4). All rows are proposed together, and accepted one after the other, since weights depend on how many rows have
come and gone.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits, below, standard_gamma, standard_normal, uniform
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    bits_of_generator,
    c_function,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.triangles import definite_factor, set_diagonal, solve_lower, solve_upper, symmetric_entry
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows, put_rows, read_moving, take_rows
from pymc_dpgmm.sampler.latent_rows.row_density import log_densities, read_density
from pymc_dpgmm.sampler.latent_rows.work import Work, read
from pymc_dpgmm.sampler.many_rows.drawn_clusters import draw_parameters
from pymc_dpgmm.sampler.state.all_clusters import link_rows
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import (
    WEIGHED_AT_ONCE,
    view_at,
)

# Degrees of freedom of the proposals of values.
FREEDOM = 10.0
# No cluster is proposed less often than this logarithm says, relative to the most probable one.
LEAST_LOG_SHARE = -12.0
# The least share of rows that are chosen. With many of them more rows change their label, with few of them more
# small clusters are open to others.
LEAST_CHOSEN = 0.3
# Draws of the base measure by which a cluster without rows is known to proposals.
N_OF_BASE = 60


@inlined
def _mean_of(w, k, i):
    """Return the mean of row i in cluster k."""
    return shifted(w.means, (k * w.n_means + (i if w.n_means > 1 else 0)) * w.d)


@inlined
def log_prior(w, k, i, x, moved, pull):
    """Return the log density of a row in a cluster, with that of other views; write ``pull``, its gradient."""
    d, mean = w.d, _mean_of(w, k, i)
    precision = shifted(w.precisions, k * (d * (d + 1) // 2))
    for j in range(d):
        moved[j] = x[j] - mean[j]
    total = 0.0
    for j in range(d):
        pull[j] = -symmetric_entry(precision, moved, j, d)
        total += moved[j] * pull[j]
    return w.at_mean[k * w.n + i] + 0.5 * total


@inlined
def _set_log_density(w, k, half_log_det):
    """Write the log density of rows at their mean in a cluster."""
    for i in range(w.n):
        w.at_mean[k * w.n + i] = half_log_det - 0.5 * w.d * math.log(2.0 * math.pi)


@c_function(NOTHING(INTS, FLOATS, INT))
def take_clusters(block, roots, is_triangular):
    """Take precisions of the clusters from their roots.

    Parameters
    ----------
    block : see :data:`pymc_dpgmm.sampler.latent_rows.work.WORK`
    roots : (K, d), or (K, d, d) and upper triangular
        Of the precisions of clusters that have parameters.
    is_triangular : whether they are triangles
    """
    w = read(block)
    d = w.d
    size = d * (d + 1) // 2
    for k in range(w.n_clusters - 1):
        precision, half_log_det = shifted(w.precisions, k * size), 0.0
        for j in range(d):
            if is_triangular:
                root = shifted(roots, k * d * d)
                half_log_det += math.log(abs(root[j * d + j]))
                for q in range(j + 1):
                    total = 0.0
                    for row in range(q + 1):
                        total += root[row * d + j] * root[row * d + q]
                    precision[j * (j + 1) // 2 + q] = total
            else:
                root = roots[k * d + j]
                half_log_det += math.log(abs(root))
                set_diagonal(precision, j, root * root)
        _set_log_density(w, k, half_log_det)


@c_function(NOTHING(INTS, INTS, INT, INT, INT))
def draw_clusters(block, table, origin, next_double, bit_state):
    """Draw means and precisions of the clusters of a table whose family has ``draw_normal``.

    ``origin`` is the address of what is subtracted from rows, or 0.
    """
    w = read(block)
    d = w.d
    size = d * (d + 1) // 2
    for k in range(w.n_clusters - 1):
        mean, precision = shifted(w.means, k * d), shifted(w.precisions, k * size)
        half_log_det = view_at(table).draw_normal(
            table, w.slots[k], mean, precision, w.scratch, next_double, bit_state
        )
        for j in range(d):
            mean[j] += floats_at(origin)[j] if origin != 0 else 0.0
        _set_log_density(w, k, half_log_det)


@c_function(NOTHING(INTS, FLOATS, FLOATS, FLOAT))
def take_base(block, means, precision, half_log_det):
    """Take what stands for a cluster of a row's own: means (1 or n, d), precision (d, d) and its determinant."""
    w = read(block)
    d, last = w.d, w.n_clusters - 1
    for entry in range(w.n_means * d):
        w.means[last * w.n_means * d + entry] = means[entry]
    packed = shifted(w.precisions, last * (d * (d + 1) // 2))
    for j in range(d):
        for q in range(j + 1):
            packed[j * (j + 1) // 2 + q] = precision[j * d + q]
    _set_log_density(w, last, half_log_det)


@inlined
def _fuse(w, seen, known):
    """Write modes, factors of precisions, and log integrals of rows in clusters, by their pseudo-observations."""
    d, n = w.d, w.n
    size = d * (d + 1) // 2
    away, pull, step = w.scratch, shifted(w.scratch, d), shifted(w.scratch, 2 * d)
    for i in range(n):
        of_row, first = shifted(known, i * size), shifted(seen, i * d)
        for k in range(w.n_clusters):
            if w.movable[i] == 0 and k != w.clusters[i]:
                continue
            at, mean = k * n + i, _mean_of(w, k, i)
            factor, mode = shifted(w.factors, at * size), shifted(w.modes, at * d)
            for entry in range(size):
                factor[entry] = w.precisions[k * size + entry] + of_row[entry]
            half_log_det = definite_factor(factor, d)
            for j in range(d):
                away[j] = first[j] - mean[j]
            log_p = w.at_mean[at] - half_log_det
            for j in range(d):
                pull[j] = symmetric_entry(of_row, away, j, d)
                log_p -= 0.5 * away[j] * pull[j]
            solve_lower(factor, pull, step, d)
            for j in range(d):
                log_p += 0.5 * step[j] * step[j]
            solve_upper(factor, step, d)
            for j in range(d):
                mode[j] = mean[j] + step[j]
            w.log_integrals[at] = log_p


@inlined
def _choose_rows(w, bits):
    """Choose rows at random, and write which; return how many."""
    n = w.n
    share = LEAST_CHOSEN + (1.0 - LEAST_CHOSEN) * uniform(bits)
    n_chosen = min(n - 1, int(n * share))
    for i in range(n):
        w.order[i] = i
        w.movable[i] = 0
    for t in range(n_chosen):
        other = t + below(bits, n - t)
        row = w.order[other]
        w.order[other] = w.order[t]
        w.order[t] = row
        w.movable[row] = 1
    return n_chosen


@c_function(NOTHING(INTS, INTS, INTS, INT, INT, INT))
def choose(head, block, slots, moves_labels, next_double, bit_state):
    """Choose movable rows, and list the clusters that have parameters: all but those of movable rows alone.

    ``slots`` (n,) are those of the rows. Where labels do not move, no row is movable. ``counts`` are the numbers
    of rows of the clusters that were not chosen, times a factor, as if these were all rows.
    """
    s, w = memory_at(head), read(block)
    n, n_in_use, unchosen = w.n, s.n_clusters, w.of_slot
    n_chosen = 0
    if moves_labels != 0:
        n_chosen = _choose_rows(w, Bits(next_double, bit_state))
        for place in range(n_in_use):
            unchosen[s.order[place]] = 0
        for i in range(n):
            if w.movable[i] == 0:
                unchosen[slots[i]] += 1
    else:
        for i in range(n):
            w.movable[i] = 0
        for place in range(n_in_use):
            unchosen[s.order[place]] = 1
    n_clusters = 0
    for place in range(n_in_use):
        slot = s.order[place]
        n_unchosen = unchosen[slot]
        # From here on, the cluster of a slot, -1 where it has one row, which is movable, and -2 - k where the rows
        # of cluster k are all chosen, and stay.
        if n_unchosen == 0 and s.sizes[slot] == 1:
            unchosen[slot] = -1
            continue
        w.slots[n_clusters] = slot
        w.counts[n_clusters] = n_unchosen * (n / (n - n_chosen)) if moves_labels != 0 else 0.0
        unchosen[slot] = n_clusters if n_unchosen > 0 else -2 - n_clusters
        w.sizes[n_clusters] = 0
        n_clusters += 1
    w.sizes[n_clusters], w.counts[n_clusters] = 0, 0.0
    w.n_clusters = n_clusters + 1
    for i in range(n):
        k = unchosen[slots[i]]
        if k == -1:
            k = n_clusters
        elif k < 0:
            k = -2 - k
            w.movable[i] = 0
        w.clusters[i] = k
        w.sizes[k] += 1


@inlined
def _name(w, n_slots, slots):
    """Write the slots of rows, and return the largest.

    Those that are alone get any that are not in use, even beyond those there are.
    """
    for slot in range(n_slots):
        w.of_slot[slot] = 0
    for k in range(w.n_clusters - 1):
        w.of_slot[w.slots[k]] = 1
    free, largest = 1, 0
    for i in range(w.n):
        k = w.clusters[i]
        if k < w.n_clusters - 1:
            slots[i] = w.slots[k]
        else:
            while free < n_slots and w.of_slot[free] != 0:
                free += 1
            slots[i] = free
            free += 1
        largest = max(largest, slots[i])
    return largest


@inlined
def _log_proposal(w, k, i, x, moved):
    """Return the log density of a value in the proposal of a cluster, up to a constant."""
    d, at = w.d, k * w.n + i
    mode, factor = shifted(w.modes, at * d), shifted(w.factors, at * (d * (d + 1) // 2))
    log_det = 0.0
    for j in range(d):
        moved[j] = x[j] - mode[j]
        log_det += math.log(factor[j * (j + 1) // 2 + j])
    distance = 0.0
    for j in range(d):
        # The factor is lower: its transpose times what is moved.
        entry = 0.0
        for q in range(j, d):
            entry += factor[q * (q + 1) // 2 + j] * moved[q]
        distance += entry * entry
    return log_det - 0.5 * (FREEDOM + d) * math.log1p(distance / FREEDOM)


@inlined
def _log_share(w, i, k, largest):
    """Return the log probability, up to a constant, with which a cluster is proposed to a movable row."""
    own = w.log_integrals[k * w.n + i] + w.log_seats[k]
    if not w.log_seats[k] > -math.inf:
        return -math.inf
    return max(own, largest + LEAST_LOG_SHARE)


@c_function(NOTHING(INTS))
def propose(block):
    """Propose cluster and value of every row, and write log densities; see :data:`MOVING_ROWS`."""
    f = read_moving(block)
    w, density = read(f.work), read_density(f.density)
    log_densities(density, f.rows, 1, f.values)
    _fuse(w, f.seen, f.known)
    _propose(w, prior_of(memory_at(f.state)), f.rows, f.bits)
    log_densities(density, w.proposed, 1, f.new_values)
    if f.moves_labels != 0:
        _weigh_alone(f, w)


@inlined
def _weigh_alone(f, w):
    """Write the log predictives in clusters of their own: of the rows, and of what is proposed."""
    s = memory_at(f.state)
    for i in range(f.n):
        f.alone[i] = s.prior_predictive[i]
        f.new_alone[i] = f.others[i]
    put_rows(f, w.proposed)
    s.listed[0] = 0
    for first in range(0, f.n, WEIGHED_AT_ONCE):
        m = min(WEIGHED_AT_ONCE, f.n - first)
        for q in range(m):
            s.gathered[q], s.owns[q] = first + q, -1
        view_at(f.table).weigh(f.table, s.gathered, m, s.listed, 1, s.owns, 1, shifted(f.new_alone, first))
    put_rows(f, f.rows)


@inlined
def _propose(w, prior, rows, bits):
    """Draw what is proposed, and its log densities in the proposal."""
    d, n = w.d, w.n
    moved, shares = w.scratch, shifted(w.scratch, d)
    for k in range(w.n_clusters - 1):
        w.log_seats[k] = log_seat(prior, w.counts[k]) if w.counts[k] > 0.0 else -math.inf
    w.log_seats[w.n_clusters - 1] = log_seat_new(prior, w.n_clusters - 1)
    for i in range(n):
        before, k = w.clusters[i], w.clusters[i]
        log_share = log_share_before = 0.0
        if w.movable[i] != 0:
            largest = -math.inf
            for c in range(w.n_clusters):
                largest = max(largest, w.log_integrals[c * n + i] + w.log_seats[c])
            total = 0.0
            for c in range(w.n_clusters):
                shares[c] = math.exp(_log_share(w, i, c, largest) - largest)
                total += shares[c]
            threshold = uniform(bits) * total
            k, passed = 0, shares[0]
            while passed <= threshold and k < w.n_clusters - 1:
                k += 1
                passed += shares[k]
            log_share, log_share_before = math.log(shares[k]), math.log(shares[before])
        at = k * n + i
        factor, x = shifted(w.factors, at * (d * (d + 1) // 2)), shifted(w.proposed, i * d)
        for j in range(d):
            x[j] = standard_normal(bits)
        solve_upper(factor, x, d)
        scale = math.sqrt(0.5 * FREEDOM / standard_gamma(bits, 0.5 * FREEDOM))
        for j in range(d):
            x[j] = w.modes[at * d + j] + scale * x[j]
        w.log_proposals[i] = log_share + _log_proposal(w, k, i, x, moved)
        w.log_proposals[i] -= log_share_before + _log_proposal(w, before, i, shifted(rows, i * d), moved)
        w.chosen[i] = k


@inlined
def _log_target(w, prior, i, k, x, alone, n_others, n_clusters, moved, pull):
    """Return the log density of cluster and value of a row, without what the rest of the model says."""
    if k == w.n_clusters - 1:
        return alone + log_seat_new(prior, n_clusters)
    own = log_prior(w, k, i, x, moved, pull)
    return own + log_seat(prior, n_others) if w.movable[i] != 0 else own


@c_function(INT(INTS))
def accept(block):
    """Accept proposals, or not, and let the state have rows and labels; return how many are accepted.

    Where the state has no room for as many slots, it stays as it was, and -1 less the number is returned.
    """
    f = read_moving(block)
    w, s = read(f.work), memory_at(f.state)
    n_accepted = _accept(f, w, prior_of(s), f.bits)
    if f.moves_labels != 0:
        if _name(w, s.capacity + 1, f.slots) > s.capacity:
            return -1 - n_accepted
        for i in range(f.n):
            s.slots[i] = f.slots[i]
        link_rows(s)
    take_rows(f, f.rows)
    return n_accepted


@inlined
def _accept(f, w, prior, bits):
    """Accept proposals, or not: clusters, rows, and the values of their density; return how many are."""
    d, last = w.d, w.n_clusters - 1
    moved, pull = w.scratch, shifted(w.scratch, d)
    sizes, n_accepted = w.sizes, 0
    # Those that have parameters keep a row that is not movable.
    n_clusters = last + sizes[last]
    for i in range(w.n):
        before, k = w.clusters[i], w.chosen[i]
        sizes[before] -= 1
        others = n_clusters - 1 if before == last else n_clusters
        old, new = shifted(f.rows, i * d), shifted(w.proposed, i * d)
        log_ratio = (
            _log_target(w, prior, i, k, new, f.new_alone[i], sizes[k], others, moved, pull)
            + f.new_values[i]
            - _log_target(w, prior, i, before, old, f.alone[i], sizes[before], others, moved, pull)
            - f.values[i]
            - w.log_proposals[i]
        )
        # A comparison with what is not a number is false.
        if math.log(1.0 - uniform(bits)) < log_ratio:
            n_accepted += 1
            w.clusters[i], f.values[i] = k, f.new_values[i]
            n_clusters = others + 1 if k == last else others
            for j in range(d):
                old[j] = new[j]
        sizes[w.clusters[i]] += 1
    return n_accepted


KERNELS = (take_clusters, draw_clusters, take_base, choose, propose, accept)


def can_move_labels(state: State) -> bool:
    """Tell whether rows may change their clusters in a redraw: where all views' parameters can be drawn.

    Tables of wide rows do not keep the sums that this needs, and rows with entries that are drawn are not those of
    the table's values.
    """
    return not any(table.is_wide or table.absent is not None for table in state.tables)


def redraw(rows: MovingRows, moves_labels: bool, of_base: "RowOfBase") -> int:
    """Draw the rows of a view and, where these are labels of rows, their labels; return how many are accepted.

    Parameters
    ----------
    rows : MovingRows
    moves_labels : bool
        Whether rows may change their clusters. This must not be where anything else depends on the labels, and
        needs :func:`can_move_labels`.
    of_base : RowOfBase
        What is proposed to rows alone; must not depend on the present rows.
    """
    state, work = rows.state, rows.work
    of_clusters = begin_draw(rows.rng, state, rows.v, rows.d, moves_labels, of_base, work)
    rows.prepare(moves_labels)
    if moves_labels and len(state.tables) > 1:
        _weigh_other_views(rows, of_clusters)
    propose(rows.address)
    rows.density.check()
    n_accepted = int(accept(rows.address))
    state.check_prior()
    has_room = n_accepted >= 0
    rows.take(has_room)
    return n_accepted if has_room else -1 - n_accepted


def _weigh_other_views(rows: MovingRows, of_clusters: np.ndarray) -> None:
    """Write what the other views say of the clusters (K,) of each row, and of a cluster of its own."""
    state, work, k = rows.state, rows.work, len(of_clusters)
    table = state.tables[rows.v]
    rows.others[:] = state.prior_predictive - table.log_predictives_alone()
    for own in state.tables:
        if own is not table:
            drawn = _parameters(rows.rng, own, of_clusters)
            work.at_mean[:k] += own.family.component.log_density(drawn, own.values).T
    work.at_mean[k] += rows.others


def begin_draw(
    rng: np.random.Generator, state: State, v: int, d: int, moves_labels: bool, of_base: "RowOfBase", work: Work
) -> np.ndarray:
    """Choose movable rows and draw the parameters of the clusters of a view, (n, d); return the clusters' slots.

    What is drawn is written to the memory; ``v`` is the view, and see :func:`redraw`.
    """
    table, slots, bits = state.tables[v], state.slots_of_rows(v), bits_of_generator(rng)
    n_means = len(of_base.mean)
    work.fit(table.n_rows, d, n_means, state.n_clusters + 1, state.capacity + 2)
    choose(state.address, work.address, address_of(slots), int(moves_labels), *bits)
    of_clusters = work.slots[: work.n_clusters - 1]
    if table.family.draw_normal is not None:
        table.prepare(("draw_normal",))
        origin = 0 if table.origin is None else address_of(table.origin)
        draw_clusters(work.address, table.address, origin, *bits)
    else:
        _take_drawn(work, table, _parameters(rng, table, of_clusters))
    _take_base(work, of_base)
    return of_clusters


def _parameters(rng: np.random.Generator, table: ClusterTable, slots: np.ndarray) -> dict[str, np.ndarray]:
    """Draw the parameters of clusters of a view."""
    return table.family.component.restore(draw_parameters(rng, table, slots), table.origin)


def _take_drawn(work: Work, table: ClusterTable, drawn: dict[str, np.ndarray]) -> None:
    """Write what is drawn for the clusters to the memory."""
    normal = table.family.component.normal_rows
    assert normal is not None
    means, roots = normal(drawn, table.values)
    work.means[: len(means)], roots = means, np.ascontiguousarray(roots, dtype=np.float64)
    take_clusters(work.address, address_of(roots), int(roots.ndim == 3))


def _take_base(work: Work, of_base: "RowOfBase") -> None:
    """Write what stands for a cluster of a row's own to the memory."""
    take_base(work.address, address_of(of_base.mean), address_of(of_base.precision), of_base.half_log_det)


def _precisions(roots: np.ndarray) -> np.ndarray:
    """Return precisions (K, d, d) from diagonals (K, d) or upper triangles (K, d, d)."""
    if roots.ndim == 2:
        return (roots**2)[:, :, None] * np.eye(roots.shape[1])
    return np.einsum("kji,kjl->kil", roots, roots)


class RowOfBase(NamedTuple):
    """A normal distribution near that of a row in a cluster of its own: mean (1 or n, d) and precision (d, d).

    Both arrays are C-contiguous.
    """

    mean: np.ndarray
    precision: np.ndarray
    half_log_det: float

    @property
    def diagonal(self) -> np.ndarray:
        """The diagonal of the precision: (d,)."""
        return np.diagonal(self.precision).copy()


def row_of_base(table: ClusterTable, d: int) -> RowOfBase:
    """Return a normal distribution near that of a row in a cluster of its own.

    It serves proposals only. Quantiles of draws are there whether moments are or not. The draws are the same every
    time, so that the result is a function of the parameters.
    """
    component = table.family.component
    normal = component.normal_rows
    assert normal is not None
    rng = np.random.default_rng(0)
    drawn = component.draw(rng, table.params, table.family.no_sums(table.params, N_OF_BASE))
    means, roots = normal(drawn, table.values)
    low, middle, high = np.sort(means, axis=0)[[N_OF_BASE // 6, N_OF_BASE // 2, -N_OF_BASE // 6]]
    spread = np.mean((0.5 * (high - low)) ** 2, axis=0)
    within = np.linalg.inv(_precisions(roots).mean(axis=0))
    precision = np.linalg.inv(within + np.diag(spread))
    middle, precision = (np.ascontiguousarray(own, dtype=np.float64) for own in (middle, precision))
    return RowOfBase(middle, precision, 0.5 * float(np.linalg.slogdet(precision)[1]))
