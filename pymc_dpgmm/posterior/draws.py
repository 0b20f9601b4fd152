"""Draws of labels, read from the results of ``pm.sample``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
import xarray as xr

from pymc_dpgmm.integration.variables.records import dataset_of, parse_record, record_name
from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.names import coordinates
from pymc_dpgmm.tables.reading import named_entries
from pymc_dpgmm.tables.rows import RowNames

# Groups that may have draws of labels: from pm.sample, and from dp.ThinnedLabels.
GROUPS = ("posterior", "thinned")
# Groups that may have fixed labels: from pm.observe, and from pm.do.
FIXED_GROUPS = ("observed_data", "constant_data")


class DrawnLabels(NamedTuple):
    """Draws of the labels of one mixture.

    Parameters
    ----------
    labels : (chain, draw, n) DataArray of integers
    row : str
        Dimension of the rows.
    loss : str
        Of a point partition, by default.
    """

    labels: xr.DataArray
    row: str
    loss: str = "vi"

    @property
    def n(self) -> int:
        """Number of rows, or of units, that have labels."""
        return self.labels.sizes[self.row]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of chains, of draws and of rows."""
        return self.labels.sizes["chain"], self.labels.sizes["draw"], self.n

    @property
    def rows(self) -> np.ndarray:
        """Labels with one line per draw, chains one after the other: (n_draws, n) array."""
        return self.labels.to_numpy().reshape(-1, self.n)

    def of_rows(self, positions: Any) -> "DrawnLabels":
        """Return the draws for some of the rows."""
        return self._replace(labels=self.labels.isel({self.row: positions}))

    def coords(self) -> dict[str, Any]:
        """Coordinates of the rows."""
        return {str(name): coord for name, coord in self.labels.coords.items() if coord.dims == (self.row,)}

    def per_draw(self) -> dict[str, Any]:
        """Coordinates of chains and draws."""
        return {dim: self.labels[dim].to_numpy() for dim in ("chain", "draw")}

    def at_draws(self, dataset: xr.Dataset) -> xr.Dataset:
        """Select these chains and draws from a dataset: see :func:`selected`."""
        return selected(dataset, self.per_draw(), self.labels.name)

    def streams(self, seed: int) -> Callable[[int], np.random.Generator]:
        """Return a function that maps the number of a draw to its random number generator.

        The generator depends on the coordinates of chain and draw, so it stays the same if draws are selected
        later.
        """
        names, shape = [np.asarray(values) for values in self.per_draw().values()], self.shape[:2]
        if not all(values.dtype.kind in "iu" and values.min(initial=0) >= 0 for values in names):
            names = [np.arange(length) for length in shape]

        def stream(s: int) -> np.random.Generator:
            chain, draw = np.unravel_index(s, shape)
            return np.random.default_rng([seed, int(names[0][chain]), int(names[1][draw])])

        return stream

    def by_chain(self, values: np.ndarray) -> np.ndarray:
        """Reshape values of all draws, (n_draws, ...), to (chain, draw, ...)."""
        return values.reshape(*self.shape[:2], *values.shape[1:])


def with_chains_and_draws(values: Any) -> Any:
    """Put the dimension back of a single chain or draw that was selected from a Dataset or DataArray."""
    single = [dim for dim in ("chain", "draw") if dim in values.coords and dim not in values.dims]
    return values.expand_dims(single)


def selected(values: Any, chosen: Mapping[str, np.ndarray], labels: Any) -> Any:
    """Select chains and draws from a Dataset or DataArray, by their numbers.

    Parameters
    ----------
    values : Dataset or DataArray
        With chains and draws.
    chosen : dict of arrays
        Numbers of chains and of draws: those of labels.
    labels : str
        Name of the labels, for messages.

    Raises
    ------
    ValueError
        If there are not all of these draws, or several chains or draws have one number.
    """
    values = with_chains_and_draws(values)
    for dim, numbers in chosen.items():
        there = values[dim].to_numpy() if dim in values.coords else np.arange(values.sizes[dim])
        for present in (there, numbers):
            if len(np.unique(present)) < len(present):
                raise ValueError(
                    f"several {dim}s have one number ({listed(present.tolist())}), as after joining results: "
                    f"number them anew in every group, by assign_coords({dim}=range(...))"
                )
        lacking = np.setdiff1d(numbers, there)
        if len(lacking):
            raise ValueError(
                f"there are {labels} of {dim} {lacking[0]}, and other results of the {dim}s "
                f"{listed(there.tolist())} only: groups were selected by position, and labels may be there of "
                "some draws alone (dp.ThinnedLabels). Select all groups by the numbers of the labels, "
                "idata.sel(draw=numbers)"
            )
    return values.sel(chosen)


