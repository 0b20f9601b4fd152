"""Pointwise log likelihoods, for leave-one-out cross-validation by ArviZ."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.log_likelihood import pointwise_log_likelihood
from pymc_dpgmm.posterior.draws import add_to_group, drawn_labels
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.processes import log_likelihood_of_process
from pymc_dpgmm.posterior.stored import data_of
from pymc_dpgmm.posterior.streams import SEED, shared_seed, streams_of


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
    draws = MixtureDraws(idata, str(drawn_labels(idata, name).labels.name), model)
    if draws.is_constrained:
        raise ValueError(
            f"{draws.labels_name} has known_labels or must_link: rows are then not independent given weights and "
            "parameters, and there are no pointwise log likelihoods"
        )
    if draws.has_atoms:
        log_p, written = log_likelihood_of_process(idata, draws, random_seed, model)
        return _stored(idata, draws, log_p, written, extend_inferencedata)
    # With the name of one view, the others are conditioned on.
    views = [view for view in draws.views if view.name == name] or list(draws.views)
    draws.refuse_powers("dp.log_likelihood")
    latent = [view.name for view in views if not draws.is_observed(view)]
    if latent:
        raise ValueError(
            f"{latent[0]} is latent, so none of its rows can be left out. Compare models by the log likelihood of "
            "the observed variables, pm.compute_log_likelihood(idata, var_names=[...]). It takes what each row "
            "has of its own as known, which flatters models with many clusters, so prefer data that were held out"
        )
    if draws.others_on_labels:
        raise ValueError(
            f"{', '.join(draws.others_on_labels)} depend on {draws.labels_name} too, and the posterior conditions "
            f"on them, so the density of a row of {views[0].name} alone does not leave the row out. Compare "
            "models by refitting without some of the rows, or without that variable"
        )
    names = [view.name for view in views]
    of = names[0] if len(names) < len(draws.views) else None
    written = names[0] if len(names) == 1 else draws.labels_name.removesuffix("_labels")
    # Replicates of all views together serve each view.
    seed = shared_seed(idata, ("posterior_predictive",), [written, *names], np.random.default_rng(random_seed))
    log_p = pointwise_log_likelihood(draws.numbers, streams_of(seed, draws.drawn), of)
    return _stored(idata, draws, log_p, written, extend_inferencedata, {SEED: seed})


def _stored(
    idata: Any,
    draws: MixtureDraws,
    log_p: np.ndarray,
    written: str,
    extend: bool,
    attrs: dict[str, Any] | None = None,
) -> xr.DataTree:
    """Add a log likelihood (n_draws, n) to ``idata``, or return it alone unless ``extend``."""
    drawn, row, coords = draws.drawn, draws.row, draws.drawn.coords()
    data = data_of(idata, written)
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
    if not extend:
        return xr.DataTree.from_dict({"log_likelihood": array.to_dataset()})
    add_to_group(idata, "log_likelihood", array.to_dataset())
    return idata
