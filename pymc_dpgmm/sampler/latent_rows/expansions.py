"""Expansions of the density of each latent row in each cluster: second-order, by differences about a point.

Derivatives are differences over a distance in the order of a row's standard deviation: what matters is the shape
of the density there, whether it has derivatives or not.
"""

import math

from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, NOTHING, c_function, floats_at, inlined, shifted
from pymc_dpgmm.native.triangles import definite_factor, set_diagonal, solve_lower, solve_upper, symmetric_entry
from pymc_dpgmm.sampler.latent_rows.row_density import log_densities
from pymc_dpgmm.sampler.latent_rows.work import n_points, read
from pymc_dpgmm.sampler.state.templates import DRAW_NORMAL, call_draw_normal

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
def _lay_out(points, n, d, i, distances):
    """Write the points (T, n, d) of an expansion of a row: the first one, where it is about, is there already.

    Then follow two along each column, and two along each pair of columns.
    """
    for j in range(d):
        for q in range(j + 1):
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
def _begin(w, places, distances):
    """Write the points (T, n, d) of expansions about places (n, d), at distances.

    What was known from other expansions is forgotten.
    """
    for at in range(w.n_clusters * w.n):
        w.best[at] = -math.inf
    d, n = w.d, w.n
    for entry in range(n * d):
        w.first[entry] = places[entry]
    for i in range(n):
        _lay_out(w.first, n, d, i, shifted(distances, i * d))


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
        half_log_det = call_draw_normal(
            table[DRAW_NORMAL], table, w.slots[k], mean, precision, w.scratch, next_double, bit_state
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
def _expand_column(w, tried, stride, values, following, is_own):
    """Do what :func:`_expand` does for rows of one column, in a third of the time."""
    n = w.n
    for k in range(w.n_clusters):
        precision = w.precisions[k]
        first, of_density, out = (
            shifted(tried, k * stride),
            shifted(values, k * stride),
            shifted(following, 0 if is_own else 3 * k * n),
        )
        for i in range(n):
            if is_own and w.clusters[i] != k:
                continue
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
            out[i], out[n + i], out[2 * n + i] = x, x + distance, x - distance


@inlined
def _is_unfinished(w, is_own):
    """Tell whether another expansion is worth while in a cluster that a row may well be in."""
    n = w.n
    for i in range(n):
        if is_own:
            if w.unfinished[w.clusters[i] * n + i] != 0:
                return 1
            continue
        largest = -math.inf
        for k in range(w.n_clusters):
            largest = max(largest, w.log_integrals[k * n + i])
        for k in range(w.n_clusters):
            if w.unfinished[k * n + i] != 0 and w.log_integrals[k * n + i] > largest - FAR_BELOW:
                return 1
    return 0


@inlined
def _expand(w, tried, stride, values, following, is_own):
    """Expand the density of every row in every cluster about the points that are tried, and keep the best.

    ``stride`` tells how many points there are from those for one cluster to those for the next: T n, or 0 where
    these are the same. What to evaluate next is written to ``following`` (K, T, n, d), and 1 returned where that
    is worth while. If rows are expanded in their own clusters, ``following`` is (T, n, d).
    """
    if w.d == 1:
        _expand_column(w, tried, stride, values, following, is_own)
        return _is_unfinished(w, is_own)
    d, n = w.d, w.n
    size = d * (d + 1) // 2
    moved, slope, step = w.scratch, shifted(w.scratch, d), shifted(w.scratch, 2 * d)
    distances, factor = shifted(w.scratch, 3 * d), shifted(w.scratch, 4 * d)
    for k in range(w.n_clusters):
        precision = shifted(w.precisions, k * size)
        first, of_density = shifted(tried, k * stride * d), shifted(values, k * stride)
        points = shifted(following, 0 if is_own else k * n_points(d) * n * d)
        for i in range(n):
            if is_own and w.clusters[i] != k:
                continue
            at, x, mean = k * n + i, shifted(first, i * d), _mean_of(w, k, i)
            mode, place = shifted(w.modes, at * d), shifted(w.places, at * d)
            for j in range(d):
                distances[j] = first[((1 + 2 * j) * n + i) * d + j] - x[j]
            value = of_density[i] + log_prior(w, k, i, x, moved, slope)
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
                    points[i * d + j] = mode[j]
                _lay_out(points, n, d, i, distances)
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
                points[i * d + j] = mode[j]
                if is_inside:
                    diagonal = factor[j * (j + 1) // 2 + j]
                    distances[j] = max(DISTANCE / diagonal, LEAST_DISTANCE * max(1.0, abs(x[j])))
                else:
                    distances[j] *= CLOSER
            _lay_out(points, n, d, i, distances)
            own = shifted(w.factors, at * size)
            for entry in range(size):
                own[entry] = factor[entry]
            w.best[at] = value
            w.log_integrals[at] = value - half_log_det + (0.5 * gain if is_finite else 0.0)
            w.unfinished[at] = 1 if gain > WORTH or not is_inside else 0
    return _is_unfinished(w, is_own)


@inlined
def expand_rows(w, density, anchors, distances, is_own, least):
    """Expand the density of every row in every cluster, or in its own, at ``least`` so many times.

    Expansions begin at ``anchors`` (n, d), and differences reach as far as ``distances`` (n, d).
    """
    n, n_of = w.n, n_points(w.d)
    _begin(w, anchors, distances)
    log_densities(density, w.first, n_of, w.of_first)
    tried, values, stride = w.first, w.of_first, 0
    following, spare = w.following, w.spare
    n_sets = n_of if is_own else w.n_clusters * n_of
    for done in range(1, 2 + MOST_EXPANSIONS):
        if _expand(w, tried, stride, values, following, is_own) == 0 and done >= least:
            break
        tried, stride = following, 0 if is_own else n_of * n
        following, spare = spare, following
        log_densities(density, tried, n_sets, w.of_following)
        values = w.of_following


KERNELS = (take_clusters, draw_clusters, take_base)
