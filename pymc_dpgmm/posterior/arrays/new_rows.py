"""Rows that arrive after the data."""

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
    """Draw rows jointly in every draw; ``given`` comes with those of each view: (n_rows, c) arrays.

    Raises
    ------
    ValueError
        If what is given is not of a family's kind.
    """
    found_clusters = np.empty((mixture.n_draws, n_rows), dtype=np.int64)
    rows = [np.empty((mixture.n_draws, n_rows, view.d)) for view in mixture.views]
    for partition in mixture.partitions():
        labels = partition.seats.seat(rng, n_rows)
        n_new = max(int(labels.max()) + 1 - len(partition.sizes), 0)
        for clusters, found, known in zip(partition.views, rows, given, strict=True):
            drawn = clusters.draw_with_new(rng, n_new)
            own = clusters.family.component.draw_rows(rng, drawn, labels, known)
            if partition.draw == 0 and known.size:
                # Rows are of the family's kind if what comes with them is.
                clusters.family.check_values(clusters.view.params(0), np.concatenate([own, known], axis=1))
            found[partition.draw] = own
        names = getattr(partition.seats, "names", None)
        found_clusters[partition.draw] = labels if names is None else names[labels]
    return NewRows(found_clusters, rows)
