"""Prior and posterior distribution of the number of clusters."""

import warnings
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.partitions.n_clusters import n_clusters_pmf
from pymc_dpgmm.posterior.arrays.partitions import posterior_pmf
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import listed

# Number of draws of hyperparameters over which prior probabilities are averaged.
_N_DRAWS = 1_000


def n_clusters(idata: Any, name: str, *, model: pm.Model | None = None, random_seed: Any = None) -> xr.Dataset:
    """Return prior and posterior probabilities of the number of clusters.

    The prior probabilities are exact if the parameters of the prior on partitions are numbers. If these parameters
    are random, the probabilities are averaged over their prior: over the draws of ``pm.sample_prior_predictive``
    if ``idata`` has a group ``prior``, over quantiles of a single gamma distribution whose parameters are numbers,
    and otherwise over draws from ``model``.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    model : pm.Model, optional
        The model, from which the parameters are drawn if they are random and ``idata`` has no group ``prior``.
    random_seed : int or numpy.random.Generator, optional
        Seed of these draws.

    Returns
    -------
    Dataset
        ``prior`` and ``posterior`` (n_clusters,), from 1 to the largest number of clusters with a probability
        above 1e-4. The prior ignores ``known_labels`` and ``must_link``, and potentials of the labels, of which a
        warning tells.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or the prior of its parameters is not known.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.n_clusters(idata, "y")
    >>> found["prior"].sel(n_clusters=[1, 2, 3]).round(2).to_numpy()
    array([0.17, 0.38, 0.31])
    >>> int(found["posterior"].idxmax())
    2
    """
    return n_clusters_of(read_labelled(idata, name, model), random_seed)


def n_clusters_of(draws: MixtureDraws, random_seed: Any) -> xr.Dataset:
    """Return the result of :func:`n_clusters` for draws that have been read already."""
    n = draws.drawn.n
    posterior = posterior_pmf(draws.numbers.labels)
    if draws.potentials_on_labels:
        warnings.warn(
            f"the prior of the number of clusters is that of {draws.labels_name} alone: what the potentials "
            f"{listed(draws.potentials_on_labels)} change of it is not known. To see it, sample the model with "
            "the potentials and without the data",
            UserWarning,
            stacklevel=3,
        )
    prior = np.mean([n_clusters_pmf(p, n) for p in draws.priors(_N_DRAWS, random_seed)], axis=0)
    last = int(np.flatnonzero((prior > 1e-4) | (posterior > 1e-4))[-1])
    return xr.Dataset(
        {"prior": ("n_clusters", prior[1 : last + 1]), "posterior": ("n_clusters", posterior[1 : last + 1])},
        coords={"n_clusters": np.arange(1, last + 1)},
    )
