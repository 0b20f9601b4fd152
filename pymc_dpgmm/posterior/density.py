"""Posterior densities of the data, and cluster probabilities of new rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.predictions import densities_given, membership_of
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.points import points_of
from pymc_dpgmm.posterior.questions import read_question
from pymc_dpgmm.posterior.reading import read_draws, read_labelled
from pymc_dpgmm.tables.checks import listed


def density(
    idata: Any,
    name: str,
    x: Any = None,
    *,
    columns: Any = None,
    known: Any = None,
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    probability: float | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return the posterior mean of the density of a row, and pointwise credible bands.

    The mean is the posterior predictive density of one more row. Given a partition and the base measure it has a
    closed form, which is averaged over the draws. The bands come from draws of the density itself, whose weights
    and parameters are drawn from their posterior, including those of clusters that have no rows.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture or of one of its views.
    x : (m, d) array_like, or (m,) for one column, optional
        Points. By default a grid for one or two columns: over the range of the data; over the range of all draws
        for latent rows, and for residuals from a random offset; all levels for categories.
    columns : str, int or list of these, optional
        Names or positions of the columns of a marginal density, all of one view; ``x`` then has these columns. Not
        for families that describe whole rows, such as :class:`DirichletMultinomial`.
    known : dict, or frame of one row, optional
        Entries of other columns of the row, of this view or of others: the density is then conditional on them.
        :func:`predict` is for many such rows.
    given : dict, optional
        Covariates, exposure or trials of every point, under the name of the base measure's argument; with
        ``known``, a dict of such dicts by view if there are several views.
    probability : float, in (0, 1), optional
        Probability of the bands, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
    group : str or int, optional
        For rows in groups, the name of the group whose density is returned, by default a new group without rows.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws behind the bands.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``mean``, ``lower`` and ``upper``. Their dimension is ``x`` (m,) for one column; the names of the columns
        on the default grid of two; and otherwise ``point``, with a coordinate for each column. The coordinates of
        categories are their levels. For counts and categories they are probabilities. With ``known``, the
        attribute ``effective_draws`` tells how many draws of equal weight the weighed draws are worth.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture or column, or points are of the wrong kind or width.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.density(idata, "y", [-2.0, 1.0, 4.0], random_seed=1)
    >>> found["mean"].round(1).to_numpy()
    array([1., 0., 1.])
    """
    probability = checked_level(probability)
    draws = read_draws(idata, name, model, group)
    if known is None:
        return draws.density(x, columns, given, probability, random_seed)
    draws.refuse_known()
    whole = read_draws(idata, draws.name, model, group)
    whole = whole.of_views([view.name for view in whole.data_views])
    view, chosen = draws.view_and_columns(columns)
    names = view.column_names
    of = view.name if view.is_vector else [names[j] for j in chosen]
    question = read_question(whole, known, of, given, fills_gaps=False)
    if question.knows_asked:
        raise ValueError(f"known has {listed(question.knows_asked)}, whose density is asked for: leave it out")
    if question.n_rows != 1:
        raise ValueError(f"known must be one row, got {question.n_rows}: dp.predict is for several")
    at = points_of(draws, view, x, chosen)
    rng = np.random.default_rng(random_seed)
    found = densities_given(question.draws.numbers, question.new, None, at.values, probability, rng)
    question.warn_of_few(found.effective_draws)
    result = at.result(found.mean[0], found.lower[0], found.upper[0], probability)
    return result.assign_attrs(effective_draws=float(found.effective_draws[0]))


def membership(
    idata: Any,
    name: str,
    x: Any,
    reference: Any = None,
    *,
    given: Any = None,
    group: Any = None,
    unit: Any = None,
    random_seed: Any = 0,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return the posterior probability that new rows belong to each cluster of a partition, or to a new cluster.

    The probabilities are conditional on the data and on the values of the new row. Each new row is treated
    separately, as the next row after the data. The clusters of a draw may differ from those of the reference
    partition. Two clusters correspond if they share more than half of the rows of one of them. If a drawn cluster
    corresponds to several reference clusters, its probability is divided among these in proportion to the number
    of its rows in each; if it corresponds to none, among all in the same way.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    x : (m, d) array_like, or (m,) for one column, or dict of these
        New rows, with NaN where an entry is missing, as are the columns that a table lacks; or a dict of some of
        the views, or of some of the columns. A Series is one row of a table, unless the data has a single column.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`, which is called by default.
    given : dict, optional
        Covariates, exposure or trials of every row, see :func:`density`; with several views, a dict of such dicts.
    group : str or int, optional
        For rows in groups, the name of the group of the new rows. By default each is in a new group without rows.
    unit : (m,) array_like, optional
        For mixtures with units, the unit of each new row, see :func:`predict`: rows of one are in one cluster.
    random_seed : int or numpy.random.Generator
        Seed of the search for a point partition.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``probability`` (new_row, cluster) and ``new_cluster`` (new_row,), which together sum to one for each row;
        ``log_density`` (new_row,), the log posterior predictive density of each row, NaN if a view has a power;
        and the coordinate ``reference`` (n,). New rows of a pandas object keep their index. With ``unit``, the
        dimension is ``new_unit`` (U,), the names of the units, in place of ``new_row``.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or new rows are of the wrong kind or width.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> members = dp.membership(idata, "y", [-2.2, 4.2], [0, 0, 0, 1, 1, 1])
    >>> members["probability"].round(1).to_numpy()
    array([[1., 0.],
           [0., 1.]])
    """
    draws = read_labelled(idata, name, model, group)
    draws.refuse_atoms("dp.membership")
    question = read_question(draws, x, [], given, unit=unit)
    clusters = draws.reference(reference, random_seed)
    rows, units, of, names = question.of_units()
    members = membership_of(question.draws.numbers, rows, units, clusters.labels)
    is_density = all(view.is_density for view in question.draws.views)
    dim = draws.cluster_dim()
    return xr.Dataset(
        {
            "probability": ((of, dim), members.probability),
            "new_cluster": (of, members.new_cluster),
            "log_density": (of, members.log_density if is_density else members.log_density * np.nan),
        },
        coords=draws.drawn.coords()
        | {
            of: names,
            dim: clusters.names,
            "reference": (draws.row, clusters.named),
        },
    )
