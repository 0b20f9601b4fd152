"""Results of mixtures of rows in chunks: labels, and what follows from sufficient statistics of the clusters."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.chunked.dask_rows import DaskRows, Reader, as_dask_array, names_in
from pymc_dpgmm.chunked.partition import DrawnPartition
from pymc_dpgmm.chunked.passes import Sent, draw_labels
from pymc_dpgmm.chunked.records import from_dataset, has_labels
from pymc_dpgmm.families import BASE_MEASURES, FAMILIES
from pymc_dpgmm.integration.variables.records import parse_numbers
from pymc_dpgmm.posterior.arrays.mixtures import constant
from pymc_dpgmm.posterior.arrays.partitions import shared_rows, shares_of_reference
from pymc_dpgmm.posterior.arrays.sums import SummedNumbers
from pymc_dpgmm.posterior.draws import DrawnLabels, Reference, read_records, with_chains_and_draws
from pymc_dpgmm.posterior.mixtures import FamilyDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.stored import Source, StoredPrior, record_of
from pymc_dpgmm.tables.checks import check_count, is_chunked


def group_of(name: str) -> str:
    """Return the name of the group of ``idata`` that has the clusters of each draw, to recompute labels from."""
    return f"{name}_clusters"


class ChunkedDraws(FamilyDraws):
    """All draws of a mixture of rows in chunks, without their labels.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
    model : pm.Model, optional
    """

    def __init__(self, idata: Any, name: str, model: pm.Model | None = None) -> None:
        self.clusters: xr.Dataset = with_chains_and_draws(idata[group_of(name)].dataset)
        clusters, records = self.clusters, read_records(idata)
        self.record = record = record_of(records, name)
        of_labels = record_of(records, record["chunked"])
        chosen = {dim: clusters[dim] for dim in ("chain", "draw")}
        shape = (clusters.sizes["chain"], clusters.sizes["draw"], 0)
        row = f"{name}_row"
        no_labels = xr.DataArray(
            np.empty(shape, dtype=np.int64), dims=("chain", "draw", row), coords=chosen, name=f"{name}_labels"
        )
        drawn = DrawnLabels(no_labels, row)
        source = Source(idata, drawn, model)
        prior = StoredPrior(source, record["chunked"], of_labels, int(record["rows"]))
        names, is_vector = record["named"], bool(record["is_vector"])
        view = NamedView(
            name=name,
            family=FAMILIES[record["family"]],
            d=int(record["columns"]),
            n_labels=int(record["rows"]),
            parameters=source.parameters(name, record["parameters"]),
            given={field: parse_numbers(where) for field, where in record["given"].items()},
            # The rows are not in memory: ranges of the columns stand in for them.
            observed=constant(parse_numbers(record["ranges"])),
            is_vector=is_vector,
            column=names[0] if is_vector and names else None,
            columns=None if is_vector or names is None else (f"{name}_feature", names),
        )
        sums = clusters["sums"].transpose("chain", "draw", ...).to_numpy()
        sums = sums.reshape(-1, *sums.shape[2:])
        self.origin = None if record["origin"] is None else parse_numbers(record["origin"])
        numbers = SummedNumbers(
            sums=sums,
            seats=prior.seats,
            views=[view],
            origin=self.origin,
            n_columns=int(record["width"]),
            used=range(len(sums)),
        )
        super().__init__(idata, model, drawn, prior, [of_labels, record], [view], numbers)

    def reference(self, reference: Any, random_seed: Any = 0) -> Reference:
        """Raise NotImplementedError: without labels of rows, clusters of draws cannot be matched."""
        raise NotImplementedError(
            f"the rows of {self.name} are in chunks, so there is no point partition to align the clusters of its "
            "draws to. dp.component_draws(..., ragged=True) returns all clusters of all draws without aligning "
            "them, and dp.chunked_labels the labels of rows"
        )


def chunked_labels(idata: Any, name: str, observed: Any, *, draws: int | str = 1) -> xr.DataArray:
    """Return the labels of rows in chunks, as a lazy dask array.

    A draw does not store a label for each row. It stores the weights and parameters of its clusters, and the keys
    of its random numbers. From these and the rows the same labels are recomputed, chunk by chunk.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture.
    observed : dask array, DataFrame or Series
        The data of the mixture, in any chunks of whole rows. Its values must be those of the fit. They are not
        checked, which would take a pass over the rows.
    draws : int, >= 1, or "best"
        Number of draws of each chain, evenly spaced and ending with the last one. By default the last one alone.
        ``"best"`` is the one draw of all chains with the largest log joint density.

    Returns
    -------
    DataArray
        (chain, draw, ``{name}_row``) int64, as a dask array with the chunks of the data. Two rows of a draw are in
        one cluster if their labels agree. Labels mean nothing across draws, and some numbers are not used.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, the data has another shape, or there are fewer than ``draws`` draws.

    Examples
    --------
    With ``array`` a dask array, the sizes of the clusters in the last draw of the first chain::

        with pm.Model():
            dp.DPMixture("y", 1.0, observed=array)
            idata = pm.sample()
        labels = dp.chunked_labels(idata, "y", array)
        sizes = dask.array.bincount(labels[0, 0].data).compute()
    """
    import dask.array

    if isinstance(draws, str) and draws != "best":
        raise ValueError(f'draws must be an integer of at least 1, or "best", got {draws!r}')
    source = KeptDraws(idata, name, observed)
    chains, positions = source.best() if isinstance(draws, str) else source.chosen(draws)
    stacked = dask.array.stack(
        [
            dask.array.stack(
                [source.rows.array(labels_of_chunk, np.int64, (), *source.draw(c, t)) for t in positions]
            )
            for c in chains
        ]
    )
    return xr.DataArray(
        stacked,
        dims=("chain", "draw", f"{name}_row"),
        coords=source.coords(chains, positions),
        name=f"{name}_labels",
    )


def chunked_membership(idata: Any, name: str, observed: Any, *, draws: int | None = None) -> xr.Dataset:
    """Return the posterior probability that rows in chunks belong to each cluster of one partition.

    The partition is the draw with the largest log joint density. Clusters of other draws are matched to its
    clusters as by :func:`membership`: two clusters correspond if they share more than half of the rows of one of
    them. Matching takes one pass over the rows; the probabilities are lazy. For one clustering of all rows, take
    the most probable cluster of each, ``probability.argmax("cluster")``, and not the labels of a draw: a draw,
    even the best one, allocates rows between two clusters at random.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture.
    observed : dask array, DataFrame or Series
        The data of the mixture, in any chunks of whole rows. The recomputed sizes of clusters are checked against
        the stored ones.
    draws : int, >= 1, optional
        Number of draws of each chain that are averaged, evenly spaced and ending with the last one. By default 20,
        or all if there are fewer.

    Returns
    -------
    Dataset
        ``probability`` (``{name}_row``, cluster), float64, which adds up to one for each row, and ``reference``
        (``{name}_row``,), int64, the labels of the best draw, both as dask arrays with the chunks of the data; and
        ``size`` (cluster,), the numbers of rows in its clusters, largest first.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, the data differ, or there are fewer than ``draws`` draws.

    Examples
    --------
    With ``array`` a dask array, rows that belong to no cluster with a probability of 0.9::

        with pm.Model():
            dp.DPMixture("y", 1.0, observed=array)
            idata = pm.sample()
        members = dp.chunked_membership(idata, "y", array)
        uncertain = (members["probability"].max("cluster") < 0.9).to_numpy()
    """
    source = KeptDraws(idata, name, observed)
    (chain,), (best,) = source.best()
    reference = source.draw(chain, best)
    chains, positions = source.chosen(min(20, source.n_draws) if draws is None else draws)
    drawn = [source.draw(c, t) for c in chains for t in positions]
    counts = source.rows.reduced(shared_in_chunk, add_counts, (reference, drawn))
    for (_, partition), shared in zip(drawn, counts, strict=True):
        _check_sizes(name, shared.sum(axis=0), partition.sums[:, 0])
    sizes = counts[0].sum(axis=1)
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    names = np.full(len(sizes), -1)
    names[order] = np.arange(len(order))
    shares = [shares_of_reference(shared[order].T) for shared in counts]
    dims = f"{name}_row", "cluster"
    return xr.Dataset(
        {
            "probability": (
                dims,
                source.rows.array(membership_of_chunk, np.float64, (len(order),), drawn, shares),
            ),
            "reference": (dims[:1], source.rows.array(named_labels_of_chunk, np.int64, (), reference, names)),
            "size": (dims[1:], sizes[order]),
        }
    )


class KeptDraws:
    """Draws of a mixture of rows in chunks, together with the rows, to recompute labels.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
    observed : dask array, DataFrame or Series

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or the data has another shape or other columns.
    """

    def __init__(self, idata: Any, name: str, observed: Any) -> None:
        if group_of(name) not in idata.children:
            raise ValueError(f"idata has no group {group_of(name)}: {name!r} is no mixture of a dask array")
        if not is_chunked(observed):
            raise TypeError(f"observed must be a dask array, DataFrame or Series, got {type(observed).__name__}")
        results = ChunkedDraws(idata, name)
        record = results.record
        array = as_dask_array(observed)
        if array.shape[0] != record["rows"]:
            raise ValueError(f"observed must have the {record['rows']} rows of {name}, got {array.shape[0]}")
        if (array.ndim == 1) != record["is_vector"] or (array.ndim == 2 and array.shape[1] != record["columns"]):
            raise ValueError(
                f"observed must have the {record['columns']} columns of {name}, got shape {array.shape}"
            )
        names, named = names_in(observed), record["named"]
        if names is not None and named is not None and names != list(named):
            raise ValueError(
                f"observed must have the columns of {name} in the same order, {', '.join(named)}, got "
                f"{', '.join(names)}"
            )
        self._idata, self._name = idata, name
        self._clusters = results.clusters
        if not has_labels(self._clusters):
            raise ValueError(
                f"the draws of {name} come from dp.fit and have no labels of rows. Use fit.responsibilities() for "
                "the probability of each component for every row"
            )
        self._view, self._origin = results.views[0], results.origin
        self.rows = DaskRows(array)
        base = BASE_MEASURES[self._view.family.name].restored({}, self._view.given)
        self.rows.read_with(Reader(base), int(record["width"]))

    def best(self) -> tuple[list[int], list[int]]:
        """Return positions of the chain and of the draw with the largest log joint density."""
        statistics = with_chains_and_draws(self._idata["sample_stats"].dataset)
        log_joint = statistics[f"{self._name}_log_joint"].transpose("chain", "draw").to_numpy()
        chain, draw = np.unravel_index(log_joint.argmax(), log_joint.shape)
        return [int(chain)], [int(draw)]

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain."""
        return int(self._clusters.sizes["draw"])

    def chosen(self, draws: int) -> tuple[list[int], list[int]]:
        """Return positions of all chains, and of ``draws`` evenly spaced draws that end with the last one."""
        n_chains, n_draws = self._clusters.sizes["chain"], self.n_draws
        check_count("draws", draws, 1)
        if draws > n_draws:
            raise ValueError(f"draws must be at most {n_draws}, the draws of each chain, got {draws}")
        positions = np.linspace(n_draws / draws, n_draws, draws).round().astype(int) - 1
        return list(range(n_chains)), positions.tolist()

    def coords(self, chains: list[int], positions: list[int]) -> dict[str, np.ndarray]:
        """Return the coordinates of chains and draws."""
        return {
            "chain": self._clusters["chain"].to_numpy()[chains],
            "draw": self._clusters["draw"].to_numpy()[positions],
        }

    def draw(self, chain: int, draw: int) -> tuple[Sent, DrawnPartition]:
        """Return the clusters and keys of a draw, from which its labels are recomputed."""
        partition = from_dataset(self._clusters, chain, draw)
        family, params = self._view.family, self._view.params(0)
        return Sent(family, params, self._origin, partition.clusters, 0, np.empty(0, dtype=np.int64)), partition


