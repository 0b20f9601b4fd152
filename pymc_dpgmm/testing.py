"""Tests for conjugate families and for the default sampler with them, also for families outside this package.

:func:`check_family` tests a family against the contract of :mod:`pymc_dpgmm.families.contract.family`.
:func:`check_sampler` compares the default sampler for the family with an enumeration of all partitions. Both need
a slow log marginal likelihood that was written independently of the family. The other functions are their parts.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from types import SimpleNamespace
from typing import Any

import arviz as az
import numpy as np
from numba.extending import intrinsic
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp, multigammaln
from scipy.stats import chi2, kstest

from pymc_dpgmm.families import BaseMeasure, View
from pymc_dpgmm.families.contract.family import volume
from pymc_dpgmm.families.contract.scale import FULL, SPHERICAL, ScatterOfClusters, least_degrees
from pymc_dpgmm.native.compiled import INT, INTS, address_of, bits_of_generator, c_function, called_at
from pymc_dpgmm.native.triangles import unpacked
from pymc_dpgmm.partitions.labels import cluster_sizes
from pymc_dpgmm.partitions.priors import GibbsType, chinese_restaurant, log_eppf
from pymc_dpgmm.sampler.moves.sweep import plan_moves, run_sweeps
from pymc_dpgmm.sampler.state.all_clusters import write_labels
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.marginal import MarginalLikelihood
from pymc_dpgmm.sampler.state.memory import NEEDS_ROOM, memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table_functions import function_of
from pymc_dpgmm.variational.rows import RowsInMemory

LogMarginal = Callable[..., float]


def partitions(n: int) -> np.ndarray:
    """All partitions of n rows as canonical labels: (B_n, n)."""
    labels = [[0]]
    for _ in range(n - 1):
        labels = [[*p, k] for p in labels for k in range(max(p) + 2)]
    return np.array(labels)


def log_likelihoods(all_labels: np.ndarray, log_marginal: Callable[[np.ndarray], float]) -> np.ndarray:
    """Log marginal likelihood of the data under every partition; ``log_marginal`` takes the rows of a cluster."""
    cache: dict[tuple[int, ...], float] = {}

    def cluster(members: tuple[int, ...]) -> float:
        if members not in cache:
            cache[members] = log_marginal(np.array(members))
        return cache[members]

    return np.array([sum(cluster(tuple(np.flatnonzero(p == k))) for k in range(p.max() + 1)) for p in all_labels])


def normalized(log_weights: np.ndarray) -> np.ndarray:
    """Probabilities proportional to ``exp(log_weights)``."""
    return np.exp(log_weights - logsumexp(log_weights))


def codes(labels: np.ndarray) -> np.ndarray:
    """One integer per labelling: (..., n) to (...)."""
    n = labels.shape[-1]
    return np.asarray(labels, dtype=np.int64) @ n ** np.arange(n - 1, -1, -1, dtype=np.int64)


def positions(drawn_codes: np.ndarray, all_labels: np.ndarray) -> np.ndarray:
    """Index of each code among the enumerated partitions; AssertionError if one is not among them."""
    known = codes(all_labels)
    order = np.argsort(known)
    position = order[np.minimum(np.searchsorted(known[order], drawn_codes), len(known) - 1)]
    assert np.array_equal(known[position], drawn_codes), "a draw is not canonical"
    return position


def frequencies(drawn_codes: np.ndarray, all_labels: np.ndarray) -> np.ndarray:
    """Shares of the enumerated partitions among drawn codes."""
    return np.bincount(positions(drawn_codes, all_labels), minlength=len(all_labels)) / len(drawn_codes)


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Total variation distance of two vectors of probabilities."""
    return 0.5 * float(np.abs(p - q).sum())


def total_variation_bound(p: np.ndarray, effective: float, seed: int = 0) -> float:
    """99.9 % quantile of the total variation from p of ``effective`` independent draws."""
    rng = np.random.default_rng(seed)
    effective = int(effective)
    draws = rng.multinomial(effective, p, size=2000) / effective
    return float(np.quantile(0.5 * np.abs(draws - p).sum(axis=1), 0.999))


def effective_size(drawn_codes: np.ndarray, all_labels: np.ndarray, p: np.ndarray) -> float:
    """Smallest effective sample size of number of clusters and of the five most probable partitions.

    ``drawn_codes`` is (chains, draws).
    """
    drawn_codes = np.atleast_2d(drawn_codes)
    position = positions(drawn_codes, all_labels)
    series = [all_labels.max(axis=1)[position].astype(float)]
    series += [(position == top).astype(float) for top in np.argsort(p)[-5:]]
    sizes = [float(az.ess(s, method="mean")) for s in series if s.min() < s.max()]
    return min([*sizes, float(np.size(drawn_codes))])


def assert_matches(drawn_codes: np.ndarray, all_labels: np.ndarray, p: np.ndarray) -> None:
    """Assert that draws (chains, draws) of canonical partitions follow p.

    The statistic is the total variation distance. Its bound is the 99.9 % quantile of the same statistic for
    independent draws, as many as the effective sample size.
    """
    effective = effective_size(drawn_codes, all_labels, p)
    distance = total_variation(frequencies(np.ravel(drawn_codes), all_labels), p)
    bound = total_variation_bound(p, effective)
    assert distance < bound, f"total variation {distance:.5f}, bound {bound:.5f} at {effective:.0f} draws"


@intrinsic
def _call_kernel(typing_context, address, head, n_sweeps, n_scans, metropolized):
    return called_at(run_sweeps.signature)


@intrinsic
def _call_write_labels(typing_context, address, head, labels):
    return called_at(write_labels.signature)


