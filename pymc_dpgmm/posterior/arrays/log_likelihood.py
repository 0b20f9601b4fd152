"""Pointwise log likelihoods, with labels summed out."""

import numpy as np
from scipy.special import logsumexp

from pymc_dpgmm.posterior.arrays.measures import draw_measure
from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers


def pointwise_log_likelihood(
    mixture: MixtureNumbers, rng: np.random.Generator, of: str | None = None
) -> np.ndarray:
    """Return the log likelihood of each row, or unit, given one draw of weights and parameters: (n_draws, n).

    With the name of one of several views, it is that of the row's entries in this view given its others.
    """
    n = mixture.labels.shape[1]
    found = np.empty((mixture.n_draws, n))
    for partition in mixture.partitions():
        measure = draw_measure(rng, partition, of_groups=True)
        total = np.log(np.maximum(measure.weights, np.finfo(np.float64).tiny))
        total = total if mixture.group is None else total[mixture.group]
        given = total
        for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
            own = clusters.family.component.log_density(drawn, clusters.observed_values())
            if clusters.view.unit is not None:
                of_units = np.zeros((n, own.shape[1]))
                np.add.at(of_units, clusters.view.unit, own)
                own = of_units
            total = total + own
            if clusters.view.name != of:
                given = given + own
        found[partition.draw] = logsumexp(total, axis=1)
        if of is not None:
            found[partition.draw] -= logsumexp(given, axis=1)
    return found
