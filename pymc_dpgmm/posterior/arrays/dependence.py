"""How much columns of a mixture tell of each other, and of the clusters: mutual information."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers, Partition

# A column varies if its numbers differ by more than this share of the largest one.
ROUNDING = 1e-12


def mutual_information(
    mixture: DrawNumbers,
    columns: Sequence[tuple[int, int]],
    n_rows: int,
    rng: np.random.Generator,
) -> np.ndarray:
    r"""Return the mutual information of pairs of columns under draws of the random mixing measure.

    Of columns a and b it is :math:`E \log_2 p(a, b) / (p(a) p(b))` (Cover and Thomas 2006, eq. 2.28), here a mean
    over rows that are drawn from the mixture. It is unbiased; of independent columns it scatters around 0. It is
    conditional on what comes with the rows, such as covariates, exposures and trials, as the data have these.

    Parameters
    ----------
    mixture : DrawNumbers
    columns : sequence of (view, column)
    n_rows : int
        Rows behind each mean.
    rng : numpy.random.Generator

    Returns
    -------
    (S, q, q) array, in bits, with NaN on the diagonal
    """
    return np.array([_of_draw(partition, columns, n_rows, rng) for partition in mixture.partitions()])


def _given(partition: Partition, n_rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return what comes with rows, such as exposures, in each view: that of rows of the data, drawn at random."""
    chosen: dict[int, np.ndarray] = {}
    found = []
    for clusters in partition.views:
        view = clusters.view
        if all(np.ndim(value) == 0 for value in view.given.values()):
            columns = view.base(partition.draw).given_columns((n_rows, view.d), np.empty((n_rows, view.d)))
            found.append(np.concatenate([np.empty((n_rows, 0)), *columns], axis=1))
            continue
        values = clusters.values
        # Views of the same rows have those of the same row.
        rows = chosen.setdefault(len(values), rng.integers(len(values), size=n_rows))
        found.append(values[rows, view.d :])
    return found


class _DrawnRows:
    """Rows drawn from a draw of the mixing measure, and their densities in its clusters.

    Parameters
    ----------
    partition : Partition
    n_rows : int
    rng : numpy.random.Generator
    """

    def __init__(self, partition: Partition, n_rows: int, rng: np.random.Generator) -> None:
        self._views, self._measure = partition.views, partition.draw_measure(rng)
        weights = self._measure.weights[0] / self._measure.weights[0].sum()
        labels = rng.choice(len(weights), size=n_rows, p=weights)
        with np.errstate(divide="ignore"):
            self.log_weights = np.log(weights)
        self._given = _given(partition, n_rows, rng)
        self._rows = [
            clusters.family.component.draw_rows(rng, drawn, labels, of_view)
            for clusters, drawn, of_view in zip(self._views, self._measure.drawn, self._given, strict=True)
        ]

    def in_clusters(self, v: int, chosen: Sequence[int]) -> np.ndarray:
        """Return log densities of some columns of a view in each cluster: (n, K)."""
        values = np.full_like(self._rows[v], np.nan)
        values[:, chosen] = self._rows[v][:, chosen]
        return self._views[v].log_densities(self._measure.drawn[v], np.hstack([values, self._given[v]]))

    def marginal(self, log_p: np.ndarray) -> np.ndarray:
        """Return log densities (n,) under the mixture, given those in each cluster."""
        found: np.ndarray = logsumexp(self.log_weights + log_p, axis=1)
        return found

    def varies(self, v: int, j: int) -> bool:
        """Tell whether a column varies by more than rounding; densities of others have no digits."""
        column = self._rows[v][:, j]
        return bool(np.ptp(column) > ROUNDING * np.abs(column).max())


def _of_draw(
    partition: Partition, columns: Sequence[tuple[int, int]], n_rows: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the mutual information of pairs of columns, (q, q), under a draw of the mixing measure."""
    rows = _DrawnRows(partition, n_rows, rng)
    alone = [rows.in_clusters(v, [j]) for v, j in columns]
    marginal = [rows.marginal(log_p) for log_p in alone]
    bits = np.full((len(columns), len(columns)), np.nan)
    varies = [rows.varies(v, j) for v, j in columns]
    for a, b in itertools.combinations(range(len(columns)), 2):
        if not (varies[a] and varies[b]):
            bits[a, b] = bits[b, a] = 0.0
            continue
        (v, i), (w, j) = columns[a], columns[b]
        both = rows.in_clusters(v, [i, j]) if v == w else alone[a] + alone[b]
        ratio = rows.marginal(both) - marginal[a] - marginal[b]
        bits[a, b] = bits[b, a] = ratio.mean() / np.log(2.0)
    return bits


class Relevance(NamedTuple):
    """What columns tell of clusters under each of S draws, in bits.

    Parameters
    ----------
    columns : (S, q) array
    all : (S,) array
        What all columns tell together.
    entropy : (S,) array
        Of the clusters' weights: the most that can be told.
    """

    columns: np.ndarray
    all: np.ndarray
    entropy: np.ndarray


def relevance_of(
    mixture: DrawNumbers, columns: Sequence[tuple[int, int]], n_rows: int, rng: np.random.Generator
) -> Relevance:
    r"""Return the mutual information of columns and clusters under draws of the random mixing measure.

    Of column a and the cluster k it is :math:`E \sum_k p(k | a) \log_2 (p(k | a) / p(k))` (Cover and Thomas 2006,
    eq. 2.28), here a mean over rows that are drawn from the mixture.
    """
    each = [_relevance_of_draw(partition, columns, n_rows, rng) for partition in mixture.partitions()]
    return Relevance(*(np.array(found) for found in zip(*each, strict=True)))


def _relevance_of_draw(
    partition: Partition, columns: Sequence[tuple[int, int]], n_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, float, float]:
    rows = _DrawnRows(partition, n_rows, rng)

    def told(log_p: np.ndarray) -> float:
        log_member = rows.log_weights + log_p
        log_member -= logsumexp(log_member, axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            terms = np.where(log_member > -np.inf, np.exp(log_member) * (log_member - rows.log_weights), 0.0)
        return float(terms.sum(axis=1).mean() / np.log(2.0))

    found = [told(rows.in_clusters(v, [j])) if rows.varies(v, j) else 0.0 for v, j in columns]
    of_views: dict[int, list[int]] = {}
    for v, j in columns:
        of_views.setdefault(v, []).append(j)
    together = sum(rows.in_clusters(v, chosen) for v, chosen in of_views.items())
    weights = np.exp(rows.log_weights)
    entropy = -np.sum(np.where(weights > 0.0, weights * np.log2(np.maximum(weights, 1e-300)), 0.0))
    return np.array(found), told(np.asarray(together)), float(entropy)