@c_function(INT(INTS, INT, INT, INT, INT, INTS, INTS, INT, INT))
def _record(head, kernel, writer, n_scans, metropolized, labels, codes, start, stop):
    """Fill ``codes[start:stop]`` after one sweep each; return ``stop``, or where more slots are needed."""
    s = memory_at(head)
    for t in range(start, stop):
        if _call_kernel(kernel, head, 1, n_scans, metropolized) == NEEDS_ROOM:
            return t
        s.sweep = 0
        _call_write_labels(writer, head, labels)
        code = 0
        for i in range(s.n):
            code = code * s.n + labels[i]
        codes[t] = code
    return stop


def record_codes(
    rng: np.random.Generator, state: State, n_draws: int, numbers: tuple[int, ...], metropolized: bool = True
) -> np.ndarray:
    """Return the codes of partitions after one sweep each: (n_draws,) int64 array.

    ``numbers`` are the scans of a sweep, and its moves of each kind in the order of
    :data:`~pymc_dpgmm.sampler.moves.move.MOVES`; ``metropolized`` is as in :func:`draw_codes`.
    """
    state.use(rng)
    codes, labels = np.empty(n_draws, dtype=np.int64), np.empty(state.n, dtype=np.int64)
    state.sweep = state.phase = state.position = 0
    plan_moves(state, numbers[1:])
    kernels = run_sweeps.address, write_labels.address, numbers[0], int(metropolized)
    start = 0
    while True:
        start = _record(state.address, *kernels, labels.ctypes.data, codes.ctypes.data, start, n_draws)
        if start == n_draws:
            return codes
        state.grow()


