"""Summary tables of a mixture."""

import shutil
import textwrap
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.native.interrupts import imported
from pymc_dpgmm.posterior.arrays.partitions import canonical_draws, certainty_of_rows
from pymc_dpgmm.posterior.component_draws import LEAST_PURITY, aligned_components
from pymc_dpgmm.posterior.diagnostics import diagnostics_of, warn_if_apart
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.named_views import NO_CATEGORY
from pymc_dpgmm.posterior.point_partition import note_of_overlap
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import check_count

# Largest number of printed lines, of printed columns, and of rows or words named in one line.
_MOST_LINES = 40
_MOST_COLUMNS = 40
_MOST_NAMED = 5
# A scalar is the same in all draws if its standard deviation is at most this share of its mean.
ROUNDING = 1e-13


class MixtureSummary(NamedTuple):
    """Two tables, which are printed together.

    Parameters
    ----------
    scalars : DataFrame
        ``az.summary`` of scalars that are invariant to relabelling: the number of clusters, the entropy and the
        largest shares of their sizes, the log joint density, the concentration and hyperparameters. Scalars that
        are the same in all draws are in ``scalars.attrs["constant"]`` instead.
    clusters : DataFrame
        One line for each cluster of the reference partition: the ``size`` and ``share`` of its rows; the
        ``certainty``, which is the mean of :func:`certainty` over its rows; its mean ``overlap`` and ``purity``
        (see :func:`component_draws`); and posterior means of the weight and the parameters of the matching
        clusters of the draws, or for topics their likeliest words. A small cluster of low purity is, in most
        draws, a part of a larger one, and has no weight and parameters, NaN. Clusters of one row are in the
        data frame, but are not printed: a note below the table names them.
    """

    scalars: pd.DataFrame
    clusters: pd.DataFrame

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        tables = [
            [_in_blocks(table, width)] * (len(table) > 0)
            + [line for note in notes for line in textwrap.wrap(note, width)]
            for table, notes in self._printed()
        ]
        lines = "\n\n".join("\n".join(table) for table in tables).split("\n")
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return "".join(
            table.to_html() * (len(table) > 0) + "".join(f"<p>{note}</p>" for note in notes)
            for table, notes in self._printed()
        )

    def _printed(self) -> list[tuple[pd.DataFrame, list[str]]]:
        """Return both tables as text, each with notes below it."""
        return [_printed_scalars(self.scalars), _printed_clusters(self.clusters)]


