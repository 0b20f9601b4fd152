"""Posterior predictive draws of new rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.predict import draws_of
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import read_question, read_units
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import check_count, is_sparse
from pymc_dpgmm.tables.rows import RowNames


def sample_new_rows(
    idata: Any,
    name: str,
    n_rows: int | None = None,
    *,
    known: Any = None,
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    unit: Any = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Draw new rows from their joint posterior predictive distribution.

    In every draw, the new rows join existing or new clusters one after the other, according to the prior on
    partitions. Then the parameters of the clusters are drawn from their posterior given the data, and the rows
    given these parameters. (``pm.sample_posterior_predictive`` instead draws replicates of the existing rows, each
    in its cluster.)

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    n_rows : int, >= 1, optional
        Number of new rows in each draw, 1 by default.
    known : (m, d) array_like, frame or dict, optional
        Rows with gaps, as in :func:`predict`, in place of a number of rows: the gaps are drawn given what is known
        of their row. Each row is treated separately.
    given : dict, optional
        Covariates, exposure or trials of every row, see :func:`density`; with several views, a dict of such dicts.
    group : str or int, optional
        For rows in groups, the name of the group of the new rows. By default it is a new group without rows.
    unit : (m,) array_like, optional
        For mixtures with units, the unit of each new row, see :func:`predict`: rows of one are in one cluster, and
        drawn together. It stands for ``n_rows`` too.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names, and for a :func:`DirichletProcess`.

    Returns
    -------
    Dataset
        The rows of each view under its name, (chain, draw, new_row) or (chain, draw, new_row, column), without
        its offset. For a :func:`DirichletProcess`, the parameters of the new rows instead: atoms of clusters, or
        new ones from the base measure. And (chain, draw, new_row) ``cluster``, numbered as in the labels of the
        draw, with new clusters last. Entries are as in the data: levels of categories, bools, and counts as
        integers; columns of different types make an array of objects. With ``known``, the draws of the posterior
        count by what is known; in place of ``cluster`` there is ``effective_draws`` (new_row,), and views of which
        nothing is known or drawn are left out.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or an argument is of the wrong kind.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> rows = dp.sample_new_rows(idata, "y", 3, random_seed=1)
    >>> rows["y"].shape, rows["cluster"].shape
    ((1, 50, 3), (1, 50, 3))
    """
    draws = read_draws(idata, name, model, group)
    if known is None:
        n_rows = (1 if unit is None else len(unit)) if n_rows is None else n_rows
        check_count("n_rows", n_rows, 1)
        units = None if unit is None else read_units(draws, unit, int(n_rows), RowNames("the new rows"))
        return draws.new_rows(int(n_rows), given, units, random_seed)
    if n_rows is not None:
        raise TypeError("sample_new_rows takes n_rows or known, not both")
    draws.refuse_atoms("sample_new_rows with known=")
    return _completed(draws, known, given, unit, np.random.default_rng(random_seed))


def _completed(draws: Draws, known: Any, given: Any, unit: Any, rng: np.random.Generator) -> xr.Dataset:
    """Return rows with their gaps drawn given all else."""
    question = read_question(draws, known, None, given, unit=unit)
    gaps = [
        view
        for view, each in zip(question.draws.views, question.new, strict=True)
        if not view.is_density and not is_sparse(each.values) and np.isnan(each.values[:, : view.d]).any()
    ]
    draws.refuse_powers("a draw of missing entries", gaps)
    values, effective = draws_of(question, question.draws.numbers.n_draws, rng, progressbar=False)
    question.warn_of_few(effective)
    views = [v for v, each in enumerate(question.new) if not is_sparse(each.values)]
    rows, first = [], 0
    for v in views:
        view, each = question.draws.views[v], question.new[v]
        of_view = np.repeat(each.values[None, :, : view.d], len(values), axis=0)
        of_view[:, :, each.asked] = values[:, :, first : first + len(each.asked)]
        first += len(each.asked)
        rows.append(of_view)
    more = {"effective_draws": ("new_row", effective)}
    return draws.with_names([question.draws.views[v] for v in views], rows, question.row_names(), more)
