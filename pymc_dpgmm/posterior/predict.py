"""Some columns of new rows given the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from pymc_dpgmm.integration.internals.bars import Bar
from pymc_dpgmm.posterior.arrays.new_rows import Units, Unknown
from pymc_dpgmm.posterior.arrays.predictions import (
    Answer,
    column_quantiles,
    densities_given,
    draws_given,
    means_given,
    probabilities_below,
    quantiles_about,
    tails,
)
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.points import grid
from pymc_dpgmm.posterior.questions import Column, Question, checked_points, read_question
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import check_count, listed
from pymc_dpgmm.tables.names import coordinates, is_one_name

KINDS = ("mean", "draws", "quantiles", "density", "probability")
# Numbers that one block of rows holds: a matrix of draws by rows by columns or points.
_NUMBERS_OF_A_BLOCK = 5_000_000
# Quantiles are those of so many draws of each row, or of as many as the posterior has.
_DRAWS_FOR_QUANTILES = 4_000
# Points of a density.
_POINTS = 200


def predict(
    idata: Any,
    name: str,
    new: Any = None,
    *,
    of: Any = None,
    kind: str = "mean",
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    unit: Any = None,
    x: Any = None,
    quantiles: Sequence[float] | None = None,
    below: Any = None,
    probability: float | None = None,
    n_draws: int = 1_000,
    random_seed: Any = None,
    model: pm.Model | None = None,
    progressbar: bool = True,
) -> xr.Dataset:
    r"""Predict some columns of new rows given the others: regression, classification and imputation by a mixture.

    A mixture is a joint model of its columns. Given the known entries of a new row, the row belongs to each
    cluster of a draw, or to a new one, with a probability in proportion to its seating probability and to the
    predictive density of these entries there. Its unknown entries follow the predictive of the cluster given them:
    the conditional t distribution of :class:`NormalInverseWishart`, the regression line of
    :class:`LinearRegression`, and columns as they are where these are independent within clusters. All of it has a
    closed form, which is averaged over the draws of the posterior. Draws count in proportion to the density of the
    known entries, which makes the answer conditional on these and on the data.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    new : (m, d) array_like or frame, (m,) for one column, or dict of these, optional
        New rows with gaps: NaN, or columns that are left out of a frame. With several views, a frame with columns
        of any of them, or a dict by view; a dict of columns is a frame, or one row. Each row is treated
        separately, as the next row after the data. Without ``new``, only covariates (``given``) are known.
    of : str, int or list of these, optional
        Columns, or views, that are asked for. Their entries in ``new``, if there are any, are not used. By default
        the columns that are missing in some row, but no categories where means or quantiles are asked for, which
        they do not have; where columns are not missing, the answer is the entry itself.
    kind : str
        ``"mean"``: the expected entries, with a band of the conditional mean.
        ``"draws"``: draws of the entries.
        ``"quantiles"``: quantiles of the entries, by draws, with a band where columns have a distribution function
        in closed form (of all families but :class:`VonMises` and :class:`DirichletMultinomial`).
        ``"density"``: the density of one column at points, with a band.
        ``"probability"``: the probability of each level of one column of categories, or of 0 and 1, with a band;
        or, with ``below``, the probability that one column of numbers is below a number.
    given : dict, optional
        Covariates, exposure or trials of every row, under the name of the base measure's argument; with several
        views, a dict of such dicts.
    group : str or int, optional
        For rows in groups, the name of the group of the new rows. By default each is in a new group without rows.
    unit : (m,) array_like, optional
        For mixtures with units, the unit of each new row. What is known of all rows of a unit counts for each of
        them: two visits of a new patient tell of the third. Entries that are known are the answer themselves, and
        densities and probabilities are those of rows that lack the entry. Draws are those of the rows of a unit
        together. A unit of the data is asked for by its own name, and is in its own cluster. Without ``unit``
        each row is of a new unit.
    x : (g,) array_like, optional
        Points of a density, by default a grid over the range of the data.
    quantiles : sequence of float, in (0, 1), optional
        By default the median, and the limits of the interval of ``probability`` with equal tails.
    below : float or (g,) array_like, optional
        For ``kind="probability"`` of a column of numbers: P(y < below).
    probability : float, in (0, 1), optional
        Probability of the bands, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``. They are bands for the conditional mean or density of the
        random mixture, not for a new row, and narrow with more data; ``kind="quantiles"`` is for a new row.
    n_draws : int, >= 1
        Draws of the posterior that are used, spread over all of them. ``kind="draws"`` uses all.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws behind bands, draws and quantiles.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.
    progressbar : bool
        Whether to show progress where there are so many rows that they are answered in several blocks.

    Returns
    -------
    Dataset
        ``"mean"``: ``mean``, ``lower`` and ``upper`` (new_row, column). ``"quantiles"``: ``quantiles``, ``lower``
        and ``upper`` (quantile, new_row, column). Both without the dimension ``column`` if ``of`` is the name of a
        single column. ``"density"``: ``mean``, ``lower`` and ``upper`` (new_row, x). ``"probability"``: the same
        over ``category``, or with ``below`` over ``below``, or (new_row,) for one number. ``"draws"``: each column
        under its own name, (chain, draw, new_row), categories as their levels. ``effective_draws`` (new_row,)
        tells how many draws of equal weight the weighed draws are worth. Of directions, means are those of unit
        vectors, and bands and quantiles count from the mean: within pi of it, and so sometimes outside of [-pi,
        pi]. Values are without an offset, as in :func:`sample_new_rows`. New rows of a frame keep their index.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture or column, rows are of the wrong kind, or a kind does not suit the columns.
    NotImplementedError
        For parameters under a :func:`DirichletProcess` without other columns on its labels, and for columns of new
        rows that are a sparse matrix.

    Notes
    -----
    See Mueller, Erkanli and West (1996), section 3, and Ding (2016) for the conditional t distribution. Means
    and quantiles are given the data and what is known of the row; ``lower`` and ``upper`` are those of a
    functional of the random mixture given the data alone, so that an unusual row may have its mean near a limit,
    or beyond. Where the tails of a cluster are so heavy that it has no mean (one degree of freedom or less), its
    location stands in.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.predict(idata, "y", data[["duration"]].iloc[:2], of="waiting", random_seed=1)
    >>> found["mean"].round(-1).to_numpy()
    array([80., 50.])
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {list(KINDS)}, got {kind!r}")
    if below is not None and kind != "probability":
        raise ValueError(f"below is for kind='probability', and the kind is {kind!r}")
    probability = checked_level(probability)
    draws = read_draws(idata, name, model, group).asked()
    is_of_one = kind in ("density", "probability")
    if of is not None and not is_one_name(of) and not len(of):
        raise ValueError("of must name at least one column or view, or be left out for the columns that have gaps")
    have_levels = kind not in ("mean", "quantiles")
    question = read_question(draws, new, of, given, fills_gaps=not is_of_one, with_levels=have_levels, unit=unit)
    check_kind(question, kind, below)
    check_count("n_draws", n_draws, 1)
    if kind != "draws":
        question = question.at_most(n_draws)
    rng = np.random.default_rng(random_seed)
    if kind == "draws":
        return _draws(question, rng, progressbar)
    if kind == "quantiles":
        levels = _checked_quantiles(quantiles, probability)
        found = quantiles_of(question, levels, rng, progressbar)
        return _with_limits(found, question, levels, probability, rng, progressbar)
    if kind == "mean":
        return means_of(question, probability, rng, progressbar)
    if below is not None:
        return _below(question, below, probability, rng, progressbar)
    return densities_of(question, kind, x, probability, rng, progressbar)


