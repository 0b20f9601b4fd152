"""What rows, columns and clusters of a table say of each other: surprise, and mutual information."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.posterior.arrays.dependence import mutual_information, relevance_of
from pymc_dpgmm.posterior.arrays.new_rows import Unknown
from pymc_dpgmm.posterior.arrays.predictions import log_densities
from pymc_dpgmm.posterior.draws import checked_level, with_bands
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import read_question
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import check_count, is_sparse, listed

# Rows that are answered at once.
_ROWS = 20_000


def log_density(
    idata: Any,
    name: str,
    new: Any,
    *,
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    unit: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return log posterior predictive densities of rows, and of each entry given the rest of its row.

    A row of low density is an outlier. An entry of low density given the others is a cell that looks wrong, also
    where the row as a whole is no outlier. Each row is treated separately, as the next row after the data.

    Parameters
    ----------
    idata, name, given, group, model
        As in :func:`predict`.
    new : table, array_like or dict of these
        Rows, as in :func:`predict`. Entries that are missing are integrated out.
    unit : (m,) array_like, optional
        For mixtures with units, the unit of each row, see :func:`predict`.

    Returns
    -------
    Dataset
        ``row`` (new_row,), the log density of what is known of each row; ``entry`` (new_row, column), the log
        density of each entry given all others of its row, NaN where it is missing. With ``unit``, both are given
        the other rows of the unit too, and ``unit`` (new_unit,) is the log density of all of its rows together.
        Columns of :class:`DirichletMultinomial`, which has no densities of single entries, are left out. Densities
        of counts and categories are probabilities.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or rows are of the wrong kind.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.log_density(idata, "y", [[2.0, 54.0], [2.0, 85.0]])
    >>> (found["entry"].sel(column="waiting") < -6.0).to_numpy()
    array([False,  True])
    """
    draws = read_draws(idata, name, model, group)
    draws.refuse_atoms("dp.log_density")
    question = read_question(draws, new, [], given, unit=unit)
    numbers, views, units = question.draws.numbers, question.draws.views, question.units
    if not any(view.is_density for view in views):
        draws.refuse_powers("dp.log_density", views)
    blocks = [slice(start, start + _ROWS) for start in range(0, question.n_rows, _ROWS)]

    def log_p(rows: list[Unknown]) -> np.ndarray:
        return np.concatenate(
            [log_densities(numbers, *question._replace(new=rows).of_rows(block)) for block in blocks]
        )

    of_known, of_entries = log_p(question.new), []
    asked: dict[str, list[int]] = {}
    for v, view in enumerate(views):
        if is_sparse(question.new[v].values) or not has_single_entries(view) or not view.is_density:
            continue
        asked[view.name] = list(range(view.d))
        for j in asked[view.name]:
            values = question.new[v].values.copy()
            is_known = ~np.isnan(values[:, j])
            values[:, j] = np.nan
            without = [*question.new]
            without[v] = without[v]._replace(values=values)
            of_entries.append(np.where(is_known, of_known - log_p(without), np.nan))
    names = list(draws.names_of_columns(asked).values())
    entries = np.array(of_entries).reshape(len(names), question.n_rows).T
    of_rows = of_known
    # Views with a power have no density of their own: all else is conditional on them.
    others = [each.unknown(v.d) if v.is_density else each for v, each in zip(views, question.new, strict=True)]
    if units is not None or not all(view.is_density for view in views):
        of_rows = of_known - log_p(others)
    found = xr.Dataset(
        {"row": ("new_row", of_rows), "entry": (("new_row", "column"), entries)},
        coords={"new_row": question.row_names(), "column": names},
    )
    if units is None:
        return found
    first = units.firsts(numbers.views)
    alone = log_densities(numbers, others, units._replace(known=others))[first]
    return found.assign(unit=("new_unit", of_known[first] - alone)).assign_coords(new_unit=question.unit_names)


def has_single_entries(view: NamedView) -> bool:
    """Tell whether there are densities of some of the columns of a row."""
    family = view.family
    return (
        family.log_predictive_present is not None
        or family.incomplete is not None
        or family.takes_missing
        or view.d == 1
    )