def labels_of_chunk(values: np.ndarray, first_row: int, sent: Sent, partition: DrawnPartition) -> np.ndarray:
    """Return the labels of the rows of a chunk in a draw."""
    labels, _ = draw_labels(values, first_row, sent)
    partition.amend(labels, np.arange(first_row, first_row + len(labels)))
    return labels


def named_labels_of_chunk(
    values: np.ndarray, first_row: int, draw: tuple[Sent, DrawnPartition], names: np.ndarray
) -> np.ndarray:
    """Return the labels of the rows of a chunk in a draw, renamed by ``names[label]``."""
    return np.asarray(names[labels_of_chunk(values, first_row, *draw)])


def shared_in_chunk(values: np.ndarray, first_row: int, message: Any) -> list[np.ndarray]:
    """Count for each draw the rows of a chunk that reference clusters share with its clusters: (K', K) each."""
    reference, drawn = message
    labels, n_reference = labels_of_chunk(values, first_row, *reference), _n_labels(reference)
    counts = []
    for draw in drawn:
        n_labels = _n_labels(draw)
        counts.append(shared_rows(labels, n_reference, labels_of_chunk(values, first_row, *draw), n_labels))
    return counts


def add_counts(parts: list[list[np.ndarray]], message: Any) -> list[np.ndarray]:
    """Add up the counts of several chunks, draw by draw."""
    return [np.sum(of_draw, axis=0) for of_draw in zip(*parts, strict=True)]