def check_kind(question: Question, kind: str, below: Any = None) -> None:
    """Raise ValueError if columns that are asked for have no answer of this kind."""
    names = [column.name for column in question.columns]
    parameters = [column for column in question.columns if not column.view.has_data]
    directions = [column.name for column in parameters if column.view.are_directions[column.position]]
    if parameters and kind in ("density", "probability"):
        raise ValueError(f"{parameters[0].name} is a parameter, which has no {kind}: ask for kind='draws'")
    if directions and kind != "draws":
        raise ValueError(f"{listed(directions)} are directions: ask for kind='draws', and average unit vectors")
    if kind in ("density", "probability"):
        if len(names) != 1:
            raise ValueError(f"kind={kind!r} is for one column: choose one of {listed(names)} with of=")
        (column,) = question.columns
        if below is not None and not column.has_cdf:
            raise ValueError(f"{column.name} has no distribution function: leave out below=")
        if kind == "probability" and below is None and column.levels is None and not column.is_binary:
            raise ValueError(
                f"{column.name} has no categories: say below= which number it is to be, or ask for "
                "kind='density', 'mean', 'quantiles' or 'draws'"
            )
        return
    if kind == "draws":
        return
    coded = [column.name for column in question.columns if column.levels is not None]
    if coded:
        others = [name for name in names if name not in coded]
        raise ValueError(
            f"categories have no {kind}: ask for {listed(coded)} with kind='probability' or 'draws'"
            + (f", and for the others with of={others}" if others else "")
        )
    unfit = [column.view.family for column in question.columns if column.view.family.component.mean is None]
    if kind == "mean" and unfit:
        raise ValueError(f"the family {unfit[0].name} does not declare means: ask for kind='draws' or 'quantiles'")


