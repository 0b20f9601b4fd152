"""Tables without gaps: what was missing is drawn."""

from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_dpgmm.posterior.arrays.mixtures import Partition
from pymc_dpgmm.posterior.arrays.rows import complete_rows
from pymc_dpgmm.posterior.draws import drawn_labels
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import check_count, listed


def impute(
    idata: Any, name: str, m: int = 20, *, random_seed: Any = None, model: pm.Model | None = None
) -> list[pd.DataFrame]:
    """Return completed tables of the data, for multiple imputation: whatever was missing is drawn in each.

    Each table is of another draw of the posterior: the partition, then the parameters of the clusters, then the
    missing entries of each row given its cluster and the rest of the row. An analysis is made of each table, and
    the results are pooled, by the rules of Rubin (1987), say: the estimate is the mean of the estimates, and its
    variance the mean of their variances plus (1 + 1 / m) times the variance of the estimates.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture. Of several views, all are completed.
    m : int, >= 1
        Number of tables. They are of draws that are spread over all of them.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    list of m DataFrame
        With the rows of the data and their names, and the columns of the mixture: in the order of the frame that
        its views are from, or view by view. Entries are of the kinds that the data has: levels of categories,
        bools, whole numbers. Entries that were there are what they were. Columns that the mixture left out are not
        in them.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, its rows are latent, views have different rows, or there are fewer draws.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful().iloc[:60]
    >>> data.loc[data.index[3], "waiting"] = None
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> tables = dp.impute(idata, "y", 3, random_seed=1)
    >>> [int(table.isna().sum().sum()) for table in tables]
    [0, 0, 0]
    """
    check_count("m", m, 1)
    draws = read_labelled(idata, str(drawn_labels(idata, name).labels.name), model)
    draws.refuse_atoms("dp.impute")
    views: list[NamedView] = draws.views
    latent = [view.name for view in views if not view.observed.is_constant]
    if latent:
        raise ValueError(f"the rows of {listed(latent)} are latent: their draws are in the posterior")
    sparse = [view.name for view in views if view.has_triplets]
    if sparse:
        raise ValueError(f"the rows of {listed(sparse)} are sparse, and have no gaps")
    lengths = {view.name: len(np.asarray(view.observed.at(0))) for view in views}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"views have different rows, got {lengths}: give each a mixture of its own, or name one view"
        )
    numbers = draws.numbers.at_most(m)
    if numbers.n_draws < m:
        raise ValueError(f"m must be at most the number of draws, {numbers.n_draws}, got {m}")
    rng = np.random.default_rng(random_seed)
    columns = draws.names_of_columns({view.name: list(range(view.d)) for view in views})
    index = _row_names(draws.drawn, views)
    return [_table(partition, views, columns, index, rng) for partition in numbers.partitions()]


def _row_names(drawn: Any, views: list[NamedView]) -> Any:
    """Return the names of the rows, None where they have none."""
    stored = views[0].stored
    dim = None if stored is None else stored.dims[0]
    return pd.Index(stored[dim].to_numpy()) if dim is not None and dim in stored.coords else None


def _table(
    partition: Partition,
    views: list[NamedView],
    columns: dict[tuple[str, int], str],
    index: Any,
    rng: np.random.Generator,
) -> pd.DataFrame:
    found: dict[str, Any] = {}
    places: list[int] = []
    for view, clusters in zip(views, partition.views, strict=True):
        rows = complete_rows(rng, clusters, partition.labels, partition.draw)
        for j in range(view.d):
            found[columns[view.name, j]] = _as_column(view, j, rows[:, j])
        places += view.places
    names = list(found)
    if len(places) == len(names):
        # In the order of the frame that the views are from.
        names = [names[j] for j in np.argsort(np.array(places))]
    return pd.DataFrame(found, index=index)[names]


def _as_column(view: NamedView, j: int, values: np.ndarray) -> Any:
    """Return a column as the data had it, of the kind that it had there."""
    kind = view.kinds[j] if view.kinds else ""
    own = view.as_in_data(j, values)
    if kind == "category":
        return pd.Categorical(own, categories=view.levels_of(j))
    if kind == "integer" and own.dtype.kind == "f" and np.all(own == np.floor(own)):
        return own.astype(np.int64)
    return own
