"""Posterior predictive draws of new rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers


class NewRows(NamedTuple):
    """New rows of each view, (n_draws, n_rows, d) arrays, and their clusters, a (n_draws, n_rows) int64 array."""

    clusters: np.ndarray
    rows: list[np.ndarray]


def draw_new_rows(
    mixture: MixtureNumbers, n_rows: int, given: Sequence[np.ndarray], rng: np.random.Generator
) -> NewRows:
    """Draw new rows jointly in every draw; ``given`` has their covariates in each view: (n_rows, c) arrays.

    Raises
    ------
    ValueError
        If a family does not take these covariates.
    """
    clusters_of_rows = np.empty((mixture.n_draws, n_rows), dtype=np.int64)
    rows = [np.empty((mixture.n_draws, n_rows, view.d)) for view in mixture.views]
    for partition in mixture.partitions():
        labels = partition.seats.seat(rng, n_rows)
        n_new = max(int(labels.max()) + 1 - len(partition.sizes), 0)
        for clusters, rows_of_view, covariates in zip(partition.views, rows, given, strict=True):
            drawn = clusters.draw_with_new(rng, n_new)
            new = clusters.family.component.draw_rows(rng, drawn, labels, covariates)
            if partition.draw == 0 and covariates.size:
                # The family checks covariates together with rows; the first draw is enough.
                clusters.family.check_values(clusters.view.params(0), np.concatenate([new, covariates], axis=1))
            rows_of_view[partition.draw] = new
        names = getattr(partition.seats, "names", None)
        clusters_of_rows[partition.draw] = labels if names is None else names[labels]
    return NewRows(clusters_of_rows, rows)