def _checked_quantiles(quantiles: Sequence[float] | None, probability: float) -> list[float]:
    low, high = tails(probability)
    quantiles = [low, 0.5, high] if quantiles is None else quantiles
    found = np.atleast_1d(np.asarray(quantiles, dtype=np.float64)).tolist()
    if not all(0.0 < q < 1.0 for q in found):
        raise ValueError(f"quantiles must lie in (0, 1), got {quantiles}")
    return found


def blocks_of(n_rows: int, numbers: int, progressbar: bool) -> Iterator[slice]:
    """Yield the rows of each block, where each row takes ``numbers`` numbers."""
    size = max(_NUMBERS_OF_A_BLOCK // max(numbers, 1), 1)
    starts = range(0, n_rows, size)
    columns = TextColumn("row {task.completed} of {task.total}"), BarColumn(20), TimeElapsedColumn()
    with Bar(*columns, is_shown=progressbar and len(starts) > 1) as bar:
        task = bar.add_task("", total=n_rows)
        for start in starts:
            rows = slice(start, min(start + size, n_rows))
            yield rows
            bar.advance(task, rows.stop - rows.start)


def _blocks(question: Question, numbers: int, progressbar: bool) -> Iterator[tuple[list[Unknown], Units | None]]:
    """Yield the rows in blocks, where each row takes ``numbers`` numbers.

    Rows of units come at once, and without those that have all that is asked for.
    """
    if question.units is not None:
        yield question.of_rows(question.with_gaps())
        return
    for rows in blocks_of(question.n_rows, numbers, progressbar):
        yield question.of_rows(rows)


def _answers(
    question: Question, numbers: int, progressbar: bool, answer: Callable[[list[Unknown], Units | None], Answer]
) -> Answer:
    """Return the answers for all rows, block by block."""
    found = [answer(*rows) for rows in _blocks(question, numbers, progressbar)]
    return Answer(*(_of_all(question, np.concatenate(each)) for each in zip(*found, strict=True)))


def _of_all(question: Question, found: np.ndarray) -> np.ndarray:
    """Return answers (k, ...) of the rows that have gaps as those of all rows: NaN for the others."""
    every = np.full((question.n_rows, *found.shape[1:]), np.nan)
    every[question.with_gaps()] = found
    return every


def means_of(question: Question, probability: float, rng: np.random.Generator, progressbar: bool) -> xr.Dataset:
    """Return expected entries, with bands of the conditional mean."""
    numbers = question.draws.numbers

    def answer(new: list[Unknown], units: Units | None) -> Answer:
        return means_given(numbers, new, units, probability, rng)

    found = _answers(question, numbers.n_draws * len(question.columns), progressbar, answer)
    is_known = ~np.isnan(question.known)
    values = {key: np.where(is_known, question.known, getattr(found, key)) for key in ("mean", "lower", "upper")}
    return _of_columns(question, values, (), found.effective_draws, {"probability": probability})


def _of_columns(
    question: Question,
    values: Mapping[str, np.ndarray],
    first: tuple[str, ...],
    effective: np.ndarray,
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """Return arrays (..., m, q), whose first dimensions are ``first``, with names of rows and columns."""
    dims: tuple[str, ...] = (*first, "new_row", "column")
    if question.is_single and len(question.columns) == 1:
        values, dims = {key: each[..., 0] for key, each in values.items()}, dims[:-1]
    result = xr.Dataset({key: (dims, each) for key, each in values.items()}, attrs=dict(attrs))
    if "column" in dims:
        result = result.assign_coords(column=[column.name for column in question.columns])
    return _with_rows(question, result, effective)


def _with_rows(question: Question, result: xr.Dataset, effective: np.ndarray) -> xr.Dataset:
    """Add the names of the rows and the worth of the draws, with a warning where it is small."""
    question.warn_of_few(effective)
    result["effective_draws"] = ("new_row", effective)
    return result.assign_coords(new_row=question.row_names())


def _with_gaps(question: Question, result: xr.Dataset) -> xr.Dataset:
    """Leave out rows of units that have what is asked for."""
    return result if question.units is None else result.isel(new_row=question.with_gaps())


def _draws(question: Question, rng: np.random.Generator, progressbar: bool) -> xr.Dataset:
    numbers = question.draws.numbers
    values, effective = draws_of(question, numbers.n_draws, rng, progressbar)
    by_chain, per_draw = question.draws.drawn.by_chain(values), question.draws.drawn.per_draw()
    taken = {*per_draw, "new_row", "effective_draws"}
    variables = {}
    for j, column in enumerate(question.columns):
        name = f"{column.view.name}_{column.name}" if column.name in taken else column.name
        variables[name] = (("chain", "draw", "new_row"), column.view.as_in_data(column.position, by_chain[..., j]))
    return _with_rows(question, xr.Dataset(variables, coords=per_draw), effective)


def draws_of(
    question: Question,
    n: int,
    rng: np.random.Generator,
    progressbar: bool,
    summed_up: Callable[[np.ndarray], np.ndarray] = lambda drawn: drawn,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``n`` draws of each row, or what they are summed up to, (..., m, q), and the worth of the draws."""
    found, effective = [], []
    blocks = _blocks(question, n * len(question.columns), progressbar)
    # Rows of a unit are drawn together, also those that are known.
    for rows in blocks if question.units is None else [(question.new, question.units)]:
        values, worth = draws_given(question.draws.numbers, *rows, n, rng)
        found.append(summed_up(values))
        effective.append(worth)
    values = np.concatenate(found, axis=1)
    return np.where(np.isnan(question.known), values, question.known), np.concatenate(effective)


def quantiles_of(
    question: Question, quantiles: list[float], rng: np.random.Generator, progressbar: bool
) -> xr.Dataset:
    """Return quantiles of the entries of new rows."""
    n = max(_DRAWS_FOR_QUANTILES, question.draws.numbers.n_draws)
    circular = np.array([column.view.family.component.is_circular for column in question.columns])

    def summed_up(drawn: np.ndarray) -> np.ndarray:
        found = np.quantile(drawn, quantiles, axis=0)
        if not circular.any():
            return found
        centre = np.angle(np.mean(np.exp(1j * drawn), axis=0))
        return np.where(circular, quantiles_about(centre, drawn, quantiles), found)

    values, effective = draws_of(question, n, rng, progressbar, summed_up)
    result = _of_columns(question, {"quantiles": values}, ("quantile",), effective, {})
    return result.assign_coords(quantile=quantiles)


def _with_limits(
    found: xr.Dataset,
    question: Question,
    levels: list[float],
    probability: float,
    rng: np.random.Generator,
    progressbar: bool,
) -> xr.Dataset:
    """Add bands of the quantiles under the random mixture, where all columns have distribution functions."""
    if not all(column.has_cdf for column in question.columns):
        return found
    numbers, shape = question.draws.numbers, found["quantiles"].shape
    limits = [
        np.quantile(column_quantiles(numbers, *rows, levels, rng), tails(probability), axis=0).swapaxes(1, 2)
        for rows in _blocks(question, numbers.n_draws * len(levels) * len(question.columns), progressbar)
    ]
    every = _of_all(question, np.moveaxis(np.concatenate(limits, axis=2), 2, 0))
    for key, values in zip(("lower", "upper"), np.moveaxis(every, 0, 2), strict=True):
        known = np.where(np.isnan(question.known), values, question.known)
        found[key] = (found["quantiles"].dims, known.reshape(shape))
    found.attrs["probability"] = probability
    return found


def _below(
    question: Question, below: Any, probability: float, rng: np.random.Generator, progressbar: bool
) -> xr.Dataset:
    """Return the probability that one column is below numbers, with bands."""
    (column,), numbers = question.columns, question.draws.numbers
    limits = checked_points("below", below, "a finite number or several, of shape (g,)")
    points = np.atleast_1d(limits)

    def answer(new: list[Unknown], units: Units | None) -> Answer:
        return probabilities_below(numbers, new, units, points, probability, rng)

    found = _answers(question, numbers.n_draws * len(points), progressbar, answer)
    dims, coords = (("new_row", "below"), {"below": limits}) if limits.ndim else (("new_row",), {})
    shape = question.n_rows, *limits.shape
    values = {key: (dims, getattr(found, key).reshape(shape)) for key in ("mean", "lower", "upper")}
    attrs = {"probability": probability, "column": column.name}
    result = _with_rows(question, xr.Dataset(values, coords=coords, attrs=attrs), found.effective_draws)
    return _with_gaps(question, result)


def densities_of(
    question: Question, kind: str, x: Any, probability: float, rng: np.random.Generator, progressbar: bool
) -> xr.Dataset:
    """Return densities of one column, or probabilities of its levels, with bands."""
    (column,), numbers = question.columns, question.draws.numbers
    points, shown = _points(column, x, numbers.n_draws)

    def answer(new: list[Unknown], units: Units | None) -> Answer:
        return densities_given(numbers, new, units, points[:, None], probability, rng)

    found = _answers(question, numbers.n_draws * len(points), progressbar, answer)
    dim = "category" if kind == "probability" else "x"
    values = {key: (("new_row", dim), getattr(found, key)) for key in ("mean", "lower", "upper")}
    attrs = {"probability": probability, "column": column.name}
    result = xr.Dataset(values, coords={dim: shown}, attrs=attrs)
    return _with_gaps(question, _with_rows(question, result, found.effective_draws))


def _points(column: Column, x: Any, n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a density as they are stored, (g,), and as they are shown."""
    if column.levels is not None:
        shown = coordinates(column.levels) if x is None else np.atleast_1d(np.asarray(x))
        levels = list(column.levels)
        unknown = [] if x is None else [level for level in shown.tolist() if level not in levels]
        if unknown:
            raise ValueError(f"x must be some of the levels {listed(levels)} of {column.name}, got {unknown}")
        codes = range(len(levels)) if x is None else (levels.index(level) for level in shown.tolist())
        return np.array(list(codes), dtype=np.float64), shown
    if x is None:
        points = np.array([0.0, 1.0]) if column.is_binary else grid(column.view, column.position, _POINTS, n_draws)
        return points, column.view.as_in_data(column.position, points) if column.is_binary else points
    points = np.atleast_1d(np.asarray(x, dtype=np.float64))
    if points.ndim != 1 or not len(points) or not np.isfinite(points).all():
        raise ValueError(f"x must be finite points, of shape (g,), got shape {points.shape}")
    return points, points
