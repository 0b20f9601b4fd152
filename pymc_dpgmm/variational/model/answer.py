"""The answer of variational inference: draws from it, starts for sampling, and how far to trust it."""

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
from pymc_dpgmm.variational.search import Optimum

# A component counts as in use from this expected number of rows on.
_IN_USE = 0.5
# Responsibilities of starting labels are raised to this power, which makes them wider than the approximation is.
_POWER = 0.5
# Optima whose bounds differ by less than this, relative to the bound, count as one.
_SAME = 1e-6
# Rows whose pairs are compared by a check, and draws from the approximation for it.
_MOST_COMPARED, _DRAWS_COMPARED, _WEIGHED = 400, 500, 1_000
# Different labels among those that are weighed for their tail to have a shape.
_DIFFERENT = 100


class VariationalFit:
    """An approximate posterior of a mixture, as :func:`fit` returns it.

    It is not the posterior. It takes labels, weights and parameters of clusters for independent, so that variances
    are too small, and describes one mode of several. ``check`` compares it with exact draws.

    Attributes
    ----------
    elbo : (n_steps,) float64 array
        The lower bound of the log evidence of the best start, after every change.
    bounds : (n_starts,) float64 array
        The bounds that the starts have reached.
    weights : (K,) float64 array
        Expected weights of the components that rows may belong to. They add up to less than 1 for processes.
    sizes : (K,) float64 array
        Expected numbers of rows.
    point : dict of str to array
        Values at which other variables are held, given or maximised.

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

    # What to do next.
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
        """Number of components that are expected to have half a row or more."""
        return int(np.count_nonzero(self.sizes >= _IN_USE))

    @property
    def alpha(self) -> tuple[float, float] | None:
        """Shape and rate of the gamma distribution that stands for the posterior of alpha; None if it is given."""
        return self._best.state.weights.alpha

    def __repr__(self) -> str:
        n_starts = len(self._optima)
        of_starts = f"the best of {n_starts} starts, " if n_starts > 1 else ""
        given = f" given {', '.join(self.point)}" if self.point else ""
        return (
            f"<VariationalFit of {self._target.labels.name}: {self.n_components} components in use, {of_starts}"
            f"log evidence >= {self.elbo[-1]:.2f}{given}. An approximation, not the posterior: its variances are "
            f"too small, and it describes one mode. {self._next}>"
        )

    def responsibilities(self) -> np.ndarray:
        """Return the approximate probabilities of the rows to belong to each component.

        Returns
        -------
        (n, K) float64 array
        """
        assert self._best.state.source is not None
        blocks = self._rows.blocks_of_responsibilities(*self._best.state.source)
        return np.concatenate([own.T.copy() for _, own in blocks])

    def initvals(self, chains: int = 4, *, random_seed: Any = None) -> list[dict[str, Any]]:
        """Return starting values for chains, for ``pm.sample(initvals=...)``.

        Each chain gets labels from an optimum of its own, as far as the starts have led to different ones, drawn
        with more spread than the approximation has. Chains that agree in the end then say something.

        Parameters
        ----------
        chains : int, >= 1
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        list of dict
            Names of free variables and their values.
        """
        check_count("chains", chains, 1)
        rng = self._generator(random_seed)
        distinct = self._distinct()
        found = []
        for chain in range(chains):
            state = distinct[chain % len(distinct)].state
            labels = partitions_of(draw_labels(self._rows, state, 1, rng, _POWER)[0])[0]
            values: dict[str, Any] = {self._target.labels.name: labels.astype(self._target.dtype)}
            alpha = draw_alpha(state, 1, rng)
            if alpha is not None:
                values[self._target.alpha.name] = float(alpha[0])
            found.append(values | self._target.given)
        return found

    def _distinct(self) -> list[Optimum]:
        """Return the optima that differ, best first."""
        found: list[Optimum] = []
        for optimum in self._optima:
            bound = optimum.state.bound
            if all(abs(bound - other.state.bound) > _SAME * (1.0 + abs(bound)) for other in found):
                found.append(optimum)
        return found

    def _generator(self, random_seed: Any) -> np.random.Generator:
        return self._rng.spawn(1)[0] if random_seed is None else np.random.default_rng(random_seed)

    def to_datatree(self, draws: int = 500, *, random_seed: Any = None) -> xr.DataTree:
        """Return draws from the approximate posterior, in the form of the results of ``pm.sample``.

        Labels and concentration are drawn independently of each other. All functions of this package for results
        work on the draws; weights and parameters of clusters come from their exact posterior given the labels, as
        for any draws. There is a single chain: the draws are independent, and R-hat and effective sizes would say
        nothing of how good the approximation is.

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
        """Return draws of the labels, or of what stands for them, and of the concentration, as results."""
        model, target = self._target.model, self._target
        value = None if alpha is None else model.rvs_to_values[target.alpha].name
        is_log = alpha is not None and model.rvs_to_transforms[target.alpha] is not None
        name = model.rvs_to_values[target.labels].name
        trace = NDArray(model=model, test_point=dict(target.point))
        trace.setup(len(labels), 0)
        for t in range(len(labels)):
            point = dict(target.point)
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

        Variables that the fit held at a point are drawn too. A few hundred draws show whether the chain leaves the
        approximation; they are no replacement for a run whose convergence has been looked at.

        ``pareto_k`` is the shape of the tail of importance weights: exact over approximate densities of draws from
        the approximation. Above 0.7 it says that the approximation is too narrow (Vehtari, Simpson, Gelman, Yao
        and Gabry 2024; Yao, Vehtari, Simpson and Gelman 2018). Below, it says only that the partitions which the
        approximation draws have about the right weights among each other. Those that it never draws are what
        ``within`` and ``pairs_differ`` are about.

        Parameters
        ----------
        draws, tune, chains : int
            Of ``pm.sample``. Of all draws, those after tuning are compared.
        random_seed : int or numpy.random.Generator, optional
        progressbar : bool

        Returns
        -------
        Dataset
            ``n_clusters`` and ``sd_n_clusters`` (method,), mean and standard deviation of the number of clusters,
            by the approximation and by exact draws; where the concentration is unknown ``alpha`` and ``sd_alpha``;
            ``pairs_differ``, the mean absolute difference between the probabilities that two rows belong together,
            over the pairs of up to 400 rows, and ``pairs_differ_by_chance``, what it is between halves of exact
            draws; ``within``, the share of exact draws that have no more clusters than the fit has components;
            ``pareto_k``, NaN where the draws from the approximation are too few different partitions for a tail;
            and ``elbo``.
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
        exact = idata["posterior"].dataset[name].to_numpy().reshape(-1, self._rows.n)
        ours = partitions_of(draw_labels(self._rows, self._best.state, _DRAWS_COMPARED, rng)[0])
        some = np.arange(self._rows.n)
        if len(some) > _MOST_COMPARED:
            some = np.sort(rng.choice(some, _MOST_COMPARED, replace=False))
        log_weights, n_different = log_importance(self._rows, target.prior, self._best.state, _WEIGHED, rng)
        counts = [own.max(axis=1) + 1 for own in (ours, exact)]
        found: dict[str, Any] = {
            "n_clusters": ("method", [own.mean() for own in counts]),
            "sd_n_clusters": ("method", [own.std() for own in counts]),
        }
        if target.alpha is not None:
            shape, rate = self.alpha or (np.nan, np.nan)
            drawn = idata["posterior"].dataset[target.alpha.name].to_numpy()
            found["alpha"] = "method", [shape / rate, drawn.mean()]
            found["sd_alpha"] = "method", [np.sqrt(shape) / rate, drawn.std()]
        pairs = _together(exact[:, some])
        by_half = [_together(half[:, some]) for half in (exact[::2], exact[1::2])]
        found |= {
            "pairs_differ": float(np.abs(_together(ours[:, some]) - pairs).mean()),
            "pairs_differ_by_chance": float(np.abs(by_half[0] - by_half[1]).mean()) / 2.0,
            "within": float(np.mean(counts[1] <= self._best.state.n_components)),
            "pareto_k": float(array_stats.psislw(log_weights)[1]) if n_different >= _DIFFERENT else np.nan,
            "elbo": float(self.elbo[-1]),
        }
        return xr.Dataset(found, coords={"method": ["variational", "exact"]})


