"""Mixtures read back from the results of ``pm.sample``, and the answers that depend on families.

:mod:`pymc_dpgmm.posterior.arrays.mixtures` computes with the values, and :mod:`pymc_dpgmm.posterior.stored` reads
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import logsumexp

from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers, Partition
from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.arrays.rows import draw_rows_of_table, log_densities_of, log_weights_given, rows_of
from pymc_dpgmm.posterior.draws import DrawnLabels, Reference, drawn_labels, read_records
from pymc_dpgmm.posterior.named_views import NamedView, read_atoms, read_view
from pymc_dpgmm.posterior.points import points_of
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.stored import (
    Source,
    StoredGroups,
    StoredOrder,
    StoredPrior,
    data_of,
    mixtures_on,
    record_of,
)

# Name of the attribute of a variable that stores the seed of the random numbers which its log likelihoods and
# replicates share. Leave-one-out predictive checks weight the replicates of a draw by its log likelihood, so both
# must have the same weights and parameters of clusters. The seed is stored with whichever is computed first.
SEED = "seed_of_clusters"


def shared_seed(idata: Any, groups: tuple[str, ...], names: list[str], rng: np.random.Generator) -> int:
    """Return the seed stored with a variable of these names in these groups, or else a new seed."""
    new = int(rng.integers(2**31))
    for group in groups:
        there = dataset_of(idata, group)
        for name in names:
            if name in there and SEED in there[name].attrs:
                return int(there[name].attrs[SEED])
    return new


class FamilyDraws(Draws):
    """Draws of a mixture whose views have data of families."""

    def density(
        self, x: Any, columns: Any, given: Mapping[str, Any] | None, probability: float, random_seed: Any
    ) -> xr.Dataset:
        """Return the density of one view, some columns of which may be integrated out."""
        view, chosen = self.view_and_columns(columns)
        draws = self.of_views([view.name])
        draws.refuse_powers("dp.density", [view])
        at = points_of(draws, view, x, chosen)
        full: Any = at.values
        if columns is not None:
            full = np.full((len(at.values), view.d), np.nan)
            full[:, chosen] = at.values
        draws.warn_of_covariates(given, "dp.density")
        values = view.check_new(full, draws.given_of(view, given), at.rows)
        rng, mean = np.random.default_rng(random_seed), np.zeros(values.shape[0])
        of_draws = np.empty((draws.numbers.n_draws, values.shape[0]))
        for partition in draws.numbers.partitions([values]):
            (clusters,) = partition.views
            mean += np.exp(clusters.log_predictives()) @ partition.seats.probabilities()
            measure = partition.draw_measure(rng)
            densities = np.exp(clusters.log_densities(measure.drawn[0], values))
            of_draws[partition.draw] = densities @ measure.weights[0]
        lower, upper = np.quantile(of_draws, tails(probability), axis=0)
        return at.result(mean / len(of_draws), lower, upper, probability)

    def new_rows(self, n_rows: int, given: Any, units: Any, random_seed: Any) -> xr.Dataset:
        """Return new rows that are drawn jointly in every draw."""
        self.refuse_powers("dp.sample_new_rows")
        self.warn_of_covariates(given, "dp.sample_new_rows")
        covariates = [view.check_given(n_rows, self.given_of(view, given)) for view in self.views]
        rng, n_draws = np.random.default_rng(random_seed), self.numbers.n_draws
        clusters_of_rows = np.empty((n_draws, n_rows), dtype=np.int64)
        rows = [np.empty((n_draws, n_rows, view.d)) for view in self.views]
        for partition in self.numbers.partitions():
            labels = _seated(rng, partition, n_rows, units)
            n_new = max(int(labels.max()) + 1 - len(partition.sizes), 0)
            for clusters, rows_of_view, of_view in zip(partition.views, rows, covariates, strict=True):
                drawn = clusters.draw_with_new(rng, n_new)
                new = clusters.family.component.draw_rows(rng, drawn, labels, of_view)
                if partition.draw == 0 and of_view.size:
                    # The family checks covariates together with rows; the first draw is enough.
                    clusters.family.check_values(clusters.view.params(0), np.concatenate([new, of_view], axis=1))
                rows_of_view[partition.draw] = new
            names = partition.seats.names
            clusters_of_rows[partition.draw] = labels if names is None else names[labels]
        cluster = {"cluster": (("chain", "draw", "new_row"), self.drawn.by_chain(clusters_of_rows))}
        return self.with_names(self.views, rows, np.arange(n_rows), cluster)


def _seated(rng: np.random.Generator, partition: Partition, n_rows: int, units: Any) -> np.ndarray:
    """Draw the clusters of new rows (m,) int64: one for all rows of a unit."""
    if units is None:
        return partition.seats.seat(rng, n_rows)
    codes, label, _ = units
    of_units, is_new = np.empty(len(label), dtype=np.int64), label < 0
    of_units[~is_new] = partition.labels[label[~is_new]]
    if is_new.any():
        of_units[is_new] = partition.seats.seat(rng, int(is_new.sum()))
    found: np.ndarray = of_units[codes]
    return found


class Recorded(NamedTuple):
    """What results have of labels, and of the mixtures that depend on them.

    Parameters
    ----------
    drawn : DrawnLabels
    labels : dict
        The record of the labels.
    mixtures : dict of dict
        Those of all mixtures on them, by name.
    chosen : list of str
        The mixture that a user names, or all.
    """

    drawn: DrawnLabels
    labels: dict[str, Any]
    mixtures: dict[str, dict[str, Any]]
    chosen: list[str]

    @classmethod
    def of(cls, idata: Any, name: str) -> "Recorded":
        """Look up a mixture, one of its views, or labels.

        Raises
        ------
        TypeError, ValueError
            If there are none of this name.
        """
        drawn, records = drawn_labels(idata, name), read_records(idata)
        labels = str(drawn.labels.name)
        record, mixtures = record_of(records, labels), mixtures_on(records, labels)
        return cls(drawn, record, mixtures, [name] if name in mixtures else list(mixtures))


class MixtureDraws(FamilyDraws):
    """Draws with the labels of all rows.

    Parameters
    ----------
    idata : xarray.DataTree
    recorded : Recorded
    model : pm.Model, optional
    group : str or int, optional
        Name of the group of new rows, by default a new group.

    Raises
    ------
    ValueError
        If a variable that is needed was not stored, or there is no such group.
    """

    numbers: MixtureNumbers

    def __init__(self, idata: Any, recorded: Recorded, model: pm.Model | None = None, group: Any = None) -> None:
        drawn, record, mixtures, chosen = recorded
        labels, source = str(drawn.labels.name), Source(idata, drawn, model)
        self.is_constrained = bool(record["is_constrained"])
        self.others_on_labels = record.get("dependents", [])
        self.potentials_on_labels = record.get("potentials", [])
        self.groups = StoredGroups(source, labels, record, group) if "groups" in record else None
        self.are_ordered = "sequences" in record
        if group is not None and self.groups is None and not self.are_ordered:
            raise ValueError(f"the rows of {labels} are in no groups: leave out group={group!r}")
        prior: Any = self.groups
        if prior is None:
            prior = (
                StoredOrder(source, labels, record, group)
                if self.are_ordered
                else StoredPrior(source, labels, record, drawn.n)
            )
        views: list[Any] = [
            read_atoms(idata, drawn, view, mixtures[view])
            if "entries" in mixtures[view]
            else read_view(source, view, mixtures[view], drawn.n, data_of(idata, view))
            for view in chosen
        ]
        rows = drawn.rows
        numbers = MixtureNumbers(
            labels=rows,
            seats=prior.seats,
            views=views,
            group=None if self.groups is None else self.groups.group,
            used=range(len(rows)),
        )
        records = [record, *(mixtures[view] for view in chosen)]
        super().__init__(idata, model, drawn, prior, records, views, numbers, list(mixtures))
        if len(chosen) > 1:
            for view in self.data_views:
                view.key = self.view_name(view)

    def priors(self, n_draws: int, random_seed: Any) -> list[GibbsType]:
        """Return priors on partitions of the rows, with parameters drawn from their hyperprior."""
        return self._prior.draw(self._idata, self._model, n_draws, random_seed)

    def best_draw(self) -> int:
        """Return the number of the draw with the largest log joint density, or the last if it is not stored."""
        statistics = self._idata["sample_stats"].dataset if "sample_stats" in self._idata.children else {}
        if f"{self.labels_name}_log_joint" not in statistics:
            return self.numbers.n_draws - 1
        log_joint = self.drawn.at_draws(statistics[[f"{self.labels_name}_log_joint"]])
        return int(log_joint[f"{self.labels_name}_log_joint"].transpose("chain", "draw").to_numpy().argmax())

    def best_labels(self) -> Reference:
        """Return the labels of the draw with the largest log joint density, with their numbers as names."""
        names, labels = np.unique(self.numbers.labels[self.best_draw()], return_inverse=True)
        return Reference(labels.astype(np.int64), names)

    def reference(self, reference: Any, random_seed: Any = 0) -> Reference:
        """Check a partition that a user passes, and return it.

        The default is a point partition or, for words, the draw with the largest log joint density. Topics overlap
        too much for a point partition of all tokens to be useful.
        """
        if reference is None and self.is_words():
            return Reference.numbered(self.best_labels().labels)
        return super().reference(reference, random_seed)

    def _chosen(self, name: str) -> tuple[list[NamedView], str | None, str]:
        """Return the view of this name or all, the name if there are others, and that of the result."""
        views = [view for view in self.views if view.name == name] or self.views
        of = views[0].name if len(views) < len(self.views) else None
        return views, of, views[0].name if len(views) == 1 else self.name

    def _refuse_latent(self, views: Sequence[NamedView], why: str) -> None:
        """Raise ValueError with ``why`` if the data of a view is not observed."""
        latent = [view.name for view in views if view.stored is None]
        if latent:
            raise ValueError(f"{latent[0]} is latent, so {why}")

    def log_likelihood(self, name: str, random_seed: Any) -> tuple[np.ndarray, str, dict[str, Any]]:
        """Return log likelihoods of rows, given weights and parameters of clusters that are drawn.

        With the name of one view, they are conditional on the others.
        """
        views, of, written = self._chosen(name)
        self.refuse_powers("dp.log_likelihood")
        self._refuse_ordered(
            "dp.log_likelihood",
            "rows in order cannot be left out one at a time. Compare models by the dp.log_density of the "
            "row after those of a fit, at several places of the series",
        )
        self._refuse_latent(
            views,
            "none of its rows can be left out. Compare models by the log likelihood of the observed variables, "
            "pm.compute_log_likelihood(idata, var_names=[...]). It takes what each row has of its own as known, "
            "which flatters models with many clusters, so prefer data that were held out",
        )
        if self.others_on_labels:
            raise ValueError(
                f"{', '.join(self.others_on_labels)} depend on {self.labels_name} too, and the posterior "
                f"conditions on them, so the density of a row of {views[0].name} alone does not leave the row "
                "out. Compare models by refitting without some of the rows, or without that variable"
            )
        # Replicates of all views together serve each view.
        names, rng = [written, *(view.name for view in views)], np.random.default_rng(random_seed)
        seed, n = shared_seed(self._idata, ("posterior_predictive",), names, rng), self.drawn.n
        log_p = np.empty((self.numbers.n_draws, n))
        for partition, drawn_of_views, log_weights in self._with_measures(seed, of):
            total = log_weights
            for clusters, drawn in zip(partition.views, drawn_of_views, strict=True):
                if of in (None, clusters.view.name):
                    total = total + log_densities_of(clusters, drawn, n)
            log_p[partition.draw] = logsumexp(total, axis=1)
            if of is not None:
                log_p[partition.draw] -= logsumexp(log_weights, axis=-1)
        return log_p, written, {SEED: seed}

    def _refuse_ordered(self, what: str, instead: str) -> None:
        """Raise NotImplementedError for rows in order, which weights do not tell the clusters of."""
        if self.are_ordered:
            raise NotImplementedError(f"{what} is not supported for rows in order: {instead}")

    def _with_measures(
        self, seed: int, of: str | None
    ) -> Iterator[tuple[Partition, list[dict[str, np.ndarray]], np.ndarray]]:
        """Yield partitions with drawn parameters in each view, and log weights of clusters for rows.

        With ``of``, the name of one of several views, the weights condition on the entries in the others.
        """
        streams = self.drawn.streams(seed)
        for partition in self.numbers.partitions():
            measure = partition.draw_measure(streams(partition.draw), of_groups=True)
            yield partition, measure.drawn, log_weights_given(self.numbers, partition, measure, of)

    def replicates(self, name: str, rng: np.random.Generator) -> xr.Dataset:
        """Return replicates of the data given weights and parameters of clusters that are drawn."""
        views, of, written = self._chosen(name)
        self._refuse_latent(
            views,
            "it has no data to replicate. Use pm.sample_posterior_predictive for the observed variables given "
            "their random effects, and dp.sample_new_rows for new effects",
        )
        self.refuse_powers("dp.sample_replicates")
        self._refuse_ordered("dp.sample_replicates", "use pm.sample_posterior_predictive(idata, model=model)")
        seed = shared_seed(self._idata, ("log_likelihood", "posterior_predictive"), [written], rng)
        replicates: dict[str, np.ndarray] = {}
        for partition, drawn_of_views, log_weights in self._with_measures(seed, of):
            labels = draw_rows_of_table(rng, log_weights, self.drawn.n)
            for clusters, drawn in zip(partition.views, drawn_of_views, strict=True):
                view = clusters.view.name
                if of in (None, view):
                    rows = rows_of(rng, clusters, drawn, labels, partition.draw)
                    if view not in replicates:
                        replicates[view] = np.empty((self.numbers.n_draws, *rows.shape))
                    replicates[view][partition.draw] = rows
        arrays = {view.name: self._as_in_pymc(view, replicates[view.name]) for view in views}
        return xr.Dataset({key: array.assign_attrs({SEED: seed}) for key, array in arrays.items()})

    def _as_in_pymc(self, view: NamedView, rows: np.ndarray) -> xr.DataArray:
        """Return replicates (n_draws, n_rows, d) with the dimensions and coordinates that PyMC would use."""
        rows, data = rows[..., 0] if view.is_vector else rows, view.stored
        dims = [f"{view.name}_dim_{i}" for i in range(rows.ndim - 1)]
        if not view.has_triplets:
            dims = [str(dim) for dim in data.dims]
        coords = {
            dim: np.arange(length) if view.has_triplets or dim not in data.coords else data[dim]
            for dim, length in zip(dims, rows.shape[1:], strict=True)
        }
        return xr.DataArray(
            self.drawn.by_chain(rows), dims=("chain", "draw", *dims), coords=self.drawn.per_draw() | coords
        )
