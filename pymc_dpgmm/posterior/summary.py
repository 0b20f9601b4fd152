"""The tables to look at first."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.component_draws import aligned_components
from pymc_dpgmm.posterior.diagnostics import diagnostics_of, warn_if_apart
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.point_partition import reference_labels


class MixtureSummary(NamedTuple):
    """Two tables, which are printed together.

    Parameters
    ----------
    scalars : DataFrame
        ``az.summary`` of the numbers that do not depend on how clusters are numbered: the number of clusters, the
        entropy and the largest shares of their sizes, the log joint density, the concentration and
        hyperparameters.
    clusters : DataFrame
        One line for each cluster of the reference partition: the ``size`` and ``share`` of its rows; its mean
        ``overlap`` and ``purity`` (see :func:`component_draws`); and posterior means of the weight and the
        parameters of the matching clusters of the draws. A small cluster of low purity is mostly a part of another
        one.
    """

    scalars: pd.DataFrame
    clusters: pd.DataFrame

    def __repr__(self) -> str:
        return f"{self.scalars.to_string()}\n\n{self.clusters.to_string()}"

    def _repr_html_(self) -> str:
        return f"{self.scalars.to_html()}{self.clusters.to_html()}"


def summary(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    round_to: int = 3,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> MixtureSummary:
    """Summarise a mixture: numbers of its partitions, hyperparameters, and the clusters of one partition.

    Use it instead of ``az.summary`` of all variables, which has a line for the label of each row, although the
    numbers of the clusters mean nothing across draws.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`, which is called by default.
    round_to : int
        Number of significant digits in the table of clusters.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of weights and parameters.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    MixtureSummary
        The data frames ``scalars`` and ``clusters``. Covariances and variances are shown as standard deviations,
        ``sd``.

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
    >>> found = dp.summary(idata, "y", [0, 0, 0, 1, 1, 1], random_seed=1)
    >>> found.clusters["size"].tolist()
    [3, 3]
    """
    import arviz as az

    draws = MixtureDraws(idata, name, model)
    found = diagnostics_of(idata, draws.drawn, None, 3)
    warn_if_apart(found)
    numbers = found.drop_vars("distance")
    posterior = idata["posterior"].dataset if "posterior" in idata.children else xr.Dataset()
    known = [variable for variable in draws.depends_on() if variable in posterior]
    others = draws.drawn.at_draws(posterior[known]) if known else None
    numbers = numbers if others is None else numbers.merge(others)
    if "log_joint" in numbers and _is_constant(numbers["log_joint"]):
        numbers = numbers.drop_vars("log_joint")
    with warnings.catch_warnings():
        # R-hat of what never changes divides zero by zero.
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        scalars = az.summary(numbers)
    rng = np.random.default_rng(random_seed)
    components = aligned_components(draws, reference_labels(draws.drawn, reference), rng)
    return MixtureSummary(scalars, _cluster_table(components, draws, round_to))


def _is_constant(values: xr.DataArray) -> bool:
    """Tell whether numbers are the same up to rounding."""
    return bool(values.max() - values.min() <= 1e-9 * abs(values).max())


def _cluster_table(components: xr.Dataset, draws: MixtureDraws, round_to: int) -> pd.DataFrame:
    size = components["size"].to_numpy()
    columns: dict[str, np.ndarray] = {"size": size, "share": size / size.sum()}
    for variable in ("overlap", "purity", "weight"):
        columns[variable] = components[variable].mean(("chain", "draw")).to_numpy()
    for view in draws.views:
        for parameter in view.family.component.axes:
            name = parameter if len(draws.views) == 1 else f"{view.name}_{parameter}"
            columns |= _columns_of(components[name], name, draws.cluster_dim())
    table = pd.DataFrame(columns, index=components[draws.cluster_dim()].to_index())
    return table.map(lambda value: float(f"{value:.{round_to}g}")).astype({"size": int})


def _columns_of(values: xr.DataArray, name: str, cluster: str) -> dict[str, np.ndarray]:
    """Return posterior means of a parameter, by the names of columns of a table."""
    if name.endswith("covariance"):
        values = xr.DataArray(
            np.diagonal(values.to_numpy(), axis1=-2, axis2=-1), dims=values.dims[:-1], coords=_without_last(values)
        )
    if name.endswith("variance"):
        values = values**0.5
        name = f"{name.removesuffix('covariance').removesuffix('variance')}sd"
    mean = values.mean(("chain", "draw"))
    own = [str(dim) for dim in mean.dims if dim != cluster]
    if not own:
        return {name: mean.to_numpy()}
    stacked = mean.stack(entry=own)
    keys = [key if isinstance(key, tuple) else (key,) for key in stacked["entry"].to_index()]
    if f"{own[-1]}_name" in mean.coords:
        # Categories that a column does not have are empty.
        categories = stacked[f"{own[-1]}_name"].to_numpy()
        keys = [(*key[:-1], category) for key, category in zip(keys, categories, strict=True)]
    return {
        f"{name}[{', '.join(map(str, key))}]": stacked.isel(entry=i).to_numpy()
        for i, key in enumerate(keys)
        if key[-1] != ""
    }


def _without_last(values: xr.DataArray) -> dict[str, Any]:
    last = values.dims[-1]
    return {str(name): coord for name, coord in values.coords.items() if last not in coord.dims}
