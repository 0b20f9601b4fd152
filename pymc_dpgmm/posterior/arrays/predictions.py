r"""Some entries of new rows given the others.

Given the partition of a draw, a new row with known entries x belongs to cluster k with a probability proportional
to its seating probability times the predictive density of x there, and its unknown entries u follow the predictive
of that cluster given x. The draws of the posterior are conditional on the data alone. They count in proportion to
the density of x in each, which makes everything conditional on x as well:

.. math:: p(u \mid x, \mathrm{data}) = \frac{\sum_s \sum_k w_{sk}\, p_{sk}(x)\, p_{sk}(u \mid x)}
                                         {\sum_s \sum_k w_{sk}\, p_{sk}(x)}

(Mueller, Erkanli and West 1996, section 3). The bands are those of a functional of the random mixing measure G,
such as the regression curve :math:`E_G(u \mid x)`, whose posterior is conditional on the data alone: its weights
and parameters are drawn, as for the bands of a density.

Each new row is treated separately, as the next row after the data. With units, a new row is treated together with
what is known of the other rows of its unit, see :mod:`pymc_dpgmm.posterior.arrays.new_rows`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from pymc_dpgmm.families.contract.component import DrawnValues
from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers, Partition, ViewDraws
from pymc_dpgmm.posterior.arrays.new_rows import GivenPartition, NewRows, Units, Unknown
from pymc_dpgmm.posterior.arrays.partitions import shared_rows, shares_of_reference
from pymc_dpgmm.posterior.arrays.rows import draw_rows_of_table


class Answer(NamedTuple):
    """What is asked of m rows.

    Parameters
    ----------
    mean, lower, upper : (m, ...) arrays
        The posterior mean, and limits of the pointwise band.
    effective_draws : (m,) array
        How many draws of equal weight are worth as much as all draws, weighed by the known entries.
    """

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    effective_draws: np.ndarray


def log_densities(mixture: DrawNumbers, new: Sequence[Unknown], units: Units | None = None) -> np.ndarray:
    """Return log posterior predictive densities of what is known of each row, and the rest of its unit: (m,)."""
    every = NewRows(mixture.views, new, units)
    total = np.full(every.n_rows, -np.inf)
    for (_, at), partition, rows in every.draws(mixture):
        total[at] = np.logaddexp(total[at], logsumexp(rows.log_joint(partition), axis=1))
    return total - np.log(mixture.n_draws)


class Membership(NamedTuple):
    """Probabilities of K clusters of a reference (m, K) and of a new cluster (m,), and log densities (m,)."""

    probability: np.ndarray
    new_cluster: np.ndarray
    log_density: np.ndarray


def membership_of(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units | None, reference: np.ndarray
) -> Membership:
    """Return the probabilities that m new rows belong to the clusters of a reference (n,), given what is known."""
    n_clusters, every = int(reference.max()) + 1, NewRows(mixture.views, new, units)
    # Draws condition on the data alone. Weights by the density of the new row make them condition on it too.
    total = np.full((every.n_rows, n_clusters + 1), -np.inf)
    for (_, at), partition, rows in every.draws(mixture):
        n_drawn = len(partition.sizes)
        shares = np.zeros((n_drawn + 1, n_clusters + 1))
        shares[:-1, :-1] = shares_of_reference(shared_rows(partition.labels, n_drawn, reference, n_clusters))
        shares[-1, -1] = 1.0
        log_joint = rows.log_joint(partition)
        with np.errstate(divide="ignore"):
            largest = log_joint.max(axis=1, keepdims=True)
            log_shares = largest + np.log(np.exp(log_joint - largest) @ shares)
        total[at] = np.logaddexp(total[at], log_shares)
    log_density = logsumexp(total, axis=1)
    probability = np.exp(total - log_density[:, None])
    return Membership(probability[:, :-1], probability[:, -1], log_density - np.log(mixture.n_draws))


def _mean_over_clusters(log_joint: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return averages (m, q) of means (m or 1, K, q), weighed by the clusters' probabilities."""
    weights = softmax(log_joint, axis=1)[:, :, None]
    return np.sum(np.where(weights > 0.0, weights * means, 0.0), axis=1)


