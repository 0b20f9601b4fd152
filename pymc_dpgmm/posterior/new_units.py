"""A new subject of whom something is known: its effect, or the parameters of its cluster."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.posterior.arrays.centres import Centre
from pymc_dpgmm.posterior.arrays.mixtures import spread
from pymc_dpgmm.posterior.arrays.new_rows import NewRows, Units, Unknown
from pymc_dpgmm.posterior.arrays.predictions import parameters_of_units, stratified
from pymc_dpgmm.posterior.arrays.rows import draw_rows_of_table
from pymc_dpgmm.posterior.component_draws import with_parameters
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import read_question
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import check_count, listed

_DRAW = ("chain", "draw")
# Draws of the posterior, and effects that are weighed under each; those of a process, whose density is not known.
_DRAWS, _POINTS, _POINTS_OF_PROCESS = 500, 1_000, 50
# Effects are proposed where the weighed ones are until so many are worth as much as equal ones, but not too often.
_ENOUGH, _ROUNDS = 300, 4
# Pairs of an effect and a draw that the user's function has at once.
_PAIRS = 50_000
# Degrees of freedom of proposals.
_DEGREES = 5.0
# Above it a Pareto shape says that weights are not to be trusted (Vehtari et al. 2024).
_LARGEST_SHAPE = 0.7


def new_units(
    idata: Any,
    name: str,
    n: int | None = None,
    *,
    log_likelihood: Callable[[Any, Mapping[str, xr.DataArray]], Any] | None = None,
    known: Any = None,
    given: Mapping[str, Any] | None = None,
    unit: Any = None,
    group: Any = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    r"""Draw what is not observed of a new subject given what is: its effect, or the parameters of its cluster.

    Of a latent mixture or a :func:`DirichletProcess`, these are effects of new subjects given their own
    observations, of which ``log_likelihood`` tells. In draw s of the posterior, the effect of a new subject
    follows the predictive :math:`p_s(\theta)`, and given its observations y and all draws

    .. math:: p(\theta \mid y, \mathrm{data}) \propto \sum_s p_s(\theta)\, p_s(y \mid \theta).

    Effects are drawn from the predictive, and then where the ones with large weights are, by adaptive multiple
    importance sampling (Cornuet et al. 2012); those of a process from the predictive alone. Of a mixture of rows
    that are observed, ``known`` are the rows of the new subjects, and the parameters of their clusters are drawn
    exactly.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or process.
    n : int, >= 1, optional
        Number of new subjects, each of which is treated separately; 1 by default.
    log_likelihood : callable, optional
        ``log_likelihood(effects, posterior)`` returns the log likelihood of the observations of each new subject:
        (sample, new_unit), or (sample,) for one. ``effects`` is a DataArray (sample, new_unit), with a dimension
        of the columns after them if effects have several; of a process with several parameters, a dict of these.
        ``posterior["beta"]`` is the variable beta of the posterior in each sample: (sample, ...).
    known : table, optional
        Rows of a mixture whose rows are observed, as in :func:`predict`, one for each new subject or by ``unit``.
    given, unit, group : optional
        As in :func:`predict`, for ``known``.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names, and for a :func:`DirichletProcess`.

    Returns
    -------
    Dataset
        (chain, draw, new_unit, ...) as many draws as the posterior has, of equal weight: the effect under the name
        of the mixture, or the parameters under the names of :func:`row_parameters`. ``posterior_chain`` and
        ``posterior_draw`` (chain, draw, new_unit) tell which draw of the other variables an effect goes with:
        ``idata.posterior["beta"].sel(chain=found.posterior_chain, draw=found.posterior_draw)``.
        ``effective_draws`` (new_unit,) is how many draws of equal weight the weighed ones are worth and, of
        effects, ``pareto_k`` (new_unit,) the shape of their largest weights: above 0.7 they are not to be trusted.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or not exactly one of ``log_likelihood`` and ``known``, or the log likelihood
        has another shape, or is infinite or not a number everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     u = dp.DPMixture("u", 1.0, dp.NormalInverseGamma(0.0, 0.1, 3.0, 2.0), shape=(6,))
    ...     y = pm.Normal("y", u, 0.5, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> def two_visits(effects, posterior):
    ...     return -0.5 * ((3.5 - effects) / 0.5) ** 2 - 0.5 * ((4.5 - effects) / 0.5) ** 2
    >>> found = dp.new_units(idata, "u", log_likelihood=two_visits, random_seed=1)
    >>> bool(abs(found["u"].mean() - 4.0) < 0.2)
    True
    """
    draws = read_labelled(idata, name, model, group)
    if (log_likelihood is None) == (known is None):
        raise TypeError(
            "new_units takes one of log_likelihood= (of a latent mixture or process) and known= (rows of a "
            "mixture that is observed)"
        )
    rng = np.random.default_rng(random_seed)
    if log_likelihood is None:
        if n is not None:
            raise TypeError("new_units takes n or known, not both")
        return _parameters(draws, known, given, unit, rng)
    if not draws.has_atoms and draws.sole().stored is not None:
        raise ValueError(f"the rows of {name} are observed: pass those of the new subjects, known=")
    n = 1 if n is None else n
    check_count("n", n, 1)
    posterior = dataset_of(idata, "posterior")
    return _Effects(draws, posterior, log_likelihood, int(n), rng).result()


def _parameters(draws: Draws, known: Any, given: Any, unit: Any, rng: np.random.Generator) -> xr.Dataset:
    """Return parameters of the clusters of new subjects whose rows are known."""
    draws.refuse_atoms("dp.new_units with known=")
    question = read_question(draws, known, [], given, unit=unit)
    names, units = question.unit_names, question.units
    if units is None or names is None:
        each = np.arange(question.n_rows)
        names, units = question.row_names(), Units(each, np.full(len(each), -1), question.new, each, each)
    numbers = question.draws.numbers
    found, effective = parameters_of_units(numbers, question.new, units, numbers.n_draws, rng)
    by_chain = {key: draws.drawn.by_chain(values) for key, values in found.items()}
    coords = draws.drawn.per_draw() | {"new_unit": names}
    result = with_parameters(question.draws, (*_DRAW, "new_unit"), by_chain, {}, coords)
    question.warn_of_few(effective, names)
    return result.assign(effective_draws=("new_unit", effective))


class _At(Mapping[str, xr.DataArray]):
    """Variables of the posterior at some of its draws, one after the other: (sample, ...)."""

    def __init__(self, posterior: xr.Dataset, at: np.ndarray) -> None:
        shape = posterior.sizes["chain"], posterior.sizes["draw"]
        self._posterior, places = posterior, np.unravel_index(at, shape)
        self._at = {dim: xr.DataArray(own, dims="sample") for dim, own in zip(_DRAW, places, strict=True)}

    def __getitem__(self, name: str) -> xr.DataArray:
        return self._posterior[name].isel(self._at).drop_vars(_DRAW, errors="ignore").transpose("sample", ...)

    def __iter__(self) -> Iterator[str]:
        return iter(map(str, self._posterior))

    def __len__(self) -> int:
        return len(self._posterior)


class _Effects:
    """Effects of new subjects, weighed under draws of the posterior.

    Effects are arrays (S, M, n, ...), M for each of S draws of the posterior and each of n subjects; S is 1 where
    all draws have the same.

    Parameters
    ----------
    draws : Draws
    posterior : Dataset
        Of all variables.
    log_likelihood : callable
    n : int
        Number of subjects.
    rng : numpy.random.Generator
    """

    def __init__(
        self, draws: Draws, posterior: xr.Dataset, log_likelihood: Callable[..., Any], n: int, rng: Any
    ) -> None:
        self._draws, self._log_likelihood, self._n, self._rng = draws, log_likelihood, n, rng
        self._posterior = draws.drawn.at_draws(posterior)
        most = draws.numbers.n_draws if draws.has_atoms else _DRAWS
        # Draws of the posterior under which effects are weighed.
        self._used = np.array(spread(draws.numbers.n_draws, most))
        # Dimensions of an effect, and their coordinates.
        self._dims: dict[str, tuple[str, ...]] = {}
        self._coords: dict[str, Any] = {}

    def result(self) -> xr.Dataset:
        """Return as many draws of the effects as the posterior has."""
        if self._draws.has_atoms:
            effects = self._from_predictive(_POINTS_OF_PROCESS)
            log_weights = self._log_likelihoods(effects)
            self._refuse_impossible(log_weights)
        else:
            effects, log_weights = self._adapted()
        log_weights = log_weights - logsumexp(log_weights, axis=(0, 1))
        # Where all draws have the same effects, all of them together weigh an effect.
        of_effects = log_weights.reshape(-1, self._n) if self._draws.has_atoms else logsumexp(log_weights, axis=0)
        shape = np.array([array_stats.psislw(-own)[1] for own in of_effects.T])
        if np.any(shape > _LARGEST_SHAPE):
            warnings.warn(
                f"the observations of the new subjects {listed(np.flatnonzero(shape > _LARGEST_SHAPE).tolist())} "
                "are so informative or unusual that few of the weighed effects stand for all (see pareto_k): take "
                "more draws of the posterior",
                UserWarning,
                stacklevel=3,
            )
        return self._resampled(effects, log_weights).assign(
            effective_draws=("new_unit", 1.0 / np.exp(logsumexp(2.0 * of_effects, axis=0))),
            pareto_k=("new_unit", shape),
        )

    def _from_predictive(self, n_each: int) -> dict[str, np.ndarray]:
        """Draw effects from the predictive of every draw, ``n_each`` of each subject."""
        drawn = self._draws.new_rows(self._n * n_each, None, None, self._rng).drop_vars("cluster")
        found = {}
        for name, values in drawn.items():
            self._dims[str(name)] = tuple(map(str, values.dims[3:]))
            self._coords |= {str(dim): values[dim].to_numpy() for dim in values.dims[3:] if dim in values.coords}
            found[str(name)] = values.to_numpy().reshape(-1, n_each, self._n, *values.shape[3:])
        return found

    def _log_likelihoods(self, effects: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the log likelihoods of the observations of each subject: (S, M, n) for all S draws."""
        m = next(iter(effects.values())).shape[1]
        found = np.empty((len(self._used), m, self._n))
        block = max(_PAIRS // m, 1)
        for start in range(0, len(self._used), block):
            chosen = slice(start, start + block)
            used = self._used[chosen]
            arrays = {
                name: xr.DataArray(
                    np.broadcast_to(
                        values[chosen] if len(values) > 1 else values, (len(used), *values.shape[1:])
                    ).reshape(-1, *values.shape[2:]),
                    dims=("sample", "new_unit", *self._dims[name]),
                    coords={dim: self._coords[dim] for dim in self._dims[name] if dim in self._coords},
                )
                for name, values in effects.items()
            }
            asked = next(iter(arrays.values())) if len(arrays) == 1 else arrays
            of_pairs = self._log_likelihood(asked, _At(self._posterior, np.repeat(used, m)))
            found[chosen] = self._checked(of_pairs, len(used) * m).reshape(len(used), m, self._n)
        return found

    def _checked(self, found: Any, n_samples: int) -> np.ndarray:
        if isinstance(found, xr.DataArray):
            found = found.transpose("sample", ...)
        values = np.asarray(found, dtype=np.float64)
        if values.shape == (n_samples,) and self._n == 1:
            values = values[:, None]
        if values.shape != (n_samples, self._n):
            raise ValueError(
                f"log_likelihood must return shape (sample, new_unit), ({n_samples}, {self._n}), got "
                f"{values.shape}: add the log likelihoods of the observations of a subject, one for each sample"
            )
        if np.isnan(values).any() or np.any(values == np.inf):
            raise ValueError("log_likelihood must return numbers or -inf, got NaN or inf for some effects")
        return values

    def _refuse_impossible(self, log_l: np.ndarray) -> None:
        """Raise ValueError if the observations of a subject have no effect from the predictive."""
        if not (log_l > -np.inf).any(axis=(0, 1)).all():
            raise ValueError(
                "the log likelihood is -inf at all effects of a new subject: check log_likelihood, and whether "
                "the model allows such observations"
            )

    def _log_predictives(self, effects: np.ndarray) -> np.ndarray:
        """Return log densities of effects (1, M, n, ...) under the predictive of each draw: (S, M, n)."""
        view, numbers = self._draws.sole(), self._draws.numbers.at_most(_DRAWS)
        rows = effects.reshape(-1, view.d)
        given = view.check_given(len(rows), None)
        every = NewRows(numbers.views, [Unknown(np.concatenate([rows, given], axis=1), np.array([], dtype=int))])
        found = np.empty((len(self._used), len(rows)))
        for at, partition, some in every.draws(numbers):
            found[at] = logsumexp(some.log_joint(partition), axis=1)
        return found.reshape(len(self._used), *effects.shape[1:3])

    def _adapted(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return effects (1, M, n, ...) and their log weights (S, M, n).

        The first are from the predictive of all draws together, the others from t distributions where weights are
        large. Weights are those under the mixture of all that was proposed from, which is exact for each of them.
        """
        ((name, drawn),) = self._from_predictive(-(-_POINTS // self._draws.numbers.n_draws)).items()
        drawn = drawn.reshape(1, -1, *drawn.shape[2:])
        effects = drawn[:, spread(drawn.shape[1], _POINTS)]
        log_p, log_l = self._log_predictives(effects), self._log_likelihoods({name: effects})
        self._refuse_impossible(log_l)
        n_first = effects.shape[1]
        proposals: list[Centre] = []
        while True:
            # Shares of the proposals: the predictive, and each t distribution.
            points = effects.reshape(*effects.shape[1:3], -1)
            log_q = logsumexp(log_p, axis=0) - np.log(len(log_p)) + np.log(n_first / len(points))
            for each in proposals:
                log_q = np.logaddexp(log_q, each.log_t(points, _DEGREES) + np.log(_POINTS / len(points)))
            log_weights = log_p + log_l - log_q
            of_effects = logsumexp(log_weights, axis=0)
            worth = np.exp(2.0 * logsumexp(of_effects, axis=0) - logsumexp(2.0 * of_effects, axis=0))
            if len(proposals) == _ROUNDS or worth.min() >= _ENOUGH:
                return {name: effects}, log_weights
            proposals.append(Centre.of_weighed(points, of_effects))
            standard = self._rng.standard_normal((_POINTS, points.shape[2]))
            standard *= np.sqrt(_DEGREES / self._rng.chisquare(_DEGREES, (_POINTS, 1)))
            rows = proposals[-1].placed(standard).reshape(1, _POINTS, *effects.shape[2:])
            effects = np.concatenate([effects, rows], axis=1)
            log_p = np.concatenate([log_p, self._log_predictives(rows)], axis=1)
            log_l = np.concatenate([log_l, self._log_likelihoods({name: rows})], axis=1)

    def _resampled(self, effects: Mapping[str, np.ndarray], log_weights: np.ndarray) -> xr.Dataset:
        """Return draws of equal weight: the effects, and which draws of the posterior they go with."""
        n_draws, by_chain = self._draws.numbers.n_draws, self._draws.drawn.by_chain
        counts = stratified(self._rng, np.exp(logsumexp(log_weights, axis=1)), n_draws)
        draw, chosen = (np.empty((n_draws, self._n), dtype=int) for _ in range(2))
        for i, of_subject in enumerate(counts.T):
            used = np.flatnonzero(of_subject)
            draw[:, i] = np.repeat(used, of_subject[used])
            drawn = [draw_rows_of_table(self._rng, log_weights[s, :, i], of_subject[s]) for s in used]
            chosen[:, i] = np.concatenate(drawn)
        # Draws of a chain are in no order.
        order = self._rng.permutation(n_draws)
        draw, chosen, each = draw[order], chosen[order], np.arange(self._n)
        of_draws, dims = self._draws.drawn.per_draw(), (*_DRAW, "new_unit")
        found: dict[str, Any] = {}
        for name, values in effects.items():
            of_draw = values[draw if len(values) > 1 else 0, chosen, each]
            found[name] = ((*dims, *self._dims[name]), by_chain(of_draw))
        places = np.unravel_index(self._used[draw], self._draws.drawn.shape[:2])
        for dim, place in zip(_DRAW, places, strict=True):
            found[f"posterior_{dim}"] = (dims, by_chain(of_draws[dim][place]))
        return xr.Dataset(found, coords=of_draws | {"new_unit": each} | self._coords)