def with_group(idata: xr.DataTree, group: str, added: xr.Dataset, extend: bool) -> xr.DataTree:
    """Add variables to a group of results, in place of those of the same names, or return them alone.

    Raises
    ------
    ValueError
        If the other variables of the group are of other chains or draws.
    """
    if not extend:
        return xr.DataTree.from_dict({group: added})
    there = idata[group].to_dataset() if group in idata.children else xr.Dataset()
    others = there.drop_vars(list(added), errors="ignore")
    for dim in ("chain", "draw"):
        if dim in others.dims and dim in others.coords and not np.array_equal(others[dim], added[dim]):
            raise ValueError(
                f"{group} has {listed(list(others.data_vars))} of other {dim}s than the labels: select the same "
                "draws in all groups, or pass extend_inferencedata=False"
            )
    idata[group] = xr.DataTree(others.assign(added))
    return idata


class Reference(NamedTuple):
    """A partition that the clusters of draws are matched with.

    Parameters
    ----------
    labels : (n,) int64 array
        0, ..., K - 1.
    names : (K,) array
        What the clusters are called: the labels that a user gives, integers in increasing order, and text by the
        first row that has it.
    is_found : bool
        Whether it was found from the draws, by default or as a result that is passed, and is not a user's own.
    """

    labels: np.ndarray
    names: np.ndarray
    is_found: bool = True

    @classmethod
    def numbered(cls, labels: np.ndarray) -> "Reference":
        """Return a partition that nobody has named: its clusters are called 0, ..., K - 1."""
        return cls(labels, np.arange(labels.max() + 1))

    @property
    def named(self) -> np.ndarray:
        """The names of the clusters of all rows: (n,)."""
        return self.names[self.labels]


def read_records(idata: Any) -> dict[str, dict[str, Any]]:
    """Return the records of all mixtures and labels, by name."""
    constants = dataset_of(idata, "constant_data")
    ending = record_name("")
    records = {str(key)[: -len(ending)]: values for key, values in constants.items() if str(key).endswith(ending)}
    return {name: parse_record(values.to_numpy()) for name, values in records.items()}


def drawn_labels(idata: Any, name: str) -> DrawnLabels:
    """Return the draws of a mixture's labels.

    Parameters
    ----------
    idata : xarray.DataTree
        As ``pm.sample`` returns it, or as read from a file.
    name : str
        Name of the mixture, ``"y"``, or of its labels, ``"y_labels"``.

    Raises
    ------
    TypeError, ValueError
        If there is no such group or no such labels. The message lists what there is.
    """
    if not isinstance(idata, xr.DataTree):
        raise TypeError(f"idata must be an xarray.DataTree, as pm.sample returns, got {type(idata).__name__}")
    if not idata.children and "draw" in idata.dims:
        raise ValueError("idata is a single group of results: pass all of it, idata and not idata.posterior")
    records = read_records(idata)
    candidates = (f"{name}_labels", name, records.get(name, {}).get("labels") or name)
    fixed = _fixed_labels(idata, records, candidates)
    groups = [group for group in GROUPS if group in idata.children]
    if not groups and fixed is None:
        raise ValueError(f"idata has no group of draws ({' or '.join(GROUPS)}), it has {sorted(idata.children)}")
    there: list[str] = []
    for group in groups:
        dataset = idata[group].dataset
        for candidate in candidates:
            if candidate in dataset:
                labels = dataset[candidate]
                labels = with_chains_and_draws(labels)
                if not _are_labels(labels):
                    continue
                row = next(str(d) for d in labels.dims if d not in ("chain", "draw"))
                loss = _loss_for(records, candidate)
                return DrawnLabels(labels.transpose("chain", "draw", row), row, loss)
        there += [str(key) for key, value in dataset.data_vars.items() if _are_labels(value)]
    if fixed is not None:
        return fixed
    statistics = dataset_of(idata, "sample_stats")
    if f"{name.removesuffix('_labels')}_labels_n_clusters" in statistics:
        labels = f"{name.removesuffix('_labels')}_labels"
        raise ValueError(
            f"the draws have no {labels}, which var_names left out: add {labels} to var_names or, for many rows, "
            "store the labels of some draws with dp.ThinnedLabels"
        )
    if f"{name}_clusters" in idata.children:
        raise NotImplementedError(
            f"the rows of {name} are in chunks, so their labels are not stored. Use dp.chunked_labels for labels, "
            "dp.chunked_membership for the probability of each cluster for every row (after dp.fit: "
            "fit.responsibilities()), and az.summary(idata) for the number of clusters. What asks for new rows, "
            "such as dp.density, dp.predict and dp.sample_new_rows, takes such results too, and so do "
            "dp.dependence, dp.contrast and dp.component_draws(..., ragged=True)"
        )
    mixtures = _named_mixtures(idata)
    raise ValueError(
        f"there are no labels of {name!r} in {' or '.join(groups)}; there are labels named {sorted(set(there))}"
        + (f", and mixtures on them named {listed(mixtures)}" if mixtures else "")
    )