def dependence(
    idata: Any,
    name: str,
    columns: Any = None,
    *,
    group: Any = None,
    probability: float | None = None,
    n_draws: int = 200,
    n_rows: int = 1_000,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    r"""Return how much columns tell of each other: their mutual information, in bits.

    It is 0 if two columns are independent under the mixture, whatever their kinds, and sees dependence of any
    form. Two normal columns with correlation r share :math:`-\log_2 \sqrt{1 - r^2}` bits: .05 at r = .25, .2 at
    .5, and 1.2 at .9. Two columns of categories share at most the entropy of one of them.

    Parameters
    ----------
    idata, name, group, model
        As in :func:`predict`.
    columns : list of str or int, optional
        Columns or views, by default all. Those of :class:`DirichletMultinomial` and of sparse rows have no
        densities of single entries, and are left out.
    probability : float, in (0, 1), optional
        Probability of the intervals, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
    n_draws : int, >= 1
        Draws of the posterior that are used, spread over all of them.
    n_rows : int, >= 1
        Rows that are drawn from the mixture in each of them. With few, simulation adds to the widths of the
        intervals.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    Dataset
        ``mean``, ``lower`` and ``upper`` (column, other), in bits, with NaN on the diagonal. Estimates for
        independent columns scatter around 0 and may be a little below it. The attribute ``left_out`` says which
        views are left out, and why. Of columns with covariates, exposures, trials or known variances, the answer
        is given these, as the rows of the data have them.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two such columns.

    Notes
    -----
    The mutual information of Cover and Thomas (2006, eq. 2.28), under draws of the random mixture from its
    posterior, by simulation from each.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.dependence(idata, "y", random_seed=1)
    >>> found["mean"].sel(column="duration", other="waiting").round(1).item()
    1.0
    """
    probability = checked_level(probability)
    check_count("n_draws", n_draws, 1)
    check_count("n_rows", n_rows, 1)
    asked = _Asked("dp.dependence", idata, name, columns, model, group)
    labels = list(asked.names.values())
    if len(labels) < 2:
        got = f"dependence is between two columns or more, got {listed(labels)}"
        raise ValueError(got + (f"; {asked.left_out}" if asked.left_out else ""))
    rng = np.random.default_rng(random_seed)
    bits = mutual_information(asked.numbers.at_most(n_draws), asked.places, n_rows, rng)
    return asked.result(bits, ("column", "other"), probability)


def relevance(
    idata: Any,
    name: str,
    columns: Any = None,
    *,
    group: Any = None,
    probability: float | None = None,
    n_draws: int = 200,
    n_rows: int = 1_000,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    r"""Return how much each column tells of the cluster that a row belongs to: their mutual information, in bits.

    A column that separates two clusters of equal weight tells one bit, and one that has the same distribution in
    all clusters tells nothing. What several columns tell does not add up: two columns may tell the same.

    Parameters
    ----------
    idata, name, columns, group, probability, n_draws, n_rows, random_seed, model
        As in :func:`dependence`; one column is enough.

    Returns
    -------
    Dataset
        ``mean``, ``lower`` and ``upper`` (column,), in bits; ``all_columns``, a number: the posterior mean of what
        all of these columns tell together; and ``entropy``, another one: that of the entropy of the clusters'
        weights, which is the most that can be told. The attribute ``left_out`` is as in :func:`dependence`.

    Raises
    ------
    TypeError, ValueError
        If there are no such columns.

    Notes
    -----
    The mutual information of Cover and Thomas (2006, eq. 2.28) of a column and the cluster, under draws of the
    random mixture from its posterior, by simulation from each. :func:`plot_relevance` shows it.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> rng = np.random.default_rng(1)
    >>> data = np.column_stack([np.repeat([0.0, 9.0], 40), np.zeros(80)]) + rng.normal(size=(80, 2))
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=data)
    ...     idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> dp.relevance(idata, "y", random_seed=1)["mean"].round(0).to_numpy()
    array([1., 0.])
    """
    probability = checked_level(probability)
    check_count("n_draws", n_draws, 1)
    check_count("n_rows", n_rows, 1)
    asked = _Asked("dp.relevance", idata, name, columns, model, group)
    if not asked.names:
        raise ValueError(f"there are no columns whose relevance has an answer: {asked.left_out}")
    rng = np.random.default_rng(random_seed)
    found = relevance_of(asked.numbers.at_most(n_draws), asked.places, n_rows, rng)
    result = asked.result(found.columns, ("column",), probability)
    return result.assign(all_columns=found.all.mean(), entropy=found.entropy.mean())


class _Asked:
    """The columns that a question of bits is about.

    Parameters
    ----------
    function : str
        Name of the function, for messages.
    idata, name, columns, model, group
        As in :func:`dependence`.
    """

    def __init__(self, function: str, idata: Any, name: str, columns: Any, model: Any, group: Any) -> None:
        draws = read_draws(idata, name, model, group)
        draws.refuse_atoms(function)
        draws.refuse_powers(function)
        left_out = {view.name: why for view in draws.views if (why := _without_entries(draws, view))}
        chosen = {view.name: list(range(view.d)) for view in draws.views if view.name not in left_out}
        reasons = "; ".join(f"columns of {view} {why}" for view, why in left_out.items())
        if columns is not None:
            chosen = draws.chosen_columns(columns)
            if left_out.keys() & chosen.keys():
                raise ValueError(f"{reasons}: leave them out")
            reasons = ""
        elif reasons and chosen:
            logger.info(f"{function} leaves out: {reasons}")
        self.left_out, self.names = reasons, draws.names_of_columns(chosen)
        some = draws.of_views(list(chosen))
        number = {view.name: v for v, view in enumerate(some.views)}
        self.places, self.numbers = [(number[view], j) for view, j in self.names], some.numbers

    def result(self, bits: np.ndarray, dims: tuple[str, ...], probability: float) -> xr.Dataset:
        """Return bits (S, q, ...) with names of columns on all of the dims."""
        result = with_bands(bits, dims, probability, {dim: list(self.names.values()) for dim in dims})
        return result.assign_attrs(unit="bits", left_out=self.left_out)


def _without_entries(draws: Draws, view: NamedView) -> str:
    """Return why the columns of a view cannot be drawn and looked at one by one, "" if they can."""
    if view.has_triplets or not has_single_entries(view):
        return "are counts of one total, or sparse, and have no densities of single entries"
    if any(np.ndim(value) for value in view.given.values()) and not draws.drawn.n:
        return "come with numbers that are in chunks, and not in memory"
    return ""
