"""Results for a DirichletProcess, whose base measure and likelihood are taken from the model."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from scipy.special import logsumexp

from pymc_dpgmm.integration.process_density import ProcessModel
from pymc_dpgmm.integration.variables import fixed_rows
from pymc_dpgmm.integration.variables.models import digest_of, numbers_in, value_of
from pymc_dpgmm.partitions.priors import GibbsType, log_seat_new
from pymc_dpgmm.posterior.arrays.atoms import N_FRESH, ParametersView
from pymc_dpgmm.posterior.arrays.base_integrals import Integrals, RowIntegrals
from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.arrays.rows import draw_rows_of_table
from pymc_dpgmm.posterior.mixtures import FamilyDraws, MixtureDraws, Recorded
from pymc_dpgmm.posterior.points import SMALLEST_POSITIVE, Points, grid_over
from pymc_dpgmm.posterior.stored import Source, StoredPrior, data_of
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.rows import RowNames

# Points of a default grid.
N_GRID = 200
# Number of draws from the base measure: to find the support of discrete ones, and for Monte Carlo means.
_N_SUPPORT = 4096
# Errors of integrals that may change elpd by more than this are reported in a warning.
_LARGEST_ERROR = 0.1
# Standard deviation of noise that breaks ties between draws.
_BREAKS_TIES = 1e-9


class Process:
    """A Dirichlet process in a model, evaluated at posterior draws.

    Parameters
    ----------
    idata : xarray.DataTree
    draws : ProcessDraws
    model : pm.Model or None
    what : str
        Name of the result, for messages.

    Raises
    ------
    ValueError
        If there is no model, or it is not the model of the draws.
    """

    def __init__(self, idata: Any, draws: "ProcessDraws", model: pm.Model | None, what: str) -> None:
        model = pm.Model.get_context(error_if_none=False) if model is None else model
        if model is None:
            raise ValueError(f"{what} for a dp.DirichletProcess needs its base and likelihood: pass model=")
        self.model = model
        _check_model(draws, model)
        self.process = ProcessModel(model, model[draws.labels_name])
        _check_data(idata, model, self.process.dependents)
        densities = self.process.densities
        values = [value for value in model.value_vars if value.name in densities.names]
        outputs = []
        for value in values:
            rv = model.values_to_rvs[value]
            transform = model.rvs_to_transforms[rv]
            outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
        needed = [rv for rv in model.free_RVs if rv in set(ancestors(outputs, blockers=model.free_RVs))]
        inputs = [rv.type(rv.name) for rv in needed]
        replaced = dict(zip(needed, inputs, strict=True))
        outputs = clone_replace(outputs, replaced) if outputs else []
        self._names = [value.name for value in values]
        self._values = pm.compile(inputs, outputs, on_unused_input="ignore")
        source = Source(idata, draws.drawn, model)
        self._stored = [source.variable(rv.name) for rv in needed]
        # The densities take parameters in the order of the model.
        names = {variable: key for key, variable in draws.entries.items()}
        self.keys = [names[rv.name] for rv in self.process.parameters]

    def at(self, s: int) -> Any:
        """Return the densities at a draw."""
        values = self._values(*(np.asarray(stored.at(s)) for stored in self._stored))
        point = dict(zip(self._names, values, strict=True))
        if s == 0:
            self.process.confirm(point)
        return self.process.densities.at(point)

    def refuse_latent(self, why: str) -> None:
        """Raise ValueError with ``why`` if a variable that depends on the parameters is not observed."""
        latent = [rv.name for rv in self.process.dependents if rv not in self.model.observed_RVs]
        if latent:
            raise ValueError(f"{', '.join(latent)} depends on the parameters and is not observed: {why}")

    def atoms(self, clusters: Any) -> list[np.ndarray]:
        """Return the atoms of the clusters of a draw."""
        types = self.process.densities.dtypes
        return [clusters.atoms[key].astype(kind) for key, kind in zip(self.keys, types, strict=True)]


class NewAtoms:
    r"""The density of each row under an atom from the base, :math:`\int f(y_i \mid \theta)\, dH(\theta)`.

    Continuous parameters are integrated by :mod:`pymc_dpgmm.posterior.arrays.base_integrals`. Discrete parameters
    are summed over the values among draws from the base measure; a single one over all integers in and around
    their range. For continuous and discrete parameters together, the integral is a Monte Carlo mean over draws
    from the base measure, with its standard error.

    Parameters
    ----------
    process : Process
    n : int
        Number of rows.
    rng : numpy.random.Generator
    """

    def __init__(self, process: Process, n: int, rng: np.random.Generator) -> None:
        densities = process.process.densities
        self._rng = rng
        self._kept: Integrals | None = None
        self._point: list[np.ndarray] | None = None
        if not densities.discrete:
            integrals = RowIntegrals(n, densities.n_free, rng)
            self._integrals = lambda density, atoms, log_others: integrals.at(
                _FreeAtoms(density, rng), density.to_free(atoms), log_others
            )
        elif len(densities.discrete) == len(densities.dtypes):
            self._integrals = self._sum
        else:
            self._integrals = self._mean

    def at(self, density: Any, atoms: list[np.ndarray], log_others: np.ndarray) -> Integrals:
        """Return the integrals at a draw; ``atoms`` are those of the rows' clusters.

        They are computed anew only if a variable that they depend on has changed since the previous draw. They
        need be no better than the sum with what is beside them, ``log_others`` (n,); the first may serve all.
        """
        point = [np.array(value) for value in density.point]
        if self._point is None or not all(map(np.array_equal, point, self._point)):
            beside = None if self._point is None else log_others
            self._kept, self._point = self._integrals(density, atoms, beside), point
        assert self._kept is not None
        return self._kept

    def _sum(self, density: Any, row_atoms: list[np.ndarray], log_others: Any) -> Integrals:
        atoms = [np.asarray(drawn) for drawn in density.draws(int(self._rng.integers(2**63)), _N_SUPPORT)]
        flat = np.column_stack([values.reshape(len(values), -1) for values in atoms])
        if flat.shape[1] == 1:
            low, high = int(flat.min()), int(flat.max())
            reach = min(10 * (high - low + 1), _N_SUPPORT)
            points = np.arange(low - reach, high + reach + 1)
            atoms = [points.reshape(-1, *atoms[0].shape[1:]).astype(atoms[0].dtype)]
        else:
            _, first = np.unique(flat, axis=0, return_index=True)
            atoms = [values[first] for values in atoms]
        log_base = density.base(atoms)
        there = np.isfinite(log_base)
        atoms, log_base = [values[there] for values in atoms], log_base[there]
        log_values = logsumexp(log_base[:, None] + density.by_row(atoms), axis=0)
        errors = np.full(len(log_values), max(-np.expm1(logsumexp(log_base)), 0.0))
        return Integrals(log_values, errors, np.zeros(len(errors), dtype=np.bool_))

    def _mean(self, density: Any, row_atoms: list[np.ndarray], log_others: Any) -> Integrals:
        atoms = density.draws(int(self._rng.integers(2**63)), _N_SUPPORT)
        terms = density.by_row(atoms)
        log_values = logsumexp(terms, axis=0) - np.log(len(terms))
        with np.errstate(invalid="ignore"):
            errors = np.nan_to_num(np.exp(terms - log_values).std(axis=0) / np.sqrt(len(terms)))
        return Integrals(log_values, errors, np.ones(len(errors), dtype=np.bool_))


class _Errors:
    """Errors of log densities (n,) that integrals have, over all draws.

    Those of Monte Carlo means are independent where the means are computed anew; others add up.
    """

    def __init__(self, n: int) -> None:
        self._linear, self._variance, self._squares, self._run = (np.zeros(n) for _ in range(4))
        self._last: Integrals | None = None
        self._n_draws = 0

    def add(self, integrals: Integrals, shares: np.ndarray) -> None:
        """Count a draw in which integrals have these shares (n,) of the densities."""
        if integrals is not self._last:
            self._close()
            self._last = integrals
        errors, are_means = shares * integrals.errors, integrals.are_means
        self._linear += np.where(are_means, 0.0, errors)
        self._run += np.where(are_means, errors, 0.0)
        # The log of a mean that varies is too low on average.
        self._squares += np.where(are_means, errors**2, 0.0)
        self._n_draws += 1

    def _close(self) -> None:
        self._variance += self._run**2
        self._run = np.zeros_like(self._run)

    def of_mean(self) -> np.ndarray:
        """Return the errors of averages over all draws: (n,)."""
        self._close()
        found: np.ndarray = (self._linear + np.sqrt(self._variance) + self._squares) / self._n_draws
        return found


class _FreeAtoms:
    """Densities at a draw for atoms in free form: the target of :class:`RowIntegrals`."""

    def __init__(self, density: Any, rng: np.random.Generator) -> None:
        self._density, self._rng = density, rng

    def values(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._density.base_and_rows(points)

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        return self._density.base_and_rows_with_gradients(points)

    def base_draws(self, n_draws: int) -> np.ndarray:
        return self._density.to_free(self._density.draws(int(self._rng.integers(2**63)), n_draws))


class ProcessDraws(MixtureDraws):
    """Draws of a Dirichlet process of parameters, whose base and likelihood are taken from the model.

    Parameters
    ----------
    idata, recorded, model, group
        As for :class:`MixtureDraws`.
    """

    has_atoms = True

    def __init__(self, idata: Any, recorded: Recorded, model: pm.Model | None = None, group: Any = None) -> None:
        super().__init__(idata, recorded, model, group)
        (record,) = (recorded.mixtures[view.name] for view in self.views if not view.has_data)
        # Names of the variables of rows' parameters, by key, and digests of their bases.
        self.entries: dict[str, str] = record["entries"]
        self.digests: dict[str, str] = record.get("digests", {})

    def refuse_atoms(self, what: str) -> None:
        """Raise NotImplementedError: clusters have sampled atoms."""
        raise NotImplementedError(
            f"{what} is not implemented for parameters under a dp.DirichletProcess, only for mixtures of the "
            "package's families: dp.component_draws has the parameters of its clusters, dp.summary tells of "
            "them, and dp.sample_new_rows(..., model=model) draws those of new rows"
        )

    def _refuse(self, what: str, **arguments: Any) -> None:
        """Raise ValueError for arguments that say something of columns of data, which parameters have none of."""
        for argument, value in arguments.items():
            if value is not None:
                raise ValueError(
                    f"{what} takes {argument}= for mixtures of rows with columns, and {self.name} are parameters "
                    "under a dp.DirichletProcess: leave it out"
                )

    def refuse_known(self) -> None:
        """Raise NotImplementedError: densities of observations have no known entries."""
        raise NotImplementedError(
            "known= is not available for a dp.DirichletProcess; with other columns on its labels, "
            "dp.predict(..., of=name) has its parameters given these"
        )

    def _process(self, what: str) -> Process:
        return Process(self._idata, self, self._model, what)

    def _prior_of_rows(self, s: int) -> GibbsType:
        """Return the prior on partitions of the rows in draw ``s``."""
        assert isinstance(self._prior, StoredPrior)
        return self._prior.of_rows(s)

    def asked(self) -> FamilyDraws:
        """Return draws whose parameters are columns that can be asked for, of which new rows know nothing.

        Raises
        ------
        NotImplementedError
            If there are no collapsed mixtures on the labels.
        ValueError
            If there is no model, or another one.
        """
        if len(self.views) == 1:
            raise NotImplementedError(
                f"nothing is known of {self.name}, the parameters under a dp.DirichletProcess, in new rows "
                "without a dp.CollapsedMixture on its labels: dp.sample_new_rows draws parameters of new rows, "
                "and dp.density gives the density of an observation"
            )
        process = self._process("dp.predict")
        views: list[Any] = [view if view.has_data else ParametersView(view, process) for view in self.views]
        numbers = replace(self.numbers, views=views)
        return FamilyDraws(
            self._idata, self._model, self.drawn, self._prior, self._records, views, numbers, self._every_view
        )

    def new_rows(self, n_rows: int, given: Any, units: Any, random_seed: Any) -> xr.Dataset:
        """Return parameters of new rows."""
        self._refuse("dp.sample_new_rows", given=given)
        process, rng = self._process("sample_new_rows"), np.random.default_rng(random_seed)
        n_draws = self.numbers.n_draws
        clusters = np.empty((n_draws, n_rows), dtype=np.int64)
        parameters: dict[str, np.ndarray] = {}
        for partition in self.numbers.partitions():
            labels = partition.seats.seat(rng, n_rows)
            atoms = process.atoms(partition.views[0])
            n_new = max(int(labels.max()) + 1 - len(partition.sizes), 0)
            density = process.at(partition.draw)
            if n_new:
                fresh = density.draws(int(rng.integers(2**63)), n_new)
                atoms = [np.concatenate(pair) for pair in zip(atoms, fresh, strict=True)]
            clusters[partition.draw] = labels
            for key, values in zip(process.keys, atoms, strict=True):
                shape = n_draws, n_rows, *values.shape[1:]
                parameters.setdefault(key, np.empty(shape, dtype=values.dtype))[partition.draw] = values[labels]
        each, by_chain = ("chain", "draw", "new_row"), self.drawn.by_chain
        variables: dict[str, Any] = {"cluster": (each, by_chain(clusters))}
        coords = self.drawn.per_draw() | {"new_row": np.arange(n_rows)}
        for key, values in parameters.items():
            dims = [f"{key}_dim_{i}" for i in range(values.ndim - 2)]
            variables[key] = ((*each, *dims), by_chain(values))
        return xr.Dataset(variables, coords=coords)

    def log_likelihood(self, name: str, random_seed: Any) -> tuple[np.ndarray, str, dict[str, Any]]:
        r"""Return log likelihoods of rows or units, the name of the variable, and no attributes.

        It conditions on the parameters of all other rows, not on the parameter or the cluster of the row:

        .. math:: \log \frac{\sum_k (n_{-i,k} - \sigma) f(y_i \mid \theta_k)
                             + v_{K_{-i}} \int f(y_i \mid \theta) dH}
                            {\sum_k (n_{-i,k} - \sigma) + v_{K_{-i}}}

        The integral is computed for each row, see :class:`NewAtoms`. A warning says if its error may change
        ``elpd``.
        """
        process, rng = self._process("the log likelihood"), np.random.default_rng(random_seed)
        process.refuse_latent("its rows cannot be left out")
        if process.process.mixtures:
            names = ", ".join(mixture.name for mixture in process.process.mixtures)
            raise NotImplementedError(
                f"{names} is on the same labels, so that a row is known in part where it is left out: there are "
                "no pointwise log likelihoods of such rows. Compare models by the log density of rows held out"
            )
        n_draws, n = self.numbers.n_draws, self.drawn.n
        log_p, errors = np.empty((n_draws, n)), _Errors(n)
        new_atoms = NewAtoms(process, n, rng)
        for partition in self.numbers.partitions():
            density = process.at(partition.draw)
            atoms = process.atoms(partition.views[0])
            log_rows = density.by_row(atoms)
            prior = self._prior_of_rows(partition.draw)
            log_seats, opened = _log_seats_left_out(prior, partition.labels, partition.sizes)
            of_clusters = logsumexp(log_seats + log_rows, axis=0)
            own = [values[partition.labels] for values in atoms]
            new = new_atoms.at(density, own, of_clusters - opened)
            total = np.logaddexp(of_clusters, opened + new.log_values)
            log_p[partition.draw] = total - logsumexp(np.vstack([log_seats, opened[None]]), axis=0)
            with np.errstate(invalid="ignore"):
                shares = np.nan_to_num(np.exp(opened + new.log_values - total))
            errors.add(new, shares)
        # A row that is alone in all draws may have the same density in all, and az.loo cannot smooth constants.
        log_p += _BREAKS_TIES * rng.normal(size=log_p.shape)
        _warn_of_errors(errors.of_mean(), self.drawn.labels[self.row].to_numpy().tolist())
        observed = process.process.dependents
        return log_p, observed[0].name if len(observed) == 1 else self.name, {}

    def replicates(self, name: str, rng: np.random.Generator) -> xr.Dataset:
        """Return replicates of the variables that depend on the parameters.

        The label and parameter of each row are drawn anew given those of the others, and replace those of the
        draws. PyMC then draws the replicates.
        """
        process = self._process("sample_replicates")
        names = [rv.name for rv in process.process.dependents]
        process.refuse_latent("it has no data to replicate. dp.sample_new_rows draws new parameters")
        labels, parameters = self._entries_drawn_anew(process, rng)
        posterior = self.drawn.at_draws(self._idata["posterior"].dataset)
        replaced = {self.labels_name: self.drawn.labels.copy(data=self.drawn.by_chain(labels))}
        for key, values in parameters.items():
            stored = posterior[self.entries[key]].transpose("chain", "draw", ...)
            replaced[self.entries[key]] = stored.copy(data=self.drawn.by_chain(values))
        groups = {name: group.to_dataset() for name, group in self._idata.children.items() if name != "posterior"}
        with process.model:
            drawn = pm.sample_posterior_predictive(
                xr.DataTree.from_dict({**groups, "posterior": posterior.assign(replaced)}),
                var_names=names,
                random_seed=int(rng.integers(2**31)),
                progressbar=False,
            )
        return drawn["posterior_predictive"].to_dataset()

    def _entries_drawn_anew(
        self, process: Process, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return labels of rows, (n_draws, n), and their parameters by key, each drawn given all other rows.

        Rows in new clusters have the label K, or n - 1 if that is less: new rows of a draw are not compared.
        """
        n_draws, n = self.numbers.n_draws, self.drawn.n
        labels, parameters = np.empty((n_draws, n), dtype=self.drawn.labels.dtype), dict[str, np.ndarray]()
        for partition in self.numbers.partitions():
            prior = self._prior_of_rows(partition.draw)
            log_seats, opened = _log_seats_left_out(prior, partition.labels, partition.sizes)
            chosen = draw_rows_of_table(rng, np.vstack([log_seats, opened]).T, n)
            is_new, density = chosen == len(partition.sizes), process.at(partition.draw)
            fresh = density.draws(int(rng.integers(2**63)), max(int(is_new.sum()), 1))
            for key, of_clusters, new in zip(process.keys, process.atoms(partition.views[0]), fresh, strict=True):
                values = parameters.setdefault(
                    key, np.empty((n_draws, n, *of_clusters.shape[1:]), dtype=of_clusters.dtype)
                )
                values[partition.draw] = of_clusters[np.where(is_new, 0, chosen)]
                values[partition.draw][is_new] = new[: is_new.sum()]
            labels[partition.draw] = np.minimum(chosen, n - 1)
        return labels, parameters

    def density(
        self, x: Any, columns: Any, given: Mapping[str, Any] | None, probability: float, random_seed: Any
    ) -> xr.Dataset:
        """Return the posterior predictive density of a new row's observation."""
        self._refuse("dp.density", columns=columns, given=given)
        process, rng = self._process("the density"), np.random.default_rng(random_seed)
        observed = [rv for rv in process.process.dependents if rv in process.model.observed_RVs]
        if len(process.process.dependents) != 1 or len(observed) != 1:
            names = ", ".join(rv.name for rv in process.process.dependents) or "nothing"
            raise ValueError(
                f"the density needs one observed variable that depends on the parameters, got {names}"
            )
        (rv,) = observed
        value = process.model.rvs_to_values[rv]
        data = np.asarray(value.data if isinstance(value, Constant) else value_of(value))
        points = _points(data, x)
        if not process.process.terms.are_alike(process.model, rv, len(data)):
            raise ValueError(
                f"covariates, offsets or effects differ between rows of {rv.name}, so that no single density is "
                "that of a new row: draw parameters with dp.sample_new_rows"
            )
        function = process.process.densities.by_observation(process.model, rv)
        mean, densities_of_draws = np.zeros(len(points)), np.empty((self.numbers.n_draws, len(points)))
        for partition in self.numbers.partitions():
            density = process.at(partition.draw)
            # Clusters without rows have weights by stick-breaking, and atoms from the base.
            weights, n_clusters = partition.seats.draw_of_new(rng), len(partition.sizes)
            fresh = density.draws(int(rng.integers(2**63)), max(len(weights) - n_clusters, N_FRESH))
            atoms = [np.concatenate(pair) for pair in zip(process.atoms(partition.views[0]), fresh, strict=True)]
            densities = np.exp(_in_blocks(function, atoms, points, data))
            *seats, new = partition.seats.probabilities()
            mean += np.array(seats) @ densities[:n_clusters] + new * densities[n_clusters:].mean(axis=0)
            densities_of_draws[partition.draw] = weights @ densities[: len(weights)]
        lower, upper = np.quantile(densities_of_draws, tails(probability), axis=0)
        at = Points(points[:, None], ("x",), {"x": points}, RowNames("x"), [rv.name])
        return at.result(mean / len(densities_of_draws), lower, upper, probability)


