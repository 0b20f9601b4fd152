"""How much one column of a mixture tells of another: mutual information."""

import itertools
from collections.abc import Sequence

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


def _of_draw(
    partition: Partition, columns: Sequence[tuple[int, int]], n_rows: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the mutual information of pairs of columns, (q, q), under a draw of the mixing measure."""
    measure = partition.draw_measure(rng)
    weights = measure.weights[0] / measure.weights[0].sum()
    labels = rng.choice(len(weights), size=n_rows, p=weights)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    components = [clusters.family.component for clusters in partition.views]
    given = _given(partition, n_rows, rng)
    rows = [
        component.draw_rows(rng, drawn, labels, of_view)
        for component, drawn, of_view in zip(components, measure.drawn, given, strict=True)
    ]

    def in_clusters(v: int, *chosen: int) -> np.ndarray:
        """Return log densities of some columns of a view in each cluster: (n, K)."""
        values = np.full_like(rows[v], np.nan)
        values[:, chosen] = rows[v][:, chosen]
        return partition.views[v].log_densities(measure.drawn[v], np.hstack([values, given[v]]))

    alone = [in_clusters(v, j) for v, j in columns]
    marginal = [logsumexp(log_weights + log_p, axis=1) for log_p in alone]
    bits = np.full((len(columns), len(columns)), np.nan)
    # Numbers that are all the same, up to rounding, tell nothing, and their densities have no digits.
    largest = [np.abs(rows[v][:, j]).max() for v, j in columns]
    varies = [np.ptp(rows[v][:, j]) > ROUNDING * most for (v, j), most in zip(columns, largest, strict=True)]
    for a, b in itertools.combinations(range(len(columns)), 2):
        if not (varies[a] and varies[b]):
            bits[a, b] = bits[b, a] = 0.0
            continue
        (v, i), (w, j) = columns[a], columns[b]
        both = in_clusters(v, i, j) if v == w else alone[a] + alone[b]
        ratio = logsumexp(log_weights + both, axis=1) - marginal[a] - marginal[b]
        bits[a, b] = bits[b, a] = ratio.mean() / np.log(2.0)
    return bits
