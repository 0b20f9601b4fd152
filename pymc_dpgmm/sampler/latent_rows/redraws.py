r"""Draws of latent rows together with their labels.

The rest of a model says of row i that its log density is :math:`f_i(x_i)`. Rows chosen at random are *movable*.
The parameters of the clusters are drawn given labels and rows, except those of movable rows that are alone, and
forgotten afterwards. Given them, label and value of a movable row have the density

.. math:: p(k, x) \propto v_k \, N(x \mid m_{ki}, \Lambda_k^{-1}) \, e^{f_i(x)}, \qquad
          p(\text{alone}, x) \propto v_0 \, t_i(x) \, e^{f_i(x)}

for the clusters that have rows which were not chosen: what these are does not depend on movable rows. Here
:math:`v_k` and :math:`v_0` are the weights with which a row joins a cluster and opens one, given all other rows,
and :math:`t_i` is the predictive density of a row in a cluster of its own. All other rows keep their label.
``docs/moves.md`` has the proof.

Label and value are proposed at once, whatever they are now: the cluster with a probability proportional to the
Laplace approximation of its integral over x, and the value from a multivariate t about the mode in it (Gelman et
al. 2013, section 13.3). The proposal is accepted by the ratio of Metropolis and Hastings, in which target and
proposal are evaluated at the new and at the present value. The tails of a t are heavier than those of the normal
prior, so that no value can hold a chain for long (Tierney 1994, corollary 4). All rows are proposed together, and
accepted one after the other, since weights depend on how many rows have come and gone.

Expansions start from an *anchor* of each row, which does not move after tuning: a proposal must not depend on the
value that it replaces. Derivatives are differences over a distance in the order of a row's standard deviation:
what matters is the shape of the density there, whether it has derivatives or not.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits, standard_gamma, standard_normal, uniform
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, bits_of_generator, c_function, inlined, shifted
from pymc_dpgmm.native.triangles import definite_factor, solve_lower, solve_upper, symmetric_entry
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.many_rows.drawn_clusters import draw_parameters
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table import Table, places_among

# Degrees of freedom of the proposals of values.
FREEDOM = 10.0
# No cluster is proposed less often than this logarithm says, relative to the most probable one.
LEAST_LOG_SHARE = -12.0
# The least share of movable rows. With many of them more rows change their label, with few of them more small
# clusters are open to others.
LEAST_MOVABLE = 0.3
# Draws of the base measure by which a cluster without rows is known to proposals.
N_OF_BASE = 60
# The log of an integral of which nothing is known.
UNKNOWN = -1e300
# Expansions in every cluster, after that at the anchor, at most: one is enough once anchors are learnt. They go on
# while a row moves by more than WORTH standard deviations squared, or to where its density is lower, in a cluster
# whose log integral is not further than FAR_BELOW from that of its best one.
MOST_EXPANSIONS, WORTH, FAR_BELOW = 15, 4.0, 12.0
# By how much a log density may be lower, for it to be no step too far.
SLACK = 0.5
# The distance of differences, in standard deviations; at least this part of a row's value, or of 1; and by what it
# is multiplied where it leads out of the support.
DISTANCE, LEAST_DISTANCE, CLOSER = 0.7, 1e-4, 0.25

# The log density that the rest of a model gives to rows: a function of (m, n, d) rows with (m, n) values.
Density = Callable[[np.ndarray], np.ndarray]

WORK = Block(
    n=NUMBER,
    # Those that have parameters, and, as the last one, clusters of movable rows that are alone.
    n_clusters=NUMBER,
    d=NUMBER,
    # The cluster of every row, how many rows each has, whether a row is movable, how many rows each cluster has
    # that are not, and the log weights with which clusters are proposed.
    clusters=blocks.INTS,
    sizes=blocks.INTS,
    movable=blocks.INTS,
    counts=blocks.FLOATS,
    log_seats=blocks.FLOATS,
    # Means of the clusters: one for all rows, or one for each.
    n_means=NUMBER,
    means=blocks.FLOATS,
    # Packed triangles of the precisions, and the log density of rows at their mean, with that of other views.
    precisions=blocks.FLOATS,
    at_mean=blocks.FLOATS,
    # The best expansion of every row in every cluster: its value, where it is, its mode, the factor of its
    # precision, and the log of its integral.
    best=blocks.FLOATS,
    places=blocks.FLOATS,
    modes=blocks.FLOATS,
    factors=blocks.FLOATS,
    log_integrals=blocks.FLOATS,
    # 1 where another expansion is worth while.
    unfinished=blocks.BYTES,
    # Where to evaluate next: (K, T, n, d), see :func:`n_points`.
    following=blocks.FLOATS,
    scratch=blocks.FLOATS,
)


class _Numbers(NamedTuple):
    """The block, in compiled code."""

    n: int
    n_clusters: int
    d: int
    clusters: np.ndarray
    sizes: np.ndarray
    movable: np.ndarray
    counts: np.ndarray
    log_seats: np.ndarray
    n_means: int
    means: np.ndarray
    precisions: np.ndarray
    at_mean: np.ndarray
    best: np.ndarray
    places: np.ndarray
    modes: np.ndarray
    factors: np.ndarray
    log_integrals: np.ndarray
    unfinished: np.ndarray
    following: np.ndarray
    scratch: np.ndarray


_read = WORK.reader(_Numbers)


@inlined
def _mean_of(w, k, i):
    """Return the mean of row i in cluster k."""
    return shifted(w.means, (k * w.n_means + (i if w.n_means > 1 else 0)) * w.d)


@inlined
def _log_prior(w, k, i, x, moved, pull):
    """Return the log of weight times normal density of a row in a cluster; write ``pull``, its gradient."""
    d, mean = w.d, _mean_of(w, k, i)
    precision = shifted(w.precisions, k * (d * (d + 1) // 2))
    for j in range(d):
        moved[j] = x[j] - mean[j]
    total = 0.0
    for j in range(d):
        pull[j] = -symmetric_entry(precision, moved, j, d)
        total += moved[j] * pull[j]
    return w.at_mean[k * w.n + i] + 0.5 * total


def n_points(d: int) -> int:
    """Return the number of points of an expansion: the place itself, two along each column, two for each pair."""
    return 1 + d + d * d


def points_about(places: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return the points (T, n, d) of expansions about places (n, d), at distances (n, d)."""
    d = places.shape[1]
    moves = [np.zeros(d)]
    for j in range(d):
        moves += [np.eye(d)[j], -np.eye(d)[j]]
    for j in range(d):
        for q in range(j):
            moves += [np.eye(d)[j] + np.eye(d)[q], -np.eye(d)[j] - np.eye(d)[q]]
    return places + np.array(moves)[:, None, :] * distances


