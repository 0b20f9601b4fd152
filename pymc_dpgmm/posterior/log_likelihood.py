"""Pointwise log likelihoods, for leave-one-out cross-validation by ArviZ."""

from typing import Any

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