def membership_of_chunk(
    values: np.ndarray, first_row: int, drawn: list[tuple[Sent, DrawnPartition]], shares: list[np.ndarray]
) -> np.ndarray:
    """Return the membership probabilities of the rows of a chunk: the shares of their clusters, averaged."""
    total = sum(
        shares_of_draw[labels_of_chunk(values, first_row, *draw)]
        for draw, shares_of_draw in zip(drawn, shares, strict=True)
    )
    return np.asarray(total) / len(drawn)


def _check_sizes(name: str, recomputed: np.ndarray, stored: np.ndarray) -> None:
    """Raise ValueError if the recomputed clusters of a draw differ in size from the stored ones.

    A few rows are tolerated: another machine may round differently.
    """
    recomputed, stored = (np.sort(sizes[sizes > 0])[::-1] for sizes in (recomputed, stored))
    length = max(len(recomputed), len(stored))
    recomputed, stored = (np.pad(sizes, (0, length - len(sizes))) for sizes in (recomputed, stored))
    if np.abs(recomputed - stored).sum() > 4.0 + 1e-6 * stored.sum():
        first = int(np.argmax(recomputed != stored))
        raise ValueError(
            f"observed must have the rows of {name} in the same order. In the order of their sizes, cluster "
            f"{first + 1} of a draw had {int(stored[first])} rows, and has {int(recomputed[first])} with these"
        )


def _n_labels(draw: tuple[Sent, DrawnPartition]) -> int:
    """Return one more than the largest label of a draw."""
    _, partition = draw
    return max(len(partition.clusters.slots), int(partition.labels.max(initial=-1)) + 1)