@inlined
def _derive(values, n, i, distances, d, slope, factor):
    """Subtract second derivatives from ``factor`` and add first ones to ``slope``; tell whether all are finite."""
    middle = values[i]
    is_finite = True
    for j in range(d):
        up, down = values[(1 + 2 * j) * n + i], values[(2 + 2 * j) * n + i]
        slope[j] += 0.5 * (up - down) / distances[j]
        bend = up - 2.0 * middle + down
        factor[j * (j + 1) // 2 + j] -= bend / (distances[j] * distances[j])
        is_finite = is_finite and math.isfinite(bend)
    at = 1 + 2 * d
    for j in range(d):
        for q in range(j):
            bend = values[at * n + i] - 2.0 * middle + values[(at + 1) * n + i]
            for column in (j, q):
                bend -= values[(1 + 2 * column) * n + i] - 2.0 * middle + values[(2 + 2 * column) * n + i]
            factor[j * (j + 1) // 2 + q] -= 0.5 * bend / (distances[j] * distances[q])
            is_finite = is_finite and math.isfinite(bend)
            at += 2
    return is_finite


@inlined
def _lay_out(w, k, i, distances):
    """Write the points of the next expansion of a row in a cluster, in the order of :func:`points_about`.

    The first one, where it is about, is there already.
    """
    d, n = w.d, w.n
    points = shifted(w.following, k * (1 + d + d * d) * n * d)
    for j in range(d):
        for q in range(j + 1):
            # Along one column, or along two.
            first = 1 + 2 * j if q == j else 1 + 2 * d + j * (j - 1) + 2 * q
            for side in range(2):
                point = shifted(points, ((first + side) * n + i) * d)
                sign = 1.0 if side == 0 else -1.0
                for column in range(d):
                    point[column] = points[i * d + column]
                point[j] += sign * distances[j]
                if q != j:
                    point[q] += sign * distances[q]


@inlined
def _expand_column(w, tried, stride, values):
    """Do what :func:`expand` does for rows of one column, in a third of the time."""
    n = w.n
    for k in range(w.n_clusters):
        precision = w.precisions[k]
        first, of_density, following = shifted(tried, k * stride), shifted(values, k * stride), 3 * k * n
        for i in range(n):
            at, x, mean = k * n + i, first[i], w.means[k * w.n_means + (i if w.n_means > 1 else 0)]
            moved, distance, middle = x - mean, first[n + i] - x, of_density[i]
            value = middle + w.at_mean[at] - 0.5 * precision * moved * moved
            is_known = w.best[at] > -math.inf
            w.unfinished[at] = 0
            if math.isfinite(value) and value >= w.best[at] - SLACK:
                up, down = of_density[n + i], of_density[2 * n + i]
                bend = up - 2.0 * middle + down
                is_inside = math.isfinite(bend)
                curvature = precision - bend / (distance * distance)
                if not (is_inside and curvature > 1e-12 * precision):
                    curvature = precision
                slope = 0.5 * (up - down) / distance - precision * moved if is_inside else 0.0
                step, root = slope / curvature, math.sqrt(curvature)
                if not math.isfinite(step):
                    step = slope = 0.0
                w.best[at], w.places[at], w.modes[at], w.factors[at] = value, x, x + step, root
                w.log_integrals[at] = value - math.log(root) + 0.5 * slope * step
                w.unfinished[at] = 1 if slope * step > WORTH or not is_inside else 0
                least = LEAST_DISTANCE * max(1.0, abs(x))
                distance = max(DISTANCE / root, least) if is_inside else CLOSER * distance
                x += step
            elif is_known:
                # Too far: half the way back to what is best.
                w.modes[at] = x = 0.5 * (w.places[at] + x)
                w.log_integrals[at], w.unfinished[at] = w.best[at] - math.log(w.factors[at]), 1
            else:
                w.unfinished[at] = 1 if x != mean else 0
                w.places[at] = w.modes[at] = x = mean
                w.factors[at], w.log_integrals[at] = math.sqrt(precision), UNKNOWN
            w.following[following + i] = x
            w.following[following + n + i] = x + distance
            w.following[following + 2 * n + i] = x - distance


@c_function(NOTHING(INTS, FLOATS, INT, FLOATS))
def expand(block, tried, stride, values):
    """Expand the density of every row in every cluster about the points that are tried, and keep the best.

    ``stride`` tells how many points there are from those for one cluster to those for the next: T n, or 0 where
    these are the same.
    """
    w = _read(block)
    if w.d == 1:
        _expand_column(w, tried, stride, values)
        return
    d, n = w.d, w.n
    size = d * (d + 1) // 2
    moved, slope, step = w.scratch, shifted(w.scratch, d), shifted(w.scratch, 2 * d)
    distances, factor = shifted(w.scratch, 3 * d), shifted(w.scratch, 4 * d)
    for k in range(w.n_clusters):
        precision = shifted(w.precisions, k * size)
        first, of_density = shifted(tried, k * stride * d), shifted(values, k * stride)
        for i in range(n):
            at, x, mean = k * n + i, shifted(first, i * d), _mean_of(w, k, i)
            mode, place = shifted(w.modes, at * d), shifted(w.places, at * d)
            following = shifted(w.following, (k * (1 + d + d * d) * n + i) * d)
            for j in range(d):
                distances[j] = first[((1 + 2 * j) * n + i) * d + j] - x[j]
            value = of_density[i] + _log_prior(w, k, i, x, moved, slope)
            is_known = w.best[at] > -math.inf
            w.unfinished[at] = 0
            if not (math.isfinite(value) and value >= w.best[at] - SLACK):
                own = shifted(w.factors, at * size)
                if not is_known:
                    # Nothing is known but the cluster.
                    for j in range(d):
                        if x[j] != mean[j]:
                            w.unfinished[at] = 1
                    for j in range(d):
                        place[j] = mode[j] = mean[j]
                    for entry in range(size):
                        own[entry] = precision[entry]
                    definite_factor(own, d)
                    w.log_integrals[at] = UNKNOWN
                else:
                    # Too far: half the way back to what is best.
                    w.log_integrals[at], w.unfinished[at] = w.best[at], 1
                    for j in range(d):
                        mode[j] = 0.5 * (place[j] + x[j])
                        w.log_integrals[at] -= math.log(own[j * (j + 1) // 2 + j])
                for j in range(d):
                    following[j] = mode[j]
                _lay_out(w, k, i, distances)
                continue
            for entry in range(size):
                factor[entry] = precision[entry]
            is_inside = _derive(of_density, n, i, distances, d, slope, factor)
            half_log_det = definite_factor(factor, d) if is_inside else math.nan
            if not math.isfinite(half_log_det):
                # No maximum nearby: what the cluster says alone.
                for entry in range(size):
                    factor[entry] = precision[entry]
                half_log_det = definite_factor(factor, d)
            gain = 0.0
            if is_inside:
                solve_lower(factor, slope, step, d)
                for j in range(d):
                    gain += step[j] * step[j]
                solve_upper(factor, step, d)
            is_finite = is_inside and math.isfinite(gain)
            for j in range(d):
                place[j] = x[j]
                mode[j] = x[j] + step[j] if is_finite else x[j]
                following[j] = mode[j]
                if is_inside:
                    diagonal = factor[j * (j + 1) // 2 + j]
                    distances[j] = max(DISTANCE / diagonal, LEAST_DISTANCE * max(1.0, abs(x[j])))
                else:
                    distances[j] *= CLOSER
            _lay_out(w, k, i, distances)
            own = shifted(w.factors, at * size)
            for entry in range(size):
                own[entry] = factor[entry]
            w.best[at] = value
            w.log_integrals[at] = value - half_log_det + (0.5 * gain if is_finite else 0.0)
            w.unfinished[at] = 1 if gain > WORTH or not is_inside else 0


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


@c_function(NOTHING(INTS, INTS, FLOATS, INTS, FLOATS, FLOATS, INT, INT))
def propose(head, block, rows, chosen, proposed, log_proposals, next_double, bit_state):
    """Propose cluster and value of every row.

    Parameters
    ----------
    head : of the state
    block : see :data:`WORK`
    rows : (n, d)
        Present values.
    chosen, proposed : (n,) and (n, d)
        Written.
    log_proposals : (n,)
        Written: the log density of the proposal at what is proposed, less that at what is there.
    next_double, bit_state
        The generator.
    """
    w, prior = _read(block), prior_of(memory_at(head))
    bits = Bits(next_double, bit_state)
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
        factor, x = shifted(w.factors, at * (d * (d + 1) // 2)), shifted(proposed, i * d)
        for j in range(d):
            x[j] = standard_normal(bits)
        solve_upper(factor, x, d)
        scale = math.sqrt(0.5 * FREEDOM / standard_gamma(bits, 0.5 * FREEDOM))
        for j in range(d):
            x[j] = w.modes[at * d + j] + scale * x[j]
        log_proposals[i] = log_share + _log_proposal(w, k, i, x, moved)
        log_proposals[i] -= log_share_before + _log_proposal(w, before, i, shifted(rows, i * d), moved)
        chosen[i] = k


@inlined
def _log_target(w, prior, i, k, x, alone, n_others, n_clusters, moved, pull):
    """Return the log density of cluster and value of a row, without what the rest of the model says."""
    if k == w.n_clusters - 1:
        return alone + log_seat_new(prior, n_clusters)
    own = _log_prior(w, k, i, x, moved, pull)
    return own + log_seat(prior, n_others) if w.movable[i] != 0 else own


@c_function(INT(INTS, INTS, FLOATS, FLOATS, FLOATS, INTS, FLOATS, FLOATS, FLOATS, FLOATS, INT, INT))
def accept(
    head,
    block,
    rows,
    values,
    alone,
    chosen,
    proposed,
    new_values,
    new_alone,
    log_proposals,
    next_double,
    bit_state,
):
    """Accept proposals, or not: clusters, rows, and the values of their density; return how many are.

    ``alone`` and ``new_alone`` are log predictive densities of rows in clusters of their own.
    """
    w, prior = _read(block), prior_of(memory_at(head))
    bits = Bits(next_double, bit_state)
    d, last = w.d, w.n_clusters - 1
    moved, pull = w.scratch, shifted(w.scratch, d)
    sizes, n_accepted = w.sizes, 0
    # The clusters that there are: in sizes, and rows that are alone.
    n_clusters = sizes[last]
    for k in range(last):
        n_clusters += 1 if sizes[k] > 0 else 0
    for i in range(w.n):
        before, k = w.clusters[i], chosen[i]
        sizes[before] -= 1
        # An instantiated cluster keeps rows that are not movable.
        others = n_clusters - 1 if before == last else n_clusters
        old, new = shifted(rows, i * d), shifted(proposed, i * d)
        log_ratio = (
            _log_target(w, prior, i, k, new, new_alone[i], sizes[k], others, moved, pull)
            + new_values[i]
            - _log_target(w, prior, i, before, old, alone[i], sizes[before], others, moved, pull)
            - values[i]
            - log_proposals[i]
        )
        # A comparison with what is not a number is false.
        if math.log(1.0 - uniform(bits)) < log_ratio:
            n_accepted += 1
            w.clusters[i], values[i] = k, new_values[i]
            n_clusters = others + 1 if k == last else others
            for j in range(d):
                old[j] = new[j]
        sizes[w.clusters[i]] += 1
    return n_accepted


class Redrawn(NamedTuple):
    """What a redraw has made.

    Parameters
    ----------
    rows : (n, d) array
    values : (n,) array
        The log densities that the rest of the model gives to them.
    n_accepted : int
        Rows whose proposal was accepted.
    """

    rows: np.ndarray
    values: np.ndarray
    n_accepted: int


def redraw(
    rng: np.random.Generator,
    state: State,
    v: int,
    density: Density,
    anchors: np.ndarray,
    distances: np.ndarray,
    moves_labels: bool,
    of_base: "RowOfBase | None" = None,
) -> Redrawn:
    """Draw the rows of a view and, where these are labels of rows, their labels.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place, the rows of the view too.
    v : int
        The view.
    density : callable
        Of rows as the view has them.
    anchors, distances : (n, d) arrays
        Where to expand first, and how far differences reach; must not depend on the present rows.
    moves_labels : bool
        Whether rows may change their clusters. This must not be where anything else depends on the labels.
    of_base : RowOfBase, optional
        What is proposed to rows alone, where it is known; must not depend on the present rows.
    """
    table = state.tables[v]
    n, d = table.n_rows, anchors.shape[1]
    movable = MovableRows(rng, state, state.slots_of_rows(v), moves_labels)
    work = _Work(table, v, d, movable, of_base or row_of_base(table, d))
    alone = np.zeros(n)
    if moves_labels:
        alone = state.prior_predictive.copy()
        others = alone - table.log_predictives_alone() if len(state.tables) > 1 else np.zeros(n)
        for other, (own, drawn) in enumerate(zip(state.tables, movable.drawn, strict=True)):
            if other != v:
                work.at_mean[:-1] += own.family.component.log_density(drawn, own.values).T
        work.at_mean[-1] += others
    rows = table.values[:, :d].copy()
    proposal = work.propose(rng, state.address, density, points_about(anchors, distances), rows)
    new_alone = others + table.log_predictives_alone(proposal.rows) if moves_labels else alone
    n_accepted = work.accept(rng, state.address, rows, alone, proposal, new_alone)
    state.check_prior()
    state.take_rows(v, rows, movable.slots_of(work.clusters, state.capacity) if moves_labels else None)
    return Redrawn(rows, proposal.values, n_accepted)


class MovableRows:
    """Which rows are movable, and what is drawn for the clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    slots : (n,) int64 array
        Of the rows.
    moves_labels : bool

    Attributes
    ----------
    flags : (n,) int64 array
        1 for rows that may change their label, 0 for others.
    slots : (K,) int64 array
        The clusters that have parameters: all but those of movable rows that are alone.
    clusters : (n,) int64 array
        Places of the rows' clusters among these; K for movable rows that are alone.
    counts : (K,) array
        Numbers of rows of each cluster that are not movable, as if these were all rows.
    drawn : list of dict
        For each view, the parameters of the clusters.
    """

    def __init__(self, rng: np.random.Generator, state: State, slots: np.ndarray, moves_labels: bool) -> None:
        n, in_use = len(slots), state.order[: state.n_clusters].copy()
        self.flags, self.counts = np.zeros(n, dtype=np.int64), np.zeros(len(in_use))
        if moves_labels:
            chosen = np.zeros(n, dtype=np.bool_)
            n_chosen = min(n - 1, int(n * rng.uniform(LEAST_MOVABLE, 1.0)))
            chosen[rng.permutation(n)[:n_chosen]] = True
            fixed = np.bincount(slots[~chosen], minlength=state.capacity + 1)
            is_alone = chosen & (state.sizes[slots] == 1)
            self.flags[:] = chosen & ((fixed[slots] > 0) | is_alone)
            has_parameters = np.ones(state.capacity + 1, dtype=np.bool_)
            has_parameters[slots[is_alone]] = False
            in_use = in_use[has_parameters[in_use]]
            self.counts = fixed[in_use] * (n / (n - n_chosen))
        self.slots = in_use
        self.clusters = places_among(in_use, slots)
        self.drawn = [
            table.family.component.restore(draw_parameters(rng, table, in_use), table.origin)
            for table in state.tables
        ]

    def slots_of(self, clusters: np.ndarray, capacity: int) -> np.ndarray:
        """Return slots of the rows, given their clusters; rows that are alone get any that are not in use.

        They may be more than there are.
        """
        alone = np.flatnonzero(clusters == len(self.slots))
        is_free = np.ones(capacity + 1 + len(alone), dtype=np.bool_)
        is_free[self.slots] = False
        is_free[0] = False
        slots = self.slots[np.minimum(clusters, len(self.slots) - 1)]
        slots[alone] = np.flatnonzero(is_free)[: len(alone)]
        return slots


class _Proposal(NamedTuple):
    """Proposed clusters, rows and their densities; log ratios of the proposal; densities of the present rows."""

    clusters: np.ndarray
    rows: np.ndarray
    new_values: np.ndarray
    log_proposals: np.ndarray
    values: np.ndarray


class _Work:
    """Memory and numbers of a redraw.

    Parameters
    ----------
    table : Table
    v : int
        Its view.
    d : int
        Number of columns of rows.
    movable : MovableRows
    of_base : RowOfBase
    """

    def __init__(self, table: Table, v: int, d: int, movable: MovableRows, of_base: "RowOfBase") -> None:
        normal = table.family.component.normal_rows
        assert normal is not None
        means, roots = normal(movable.drawn[v], table.values)
        n, k, size = table.n_rows, len(means) + 1, d * (d + 1) // 2
        self.n, self.d = n, d
        diagonals = roots if roots.ndim == 2 else np.diagonal(roots, axis1=1, axis2=2)
        # The last one stands for clusters of one row.
        all_means, precisions, self.at_mean = (
            np.empty((k, means.shape[1], d)),
            np.zeros((k, size)),
            np.empty((k, n)),
        )
        all_means[:-1], all_means[-1] = means, of_base.mean
        rows, columns = np.tril_indices(d)
        if roots.ndim == 2:
            precisions[:-1, rows == columns] = roots**2
        else:
            precisions[:-1] = _precisions(roots)[:, rows, columns]
        precisions[-1] = of_base.precision[rows, columns]
        constant = -0.5 * d * math.log(2.0 * math.pi)
        self.at_mean[:-1] = (np.log(np.abs(diagonals)).sum(axis=1) + constant)[:, None]
        self.at_mean[-1] = of_base.half_log_det + constant
        self.following = np.empty((k, n_points(d), n, d))
        self.log_integrals, self.unfinished = np.empty((k, n)), np.zeros((k, n), dtype=np.uint8)
        self.clusters = movable.clusters
        self._arrays = {
            "clusters": self.clusters,
            "sizes": np.bincount(self.clusters, minlength=k),
            "movable": movable.flags,
            "counts": np.append(movable.counts, 0.0),
            "log_seats": np.empty(k),
            "means": all_means,
            "precisions": precisions,
            "at_mean": self.at_mean,
            "best": np.full((k, n), -np.inf),
            "places": np.empty((k, n, d)),
            "modes": np.empty((k, n, d)),
            "factors": np.empty((k, n, size)),
            "log_integrals": self.log_integrals,
            "unfinished": self.unfinished,
            "following": self.following,
            "scratch": np.empty(5 * d + size + k),
        }
        self._block = WORK.filled(n=n, n_clusters=k, d=d, n_means=means.shape[1], **self._arrays)

    def propose(
        self, rng: np.random.Generator, head: int, density: Density, points: np.ndarray, rows: np.ndarray
    ) -> _Proposal:
        """Propose clusters and values of all rows. ``points`` (T, n, d) are those of the first expansion."""
        n, d = self.n, self.d
        values, of_points = np.split(density(np.concatenate([rows[None], points])), [1])
        self._expand(points, 0, of_points)
        for _ in range(MOST_EXPANSIONS):
            tried = self.following.copy()
            self._expand(tried, tried.shape[1] * n, density(tried.reshape(-1, n, d)))
            if not np.any(self.unfinished & (self.log_integrals > self.log_integrals.max(axis=0) - FAR_BELOW)):
                break
        clusters, proposed, log_proposals = np.empty(n, dtype=np.int64), np.empty((n, d)), np.empty(n)
        arrays = [rows, clusters, proposed, log_proposals]
        propose(head, self._block.ctypes.data, *(array.ctypes.data for array in arrays), *bits_of_generator(rng))
        new_values = np.ascontiguousarray(density(proposed[None])[0])
        return _Proposal(clusters, proposed, new_values, log_proposals, values[0].copy())

    def accept(
        self,
        rng: np.random.Generator,
        head: int,
        rows: np.ndarray,
        alone: np.ndarray,
        proposal: _Proposal,
        new_alone: np.ndarray,
    ) -> int:
        """Accept proposals, or not; change rows, their values and clusters; return how many are accepted."""
        arrays = [rows, proposal.values, alone, proposal.clusters, proposal.rows, proposal.new_values, new_alone]
        arrays.append(proposal.log_proposals)
        addresses = (array.ctypes.data for array in arrays)
        return int(accept(head, self._block.ctypes.data, *addresses, *bits_of_generator(rng)))

    def _expand(self, tried: np.ndarray, stride: int, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, dtype=np.float64)
        expand(self._block.ctypes.data, tried.ctypes.data, stride, values.ctypes.data)


def _precisions(roots: np.ndarray) -> np.ndarray:
    """Return precisions (K, d, d) from diagonals (K, d) or upper triangles (K, d, d)."""
    if roots.ndim == 2:
        return (roots**2)[:, :, None] * np.eye(roots.shape[1])
    return np.einsum("kji,kjl->kil", roots, roots)


class RowOfBase(NamedTuple):
    """A normal distribution near that of a row in a cluster of its own: mean (1 or n, d) and precision (d, d)."""

    mean: np.ndarray
    precision: np.ndarray
    half_log_det: float


def row_of_base(table: Table, d: int) -> RowOfBase:
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
    return RowOfBase(middle, precision, 0.5 * float(np.linalg.slogdet(precision)[1]))
