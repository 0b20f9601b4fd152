"""Pointwise log likelihoods and replicates of the data, for ArviZ: cross-validation and predictive checks."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.draws import drawn_labels, with_group
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.posterior.stored import data_of


def log_likelihood(
    idata: Any,
    name: str,
    *,
    extend_inferencedata: bool = True,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.DataTree:
    r"""Add the pointwise log likelihood of a mixture, for ``az.loo`` and ``az.compare``.

    .. math:: \log p(y_i \mid w, \theta) = \log \sum_k w_k p(y_i \mid \theta_k)

    The weights and cluster parameters are drawn once for the partition of each draw, and the label of the row is
    summed out. Given weights and parameters the rows are independent, as importance sampling for leave-one-out
    cross-validation requires. ``pm.compute_log_likelihood`` calls this function for mixtures.

    ``az.loo`` computes the relative efficiency from the draws of the posterior. With :class:`ThinnedLabels` the
    log likelihood has fewer draws than the posterior. Thinned draws are nearly independent, so pass their relative
    efficiency: ``az.loo(idata, var_name="y", reff=1.0)``.

    For a :func:`DirichletProcess` the model is needed. The result is then the density of each row, or unit, given
    the parameters of all others; the parameter and the cluster of the row are integrated out.

    For one of several views, the result is the density of the row's entries in this view given its entries in the
    other views,

    .. math:: \log \sum_k w_k \prod_v p(y_{iv} \mid \theta_{kv})
              - \log \sum_k w_k \prod_{v \ne u} p(y_{iv} \mid \theta_{kv}),

    because the posterior conditions on the other entries. ``az.loo`` then leaves out the row's entries in one
    view.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture with one view, of one of several views, or of the labels, which stands for all views
        together.
    extend_inferencedata : bool
        Whether to add the result to the group ``log_likelihood`` of ``idata``, replacing a variable of that name.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of weights and parameters. Where ``idata`` has replicates by :func:`sample_replicates`,
        these are drawn with the seed of the replicates instead, as LOO-PIT requires.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    DataTree
        ``idata`` with a variable of shape (chain, draw, n) in the group ``log_likelihood``; or, with
        ``extend_inferencedata=False``, that group alone. In models with units, n is the number of units. The
        variable is named like the mixture or the view: for the labels ``y_labels`` of several views it is ``y``.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, a variable that is needed was not stored, or rows cannot be left out: the
        clusters of some rows are known, the rows are latent, or the labels enter the density of another variable.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> group = dp.log_likelihood(idata, "y", random_seed=1)["log_likelihood"]
    >>> group["y"].shape
    (1, 50, 6)
    """
    draws = read_labelled(idata, str(drawn_labels(idata, name).labels.name), model)
    if draws.is_constrained:
        raise ValueError(
            f"{draws.labels_name} has known_labels or must_link: rows are then not independent given weights and "
            "parameters, and there are no pointwise log likelihoods"
        )
    log_p, written, attrs = draws.log_likelihood(name, random_seed)
    drawn, row, coords, data = draws.drawn, draws.row, draws.drawn.coords(), data_of(idata, written)
    if row == f"{draws.labels_name}_dim_0" and data is not None and data.shape[:1] == (drawn.n,):
        # Labels without coordinates: take the dimension of the data, by which ArviZ aligns the two.
        row = str(data.dims[0])
        coords = {row: data[row]} if row in data.coords else {}
    array = xr.DataArray(
        drawn.by_chain(log_p),
        dims=("chain", "draw", row),
        coords=drawn.per_draw() | coords,
        name=written,
        attrs=attrs,
    )
    return with_group(idata, "log_likelihood", array.to_dataset(), extend_inferencedata)


def sample_replicates(
    idata: Any,
    name: str,
    *,
    extend_inferencedata: bool = True,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.DataTree:
    """Draw replicates of the data with new clusters for all rows, for ``az.plot_ppc_pit`` and LOO-PIT.

    In every draw the weights and parameters of all clusters are drawn given the partition. Then each row, or unit,
    is assigned to a cluster by the weights, those of its group for rows in groups, and drawn from that cluster
    with its covariates and offset. ``pm.sample_posterior_predictive`` instead leaves each row in its cluster in
    the draw, which was inferred from that row. Such replicates are too close to the data for checks that compare
    each row with its replicates.

    ``az.loo_pit`` weights the replicates of each draw by its log likelihood, so both must have the same weights
    and parameters. They do: whichever of :func:`log_likelihood` and this function is called second takes the seed
    that the first has stored with its result.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture with one view, of one of several views, or of the labels. The labels stand for all views
        together; replicates of a row then have the same cluster in all views. Replicates of one of several views
        are drawn given the row's entries in the other views, as in :func:`log_likelihood`.
    extend_inferencedata : bool
        Whether to add the result to the group ``posterior_predictive`` of ``idata``, replacing variables of the
        same names.
    random_seed : int or numpy.random.Generator, optional
        Seed of the clusters and entries of rows, and of weights and parameters where none is stored yet.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names, and for a :func:`DirichletProcess`.

    Returns
    -------
    DataTree
        ``idata`` with replicates in the group ``posterior_predictive``; or, with ``extend_inferencedata=False``,
        that group alone. The names, dimensions and coordinates are those of ``pm.sample_posterior_predictive``:
        for each view a variable (chain, draw, n) or (chain, draw, n, d), dtype float64, with its offset;
        categories are codes. For a :func:`DirichletProcess`, the observed variables that depend on its parameters.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, a variable that is needed was not stored, the rows are latent, or the clusters
        of some rows are known.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> group = dp.sample_replicates(idata, "y", random_seed=1)["posterior_predictive"]
    >>> group["y"].shape
    (1, 50, 6)
    """
    draws = read_labelled(idata, str(drawn_labels(idata, name).labels.name), model)
    if draws.is_constrained:
        raise ValueError(
            f"{draws.labels_name} has known_labels or must_link, so its rows cannot be assigned to clusters "
            "independently. pm.sample_posterior_predictive draws each row from its cluster in the draw"
        )
    replicates = draws.replicates(name, np.random.default_rng(random_seed))
    return with_group(idata, "posterior_predictive", replicates, extend_inferencedata)