def _normalized(log_known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of draws (S, m) from the log densities of what is known in each, and their worth (m,)."""
    weights = softmax(log_known, axis=0)
    return weights, 1.0 / np.sum(weights**2, axis=0)


def _answer(log_known: np.ndarray, means: np.ndarray, curves: np.ndarray, probability: float) -> Answer:
    """Return the result from conditional means, and those of random measures, of all draws: (S, m, ...)."""
    weights, effective = _normalized(log_known)
    shape = weights.shape + (1,) * (means.ndim - 2)
    limits = np.quantile(curves, tails(probability), axis=0)
    return Answer(np.sum(weights.reshape(shape) * means, axis=0), limits[0], limits[1], effective)


def means_given(
    mixture: DrawNumbers,
    new: Sequence[Unknown],
    units: Units | None,
    probability: float,
    rng: np.random.Generator,
) -> Answer:
    """Return means of what is asked given what is known, with bands of the conditional mean: (m, q).

    ``q`` are the columns asked for in all views, one view after the other.
    """
    every = NewRows(mixture.views, new, units)
    # Which of the columns that are asked for are directions: (q,).
    circular = np.concatenate(
        [
            np.full(len(each.asked), view.family.component.is_circular)
            for view, each in zip(mixture.views, new, strict=True)
        ]
    )
    log_known = np.empty((mixture.n_draws, every.n_rows))
    kind = np.complex128 if circular.any() else np.float64
    means, curves = (np.empty((mixture.n_draws, every.n_rows, len(circular)), dtype=kind) for _ in range(2))
    for at, partition, rows in every.draws(mixture):
        log_joint = rows.log_joint(partition)
        log_known[at] = logsumexp(log_joint, axis=1)
        predictives = [
            clusters.predictive() if len(each.asked) else {}
            for clusters, each in zip(partition.views, new, strict=True)
        ]
        means[at] = _mean_over_clusters(log_joint, _means(partition, rows.new, predictives))
        curves[at] = _curves_of(partition, rows, rng)
    found = _answer(log_known, means.real, curves.real, probability)
    if not circular.any():
        return found
    weights, effective = _normalized(log_known)
    mean = np.sum(weights[:, :, None] * means, axis=0)
    lower, upper = quantiles_about(np.angle(mean), np.angle(curves), tails(probability))
    numbers = found.mean, found.lower, found.upper
    mean, lower, upper = (
        np.where(circular, own, other) for own, other in zip((np.angle(mean), lower, upper), numbers, strict=True)
    )
    return Answer(mean, lower, upper, effective)


def curves_given(mixture: DrawNumbers, new: Sequence[Unknown], rng: np.random.Generator) -> np.ndarray:
    """Return expected entries of what is asked under a draw of the random measure from each partition: (S, m, q).

    What is drawn does not depend on the rows.
    """
    every = NewRows(mixture.views, new)
    curves = np.empty((mixture.n_draws, every.n_rows, sum(len(each.asked) for each in new)))
    for at, partition, rows in every.draws(mixture):
        curves[at] = _curves_of(partition, rows, rng)
    return curves


def completed_rows(
    mixture: DrawNumbers, new: Sequence[Unknown], n_each: int, rng: np.random.Generator
) -> Iterator[list[np.ndarray]]:
    """Yield, for a draw of the random measure from each partition, rows with all that is unknown drawn from it.

    Each view has (n_each * m, d), the m rows over and over.
    """
    values = [np.tile(each.values, (n_each, 1)) for each in new]
    for _, partition, rows in NewRows(mixture.views, new).draws(mixture):
        measure = partition.draw_measure(rng)
        log_joint = np.tile(rows.log_joint_given(partition, measure), (n_each, 1))
        labels = draw_rows_of_table(rng, log_joint, len(log_joint))
        yield [
            clusters.completed(rng, drawn, labels, of_view)
            for clusters, drawn, of_view in zip(partition.views, measure.drawn, values, strict=True)
        ]


def _curves_of(partition: Partition | GivenPartition, rows: NewRows, rng: np.random.Generator) -> np.ndarray:
    """Return expected entries of what is asked under a draw of the random measure: (m, q)."""
    measure = partition.draw_measure(rng)
    log_joint = rows.log_joint_given(partition, measure)
    return _mean_over_clusters(log_joint, _means(partition, rows.new, measure.drawn))


def quantiles_about(centre: np.ndarray, angles: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Return quantiles of angles (n, ...) on the circle cut opposite to ``centre`` (...): (number, ...).

    They are within pi of the centre, and may so lie outside of [-pi, pi].
    """
    return centre + np.quantile(np.angle(np.exp(1j * (angles - centre))), shares, axis=0)


def tails(probability: float) -> list[float]:
    """Return the quantiles that bound what has this probability, with equal tails."""
    return [0.5 - 0.5 * probability, 0.5 + 0.5 * probability]


def _means(
    partition: Partition | GivenPartition, new: Sequence[Unknown], parameters: Sequence[DrawnValues]
) -> np.ndarray:
    """Return the means of what is asked in all clusters, (m or 1, K, q), from the parameters in each view."""
    found = []
    for clusters, each, of_view in zip(partition.views, new, parameters, strict=True):
        if len(each.asked):
            mean = clusters.family.component.mean
            assert mean is not None
            found.append(mean(of_view, each.values)[:, :, each.asked])
    n_rows = max(len(means) for means in found)
    return np.concatenate([np.broadcast_to(own, (n_rows, *own.shape[1:])) for own in found], axis=2)


def draws_given(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units | None, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw what is asked given what is known: of the rows of a unit together.

    Parameters
    ----------
    mixture : DrawNumbers
    new : sequence of Unknown
    units : Units or None
    n : int
        Number of draws of each row.
    rng : numpy.random.Generator

    Returns
    -------
    values : (n, m, q) array
        Draws of equal weight, in the order of the draws of the posterior that they come from.
    effective_draws : (m,) array
    """
    n_rows, n_asked = new[0].values.shape[0], sum(len(each.asked) for each in new)
    if units is not None:
        return _draws_of_units(mixture, new, units, n, rng)
    drawn, effective = draws_of_clusters(mixture, NewRows(mixture.views, new), n, rng)
    values = np.empty((n, n_rows, n_asked))
    for row, place, partition, _, labels in drawn:
        found = [
            clusters.draw_unknown(rng, labels, each.values[row])[:, each.asked]
            for clusters, each in zip(partition.views, new, strict=True)
            if len(each.asked)
        ]
        values[place, row] = np.concatenate(found, axis=1)
    return values, effective


def draws_of_clusters(
    mixture: DrawNumbers, every: NewRows, n: int, rng: np.random.Generator
) -> tuple[Iterator[tuple[np.ndarray, np.ndarray, Partition | GivenPartition, NewRows, np.ndarray]], np.ndarray]:
    """Draw ``n`` draws of the posterior and clusters for each row, given what is known.

    Returns
    -------
    drawn : iterator
        Rows (c,), which of their draws these are (c,), the partition, its rows, and labels (c,) there. The draws
        of a row are in the order of the draws of the posterior.
    effective_draws : (m,) array
    """
    log_known = np.empty((mixture.n_draws, every.n_rows))
    for at, partition, rows in every.draws(mixture):
        log_known[at] = logsumexp(rows.log_joint(partition), axis=1)
    weights, effective = _normalized(log_known)
    counts = stratified(rng, weights, n)
    before = np.cumsum(counts, axis=0) - counts

    def drawn() -> Iterator[Any]:
        for (s, at), partition, rows in every.draws(mixture):
            row = np.repeat(np.arange(every.n_rows)[at], counts[s, at])
            if not len(row):
                continue
            own = np.repeat(np.arange(rows.n_rows), counts[s, at])
            labels = draw_rows_of_table(rng, rows.log_joint(partition)[own], len(row))
            # The draws of a row from one draw of the posterior are next to each other.
            place = before[s, row] + np.arange(len(row)) - np.searchsorted(row, row)
            yield row, place, partition, rows, labels

    return drawn(), effective


def _draws_of_firsts(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, Iterator[Any], np.ndarray]:
    """Return one row of each unit, which stands for all of it, and draws of their clusters.

    As much is known with each row of a unit. See :func:`draws_of_clusters`.
    """
    first = units.firsts(mixture.views)
    firsts = NewRows(mixture.views, [each.of_rows(first) for each in new], units.of_rows(first))
    return first, *draws_of_clusters(mixture, firsts, n, rng)


def _draws_of_units(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw what is asked of the rows of units, those of one together: see :func:`draws_given`."""
    first, drawn, effective = _draws_of_firsts(mixture, new, units, n, rng)
    values = np.empty((n, len(units.unit), sum(len(each.asked) for each in new)))
    for row, place, partition, rows, labels in drawn:
        of_unit = np.flatnonzero(units.unit == units.unit[first[row[0]]])
        asked = [each.of_rows(of_unit) for each in new]
        values[place[:, None], of_unit] = _rows_of_unit(rng, partition, rows, asked, labels)
    return values, effective[np.searchsorted(units.unit[first], units.unit)]


def parameters_of_units(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units, n: int, rng: np.random.Generator
) -> tuple[dict[tuple[str, str], np.ndarray], np.ndarray]:
    """Draw the parameters of the clusters of units, whose rows are known, n times: arrays (n, U, ...), by view.

    After them is the worth (U,) of the draws of the posterior.
    """
    first, drawn, effective = _draws_of_firsts(mixture, new, units, n, rng)
    found: dict[tuple[str, str], np.ndarray] = {}
    for row, place, partition, rows, labels in drawn:
        for v, clusters in enumerate(partition.views):
            parameters = clusters.draw_of(rng, labels, rows.values[v], rows.places[v])
            for name in clusters.family.component.axes:
                key, values = (clusters.view.name, name), parameters[name]
                if key not in found:
                    found[key] = np.empty((n, len(first), *values.shape[1:]))
                found[key][place, row] = values
    return found, effective


def _rows_of_unit(
    rng: np.random.Generator,
    partition: Partition | GivenPartition,
    first: NewRows,
    new: Sequence[Unknown],
    labels: np.ndarray,
) -> np.ndarray:
    """Draw what is asked of the r rows of one unit together, once for each of some labels (n,): (n, r, q).

    ``first`` is a row of the unit, whose other known rows are in the clusters of the partition.
    """
    n, found = len(labels), []
    for v, (clusters, each) in enumerate(zip(partition.views, new, strict=True)):
        if not len(each.asked):
            continue
        n_rows, of_rows = len(each.values), np.repeat(np.arange(n), len(each.values))
        drawn = clusters.draw_of(rng, labels, first.values[v], first.places[v])
        rows = clusters.completed(rng, drawn, of_rows, np.tile(each.values, (n, 1)))
        found.append(rows.reshape(n, n_rows, -1)[:, :, each.asked])
    return np.concatenate(found, axis=2)


def stratified(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """Return how often each draw is drawn, (S, m), by stratified sampling of n for each of m rows.

    Draws of equal weight are drawn once or twice or not at all. (One random number for all strata, systematic
    sampling, would go wrong where weights are periodic.)
    """
    above = np.cumsum(weights, axis=0)
    counts = np.empty(weights.shape, dtype=np.int64)
    for i, of_row in enumerate(above.T):
        points = (np.arange(n) + rng.random(n)) * (of_row[-1] / n)
        chosen = np.minimum(np.searchsorted(of_row, points, side="right"), len(of_row) - 1)
        counts[:, i] = np.bincount(chosen, minlength=len(of_row))
    return counts


def densities_given(
    mixture: DrawNumbers,
    new: Sequence[Unknown],
    units: Units | None,
    points: np.ndarray,
    probability: float,
    rng: np.random.Generator,
) -> Answer:
    """Return densities of one or several columns at points (g, q) given what is known, with bands: (m, g).

    All columns that are asked for are in one view.
    """
    (asking,) = (v for v, each in enumerate(new) if len(each.asked))
    completed = np.repeat(new[asking].values[:, None], len(points), axis=1)
    completed[:, :, new[asking].asked] = points
    every = NewRows(mixture.views, new, units, {asking: completed})
    log_known = np.empty((mixture.n_draws, every.n_rows))
    means, curves = (np.empty((mixture.n_draws, every.n_rows, len(points))) for _ in range(2))
    for at, partition, rows in every.draws(mixture):
        clusters, known = partition.views[asking], rows.known[asking]
        others = rows.log_joint(partition, without=asking)
        log_known[at], means[at] = _density(others, clusters.log_predictives(rows.places[asking]), known, points)
        measure = partition.draw_measure(rng)
        others = rows.log_joint_given(partition, measure, without=asking)
        of_view = clusters.log_densities(measure.drawn[asking], rows.values_and_points(asking))
        _, curves[at] = _density(others, of_view, known, points)
    return _answer(log_known, means, curves, probability)


class _Distribution(NamedTuple):
    """The distribution of one column of new rows under a draw of the random measure, given what is known of them.

    Parameters
    ----------
    weights : (m, K) array
        Of the clusters, for each row.
    of_clusters : callable
        Returns the probability in each cluster of at most points (m, g): (m or 1, K, g).
    """

    weights: np.ndarray
    of_clusters: Callable[[np.ndarray], np.ndarray]

    def at_most(self, points: np.ndarray) -> np.ndarray:
        """Return the probability of at most points: (m, g)."""
        found: np.ndarray = np.sum(self.weights[:, :, None] * self.of_clusters(points), axis=1)
        return found


def _distributions(
    mixture: DrawNumbers, new: Sequence[Unknown], units: Units | None, rng: np.random.Generator
) -> Iterator[tuple[tuple[int, Any], np.ndarray, list[_Distribution]]]:
    """Yield log densities of what is known (m,), and the distributions of the columns asked for.

    Before them are the number of a draw, and the rows.
    """
    for at, partition, rows in NewRows(mixture.views, new, units).draws(mixture):
        measure = partition.draw_measure(rng)
        log_joint = rows.log_joint_given(partition, measure)
        weights, found = softmax(log_joint, axis=1), []
        for clusters, drawn, each in zip(partition.views, measure.drawn, rows.new, strict=True):
            for j in each.asked:
                cdf = clusters.family.component.cdf
                assert cdf is not None
                found.append(_Distribution(weights, partial(cdf, drawn, each.values, int(j))))
        yield at, logsumexp(log_joint, axis=1), found


def _asked(mixture: DrawNumbers, new: Sequence[Unknown]) -> list[tuple[ViewDraws, int]]:
    """Return the columns that are asked for: the view of each, and its position there."""
    return [(view, int(j)) for view, each in zip(mixture.views, new, strict=True) for j in each.asked]


def masses_below(
    mixture: DrawNumbers,
    new: Sequence[Unknown],
    units: Units | None,
    numbers: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log densities (S, m) of what is known, and the probability (S, m, g) of less than each number (g,).

    They are those of the one column that is asked for.
    """
    ((view, _),) = _asked(mixture, new)
    # Whole numbers below c are at most the one before it.
    points = np.ceil(numbers) - 1.0 if view.family.component.is_discrete else numbers
    log_known = np.empty((mixture.n_draws, new[0].values.shape[0]))
    below = np.empty((*log_known.shape, len(points)))
    for at, of_rows, (own,) in _distributions(mixture, new, units, rng):
        log_known[at] = of_rows
        below[at] = own.at_most(np.broadcast_to(points, (len(of_rows), len(points))))
    return log_known, below


def probabilities_below(
    mixture: DrawNumbers,
    new: Sequence[Unknown],
    units: Units | None,
    numbers: np.ndarray,
    probability: float,
    rng: np.random.Generator,
) -> Answer:
    """Return the probability that the column asked for is below each number (g,), with bands: (m, g)."""
    log_known, below = masses_below(mixture, new, units, numbers, rng)
    return _answer(log_known, below, below, probability)


# Halvings of the interval that has a quantile.
_HALVINGS = 60
_WIDEST = 1e150


def column_quantiles(
    mixture: DrawNumbers,
    new: Sequence[Unknown],
    units: Units | None,
    levels: Sequence[float] | np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return quantiles (S, m, g, q) at levels (g,) of the columns asked for under draws of the random mixture."""
    columns, wanted = _asked(mixture, new), np.asarray(levels)[None, :]
    bounds = [_bounds(view, j, mixture.n_draws) for view, j in columns]
    found = np.empty((mixture.n_draws, new[0].values.shape[0], wanted.shape[1], len(columns)))
    for at, of_rows, distributions in _distributions(mixture, new, units, rng):
        for q, (own, (view, _)) in enumerate(zip(distributions, columns, strict=True)):
            high = _least_above(own, wanted, bounds[q], len(of_rows))
            # A whole number is the least one that is not below.
            found[(*at, slice(None), q)] = np.floor(high) if view.family.component.is_discrete else high
    return found


def _bounds(view: ViewDraws, column: int, n_draws: int) -> tuple[float, float]:
    """Return the least and the largest number of a column of the data."""
    values = view.column_values([column], n_draws)
    values = values[~np.isnan(values)]
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _least_above(
    distribution: _Distribution, levels: np.ndarray, bounds: tuple[float, float], n_rows: int
) -> np.ndarray:
    """Return the least numbers (m, g) that are at least probabilities (1, g).

    ``bounds`` is an interval that may hold them; it is widened where it does not.
    """
    low, high = (np.full((n_rows, levels.shape[1]), bound) for bound in bounds)
    width = max(bounds[1] - bounds[0], 1.0)
    while width < _WIDEST:
        is_above, is_below = distribution.at_most(low) >= levels, distribution.at_most(high) < levels
        if not (is_above.any() or is_below.any()):
            break
        low, high, width = low - width * is_above, high + width * is_below, 2.0 * width
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_below = distribution.at_most(middle) < levels
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return high


def _density(
    others: np.ndarray, of_view: np.ndarray, known: np.ndarray, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return log densities of what is known (m,), and densities of points given it (m, g).

    Parameters
    ----------
    others : (m, K) array
        Log probabilities of each cluster, and of what other views know.
    of_view : (m known + m g, K) array
        Log densities in each cluster of what this view knows, and of the rows with each of the points.
    known : (m known,) integer array
        The rows of which this view knows something.
    points : (g, q) array
    """
    before = others.copy()
    before[known] += of_view[: len(known)]
    log_known = logsumexp(before, axis=1)
    completed = of_view[len(known) :].reshape(len(others), len(points), -1)
    with np.errstate(invalid="ignore"):
        joint = logsumexp(others[:, None, :] + completed, axis=2)
        return log_known, np.nan_to_num(np.exp(joint - log_known[:, None]), nan=0.0)