def _check_model(draws: "ProcessDraws", model: pm.Model) -> None:
    """Raise ValueError if the process of a model is not that of the draws."""
    missing = [name for name in (draws.labels_name, *draws.entries.values()) if name not in model.named_vars]
    if missing:
        raise ValueError(f"model= is not the model of the draws: it has no {listed(missing)}")
    n = fixed_rows(model[draws.labels_name])
    if n != draws.drawn.n:
        raise ValueError(
            f"model= is not the model of the draws: its {draws.labels_name} has {n} entries, and the draws have "
            f"{draws.drawn.n}"
        )
    for name, digest in draws.digests.items():
        if digest_of(model, model[name]) != digest:
            raise ValueError(f"model= is not the model of the draws: the base of {name} differs")


def _check_data(idata: Any, model: pm.Model, dependents: Sequence[Any]) -> None:
    """Raise ValueError if the data of a model is not that of the draws."""
    for rv in dependents:
        stored = data_of(idata, rv.name)
        if rv not in model.observed_RVs or stored is None:
            continue
        data = numbers_in(model.rvs_to_values[rv])
        if data is not None and not np.array_equal(data, stored.to_numpy()):
            raise ValueError(f"model= is not the model of the draws: the data of {rv.name} differ")


def _log_seats_left_out(prior: GibbsType, labels: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log weights of each row for each cluster of the other rows, (K, n), and for a new one, (n,)."""
    n_clusters, n = len(sizes), len(labels)
    n_others = np.repeat(sizes[:, None].astype(np.float64), n, axis=1)
    n_others[labels, np.arange(n)] -= 1.0
    alone = n_others[labels, np.arange(n)] == 0.0
    with np.errstate(divide="ignore"):
        log_seats = np.where(n_others > 0.0, np.log(n_others - prior.discount), -np.inf)
    opened = np.where(alone, log_seat_new(prior, n_clusters - 1), log_seat_new(prior, n_clusters))
    return log_seats, opened


def _warn_of_errors(errors: np.ndarray, names: Sequence[Any]) -> None:
    """Warn if errors of integrals over the base, relative to each row's density, may change ``elpd``."""
    if errors.sum() <= _LARGEST_ERROR:
        return
    worst = np.argsort(-errors)[:3]
    warnings.warn(
        f"the integrals over the base have errors that may change elpd by {errors.sum():.2g}, most of it for the "
        f"rows {listed([names[i] for i in worst])}. Refit without these rows to judge them",
        UserWarning,
        stacklevel=2,
    )


def _points(data: np.ndarray, x: Any) -> np.ndarray:
    """Return the points of a density, by default a grid over the data."""
    if data.ndim != 1:
        raise ValueError(f"the density needs (n,) data, got shape {data.shape}")
    if x is not None:
        points = np.asarray(x, dtype=np.float64)
        if points.ndim != 1 or not len(points) or not np.all(np.isfinite(points)):
            raise ValueError(f"x must be finite numbers of shape (m,), got shape {points.shape}")
        if data.dtype.kind in "iub" and not np.array_equal(points, np.floor(points)):
            raise ValueError(
                f"x must be whole numbers, as the data are, got {points[points != np.floor(points)][0]}"
            )
        return points
    bounds = (SMALLEST_POSITIVE if data.min() >= 0 else -np.inf, np.inf)
    return grid_over(data.astype(np.float64), data.dtype.kind in "iub", bounds, N_GRID)


def _in_blocks(function: Any, atoms: Sequence[np.ndarray], points: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return log densities (atoms, m) at points, in blocks of as many points as the data has rows."""
    n, blocks = len(data), []
    for start in range(0, len(points), n):
        block = np.resize(points[start : start + n], n).astype(data.dtype)
        blocks.append(function(atoms, block)[:, : len(points[start : start + n])])
    return np.concatenate(blocks, axis=1)