def _in_blocks(table: pd.DataFrame, width: int) -> str:
    """Return a table as text, in blocks of about as many columns each if it is wider than the terminal.

    Clusters with more numbers than there are clusters are columns then, so that names of parameters are lines.
    """
    text = str(table.to_string())
    if _width(text) <= width:
        return text
    if table.shape[1] > len(table) and table.index.name is not None and "words" not in table:
        table = table.T
    for n_blocks in range(1, table.shape[1] + 1):
        parts = np.array_split(np.arange(table.shape[1]), n_blocks)
        blocks = [str(table.iloc[:, part].to_string()) for part in parts]
        if max(map(_width, blocks)) <= width:
            break
    return "\n\n".join(blocks)


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _printed_scalars(scalars: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    shown, notes = scalars.iloc[:_MOST_LINES], list[str]()
    lines = {}
    # Monte Carlo standard errors would make the table too wide for a terminal; use az.mcse for them.
    columns = [str(column) for column in shown.columns if not str(column).startswith("mcse")]
    for name, line in zip(shown.index, shown[columns].to_numpy(), strict=True):
        mean, sd = (line[columns.index(column)] for column in ("mean", "sd"))
        # One draw has no standard deviation.
        places = _places(sd, 2) if np.isfinite(sd) else _places(mean, 3)
        lines[name] = [
            f"{value:.{2 if column == 'r_hat' else 0 if column.startswith('ess') else places}f}"
            for column, value in zip(columns, line, strict=True)
        ]
    if len(scalars) > len(shown):
        notes.append(f"{len(scalars) - len(shown)} more lines are in the frame .scalars of this summary")
    constant = scalars.attrs.get("constant", {})
    if constant:
        same = ", ".join(f"{name} = {value:.4g}" for name, value in constant.items())
        notes.append(f"The same in all draws: {same}")
    if scalars.attrs.get("restarted"):
        lower, apart = scalars.attrs["alone"]
        far = [
            f" ({nats:.0f} nats lower, {bits:.2f} bits from there)"
            for nats, bits in zip(lower, apart, strict=True)
        ]
        restarted = scalars.attrs["restarted"]
        chains = ", ".join(
            f"{chain}{words}" for chain, words in zip(restarted, far or [""] * len(restarted), strict=True)
        )
        notes.append(
            f"Begun anew at the clusters of another chain in tuning: chain {chains}. R-hat tells nothing of "
            "partitions that no chain has found"
        )
    if scalars.attrs.get("approximation"):
        notes.append(f"From {scalars.attrs['approximation']}")
    return pd.DataFrame.from_dict(lines, orient="index", columns=columns), notes


def _printed_clusters(clusters: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    digits, rows = clusters.attrs.get("round_to", 3), clusters.attrs.get("single_rows", {})
    single = [k for k in clusters.index if k in rows]
    shown = clusters.drop(index=single) if len(single) < len(clusters) else clusters
    notes = []
    if len(shown) < len(clusters):
        alone = clusters.loc[single, "certainty"]
        for chosen, words in ((alone < 0.5, "uncertain, "), (alone >= 0.5, "")):
            names = [rows[k] for k, is_chosen in zip(single, chosen, strict=True) if is_chosen]
            if names:
                notes.append(_note_of_single(names, words, alone[chosen]))
    if clusters.attrs.get("is_grouped"):
        notes.append("weight is that of a new group without rows; dp.group_weights has those of the groups")
    if clusters.attrs.get("is_ordered"):
        notes.append("weight is the probability that the next row, after the last one, is in each of them")
    if clusters.attrs.get("note"):
        notes.append(clusters.attrs["note"])
    parts = [str(k) for k in shown.index if shown.loc[k, "purity"] < LEAST_PURITY]
    if parts:
        are_left_out = shown.loc[shown["purity"] < LEAST_PURITY, "weight"].isna().all()
        what = "are left out" if are_left_out else "are those of the larger clusters"
        notes.append(
            f"In most draws the rows of {', '.join(parts[:_MOST_NAMED])} are part of larger clusters (purity "
            f"below {LEAST_PURITY}): weight and parameters {what}"
        )
    if len(shown) > _MOST_LINES:
        notes.append(f"{len(shown) - _MOST_LINES} more clusters are in the frame .clusters of this summary")
    most = clusters.attrs.get("max_columns", _MOST_COLUMNS) or shown.shape[1]
    if shown.shape[1] > most:
        notes.append(
            f"{shown.shape[1] - most} more columns are in the frame .clusters of this summary, and printed with "
            "max_columns=None"
        )
    shown = shown.iloc[:_MOST_LINES, :most]
    text = {}
    for column, values in shown.items():
        if column == "words":
            text[str(column)] = list(values)
        else:
            text[str(column)] = (
                [f"{value:.0f}" for value in values] if column == "size" else _alike(values, digits)
            )
    return pd.DataFrame(text, index=shown.index), notes


def _note_of_single(names: list[str], words: str, alone: pd.Series) -> str:
    """Return a line on rows that are clusters by themselves in the reference."""
    listed = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    if len(names) == 1:
        return f"Row {listed} is {words}a cluster by itself, alone in {alone.max():.0%} of the draws"
    shares = f"{alone.min():.0%} to {alone.max():.0%}" if alone.min() < alone.max() else f"{alone.max():.0%}"
    return f"{len(names)} rows are {words}clusters by themselves, each alone in {shares} of the draws: {listed}"


def _alike(values: pd.Series, digits: int) -> list[str]:
    """Write numbers with the same decimal places, or, if magnitudes differ, the same significant digits."""
    sizes = values.abs()[values != 0].dropna()
    if len(sizes) and sizes.min() < 0.02 * sizes.max():
        places = [_places(float(value), digits) for value in values]
    else:
        places = [_places(float(values.abs().max()), digits)] * len(values)
    return [
        "" if value != value else f"{value:.{n_places}f}" for value, n_places in zip(values, places, strict=True)
    ]


def _places(number: float, digits: int) -> int:
    """Return the number of decimal places that show ``digits`` significant digits of a number."""
    if not np.isfinite(number) or number == 0.0:
        return 0
    return int(np.clip(digits - 1 - np.floor(np.log10(abs(number))), 0, 12))


def summary(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    round_to: int = 3,
    max_columns: int | None = _MOST_COLUMNS,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> MixtureSummary:
    """Summarise a mixture: scalars of its partitions, hyperparameters, and the clusters of one partition.

    Use it instead of ``az.summary`` of all variables: that has a line for the label of each row, and labels mean
    nothing across draws.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`, which is called by default.
    round_to : int
        Number of significant digits in the printed table of clusters.
    max_columns : int, >= 1, or None
        How many columns of the table of clusters are printed at most; None stands for all. They are lines where
        they are more than the terminal is wide.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of weights and parameters.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    MixtureSummary
        The data frames ``scalars`` and ``clusters``, which are printed together, rounded and cut if they are
        large. Numbers are float64; sizes are int64. Covariances and variances are shown as standard deviations,
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
    if max_columns is not None:
        check_count("max_columns", max_columns, 1)
    az = imported("arviz")
    draws = read_labelled(idata, name, model)
    diagnostics = diagnostics_of(idata, draws.drawn, None, 3)
    warn_if_apart(diagnostics)
    numbers = diagnostics.drop_vars("distance")
    posterior = dataset_of(idata, "posterior")
    known = [variable for variable in draws.depends_on() if variable in posterior]
    if known:
        hyperparameters = draws.drawn.at_draws(posterior[known])
        taken = [str(key) for key in numbers.data_vars if key in hyperparameters]
        numbers = numbers.rename({key: f"{draws.labels_name}_{key}" for key in taken}).merge(hyperparameters)
    with warnings.catch_warnings():
        # R-hat of a constant divides zero by zero.
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        scalars = az.summary(numbers, round_to="none").astype(np.float64)
    still = scalars["sd"] <= ROUNDING * scalars["mean"].abs()
    constant = {str(name): float(scalars.loc[name, "mean"]) for name in scalars.index[still]}
    scalars = scalars[~still]
    scalars.attrs |= {
        "constant": constant,
        "approximation": idata["posterior"].attrs.get("approximation", ""),
        "restarted": diagnostics.attrs.get("restarted", []),
        "alone": [diagnostics.attrs.get(key, []) for key in ("alone_lower", "alone_distance")],
    }
    rng = np.random.default_rng(random_seed)
    clusters = draws.reference(reference)
    labels = clusters.labels
    # A group without rows may have no concentration; the mean of its weights does not depend on it.
    components = aligned_components(draws, clusters, rng, mean_weights=draws.groups is not None)
    table = _cluster_table(components, draws)
    canonical = canonical_draws(draws.drawn.rows)
    of_rows = certainty_of_rows(labels, canonical)
    table.insert(2, "certainty", np.bincount(labels, of_rows) / np.bincount(labels))
    row = draws.row if draws.row in draws.drawn.labels.coords else None
    names = np.arange(len(labels)) if row is None else draws.drawn.labels[row].to_numpy()
    single = np.flatnonzero(table["size"].to_numpy()[labels] == 1)
    table.attrs |= {
        "is_grouped": draws.groups is not None,
        "is_ordered": draws.are_ordered,
        "note": note_of_overlap(labels, canonical) if reference is None and not draws.is_words() else "",
        "round_to": round_to,
        "max_columns": max_columns,
        "single_rows": {clusters.named[i]: str(names[i]) for i in single},
    }
    return MixtureSummary(scalars, table)


def _cluster_table(components: xr.Dataset, draws: MixtureDraws) -> pd.DataFrame:
    size = components["size"].to_numpy()
    columns: dict[str, np.ndarray] = {"size": size, "share": size / size.sum()}
    for variable in ("overlap", "purity", "weight"):
        columns[variable] = components[variable].mean(("chain", "draw")).to_numpy()
    if draws.is_words():
        return pd.DataFrame(
            columns | {"words": _top_words(components)}, index=components[draws.cluster_dim()].to_index()
        )
    for view in draws.views:
        for parameter in view.family.component.axes:
            name = draws.name_of(view, parameter)
            is_direction = parameter in view.family.component.directions
            columns |= _columns_of(components[name], name, draws.cluster_dim(), is_direction)
    return pd.DataFrame(columns, index=components[draws.cluster_dim()].to_index())


def _top_words(components: xr.Dataset) -> list[str]:
    """Return the likeliest words of every topic."""
    mean = components["probability"].mean(("chain", "draw")).squeeze()
    (word,) = (dim for dim in mean.dims if dim not in components["size"].dims)
    names = mean[f"{word}_name" if f"{word}_name" in mean.coords else word].to_numpy()
    order = np.argsort(-mean.transpose(..., word).to_numpy(), axis=1, kind="stable")
    return [", ".join(map(str, names[ranked[:_MOST_NAMED]])) for ranked in order]


def _columns_of(values: xr.DataArray, name: str, cluster: str, is_direction: bool) -> dict[str, np.ndarray]:
    """Return posterior means of a parameter as named columns of a table; of directions, those of unit vectors."""
    if name.endswith("covariance"):
        of_row = values.isel({values.dims[-1]: 0}, drop=True)
        values = of_row.copy(data=np.diagonal(values.to_numpy(), axis1=-2, axis2=-1))
    if name.endswith("variance"):
        values = values**0.5
        name = f"{name.removesuffix('covariance').removesuffix('variance')}sd"
    draws = ("chain", "draw")
    mean = values.mean(draws)
    if is_direction:
        mean = mean.copy(data=np.angle(values.copy(data=np.exp(1j * values.to_numpy())).mean(draws)))
    dims = [str(dim) for dim in mean.dims if dim != cluster]
    if not dims:
        return {name: mean.to_numpy()}
    stacked = mean.stack(entry=dims)
    keys = [key if isinstance(key, tuple) else (key,) for key in stacked["entry"].to_index()]
    if f"{dims[-1]}_name" in mean.coords:
        # Columns with fewer categories are padded with the name NO_CATEGORY.
        categories = stacked[f"{dims[-1]}_name"].to_numpy()
        keys = [(*key[:-1], category) for key, category in zip(keys, categories, strict=True)]
    return {
        f"{name}[{', '.join(map(str, key))}]": stacked.isel(entry=i).to_numpy()
        for i, key in enumerate(keys)
        if key[-1] != NO_CATEGORY
    }
