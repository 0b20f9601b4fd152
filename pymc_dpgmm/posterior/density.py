"""Posterior densities of the data, and cluster probabilities of new rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.density import Bands, density_bands, grid
from pymc_dpgmm.posterior.arrays.predictions import densities_given, membership_of
from pymc_dpgmm.posterior.chunked import mixture_draws
from pymc_dpgmm.posterior.draws import check_probability
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.processes import density_of_process
from pymc_dpgmm.posterior.questions import chosen_columns, read_question
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.names import as_text, coordinates
from pymc_dpgmm.tables.rows import Rows
from pymc_dpgmm.tables.table import Table

# Points on each axis of a default grid: for one column, and for two.
_ONE, _TWO = 200, 50


def density(
    idata: Any,
    name: str,
    x: Any = None,
    *,
    columns: Any = None,
    known: Any = None,
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    probability: float = 0.95,
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
    probability : float, in (0, 1)
        Probability of the bands, which have equal tails.
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
    draws = mixture_draws(idata, name, model, group)
    if draws.has_atoms:
        if known is not None:
            raise NotImplementedError(
                "known= is not available for a dp.DirichletProcess; with other columns on its labels, "
                "dp.predict(..., of=name) has its parameters given these"
            )
        return density_of_process(idata, draws, x, probability, random_seed, model)
    if known is None:
        return density_of(draws, x, columns, given, probability, random_seed)
    check_probability(probability)
    whole = mixture_draws(idata, draws.labels_name.removesuffix("_labels"), model, group)
    return _density_given(draws, whole, x, columns, known, given, probability, random_seed)


def _density_given(
    draws: MixtureDraws,
    whole: MixtureDraws,
    x: Any,
    columns: Any,
    known: Any,
    given: Any,
    probability: float,
    random_seed: Any,
) -> xr.Dataset:
    """Return the density of some columns of a row, of which ``whole`` has all views, given others."""
    view, chosen = _view_and_columns(draws, columns)
    names = draws.column_names(view)
    of = view.name if view.is_vector else [names[j] for j in chosen]
    question = read_question(whole, known, of, given, fills_gaps=False)
    if question.knows_asked:
        raise ValueError(f"known has {listed(question.knows_asked)}, whose density is asked for: leave it out")
    if question.n_rows != 1:
        raise ValueError(f"known must be one row, got {question.n_rows}: dp.predict is for several")
    at = _points(draws, view, x, chosen, names)
    rng = np.random.default_rng(random_seed)
    found = densities_given(question.draws.numbers, question.new, at.values, probability, rng)
    question.warn_of_few(found.effective_draws)
    result = at.result(Bands(found.mean[0], found.lower[0], found.upper[0]), probability)
    return result.assign_attrs(effective_draws=float(found.effective_draws[0]))


def density_of(
    draws: MixtureDraws,
    x: Any,
    columns: Any,
    given: Mapping[str, Any] | None,
    probability: float,
    random_seed: Any,
) -> xr.Dataset:
    """Return the result of :func:`density` for draws that have been read already."""
    check_probability(probability)
    view, chosen = _view_and_columns(draws, columns)
    draws = draws.of_views([view.name])
    draws.refuse_powers("dp.density", [view])
    names = draws.column_names(view)
    at = _points(draws, view, x, chosen, names)
    full: Any = at.values
    if columns is not None:
        full = np.full((len(at.values), view.d), np.nan)
        full[:, chosen] = at.values
    draws.warn_of_covariates(given, "dp.density")
    values = view.check_new(full, draws.given_of(view, given), at.rows)
    bands = density_bands(draws.numbers, values, probability, np.random.default_rng(random_seed))
    return at.result(bands, probability)


def _view_and_columns(draws: MixtureDraws, columns: Any) -> tuple[NamedView, list[int]]:
    """Return the view that some columns belong to, and their positions: by default all those of a sole view."""
    if columns is None:
        view = draws.sole()
        return view, list(range(view.d))
    ((name, chosen), *others) = chosen_columns(draws, columns).items()
    if others:
        raise ValueError(f"columns must be of one view, got some of {name} and of {others[0][0]}")
    (view,) = (view for view in draws.views if view.name == name)
    return view, chosen


# Names in the result of :func:`density` that no coordinate may have.
_NAMES_OF_A_DENSITY = ("mean", "lower", "upper", "point")


class _Points(NamedTuple):
    """Points of a density.

    Parameters
    ----------
    values : (m, c) array or sparse matrix
        In stored form.
    dims : tuple of str
        Of a density at them.
    coords : dict
    rows : Rows
        Their names.
    columns : list of str
    """

    values: Any
    dims: tuple[str, ...]
    coords: dict[str, Any]
    rows: Rows
    columns: list[str]

    def result(self, bands: Bands, probability: float) -> xr.Dataset:
        """Return densities at the points."""
        n = self.values.shape[0]
        shape = tuple(len(self.coords[dim]) for dim in self.dims) if len(self.dims) > 1 else (n,)
        return xr.Dataset(
            {key: (self.dims, value.reshape(shape)) for key, value in bands._asdict().items()},
            coords=self.coords,
            attrs={"probability": probability, "columns": self.columns},
        )


def _points(draws: MixtureDraws, view: NamedView, x: Any, chosen: Sequence[int], names: Sequence[Any]) -> _Points:
    """Return points over columns at some positions; ``names`` are those of all columns."""
    columns = [str(names[j]) for j in chosen]
    chosen_names = [names[j] for j in chosen]
    if x is None:
        if len(chosen) > 2:
            raise ValueError(
                f"there is no default grid for {len(chosen)} columns: pass points x, or choose one or two columns "
                f"with columns=, from {listed(chosen_names)}"
            )
        n = _ONE if len(chosen) == 1 else _TWO
        axes = [_axis(view, j, n, draws.numbers.n_draws) for j in chosen]
        shown = [_names_of_levels(view, j, axis) for j, axis in zip(chosen, axes, strict=True)]
        if len(axes) == 1:
            return _Points(axes[0][:, None], ("x",), {"x": shown[0]}, Rows("x"), columns)
        points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        dims = (coordinate_of(view, chosen_names[0]), coordinate_of(view, chosen_names[1]))
        return _Points(points, dims, dict(zip(dims, shown, strict=True)), Rows("x"), columns)
    of_chosen = view.of_columns(chosen)
    dim, are_named = draws.axis(view, "d", view.d)[0], draws.has_column_names(view)
    table = of_chosen.read_new(x, chosen_names, dim, "x", are_named=are_named)
    points = of_chosen.codes(table)
    if not is_sparse(points) and not np.all(np.isfinite(points)):
        raise ValueError("x must be finite, got NaN or infinite values")
    rows = Rows("x", table.rows)
    values = points if is_sparse(points) else table.values
    if len(chosen) == 1:
        return _Points(points, ("x",), {"x": _shown(table, 0, values)}, rows, columns)
    coords = {
        coordinate_of(view, name): ("point", _shown(table, j, values)) for j, name in enumerate(chosen_names)
    }
    return _Points(points, ("point",), coords, rows, columns)


def coordinate_of(view: NamedView, name: Any) -> str:
    """Return the coordinate for a column, with the name of the view where ``mean``, say, is taken."""
    text = as_text(name)
    return f"{view.name}_{text}" if text in _NAMES_OF_A_DENSITY else text


def _axis(view: NamedView, j: int, n: int, n_draws: int) -> np.ndarray:
    """Return points over the range of a column, or the codes of all its levels."""
    levels = view.levels[j] if view.levels is not None else None
    return grid(view, j, n, n_draws) if levels is None else np.arange(float(len(levels)))


def _names_of_levels(view: NamedView, j: int, codes: np.ndarray) -> np.ndarray:
    """Return the levels that codes of a column stand for; other numbers are returned as they are."""
    levels = view.levels[j] if view.levels is not None else None
    return codes if levels is None else coordinates(levels)


def _shown(table: Table, j: int, values: Any) -> np.ndarray:
    """Return a column of points as the user passed it, with text in place of codes."""
    levels = table.levels[j]
    column = values[:, [j]].toarray()[:, 0] if is_sparse(values) else values[:, j]
    return column if levels is None else np.array([levels[int(code)] for code in column])


def membership(
    idata: Any,
    name: str,
    x: Any,
    reference: Any = None,
    *,
    given: Any = None,
    group: Any = None,
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
    random_seed : int or numpy.random.Generator
        Seed of the search for a point partition.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``probability`` (new_row, cluster) and ``new_cluster`` (new_row,), which together sum to one for each row;
        ``log_density`` (new_row,), the log posterior predictive density of each row, NaN if a view has a power;
        and the coordinate ``reference`` (n,). New rows of a pandas object keep their index.

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
    draws = MixtureDraws(idata, name, model, group)
    draws.refuse_atoms("dp.membership")
    question = read_question(draws, x, [], given)
    clusters = draws.reference(reference, random_seed)
    members = membership_of(question.draws.numbers, question.new, clusters.labels)
    is_density = all(view.is_density for view in question.draws.views)
    dim = draws.cluster_dim()
    return xr.Dataset(
        {
            "probability": (("new_row", dim), members.probability),
            "new_cluster": ("new_row", members.new_cluster),
            "log_density": ("new_row", members.log_density if is_density else members.log_density * np.nan),
        },
        coords=draws.drawn.coords()
        | {
            "new_row": question.row_names(),
            dim: clusters.names,
            "reference": (draws.row, clusters.named),
        },
    )
