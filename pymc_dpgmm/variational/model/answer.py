"""Results of variational inference: draws, starting values for sampling, and a check against exact draws."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.chunked.records import sums_as_dataset
from pymc_dpgmm.integration.internals.pymc_internals import MultiTrace, NDArray
from pymc_dpgmm.native.interrupts import imported
from pymc_dpgmm.tables.checks import check_count
from pymc_dpgmm.variational.draws import draw_alpha, draw_labels, log_importance, partitions_of, with_source
from pymc_dpgmm.variational.model.chunked_rows import ChunkedRows
from pymc_dpgmm.variational.rows import RowsAnywhere
from pymc_dpgmm.variational.search import Optimum, distinct

# A component is in use if its expected number of rows is at least this.
_IN_USE = 0.5
# Starting labels are drawn from responsibilities raised to this power, to be overdispersed.
_POWER = 0.5
# A check compares all pairs of at most _MOST_COMPARED rows, with _DRAWS_COMPARED draws from the approximation, and
# computes _WEIGHED importance weights.
_MOST_COMPARED, _DRAWS_COMPARED, _WEIGHED = 400, 500, 1_000
# Batches of exact draws, by which their error is judged.
_BATCHES = 20
# Number of distinct labellings among the weighted draws that pareto_k needs.
_DIFFERENT = 100


class VariationalFit:
    """An approximate posterior of a mixture, as :func:`fit` returns it.

    It is not the posterior. It treats labels, weights and parameters of clusters as independent, so posterior
    correlations are lost and variances are too small, and it describes one of several modes. ``check`` compares it
    with exact draws.

    Attributes
    ----------
    elbo : (n_steps,) float64 array
        The lower bound of the log evidence of the best start, after every change.
    bounds : (n_starts,) float64 array
        The bounds that the starts reached.
    weights : (K,) float64 array
        Expected weights of the components. They add up to less than 1 for processes, which have infinitely many.
    sizes : (K,) float64 array
        Expected numbers of rows.
    point : dict of str to array
        Fixed values of other variables: those passed as ``point``, and maximised ones.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     fit = dp.fit(random_seed=1, progressbar=False)
    >>> idata = fit.to_datatree(draws=100, random_seed=1)
    >>> dp.point_partition(idata, "y")["labels"].to_numpy()
    array([0, 0, 0, 1, 1, 1])
    """

    _rows: Any

    # Advice at the end of the representation.
    _next = (
        "fit.check() compares it with exact draws, and pm.sample(initvals=fit.initvals(chains=4)) starts from it"
    )

    def __init__(self, target: Any, rows: RowsAnywhere, optima: list[Optimum], rng: np.random.Generator) -> None:
        self._target, self._rows, self._rng = target, rows, rng
        made = [o._replace(state=with_source(rows, target.prior, o.state)) for o in optima]
        self._optima = sorted(made, key=lambda optimum: -optimum.state.bound)
        self._best = self._optima[0]
        self.elbo = np.array(self._best.bounds)
        self.bounds = np.array([optimum.state.bound for optimum in self._optima])
        self.weights = self._best.state.weights.means
        self.sizes = self._best.state.sums.sizes
        self.point = dict(target.given)

    @property
    def n_components(self) -> int:
        """Number of components whose expected number of rows is at least one half."""
        return int(np.count_nonzero(self.sizes >= _IN_USE))

    @property
    def alpha(self) -> tuple[float, float] | None:
        """Shape and rate of the gamma approximation to the posterior of alpha; None if alpha is fixed."""
        return self._best.state.weights.alpha

    def __repr__(self) -> str:
        n_starts = len(self._optima)
        of_starts = f"the best of {n_starts} starts, " if n_starts > 1 else ""
        condition = f" given {', '.join(self.point)}" if self.point else ""
        return (
            f"<VariationalFit of {self._target.labels.name}: {self.n_components} components in use, {of_starts}"
            f"log evidence >= {self.elbo[-1]:.2f}{condition}. An approximation, not the posterior: its variances "
            f"are too small, and it describes one mode. {self._next}>"
        )

    def responsibilities(self) -> np.ndarray:
        """Return the approximate probability of each component for every row.

        Returns
        -------
        (n, K) float64 array
        """
        assert self._best.state.source is not None
        blocks = self._rows.blocks_of_responsibilities(*self._best.state.source)
        return np.concatenate([block.T.copy() for _, block in blocks])

    def initvals(self, chains: int = 4, *, random_seed: Any = None) -> list[dict[str, Any]]:
        """Return starting values for chains, for ``pm.sample(initvals=...)``.

        Chains take turns among the distinct optima. Labels are drawn with more spread than the approximation has,
        so that agreement of the chains is evidence of convergence.

        Parameters
        ----------
        chains : int, >= 1
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        list of dict
            For each chain, values of free variables by name.
        """
        check_count("chains", chains, 1)
        rng = self._generator(random_seed)
        distinct = self._distinct()
        starts = []
        for chain in range(chains):
            state = distinct[chain % len(distinct)].state
            labels = partitions_of(draw_labels(self._rows, state, 1, rng, _POWER)[0])[0]
            values: dict[str, Any] = {self._target.labels.name: labels.astype(self._target.dtype)}
            alpha = draw_alpha(state, 1, rng)
            if alpha is not None:
                values[self._target.alpha.name] = float(alpha[0])
            starts.append(values | self._target.given)
        return starts

    def _distinct(self) -> list[Optimum]:
        """Return the distinct optima, best first."""
        return distinct(self._optima)

    def _generator(self, random_seed: Any) -> np.random.Generator:
        return self._rng.spawn(1)[0] if random_seed is None else np.random.default_rng(random_seed)

    def to_datatree(self, draws: int = 500, *, random_seed: Any = None) -> xr.DataTree:
        """Return draws from the approximate posterior, in the form of the results of ``pm.sample``.

        Labels and concentration are drawn independently of each other. All functions of this package for results
        take the draws. Weights and parameters of clusters come from their exact posterior given the labels, as for
        any draws. There is a single chain of independent draws: R-hat and effective sample sizes say nothing about
        the quality of the approximation.

        Parameters
        ----------
        draws : int, >= 1
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        DataTree
            As ``pm.sample`` returns it, with a group ``variational`` that holds ``elbo`` (step,), ``weight`` and
            ``size`` (component,).
        """
        check_count("draws", draws, 1)
        rng = self._generator(random_seed)
        state = self._best.state
        labels = partitions_of(draw_labels(self._rows, state, draws, rng)[0]).astype(self._target.dtype)
        return self._labelled(labels, draw_alpha(state, draws, rng))

    def _labelled(self, labels: np.ndarray, alpha: np.ndarray | None) -> xr.DataTree:
        """Return results with draws of the concentration and of the labels, or number of clusters for chunks."""
        model, target = self._target.model, self._target
        value = None if alpha is None else model.rvs_to_values[target.alpha].name
        is_log = alpha is not None and model.rvs_to_transforms[target.alpha] is not None
        name = model.rvs_to_values[target.labels].name
        # Traces take values in the order of the model.
        fitted = {variable.name: target.point[variable.name] for variable in model.value_vars}
        trace = NDArray(model=model, test_point=fitted)
        trace.setup(len(labels), 0)
        for t in range(len(labels)):
            point = dict(fitted)
            point[name] = labels[t]
            if alpha is not None:
                point[value] = np.asarray(np.log(alpha[t]) if is_log else alpha[t])
            trace.record(point, in_warmup=False)
        trace.close()
        idata = pm.to_inference_data(MultiTrace([trace]), model=model)
        idata["posterior"].attrs["approximation"] = "mean-field variational inference: not draws of the posterior"
        idata["variational"] = xr.DataTree(
            xr.Dataset(
                {
                    "elbo": ("step", self.elbo),
                    "weight": ("component", self.weights),
                    "size": ("component", self.sizes),
                },
                coords={"step": np.arange(len(self.elbo)), "component": np.arange(len(self.weights))},
                attrs={"bounds_of_starts": self.bounds.tolist()},
            )
        )
        return idata

    def check(
        self,
        draws: int = 300,
        *,
        tune: int = 100,
        chains: int = 2,
        random_seed: Any = None,
        progressbar: bool = True,
    ) -> xr.Dataset:
        """Compare the approximation with exact draws of ``pm.sample`` that start from it.

        Variables that the fit held fixed are sampled too. A few hundred draws show whether the chain leaves the
        approximation. They do not replace a run whose convergence has been checked.

        ``pareto_k`` is the tail shape of importance weights, which are exact over approximate densities of draws
        from the approximation. Above 0.7 the approximation is too narrow (Vehtari, Simpson, Gelman, Yao and Gabry
        2024; Yao, Vehtari, Simpson and Gelman 2018). A smaller value shows only that the partitions which the
        approximation draws have about the right relative weights. For partitions that it never draws, see
        ``within`` and ``pairs_differ``.

        Parameters
        ----------
        draws, tune, chains : int
            As in ``pm.sample``.
        random_seed : int or numpy.random.Generator, optional
        progressbar : bool

        Returns
        -------
        Dataset
            ``n_clusters`` and ``sd_n_clusters`` (method,), mean and standard deviation of the number of clusters,
            for the approximation and for exact draws; if the concentration is random ``alpha`` and ``sd_alpha``;
            ``pairs_differ``, the mean absolute difference of the probabilities that two rows share a cluster, over
            all pairs of up to 400 rows; ``pairs_differ_by_chance``, its expected size by Monte Carlo error of both
            alone, of the exact draws by the method of batch means; ``within``, the share of exact draws with
            no more clusters than the fit has components; ``pareto_k``, NaN if there are fewer than 100 distinct
            labellings among the draws from the approximation; and ``elbo``.
        """
        array_stats = imported("arviz_stats.base").array_stats
        rng = self._generator(random_seed)
        target, name = self._target, self._target.labels.name
        starts = self.initvals(chains, random_seed=rng.spawn(1)[0])
        with target.model:
            idata = pm.sample(
                draws,
                tune=tune,
                chains=chains,
                initvals=starts,
                random_seed=int(rng.integers(2**31)),
                progressbar=progressbar,
                compute_convergence_checks=False,
            )
        of_chains = idata["posterior"].dataset[name].to_numpy()
        exact = of_chains.reshape(-1, self._rows.n)
        ours = partitions_of(draw_labels(self._rows, self._best.state, _DRAWS_COMPARED, rng)[0])
        some = np.arange(self._rows.n)
        if len(some) > _MOST_COMPARED:
            some = np.sort(rng.choice(some, _MOST_COMPARED, replace=False))
        log_weights, n_different = log_importance(self._rows, target.prior, self._best.state, _WEIGHED, rng)
        counts = [n_clusters.max(axis=1) + 1 for n_clusters in (ours, exact)]
        results: dict[str, Any] = {
            "n_clusters": ("method", [n_clusters.mean() for n_clusters in counts]),
            "sd_n_clusters": ("method", [n_clusters.std() for n_clusters in counts]),
        }
        if target.alpha is not None:
            shape, rate = self.alpha or (np.nan, np.nan)
            drawn = idata["posterior"].dataset[target.alpha.name].to_numpy()
            results["alpha"] = "method", [shape / rate, drawn.mean()]
            results["sd_alpha"] = "method", [np.sqrt(shape) / rate, drawn.std()]
        differ, by_chance = difference_of_pairs(ours[:, some], of_chains[:, :, some])
        results |= {
            "pairs_differ": differ,
            "pairs_differ_by_chance": by_chance,
            "within": float(np.mean(counts[1] <= self.n_components)),
            "pareto_k": float(array_stats.psislw(log_weights)[1]) if n_different >= _DIFFERENT else np.nan,
            "elbo": float(self.elbo[-1]),
        }
        return xr.Dataset(results, coords={"method": ["variational", "exact"]})


class ChunkedVariationalFit(VariationalFit):
    """An approximate posterior of a mixture of rows in chunks.

    ``responsibilities`` is a dask array. Draws store sufficient statistics of their clusters instead of labels.
    """

    _next = "fit.to_datatree() has draws from it, and pm.sample() the exact posterior"
    _rows: ChunkedRows

    def responsibilities(self) -> Any:
        """Return the approximate probability of each component for every row.

        Returns
        -------
        (n, K) dask array
            Lazy, with the chunks of the rows.
        """
        assert self._best.state.source is not None
        return self._rows.responsibilities(*self._best.state.source)

    def initvals(self, chains: int = 4, *, random_seed: Any = None) -> list[dict[str, Any]]:
        """Raise NotImplementedError: labels of rows in chunks are not a variable of the model.

        Raises
        ------
        NotImplementedError
        """
        raise NotImplementedError(
            "labels of rows in chunks are not a variable of the model, so chains cannot start from them. Call "
            "pm.sample() without initvals: every chain searches for starting clusters. Values of other variables "
            "are in fit.point"
        )

    def to_datatree(self, draws: int = 500, *, random_seed: Any = None) -> xr.DataTree:
        """Return draws from the approximate posterior, in the form of the results of ``pm.sample``.

        All draws take one pass over the rows. They store sufficient statistics of their clusters and no labels.
        :func:`pymc_dpgmm.density`, :func:`pymc_dpgmm.component_draws` and :func:`pymc_dpgmm.sample_new_rows` take
        such draws.

        Parameters
        ----------
        draws : int, >= 1
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        DataTree
            As for rows in memory, with a group ``variational``.
        """
        check_count("draws", draws, 1)
        rng, state = self._generator(random_seed), self._best.state
        assert state.source is not None
        sums = self._rows.drawn_sums(*state.source, draws, rng)
        counts = np.array([len(clusters) for clusters in sums], dtype=self._target.dtype)
        idata = self._labelled(counts, draw_alpha(state, draws, rng))
        name = self._target.labels.name.removesuffix("_n_clusters")
        idata[f"{name}_clusters"] = xr.DataTree(sums_as_dataset(sums))
        return idata

    def check(
        self,
        draws: int = 300,
        *,
        tune: int = 100,
        chains: int = 2,
        random_seed: Any = None,
        progressbar: bool = True,
    ) -> xr.Dataset:
        """Raise NotImplementedError: exact draws cannot start from the approximation.

        Raises
        ------
        NotImplementedError
        """
        raise NotImplementedError(
            "check needs exact draws that start from the fit, and labels of rows in chunks are not a variable of "
            "the model. Fit and check a random sample of the rows in memory: "
            "observed=array[np.sort(rng.choice(len(array), 10_000, replace=False))].compute()"
        )


def difference_of_pairs(ours: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    """Return how far probabilities of pairs to share a cluster differ, on average, and how far by chance.

    Errors are taken to be normal, with the variance of independent draws for one, and for the other that of the
    means of batches of consecutive draws.

    Parameters
    ----------
    ours : (n_draws, m) integer array
        Independent draws of labels.
    exact : (chains, draws, m) integer array
    """
    n_batches = min(max(_BATCHES // len(exact), 2), exact.shape[1])
    batches = [batch for chain in exact for batch in np.array_split(chain, n_batches)]
    of_batches = np.array([_together(batch) for batch in batches])
    p, q = _together(ours), np.average(of_batches, axis=0, weights=[len(batch) for batch in batches])
    variance = p * (1.0 - p) / len(ours) + np.var(of_batches, axis=0, ddof=1) / len(batches)
    return float(np.abs(p - q).mean()), float(np.sqrt(2.0 / np.pi * variance).mean())


def _together(labels: np.ndarray) -> np.ndarray:
    """Return for each pair of rows the share of draws (n_draws, m) in which both share a cluster: (pairs,)."""
    i, j = np.triu_indices(labels.shape[1], 1)
    total = np.zeros(len(i))
    for drawn in labels:
        total += drawn[i] == drawn[j]
    return total / len(labels)