def draw_codes(
    views: Sequence[View],
    prior: GibbsType,
    n_draws: int,
    *,
    n_scans: int = 1,
    n_moves: Sequence[int] = (1, 3),
    law: tuple[float, float] = (0.0, 0.0),
    seed: int = 1,
    labels: np.ndarray | None = None,
    metropolized: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw partitions of tiny data with the kernels of the default sampler.

    Parameters
    ----------
    views : sequence of View
    prior : GibbsType
    n_draws : int
    n_scans : int
        Scans per draw.
    n_moves : sequence of int
        Moves of each kind per draw, in the order of :data:`~pymc_dpgmm.sampler.moves.move.MOVES`.
    law : tuple of float
        Shape and rate of a gamma prior of alpha. If the rate is positive, alpha is drawn too.
    seed : int
    labels : (n,) integer array, optional
        Initial labels. By default all rows are in one cluster.
    metropolized : bool
        Whether to use the scans for few rows; see :func:`~pymc_dpgmm.sampler.state.choices.pick_metropolized`.

    Returns
    -------
    codes : (n_draws,) int64 array
    tally : (kinds of moves, 7) int64 array
    """
    n = len(labels) if labels is not None else _n_labels(views[0])
    state = State(views, np.zeros(n, dtype=np.int64) if labels is None else labels)
    state.set_prior(prior, law)
    numbers = n_scans, *n_moves
    drawn = record_codes(np.random.default_rng(seed), state, n_draws, numbers, metropolized)
    return drawn, state.tally.copy()


def _n_labels(view: View) -> int:
    return view.values.shape[0] if view.unit is None else int(view.unit.max()) + 1


def check_sampler(
    base: BaseMeasure,
    values: np.ndarray,
    log_marginal: LogMarginal,
    *,
    d: int | None = None,
    prior: GibbsType | None = None,
    n_draws: int = 1_000_000,
    seed: int = 1,
) -> None:
    """Assert that the default sampler draws partitions with their posterior probabilities.

    Parameters
    ----------
    base : BaseMeasure
        A base measure with numeric parameters.
    values : (n, c) array
        The data, followed by columns for covariates, exposure or trials; at most 8 rows.
    log_marginal : callable
        ``log_marginal(values, **parameters)``: a slow, independently written log marginal likelihood.
    d : int, optional
        Number of data columns in ``values``. By default all.
    prior : GibbsType, optional
        Prior on partitions. By default a Chinese restaurant process with concentration 1.
    n_draws, seed : int
        Number of draws, and seed of the random numbers.

    Raises
    ------
    AssertionError
        If the frequencies of the partitions differ too much from their probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import betaln
    >>> import pymc_dpgmm as dp
    >>> from pymc_dpgmm.testing import check_sampler
    >>> def slow_log_marginal(values, a, b):
    ...     ones, zeros = values.sum(axis=0), (1 - values).sum(axis=0)
    ...     return float(np.sum(betaln(a + ones, b + zeros) - betaln(a, b)))
    >>> rows = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
    >>> check_sampler(dp.BetaBernoulli(1.0, 2.0), rows, slow_log_marginal, n_draws=20_000)
    """
    prior = chinese_restaurant(1.0) if prior is None else prior
    assert prior is not None
    params = base.numbers(values.shape[1] if d is None else d)
    all_labels = partitions(len(values))
    log_joint = log_likelihoods(all_labels, lambda members: log_marginal(values[members], **params._asdict()))
    for i, labels in enumerate(all_labels):
        sizes = cluster_sizes(labels)
        log_joint[i] += log_eppf(prior, sizes, len(sizes))
    drawn, _ = draw_codes([View(base.family, params, values)], prior, n_draws, seed=seed)
    assert_matches(drawn, all_labels, normalized(log_joint))


def check_family(
    base: BaseMeasure,
    values: np.ndarray,
    log_marginal: LogMarginal,
    *,
    d: int | None = None,
    support: np.ndarray | None = None,
    censored: np.ndarray | None = None,
) -> None:
    """Assert that a family satisfies its contract, with these parameters and data.

    Parameters
    ----------
    base : BaseMeasure
        A base measure with numeric parameters.
    values : (n, c) array
        Five or more rows of data, followed by columns for covariates, exposure or trials.
    log_marginal : callable
        ``log_marginal(values, **parameters)``: a slow, independently written log marginal likelihood.
    d : int, optional
        Number of data columns in ``values``. By default all.
    support : (m, d) array, optional
        For discrete data, all values of a row, or all except a probability of 1e-9. Covariates are those of the
        first row that is not censored. Without ``support``, densities of one column are integrated.
    censored : (n,) bool array, optional
        Rows whose density is the probability of several values, as of times that are known to be longer. Densities
        with the covariates of such rows do not integrate to one.

    Raises
    ------
    AssertionError
        If a check fails. The message names it.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import betaln
    >>> import pymc_dpgmm as dp
    >>> from pymc_dpgmm.testing import check_family
    >>> def slow_log_marginal(values, a, b):
    ...     ones, zeros = values.sum(axis=0), (1 - values).sum(axis=0)
    ...     return float(np.sum(betaln(a + ones, b + zeros) - betaln(a, b)))
    >>> rows = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
    >>> check_family(dp.BetaBernoulli(1.0, 2.0), rows, slow_log_marginal, support=np.array([[0.0], [1.0]]))
    """
    Contract(base, values, log_marginal, d=d, support=support, censored=censored).check_all()


def _log_evidence_of_scale(
    clusters: ScatterOfClusters, covariances: int, kappa: float, degrees: float, typical: np.ndarray
) -> float:
    """Return the log evidence of normal clusters, up to a constant (Murphy 2007, eq. 266)."""
    total, d = 0.0, clusters.offsets.shape[1]
    nu = least_degrees(covariances, d) + degrees
    for n, offset, scatter in zip(clusters.sizes, clusters.offsets, clusters.scatter, strict=True):
        if covariances == FULL:
            size = float(n[0])
            matrix = np.zeros((d, d))
            matrix[np.tril_indices(d)] = scatter
            matrix += np.tril(matrix, -1).T + kappa * size / (kappa + size) * np.outer(offset, offset)
            psi = np.diag(nu * typical)
            total += multigammaln((nu + size) / 2, d) - multigammaln(nu / 2, d)
            total += 0.5 * (nu * np.linalg.slogdet(psi)[1] - (nu + size) * np.linalg.slogdet(psi + matrix)[1])
            total += 0.5 * d * math.log(kappa / (kappa + size))
            continue
        squares = (scatter + kappa * n / (kappa + n) * offset**2) / (nu * typical)
        m, grown = (n * d, squares.sum(keepdims=True)) if covariances == SPHERICAL else (n, squares)
        terms = gammaln(0.5 * (nu + m)) - gammaln(0.5 * nu) - 0.5 * (nu + m) * np.log1p(grown)
        scales = np.log(kappa / (kappa + n)) - n * np.log(nu * typical)
        total += float(np.sum(terms)) + 0.5 * float(np.sum(scales))
    return total


def _arrays(found: Any) -> dict[str, np.ndarray]:
    """Return the arrays (K, ...) of a predictive, or of an expected log density, by their names."""
    named = found if isinstance(found, dict) else found._asdict()
    arrays = {name: value for name, value in named.items() if not isinstance(value, dict)}
    return arrays | {key: own for value in named.values() if isinstance(value, dict) for key, own in value.items()}


class Contract:
    """The checks of :func:`check_family`, one per method."""

    def __init__(
        self,
        base: BaseMeasure,
        values: np.ndarray,
        log_marginal: LogMarginal,
        d: int | None = None,
        support: np.ndarray | None = None,
        censored: np.ndarray | None = None,
    ) -> None:
        values = np.array(values, dtype=np.float64)
        self.base, self.family, self.values = base, base.family, values
        self.d = values.shape[1] if d is None else d
        self.params = base.numbers(self.d)
        self.support = support
        self._slow = log_marginal
        self.family.check_values(self.params, values)
        self.n = len(values)
        # Rows whose density is one, and the covariates of the first of them.
        self._whole = values if censored is None else values[~np.asarray(censored, dtype=np.bool_)]
        assert len(self._whole), "all rows are censored"

    def check_all(self) -> None:
        """Run all checks."""
        self.run_in_python()
        for name in dir(self):
            if name.startswith("check_") and name != "check_all":
                try:
                    getattr(self, name)()
                except AssertionError as error:
                    claim = str(getattr(self, name).__doc__).splitlines()[0]
                    raise AssertionError(f"{self.family.name} fails {name}: {claim}\n{error}") from error

    def run_in_python(self) -> None:
        """Run functions that will be compiled in plain Python first, so that errors name the line that is wrong.

        Functions that need compiled code are left to the compiler.
        """
        rows, _ = self.family.represent(self.params, self.values)
        if not isinstance(rows, np.ndarray):
            return
        lengths = self.family.lengths(self.params)
        letters = "".join([*self.family.axes.values(), *self.family.sums.values()])
        numbers = {
            name: value if np.ndim(value) == 0 else np.ravel(value)
            for name, value in (self.params._asdict() | self._tables()).items()
        }
        params = SimpleNamespace(**numbers, **{letter: lengths[letter] for letter in set(letters)})
        sums = SimpleNamespace(
            **{name: np.zeros(max(volume(axes, lengths), 1)) for name, axes in self.family.sums.items()}
        )
        row = np.asarray(rows[0], dtype=np.float64)
        calls = {"update": (params, 0.0, sums, row, 1.0), "log_evidence": (params, 1.0, sums)}
        for name, arguments in calls.items():
            function = getattr(self.family, name)
            if len(inspect.signature(function).parameters) != len(arguments):
                continue
            try:
                result = function(*arguments)
            except (NameError, AttributeError, IndexError, KeyError, TypeError) as error:
                error.add_note(f"This is {name} of {self.family.name} in plain Python, before it is compiled.")
                raise
            except Exception:
                return
            if not isinstance(result, Real):
                raise TypeError(f"{name} of {self.family.name} must return a number, got {result!r}")

    def _tables(self) -> dict[str, Any]:
        """Return the numbers beside the parameters that the log evidence may use."""
        family = self.family
        return family.tabulate(self.params, 1) if family.constants is None else family.constants(self.params)

    def table(self, clusters: Sequence[Sequence[int]], values: np.ndarray | None = None) -> ClusterTable:
        """Table with an empty slot 0, and one slot for each cluster from 1 on."""
        view = View(self.family, self.params, self.values if values is None else values)
        table = ClusterTable(view, len(clusters) + 2)
        for k, members in enumerate([[], *clusters]):
            table.gather(k, np.array(members, dtype=np.int64))
        return table

    def slow(self, members: Sequence[int]) -> float:
        """Slow log marginal likelihood of some rows."""
        return self._slow(self.values[list(members)], **self.params._asdict())

    def assert_slots_agree(self, table: ClusterTable, k: int, other: ClusterTable, j: int) -> None:
        """Assert that two slots have the same predictives and marginal likelihood."""
        mine, theirs = (
            [of_slot.log_evidence(slot), *of_slot.log_predictives(slot)]
            for of_slot, slot in ((table, k), (other, j))
        )
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)

    def check_predictives_telescope(self) -> None:
        """Predictives multiply to the marginal likelihood, which equals the slow one."""
        table = self.table([[]])
        total = 0.0
        for i in range(self.n):
            total += table.log_predictives(1)[i]
            table.change(i, 1, 1.0)
        everyone = range(self.n)
        summed = self.table([[]])
        summed.sum_up(np.zeros(self.n, dtype=np.int64), np.array([self.n]))
        for value in (
            total,
            table.log_evidence(1),
            self.table([everyone]).log_evidence(1),
            summed.total_log_evidence(1),
        ):
            np.testing.assert_allclose(value, self.slow(everyone), rtol=1e-9, atol=1e-9)

    def check_sums_follow_from_updates(self) -> None:
        """Every sum is zero without rows, and the number of rows is right."""
        table = self.table([range(self.n)])
        sums = table.sums(0, 2)
        for field in sums:
            assert not np.any(field[0])
        assert sums.n[1, 0] == self.n

    def check_clusters_merge(self) -> None:
        """Two merged clusters equal the cluster of all their rows."""
        half = self.n // 2
        everyone = list(range(self.n))
        for left, right in ((everyone[:half], everyone[half:]), ([0], [2]), ([], [1]), ([1], []), ([], [])):
            table = self.table([left, right, [*left, *right]])
            table.merge(1, 2)
            self.assert_slots_agree(table, 1, table, 3)
            for field in table.sums(0, 4):
                np.testing.assert_allclose(field[1], field[3], rtol=1e-12, atol=1e-12)

    def check_expected_densities_are_derivatives(self) -> None:
        """In the weight of a row, the log evidence has the expected log density of the row as derivative."""
        if self.family.expected is None:
            return
        rows = RowsInMemory([View(self.family, self.params, self.values)])
        singles = [rows.of_single(np.array([i])) for i in range(self.n)]
        sums = rows.empty(1)
        for single, weight in zip(singles, np.linspace(0.2, 0.9, self.n), strict=True):
            sums = rows.merged(sums, rows.scaled(single, np.array([weight])))
        expected = rows.log_densities(sums)[:, 0]
        step = 1e-5
        for i, single in enumerate(singles):
            more = [rows.merged(sums, rows.scaled(single, np.array([k * step]))) for k in (1.0, 2.0)]
            evidences = [float(rows.log_evidences(s)[0]) for s in (sums, *more)]
            derivative = (4.0 * evidences[1] - evidences[2] - 3.0 * evidences[0]) / (2.0 * step)
            np.testing.assert_allclose(expected[i], derivative, rtol=1e-5, atol=1e-5)

    def check_adding_equals_gathering(self) -> None:
        """Adding rows one by one equals gathering them at once, and a slot without rows is the prior."""
        table = self.table([[0]])
        for i in range(1, self.n):
            table.change(i, 1, 1.0)
        self.assert_slots_agree(table, 1, self.table([range(self.n)]), 1)
        table = self.table([[]])
        self.assert_slots_agree(table, 1, table, 0)

    def check_add_then_remove(self) -> None:
        """Adding rows and removing them again restores the statistics."""
        table = self.table([range(self.n // 2)])
        for sign in (1.0, -1.0):
            for i in range(self.n // 2, self.n):
                assert not table.change(i, 1, sign)
        self.assert_slots_agree(table, 1, self.table([range(self.n // 2)]), 1)

    def check_density_without_a_row(self) -> None:
        """Densities of rows given the rest of their cluster follow from statistics that include the row."""
        table = self.table([range(self.n)])
        for i in range(self.n):
            rest = [j for j in range(self.n) if j != i]
            expected = self.table([rest]).log_predictives(1)[i]
            np.testing.assert_allclose(table.log_predictive_without(i, 1), expected, rtol=1e-9, atol=1e-9)

    def check_shortcuts(self) -> None:
        """Fast functions that the family declares agree with the results from its evidence."""
        slow = replace(
            self.family,
            name=f"{self.family.name}ByEvidence",
            log_predictive=None,
            log_predictive_without=None,
            quadratic=None,
            quadratic_predictive=None,
            quadratic_predictive_without=None,
            change=None,
            kept_evidence=None,
        )
        fast_table = self.table([range(self.n // 2), range(self.n)])
        twin = Contract.__new__(Contract)
        twin.__dict__.update(self.__dict__ | {"family": slow})
        slow_table = twin.table([range(self.n // 2), range(self.n)])
        for table in (fast_table, slow_table):
            for i in range(self.n // 2, self.n):
                table.change(i, 1, 1.0)
            table.change(0, 2, -1.0)
        for k in (0, 1, 2):
            self.assert_slots_agree(fast_table, k, slow_table, k)
        for i in range(self.n):
            fast, slow_density = (t.log_predictive_without(i, 1) for t in (fast_table, slow_table))
            np.testing.assert_allclose(fast, slow_density, rtol=1e-8, atol=1e-8)

    def check_parameters_may_change(self) -> None:
        """Make sure that a table that takes other parameters is like one that is made with them."""
        for name, value in self.params._asdict().items():
            other = self.params._replace(**{name: 1.25 * value})
            if isinstance(value, float | np.ndarray) and self.family.supports(other):
                twin = Contract.__new__(Contract)
                twin.__dict__.update(self.__dict__ | {"params": other})
                table, expected = self.table([range(3)]), twin.table([range(3)])
                table.set_params(other)
                for k, members in enumerate(([], range(3))):
                    table.gather(k, np.array(members, dtype=np.int64))
                    self.assert_slots_agree(table, k, expected, k)

    def check_derived(self) -> None:
        """Make sure that ``derive`` writes what ``constants`` returns, for parameters that fit together."""
        if self.family.derive is None:
            return
        assert self.family.constants is not None, "derive needs constants"
        table = ClusterTable(View(self.family, self.params, self.values), 1, for_sampling=False)
        expected = {name: np.ravel(value) for name, value in self.family.constants(table.shifted).items()}
        for name in expected:
            start, stop = table.place_of(name)
            table.shared[start:stop] = np.nan
        assert function_of(self.family, "derive")(table.address) == 1
        for name in expected:
            start, stop = table.place_of(name)
            np.testing.assert_allclose(
                table.shared[start:stop], expected[name], rtol=1e-10, atol=1e-12, err_msg=name
            )

    def check_scale(self) -> None:
        """Make sure that parameters of a scale give the evidence of normal clusters with it."""
        scale = self.family.scale
        if scale is None:
            return
        typical = np.ones(self.d)
        evidences = []
        for kappa, degrees, factor in ((0.3, 4.0, 1.0), (1.7, 2.5, 0.4)):
            wanted = kappa, degrees, factor * typical
            params = scale.write(self.params, *wanted)
            halves = np.arange(self.n // 2), np.arange(self.n // 2, self.n)
            table = self.table([range(1), range(1)])
            table.set_params(params)
            for k in (1, 2):
                table.gather(k, halves[k - 1])
            clusters = scale.clusters(table.shifted, table.sums(1, 3))
            total = table.log_evidence(1) + table.log_evidence(2)
            evidences.append(total - _log_evidence_of_scale(clusters, scale.covariances, *wanted))
        np.testing.assert_allclose(evidences[0], evidences[1], rtol=1e-8)

    def check_slots_resize(self) -> None:
        """Slots keep their statistics when a table is copied and resized."""
        table = self.table([range(3)])
        larger = table.copy()
        larger.resize(7)
        self.assert_slots_agree(larger, 1, table, 1)
        larger.change(3, 1, 1.0)
        self.assert_slots_agree(table, 1, self.table([range(3)]), 1)

    def density(self, before: np.ndarray, row: np.ndarray) -> float:
        """Predictive density of a row given the rows ``before``, all as values."""
        values = np.vstack([before, row[None, :]])
        try:
            self.family.check_values(self.params, values)
        except ValueError:
            return 0.0
        table = self.table([range(len(before))], values)
        return math.exp(table.log_predictives(1)[len(before)])

    def check_predictives_are_normalized(self) -> None:
        """Predictive densities sum, or integrate, to one."""
        for before in (self.values[:0], self.values[:4]):
            if self.support is not None:
                covariates = self._whole[0, self.d :]
                total = sum(self.density(before, np.concatenate([x, covariates])) for x in self.support)
                np.testing.assert_allclose(total, 1.0, rtol=1e-7)
            elif self.d == 1:
                total = self._integral(before, self._whole[0], np.inf)
                hint = "where rows are whole numbers or categories, pass support= with all values of a row"
                np.testing.assert_allclose(total, 1.0, rtol=1e-6, err_msg=hint)

    def _integral(self, before: np.ndarray, row: np.ndarray, upper: float) -> float:
        """Probability that the only column is below ``upper``, with the covariates of ``row``."""
        centre, spread = row[0], np.std(self.values[:, 0]) or 1.0

        def integrand(z: float) -> float:
            moved = row.copy()
            moved[0] = centre + spread * math.tan(z)
            return self.density(before, moved) * spread / math.cos(z) ** 2

        stop = math.atan((upper - centre) / spread)
        return float(quad(integrand, -math.pi / 2, stop, limit=400, epsabs=1e-10)[0])

    def check_drawn_parameters(self) -> None:
        """Densities averaged over drawn parameters equal the predictive, for all columns and for some of them."""
        n_draws, before = 40_000, range(self.n - 1)
        rng = np.random.default_rng(2)
        table, sums, drawn = self._drawn_often(rng, n_draws)
        nothing = self.family.component.draw(rng, table.shifted, self.family.no_sums(table.shifted, 0))
        for name, letters in self.family.component.axes.items():
            assert nothing[name].shape == (0, *drawn[name].shape[1:])
            assert drawn[name].shape[0] == n_draws
            assert drawn[name].ndim == 1 + len(letters)
        wanted = [self.density(self.values[before], row) for row in self.values]
        self._assert_mean_densities(drawn, self.values, wanted)
        if self.d > 1 and self.family.log_predictive_present is not None:
            absent = np.arange(self.n * self.d).reshape(self.n, self.d) % self.d == 0
            values = self.values.astype(np.float64)
            values[:, : self.d][absent] = np.nan
            densities = np.exp(table.predictives(sums, np.arange(self.n), absent))
            self._assert_mean_densities(drawn, values, densities[:, 0])

    def _drawn_often(self, rng: np.random.Generator, n_draws: int) -> tuple[ClusterTable, Any, dict[str, Any]]:
        """Return a cluster of all rows but the last, its sums, and draws of its parameters."""
        table = self.table([range(self.n - 1)])
        sums = table.sums(1, 2)
        return table, sums, self._drawn(rng, table, sums, n_draws)

    def _drawn(self, rng: np.random.Generator, table: ClusterTable, sums: Any, n_draws: int) -> dict[str, Any]:
        """Return draws of the parameters of K clusters with these sums: n_draws times K in a row."""
        tiled = type(sums)(*(np.concatenate([field] * n_draws) for field in sums))
        component = self.family.component
        return component.restore(component.draw(rng, table.shifted, tiled), table.origin)

    def check_clusters_have_parameters_of_their_own(self) -> None:
        """Of several clusters, draws and expectations are those of each alone."""
        n_draws, component = 4_000, self.family.component
        table = self.table([range(self.n - 1), [0, 1], range(self.n // 2, self.n)])
        sums, rng = table.sums(1, 4), np.random.default_rng(4)
        alone = [type(sums)(*(field[k : k + 1] for field in sums)) for k in range(3)]
        for function in (self.family.predictive, self.family.expected):
            if function is None:
                continue
            together = _arrays(function(table.shifted, sums))
            for k, own in enumerate(alone):
                for name, value in _arrays(function(table.shifted, own)).items():
                    np.testing.assert_allclose(together[name][k], value[0], rtol=1e-9, atol=1e-12, err_msg=name)
        drawn = self._drawn(rng, table, sums, n_draws)
        densities = np.exp(component.log_density(drawn, self.values)).reshape(self.n, n_draws, 3)
        for k in range(3):
            wanted = np.exp(table.log_predictives(k + 1))
            errors = densities[:, :, k].std(axis=1) / math.sqrt(n_draws)
            np.testing.assert_array_less(np.abs(densities[:, :, k].mean(axis=1) - wanted), 4.5 * errors + 1e-12)

    def check_drawn_normals(self) -> None:
        """Means and precisions that compiled code draws have the densities of one row and of two rows."""
        if self.family.draw_normal is None:
            return
        n_draws, d = 20_000, self.d
        table = self.table([range(self.n - 1), [0, 1]])
        rng = np.random.default_rng(6)
        means, packed, room = np.empty((n_draws, d)), np.empty((n_draws, d * (d + 1) // 2)), np.empty(6 * d * d)
        draw, rows = function_of(self.family, "draw_normal"), self.family.represent(self.params, self.values)[0]
        for k in range(3):
            given = table.address, k
            half_log_dets = np.array(
                [
                    draw(*given, *map(address_of, (*drawn, room)), *bits_of_generator(rng))
                    for drawn in zip(means, packed, strict=True)
                ]
            )
            precisions, offsets = unpacked(packed), rows - means[:, None]
            lengths = np.linalg.eigvalsh(precisions)
            clear = lengths[:, 0] > 1e-8 * lengths[:, -1]
            np.testing.assert_allclose(
                half_log_dets[clear], 0.5 * np.log(lengths[clear]).sum(axis=1), rtol=1e-6, atol=1e-6
            )
            if k == 0 and not clear.all():
                # Without rows, the vaguest base measures make precisions that are singular to working precision.
                continue
            distances = np.einsum("tni,tij,tnj->tn", offsets, precisions, offsets)
            densities = np.exp(half_log_dets[:, None] - 0.5 * distances - 0.5 * d * math.log(2.0 * math.pi))
            wanted = np.exp(table.log_predictives(k))
            table.change(0, k, 1.0)
            of_two = wanted[0] * np.exp(table.log_predictives(k)[1])
            found = np.column_stack([densities, densities[:, 0] * densities[:, 1]])
            errors = found.std(axis=0) / math.sqrt(n_draws)
            np.testing.assert_array_less(np.abs(found.mean(axis=0) - [*wanted, of_two]), 4.5 * errors + 1e-12)

    def check_drawn_rows(self) -> None:
        """Rows that are drawn given parameters have the density and the mean that these have."""
        component, n_rows, rng = self.family.component, 6_000, np.random.default_rng(5)
        # Parameters given many rows are alike, so that ratios of their densities vary little, and have mean one.
        many = np.tile(self.values, (40, 1))
        table = self.table([range(len(many))], many)
        drawn = self._drawn(rng, table, table.sums(1, 2), 4)
        given = np.resize(self._whole[:, self.d :], (n_rows, self.values.shape[1] - self.d))
        for k in range(4):
            rows = component.draw_rows(rng, drawn, np.full(n_rows, k), given)
            assert rows.shape == (n_rows, self.d)
            values = np.column_stack([rows, given])
            logs = component.log_density(drawn, values)
            ratios = np.exp(logs - logs[:, k : k + 1])
            errors = ratios.std(axis=0) / math.sqrt(n_rows)
            np.testing.assert_array_less(np.abs(ratios.mean(axis=0) - 1.0), 5.0 * errors + 1e-12)
            if component.mean is not None:
                means = np.broadcast_to(component.mean(drawn, values), (n_rows, 4, self.d))[:, k]
                # Directions have complex means.
                if np.isrealobj(means) and np.isfinite(means).all():
                    error = (rows - means).std(axis=0) / math.sqrt(n_rows)
                    np.testing.assert_array_less(np.abs((rows - means).mean(axis=0)), 5.0 * error + 1e-12)

    def check_many_rows(self) -> None:
        """Rows that are gathered at once have the sums of rows that join one by one, however many they are."""
        many = np.tile(self.values, (150 // self.n + 1, 1))
        table = self.table([range(len(many)), []], many)
        for i in range(len(many)):
            table.change(i, 2, 1.0)
        self.assert_slots_agree(table, 1, table, 2)

    def check_origin(self) -> None:
        """Rows have the same evidence about an origin that is given, as of rows in chunks, as about their own."""
        _, origin = self.family.represent(self.params, self.values)
        if origin is None or len(inspect.signature(self.family.represent).parameters) < 3:
            return
        moved = origin + 0.3 * (np.std(self.values[:, 0]) or 1.0)
        table = ClusterTable(View(self.family, self.params, self.values, origin=moved), 3)
        table.gather(1, np.arange(self.n))
        self.assert_slots_agree(table, 1, self.table([range(self.n)]), 1)

    def check_means(self) -> None:
        """Means of rows, and of some columns given others, are averages over drawn parameters."""
        component, n_draws = self.family.component, 40_000
        if component.mean is None or self.family.predictive is None:
            return
        table, sums, drawn = self._drawn_often(np.random.default_rng(3), n_draws)
        predictive = component.restore(self.family.predictive(table.shifted, sums), table.origin)
        entries = np.arange(self.n * self.d).reshape(self.n, self.d)
        has_parts = self.d > 1 and self.family.log_predictive_present is not None
        for absent in (entries >= 0, *([entries % self.d == 0] if has_parts else [])):
            values = self.values.astype(np.float64)
            values[:, : self.d][absent] = np.nan
            # Of what is known, parameters that are more probable count more.
            weights = np.ones((self.n, n_draws, 1))
            if not absent.all():
                weights = np.exp(component.log_density(drawn, values))[:, :, None]
            weights = weights / weights.sum(axis=1, keepdims=True)
            means = np.broadcast_to(component.mean(drawn, values), (self.n, n_draws, self.d))
            wanted = np.sum(weights * means, axis=1)
            errors = np.sqrt(np.sum(np.abs(weights * (means - wanted[:, None, :])) ** 2, axis=1))
            found = np.broadcast_to(component.mean(predictive, values), (self.n, 1, self.d))[:, 0]
            np.testing.assert_array_less(np.abs(found - wanted)[absent], (4.5 * errors + 1e-12)[absent])

    def check_cdf(self) -> None:
        """Probabilities of at most a number add up to densities, given all other columns or none."""
        component = self.family.component
        if component.cdf is None:
            return
        table = self.table([range(self.n - 1)])
        drawn = self._drawn(np.random.default_rng(5), table, table.sums(1, 2), 4)
        # Of what is given, 0 events mean that a time is censored.
        rows = self.values[np.all(self.values[:, self.d :] != 0, axis=1) | component.is_discrete].astype(
            np.float64
        )
        has_parts = self.d > 1 and self.family.log_predictive_present is not None
        for j, knows_others in itertools.product(range(self.d), [False, True][: 1 + has_parts]):
            values, x = rows.copy(), rows[:, [j]]
            values[:, [j] if knows_others else range(self.d)] = np.nan
            step = 1e-4 * (np.abs(x) if component.bounds[0] >= 0.0 else rows[:, j].std() or 1.0)
            step = np.full(x.shape, 0.5) if component.is_discrete else np.broadcast_to(step, x.shape)
            limits = np.hstack([x - step, x + step])
            between = np.diff(component.cdf(drawn, values, j, limits), axis=2)[:, :, 0]
            known = component.log_density(drawn, values) if knows_others else 0.0
            values[:, j] = x[:, 0]
            density = np.exp(component.log_density(drawn, values) - known)
            width = 2.0 * step
            np.testing.assert_allclose(between / width, density, rtol=1e-5, atol=1e-7)

    def _assert_mean_densities(self, drawn: dict[str, Any], values: np.ndarray, wanted: Any) -> None:
        densities = np.exp(self.family.component.log_density(drawn, values))
        errors = densities.std(axis=1) / math.sqrt(densities.shape[1])
        np.testing.assert_array_less(np.abs(densities.mean(axis=1) - wanted), 4.5 * errors + 1e-12)

    def check_prior_draws(self) -> None:
        """Rows drawn from the prior follow the predictives: the first of a cluster, and the second given it."""
        rng = np.random.default_rng(1)
        covariates = self._whole[:1, self.d :]
        if self.support is not None:
            n = 4_000
            labels = np.repeat(np.arange(n), 2)
            rows = self.family.draw_rows(rng, self.params, labels, np.repeat(covariates, 2 * n, axis=0))
            pairs = rows.reshape(n, 2, self.d)
            # Rows outside of the support are counted as one further kind.
            indices = {tuple(x): i for i, x in enumerate(self.support)}
            order = [[indices.get(tuple(x), len(indices)) for x in pair] for pair in pairs]
            p = np.array([self.density(self.values[:0], np.concatenate([x, covariates[0]])) for x in self.support])
            self._assert_counts([first for first, _ in order], p, n)
            common = int(np.argmax(p))
            before = np.concatenate([self.support[common], covariates[0]])[None, :]
            second = [j for i, j in order if i == common]
            p = np.array([self.density(before, np.concatenate([x, covariates[0]])) for x in self.support])
            self._assert_counts(second, p, len(second))
        elif self.d == 1:
            n = 60
            labels = np.repeat(np.arange(n), 2)
            rows = self.family.draw_rows(rng, self.params, labels, np.repeat(covariates, 2 * n, axis=0))
            whole = [np.concatenate([x, covariates[0]]) for x in rows]
            nobody = self.values[:0]
            below = [
                self._integral(np.array([whole[i - 1]]) if i % 2 else nobody, whole[i], whole[i][0])
                for i in range(2 * n)
            ]
            for share in (below[::2], below[1::2]):
                assert kstest(share, "uniform").pvalue > 1e-3

    def _assert_counts(self, drawn: Sequence[int], p: np.ndarray, n: int) -> None:
        """Assert by a chi-square test that draws follow p, with rare values and those beyond p pooled."""
        observed = np.bincount(drawn, minlength=len(p) + 1)
        expected = n * np.append(p, max(1.0 - p.sum(), 0.0))
        often = expected > 5
        if often.sum() < 2:
            return
        observed = np.append(observed[often], observed[~often].sum())
        expected = np.append(expected[often], expected[~often].sum())
        keep = expected > 5
        if not keep[-1]:
            observed[0] += observed[-1]
            expected[0] += expected[-1]
        statistic = np.sum((observed[keep] - expected[keep]) ** 2 / expected[keep])
        assert chi2.sf(statistic, keep.sum() - 1) > 1e-4

    def check_gradients(self) -> None:
        """Gradients in the parameters and, if implemented, in the rows equal finite differences."""
        labels = np.arange(self.n) % 3
        likelihood = MarginalLikelihood(self.family)
        gradient = likelihood.at(labels, self.values, self.params).gradient()
        for field, value in self.params._asdict().items():
            value = np.asarray(value)
            numeric = np.zeros(value.shape)
            for index in np.ndindex(*value.shape):
                numeric[index] = self._slope(likelihood, labels, field, value, index)
            np.testing.assert_allclose(getattr(gradient, field), numeric, rtol=2e-5, atol=1e-6, err_msg=field)
        if not self.family.has_data_gradient:
            return
        numeric, step = np.zeros((self.n, self.d)), 1e-6 * (np.std(self.values[:, : self.d]) or 1.0)
        for index in np.ndindex(*numeric.shape):
            ends = []
            for sign in (1, -1):
                moved = self.values.copy()
                moved[index] += sign * step
                ends.append(likelihood.at(labels, moved, self.params).value())
            numeric[index] = (ends[0] - ends[1]) / (2.0 * step)
        np.testing.assert_allclose(
            likelihood.at(labels, self.values, self.params).data_gradient()[:, : self.d],
            numeric,
            rtol=2e-5,
            atol=1e-5 * np.abs(numeric).max(),
        )

    def check_drawn_rows_are_of_the_declared_kind(self) -> None:
        """Drawn rows are integers exactly if the component is discrete, and lie within its bounds."""
        component = self.family.component
        covariates = np.repeat(self.values[:1, self.d :], 200, axis=0)
        rows = self.family.draw_rows(np.random.default_rng(1), self.params, np.arange(200), covariates)
        least, largest = component.bounds
        assert np.all((rows >= least) & (rows <= largest)), (
            f"rows from {rows.min()} to {rows.max()} are drawn, but bounds are {component.bounds}"
        )
        is_whole = bool(np.all(rows == np.round(rows)))
        assert is_whole == component.is_discrete, (
            f"is_discrete of the component is {component.is_discrete}, but rows like {rows[0].tolist()} are drawn"
        )

    def _scale_of(self, field: str, value: np.ndarray, index: Any) -> float:
        """Return by how much an entry of a parameter can change without leaving what it describes."""
        if value.ndim == 2 and len(set(self.family.axes[field])) == 1:
            return float(np.sqrt(abs(value[index[0], index[0]] * value[index[1], index[1]])))
        negative = self.params._replace(**{field: -value if value.ndim else -value.item()})
        if not self.family.supports(negative):
            return float(abs(value[index])) or 0.1
        # A location, whose numbers are those of the data.
        return float(min(max(abs(value[index]), 0.1), np.std(self.values[:, : self.d]) or 1.0))

    def _slope(
        self, likelihood: MarginalLikelihood, labels: np.ndarray, field: str, value: np.ndarray, index: Any
    ) -> float:
        """Finite difference in one entry of a parameter; 0 if a change of it leaves the support.

        Matrices with two equal axes are taken as symmetric.
        """
        symmetric = value.ndim == 2 and len(set(self.family.axes[field])) == 1 and index[0] != index[1]
        step = 1e-5 * self._scale_of(field, value, index)
        ends = []
        for sign in (1, -1):
            moved = np.array(value)
            moved[index] += sign * step
            if symmetric:
                moved[index[::-1]] += sign * step
            changed = self.params._replace(**{field: moved if value.ndim else moved.item()})
            if not self.family.supports(changed):
                return 0.0
            ends.append(likelihood.at(labels, self.values, changed).value())
        return (ends[0] - ends[1]) / (2 * step) / (2 if symmetric else 1)
