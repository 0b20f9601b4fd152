"""The difference that some columns make to others, averaged over rows."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.new_rows import Unknown
from pymc_dpgmm.posterior.arrays.predictions import completed_rows, curves_given
from pymc_dpgmm.posterior.draws import checked_level, with_bands
from pymc_dpgmm.posterior.predict import blocks_of, check_kind
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import Question, read_question
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import check_count, is_sparse, listed

# One draw may make up this share of the differences, of at least so many draws, before it is told of.
MOST_OF_ONE, LEAST_JUDGED = 0.5, 20
# Rows whose unknown columns are drawn for a function of them, in each draw.
LEAST_ROWS = 2_000


def contrast(
    idata: Any,
    name: str,
    baseline: Any,
    changed: Any,
    *,
    of: Any,
    given: Mapping[str, Any] | None = None,
    given_changed: Mapping[str, Any] | None = None,
    group: Any = None,
    probability: float | None = None,
    n_draws: int = 1000,
    random_seed: Any = None,
    model: pm.Model | None = None,
    progressbar: bool = True,
) -> xr.Dataset:
    r"""Return by how much the expected entries of some columns change when others do, averaged over rows.

    Each row of ``baseline`` is compared with the row of ``changed`` in the same place, as in
    ``table.assign(dose=0)`` and ``table.assign(dose=1)``. If the known columns are all that the dose and the
    response have in common as causes, the result is the average effect of setting the dose (standardisation, or
    the g-formula).

    Parameters
    ----------
    idata, name, group, model
        As in :func:`predict`.
    baseline, changed : table, array_like or dict of these
        Rows, as in :func:`predict`, equally many. Entries of the columns ``of`` are not used. Missing entries of
        others are integrated out.
    of : str, int or list of these, or callable
        Columns, or views, whose expected entries are compared. Of columns of 0 and 1 these are probabilities. Or a
        function of a table, such as ``lambda table: table["price"] * table["number"]``, which returns a number for
        each row, (m,), or several, (m, q): its expectation is compared, over the columns that ``baseline`` and
        ``changed`` do not have, by draws of these.
    given, given_changed : dict, optional
        Covariates, exposure or trials of the rows of both, by default the same.
    probability : float, in (0, 1), optional
        Probability of the intervals, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
    n_draws : int, >= 1
        Draws of the posterior that are used, spread over all of them.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool
        Whether to show progress where rows are answered in several blocks.

    Returns
    -------
    Dataset
        ``mean``, ``lower`` and ``upper`` (column,), or scalars where ``of`` is the name of a single column: of
        :math:`\frac1m \sum_i E_G(y \mid x'_i) - E_G(y \mid x_i)`, a functional of the random mixture G.

    Warns
    -----
    UserWarning
        If one draw makes up most of the differences: under a very vague base measure, the mean of a new cluster
        has no expectation, and neither has ``mean``.

    Raises
    ------
    TypeError, ValueError
        If rows or columns are not those of the mixture, or columns have no means.

    Notes
    -----
    See Robins (1986) for the g-formula, and Mueller, Erkanli and West (1996) for regression by a mixture.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> few = data.iloc[:20]
    >>> short, long = (few.assign(duration=minutes) for minutes in (2.0, 4.0))
    >>> found = dp.contrast(idata, "y", short, long, of="waiting", random_seed=1)
    >>> found["mean"].round(-1).item()
    20.0
    """
    probability = checked_level(probability)
    check_count("n_draws", n_draws, 1)
    draws = read_draws(idata, name, model, group)
    draws.refuse_atoms("dp.contrast")
    asked = (baseline, given), (changed, given if given_changed is None else given_changed)
    if callable(of):
        differences = _differences_of_function(draws, asked, of, n_draws, np.random.default_rng(random_seed))
        return with_bands(differences, ("column",)[: differences.ndim - 1], probability)
    pair = [read_question(draws, new, of, covariates, fills_gaps=False) for new, covariates in asked]
    known = [{view.name for view in question.draws.views} for question in pair]
    if known[0] != known[1]:
        # Both are asked of the same views, also of those of which one knows nothing.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pair = [
                read_question(draws, new, of, covariates, fills_gaps=False, keep=known[0] | known[1])
                for new, covariates in asked
            ]
    pair = [question.at_most(n_draws) for question in pair]
    first, second = pair
    for question in pair:
        check_kind(question, "mean")
    circular = [c.name for c in first.columns if c.view.family.component.is_circular]
    if circular:
        raise ValueError(f"{listed(circular)} are directions, whose differences have no mean: use dp.predict")
    if first.n_rows != second.n_rows:
        raise ValueError(
            f"baseline and changed must have the same number of rows, got {first.n_rows} and {second.n_rows}"
        )
    differences = _differences(pair, np.random.default_rng(random_seed), progressbar)
    _warn_of_few(first, differences)
    if first.is_single and len(first.columns) == 1:
        return with_bands(differences[:, 0], (), probability)
    return with_bands(differences, ("column",), probability, {"column": [c.name for c in first.columns]})


def _differences(pair: list[Question], rng: np.random.Generator, progressbar: bool) -> np.ndarray:
    """Return the mean difference in every draw: (S, q)."""
    # The same random measure for all blocks of rows: an average over rows is one functional of it.
    seed = int(rng.integers(2**63))
    numbers, n_rows = pair[0].draws.numbers, pair[0].n_rows
    total = np.zeros((numbers.n_draws, len(pair[0].columns)))
    joined = [_below(*both) for both in zip(pair[0].new, pair[1].new, strict=True)]
    for rows in blocks_of(n_rows, 2 * total.size, progressbar):
        both = np.concatenate([np.arange(n_rows)[rows], n_rows + np.arange(n_rows)[rows]])
        new = [each.of_rows(both) for each in joined]
        curves = curves_given(numbers, new, np.random.default_rng(seed))
        before, after = np.split(curves, 2, axis=1)
        total += np.sum(after - before, axis=1)
    return total / n_rows


def _differences_of_function(
    draws: Draws, asked: Any, function: Callable[[pd.DataFrame], Any], n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the mean difference of a function of tables in every draw: (S,) or (S, q)."""
    seed = int(rng.integers(2**63))
    found = []
    for new, given in asked:
        question = read_question(draws, new, None, given, fills_gaps=True, with_levels=True).at_most(n_draws)
        views = question.draws.views
        names = question.draws.names_of_columns({view.name: list(range(view.d)) for view in views})
        n_each = -(-LEAST_ROWS // question.n_rows)
        # The same random measures for both.
        tables = completed_rows(question.draws.numbers, question.new, n_each, np.random.default_rng(seed))
        means = []
        for rows in tables:
            columns = {
                names[view.name, j]: view.as_in_data(j, own[:, j])
                for view, own in zip(views, rows, strict=True)
                for j in range(view.d)
            }
            values = np.asarray(function(pd.DataFrame(columns)), dtype=np.float64)
            if values.shape[:1] != (n_each * question.n_rows,) or values.ndim > 2:
                raise ValueError(
                    f"of must return a number for each row of the table, shape ({n_each * question.n_rows},), or "
                    f"several, got shape {values.shape}"
                )
            means.append(values.mean(axis=0))
        found.append(np.array(means))
    difference: np.ndarray = found[1] - found[0]
    return difference


def _warn_of_few(question: Question, differences: np.ndarray) -> None:
    """Warn where one draw makes up most of the spread of differences (S, q): their mean says nothing."""
    away = np.abs(differences - np.median(differences, axis=0))
    total = away.sum(axis=0)
    few = (away.max(axis=0) > MOST_OF_ONE * total) & (total > 0.0) & (len(away) >= LEAST_JUDGED)
    names = [column.name for column, is_few in zip(question.columns, few, strict=True) if is_few]
    if names:
        warnings.warn(
            f"one draw makes up most of the differences of {listed(names)}, so that their mean tells little, and "
            "may not exist: a new cluster may lie anywhere under this base measure. Look at lower and upper, or "
            "give a base measure whose variances have an expectation, as from_data does",
            UserWarning,
            stacklevel=3,
        )


def _below(first: Unknown, second: Unknown) -> Unknown:
    """Return the rows of one question followed by those of another."""
    if is_sparse(first.values):
        from scipy.sparse import vstack

        return first._replace(values=vstack([first.values, second.values], format="csr"))
    return first._replace(values=np.concatenate([first.values, second.values]))