def _fixed_labels(
    idata: xr.DataTree, records: Mapping[str, dict[str, Any]], candidates: Sequence[str]
) -> DrawnLabels | None:
    """Return labels that were observed or set by ``pm.do``, repeated for every draw; None if there are none."""
    for candidate in candidates:
        # Other integer variables, such as counts, have no record of a prior on partitions.
        if "prior" not in records.get(candidate, {}):
            continue
        for group in FIXED_GROUPS:
            if group in idata.children and candidate in idata[group].dataset:
                labels = idata[group].dataset[candidate]
                loss = _loss_for(records, candidate)
                return DrawnLabels(_at_each_draw(idata, labels).rename(candidate), str(labels.dims[0]), loss)
    return None


def _at_each_draw(idata: xr.DataTree, fixed: xr.DataArray) -> xr.DataArray:
    """Repeat fixed values for each draw of the posterior, or return one draw if there is no posterior."""
    drawn = dataset_of(idata, "posterior")
    each = {
        dim: drawn[dim].to_numpy() if dim in drawn.coords else np.arange(drawn.sizes.get(dim, 1))
        for dim in ("chain", "draw")
    }
    return fixed.expand_dims({dim: np.atleast_1d(numbers) for dim, numbers in each.items()})


def _named_mixtures(idata: xr.DataTree) -> list[str]:
    """Return the names of the recorded mixtures and views."""
    named = (name for name, record in read_records(idata).items() if "labels" in record)
    # A model has the parameters of rows by the name of their process.
    return sorted(dict.fromkeys(name.removesuffix("_atoms") for name in named))


def _loss_for(records: Mapping[str, dict[str, Any]], labels: Any) -> str:
    """Return the loss of a point partition by default: Binder's where rows are the words of documents.

    A word belongs to one of its topics with little certainty, so that a single cluster often has the smallest
    variation of information, though all draws have the same topics.
    """
    own = [record for record in records.values() if record.get("labels") == labels]
    are_words = [(record.get("family"), record.get("columns")) for record in own] == [("DirichletCategorical", 1)]
    return "binder" if are_words and "group" in records.get(labels, {}) else "vi"


def _are_labels(values: xr.DataArray) -> bool:
    return values.dtype.kind in "iu" and values.ndim == 3 and {"chain", "draw"} < set(values.dims)


def checked_partition(name: str, partition: Any, drawn: DrawnLabels) -> Reference:
    """Check a partition that a user passes.

    Parameters
    ----------
    name : str
        Name of the user's argument, for messages.
    partition : (n,) array_like of integers or text, DataArray, Series or Dataset
        If it has coordinates of the rows, or an index, the rows may be in another order.
    drawn : DrawnLabels
        Draws of the same rows.

    Raises
    ------
    TypeError, ValueError
        If it does not have one label for each row.
    """
    rows = drawn.labels[drawn.row].to_numpy() if drawn.row in drawn.labels.coords else None
    is_found = isinstance(partition, xr.Dataset)
    if is_found:
        if "labels" not in partition:
            raise ValueError(
                f"{name} is a Dataset without labels, it has {listed(partition)}: pass the result of "
                "dp.point_partition, or labels"
            )
        partition = partition["labels"]
    names = RowNames("the draws", None if rows is None else pd.Index(rows))
    partition = named_entries(partition, name)
    if hasattr(partition, "index") and not callable(partition.index):
        # Coordinates of the draws are names of rows as they were stored.
        partition = pd.Series(partition).set_axis(pd.Index(coordinates(partition.index)))
    values = np.asarray(names.entries(name, partition))
    if values.dtype.kind not in "iuUO":
        raise TypeError(f"{name} must be integers or text, got dtype {values.dtype}")
    if values.shape != (drawn.n,):
        raise ValueError(f"{name} must have shape ({drawn.n},), got {values.shape}")
    codes, labels = pd.factorize(values, sort=values.dtype.kind in "iu")
    if np.any(codes < 0):
        raise ValueError(f"{name} must have a label for each row, got {np.sum(codes < 0)} missing values")
    return Reference(codes.astype(np.int64), coordinates(labels), is_found)


def checked_level(probability: float | None) -> float:
    """Return the probability of intervals: by default that of ArviZ, ``arviz.rcParams["stats.ci_prob"]``.

    Raises
    ------
    ValueError
        Unless it lies strictly between 0 and 1.
    """
    level = float(az.rcParams["stats.ci_prob"]) if probability is None else probability
    if not 0 < level < 1:
        raise ValueError(f"probability must lie in (0, 1), got {level}")
    return level


def with_bands(
    found: np.ndarray, dims: tuple[str, ...], probability: float, coords: Mapping[str, Any] | None = None
) -> xr.Dataset:
    """Return the ``mean`` of draws (S, ...), and ``lower`` and ``upper`` limits with equal tails."""
    lower, upper = np.quantile(found, tails(probability), axis=0)
    return xr.Dataset(
        {"mean": (dims, found.mean(axis=0)), "lower": (dims, lower), "upper": (dims, upper)},
        coords=coords,
        attrs={"probability": probability},
    )