class ChunkedVariationalFit(VariationalFit):
    """An approximate posterior of a mixture of rows in chunks.

    ``responsibilities`` is a dask array. Draws keep the sums of their clusters in place of labels.
    """

    _next = "fit.to_datatree() has draws from it, and pm.sample() the exact posterior"
    _rows: ChunkedRows

    def responsibilities(self) -> Any:
        """Return the approximate probabilities of the rows to belong to each component.

        Returns
        -------
        (n, K) dask array
            In the chunks of the rows, computed when it is asked for.
        """
        assert self._best.state.source is not None
        return self._rows.responsibilities(*self._best.state.source)

    def initvals(self, chains: int = 4, *, random_seed: Any = None) -> list[dict[str, Any]]:
        """Refuse: labels of rows in chunks are no variable of the model.

        Raises
        ------
        NotImplementedError
        """
        raise NotImplementedError(
            "labels of rows in chunks are no variable of the model, so that chains cannot start from them: every "
            "chain of pm.sample() searches by itself. Values of other variables are in fit.point"
        )

    def to_datatree(self, draws: int = 500, *, random_seed: Any = None) -> xr.DataTree:
        """Return draws from the approximate posterior, in the form of the results of ``pm.sample``.

        All draws are made in one pass over the rows. They keep the sums of their clusters, from which
        :func:`pymc_dpgmm.density`, :func:`pymc_dpgmm.component_draws` and :func:`pymc_dpgmm.sample_new_rows` work,
        and no labels.

        Parameters
        ----------
        draws : int, >= 1
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        DataTree
            With a group ``variational``, as for rows in memory.
        """
        check_count("draws", draws, 1)
        rng, state = self._generator(random_seed), self._best.state
        assert state.source is not None
        sums = self._rows.drawn_sums(*state.source, draws, rng)
        counts = np.array([len(own) for own in sums], dtype=self._target.dtype)
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
        """Refuse: exact draws cannot start from the approximation here.

        Raises
        ------
        NotImplementedError
        """
        raise NotImplementedError(
            "check compares pairs of rows in exact draws that start from the fit, and labels of rows in chunks "
            "are no variable of the model. Fit and check some of the rows in memory, chosen at random: "
            "observed=array[np.sort(rng.choice(len(array), 10_000, replace=False))].compute()"
        )


def _together(labels: np.ndarray) -> np.ndarray:
    """Return how often two rows belong together, in draws of labels (n_draws, m): one number for each pair."""
    i, j = np.triu_indices(labels.shape[1], 1)
    total = np.zeros(len(i))
    for own in labels:
        total += own[i] == own[j]
    return total / len(labels)
