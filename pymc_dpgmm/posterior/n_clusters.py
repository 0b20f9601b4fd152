"""The number of clusters before and after the data."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.partitions import n_clusters_pmf
from pymc_dpgmm.posterior.arrays.partitions import posterior_pmf
from pymc_dpgmm.posterior.mixtures import MixtureDraws

# Draws of the prior's parameters over which the probabilities are averaged.
_N_DRAWS = 1_000


def n_clusters(idata: Any, name: str, *, model: pm.Model | None = None, random_seed: Any = None) -> xr.Dataset:
    """Return prior and posterior probabilities of the number of clusters.

    Given concentration and the like the prior probabilities are exact. Where these are random, they are averaged
    over draws from their prior: those of ``pm.sample_prior_predictive`` if ``idata`` has a group ``prior``, or
    draws of a model.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, of one of its views, or of its labels.
    model : pm.Model, optional
    random_seed : int or numpy.random.Generator, optional
        Of draws of the model.

    Returns
    -------
    Dataset
        ``prior`` and ``posterior`` (n_clusters,), for 1 to the largest number with a probability above 1e-4. The
        prior is that of the partition alone: it does not know of ``known_labels`` and ``must_link``.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or the prior of its parameters is not known.
    """
    return n_clusters_of(MixtureDraws(idata, name, model), model, random_seed)


def n_clusters_of(draws: MixtureDraws, model: pm.Model | None, random_seed: Any) -> xr.Dataset:
    """Return what :func:`n_clusters` returns, for draws that are read already."""
    n = draws.drawn.n
    posterior = posterior_pmf(draws.numbers.labels)
    prior = np.mean([n_clusters_pmf(p, n) for p in draws.priors(model, _N_DRAWS, random_seed)], axis=0)
    last = int(np.flatnonzero((prior > 1e-4) | (posterior > 1e-4))[-1])
    return xr.Dataset(
        {"prior": ("n_clusters", prior[1 : last + 1]), "posterior": ("n_clusters", posterior[1 : last + 1])},
        coords={"n_clusters": np.arange(1, last + 1)},
    )
