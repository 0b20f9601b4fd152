"""Tests for samplers of partitions and for conjugate families, also those that live outside this package.

:func:`check_family` holds a family to the contract of :mod:`pymc_dpgmm.families.verbs`, and :func:`check_sampler`
the default sampler with it to an enumeration of all partitions. Both compare with a slow log marginal likelihood
that shares nothing with the family. The rest are the pieces they are made of.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import arviz as az
import numpy as np
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import chi2, kstest

from pymc_dpgmm.dispatch import compiled, is_implemented
from pymc_dpgmm.families import BaseMeasure, View, verbs
from pymc_dpgmm.families.slots import move, resize
from pymc_dpgmm.kernels.concentration import Given
from pymc_dpgmm.kernels.marginal import MarginalLikelihood
from pymc_dpgmm.kernels.schedule import sweep
from pymc_dpgmm.kernels.split_merge import MOVES, N_TALLIED
from pymc_dpgmm.kernels.state import initial_state
from pymc_dpgmm.partitions import GibbsType, chinese_restaurant, cluster_sizes, log_eppf

LogMarginal = Callable[..., float]


def partitions(n: int) -> np.ndarray:
    """All partitions of n rows as canonical labels: (B_n, n)."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, k] for p in found for k in range(max(p) + 2)]
    return np.array(found)


def log_likelihoods(all_labels: np.ndarray, log_marginal: Callable[[np.ndarray], float]) -> np.ndarray:
    """Log marginal likelihood of the data under every partition, ``log_marginal`` taking the rows of a cluster."""
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
    """Which of the enumerated partitions each code is; AssertionError where one is none of them."""
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

    The statistic is the total variation distance, the bound the 99.9 % quantile of the same statistic for as many
    independent draws as the effective size.
    """
    effective = effective_size(drawn_codes, all_labels, p)
    distance = total_variation(frequencies(np.ravel(drawn_codes), all_labels), p)
    bound = total_variation_bound(p, effective)
    assert distance < bound, f"total variation {distance:.5f}, bound {bound:.5f} at {effective:.0f} draws"


@compiled()
def run_sweeps(rng, prior, law, state, n_scans, n_moves, tally, drawn_codes):
    """Fill ``drawn_codes`` with the codes of partitions after one sweep each; return the state."""
    n = state.slots.shape[0]
    for t in range(drawn_codes.shape[0]):
        state, prior, _, _ = sweep(rng, prior, law, state, 1, n_scans, n_moves, tally)
        code = 0
        for i in range(n):
            code = code * n + state.slots[i] - 1
        drawn_codes[t] = code
    return state


def draw_codes(
    views: Sequence[View],
    prior: GibbsType,
    n_draws: int,
    *,
    n_scans: int = 1,
    n_moves: Sequence[int] = (1, 3),
    law: Any = None,
    seed: int = 1,
    labels: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw partitions of tiny data with the kernels of the default sampler.

    Parameters
    ----------
    views : sequence of View
    prior : GibbsType
    n_draws : int
    n_scans : int
        Gibbs scans per draw.
    n_moves : (2,) integers
        Random and sequential moves per draw.
    law : NamedTuple, optional
        Of the prior's parameters, which are then drawn too.
    seed : int
    labels : (n,) integer array, optional
        The start. By default all rows are in one cluster.

    Returns
    -------
    codes : (n_draws,) int64 array
    tally : (2, 7) int64 array
    """
    n = views[0].values.shape[0] if views[0].unit is None else int(views[0].unit.max()) + 1
    drawn = np.empty(n_draws, dtype=np.int64)
    tally = np.zeros((len(MOVES), N_TALLIED), dtype=np.int64)
    law = Given(0.0) if law is None else law
    state = initial_state(views, np.zeros(n, dtype=np.int64) if labels is None else labels)
    run_sweeps(np.random.default_rng(seed), prior, law, state, n_scans, np.array(n_moves), tally, drawn)
    return drawn, tally


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
        With numeric parameters.
    values : (n, c) array
        The data, with columns for what is given with every row; n of at most 8.
    log_marginal : callable
        ``log_marginal(values, **parameters)``: slow, and written by itself.
    d : int, optional
        Number of columns that are modelled. By default all.
    prior : GibbsType, optional
        By default a Chinese restaurant process with concentration 1.
    n_draws, seed : int
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
) -> None:
    """Assert that a family keeps its contract, at some parameters and data.

    Parameters
    ----------
    base : BaseMeasure
        With numeric parameters.
    values : (n, c) array
        Five or more rows of data, with columns for what is given with every row.
    log_marginal : callable
        ``log_marginal(values, **parameters)``: slow, and written by itself.
    d : int, optional
        Number of columns that are modelled. By default all.
    support : (m, d) array, optional
        For discrete data, all values that a row can have, or all but a share of 1e-9; what is given is taken from
        the first row. Without it, densities of one column are integrated.
    """
    Contract(base, values, log_marginal, d=d, support=support).check_all()


class Contract:
    """The checks of :func:`check_family`, one a method."""

    def __init__(
        self,
        base: BaseMeasure,
        values: np.ndarray,
        log_marginal: LogMarginal,
        d: int | None = None,
        support: np.ndarray | None = None,
    ) -> None:
        self.base, self.family, self.values = base, base.family, values
        self.d = values.shape[1] if d is None else d
        self.params = base.numbers(self.d)
        self.support = support
        self._slow = log_marginal
        self.family.check_values(self.params, values)
        self.rows, self.origin = self.family.represent(self.params, values)
        self.shifted = self.family.shift(self.params, self.origin)
        self.n = len(values)

    def check_all(self) -> None:
        """Run all checks."""
        for name in dir(self):
            if name.startswith("check_") and name != "check_all":
                try:
                    getattr(self, name)()
                except AssertionError as error:
                    claim = str(getattr(self, name).__doc__).splitlines()[0]
                    raise AssertionError(f"{self.family.name} fails {name}: {claim}\n{error}") from error

    def stats(self, members: Sequence[int], capacity: int = 4) -> Any:
        """Statistics with slot 0 without rows and slot 1 fitted to the given rows."""
        stats = self.family.allocate_stats(self.shifted, self.n, capacity)
        for k, chosen in enumerate([[], members]):
            verbs.fit(stats, k, self.summary([chosen]), 0)
        return stats

    def summary(self, clusters: Sequence[Sequence[int]]) -> Any:
        """Summary with one slot per cluster."""
        summary = self.family.allocate_summary(self.shifted, len(clusters))
        for k, members in enumerate(clusters):
            verbs.summarize(summary, k, self.rows, np.array(members, dtype=np.int64))
        return summary

    def slow(self, members: Sequence[int]) -> float:
        """Slow log marginal likelihood of some rows."""
        return self._slow(self.values[list(members)], **self.params._asdict())

    def assert_slots_agree(self, stats: Any, k: int, other: Any, j: int) -> None:
        """Assert that two slots tell the same, of predictives and of the marginal likelihood."""
        pairs = [(verbs.log_marginal(stats, k), verbs.log_marginal(other, j))]
        for i in range(self.n):
            pairs.append(
                (verbs.log_predictive(stats, k, self.rows, i), verbs.log_predictive(other, j, self.rows, i))
            )
        mine, theirs = np.array(pairs).T
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)

    def check_predictives_telescope(self) -> None:
        """Predictives multiply to the marginal likelihood, which is the slow one."""
        stats = self.stats([])
        total = 0.0
        for i in range(self.n):
            total += verbs.log_predictive(stats, 1, self.rows, i)
            verbs.add(stats, 1, self.rows, i)
        everyone = range(self.n)
        summary = self.summary([everyone])
        for value in (
            total,
            verbs.log_marginal(stats, 1),
            verbs.log_marginal(self.stats(everyone), 1),
            verbs.log_marginal_likelihood(self.shifted, summary),
        ):
            np.testing.assert_allclose(value, self.slow(everyone), rtol=1e-9, atol=1e-9)

    def check_summaries_combine(self) -> None:
        """Two summaries make the summary of all rows of both."""
        half = self.n // 2
        everyone = list(range(self.n))
        for left, right in ((everyone[:half], everyone[half:]), ([0], [2]), ([], [1]), ([1], []), ([], [])):
            summary = self.summary([left, right, [*left, *right]])
            verbs.combine(summary, 0, 1)
            for field in summary:
                np.testing.assert_allclose(field[0], field[2], rtol=1e-12, atol=1e-12)

    def check_adding_equals_fitting(self) -> None:
        """Rows added one by one give what fitting gives, and a slot without rows is the prior."""
        stats = self.stats([0])
        for i in range(1, self.n):
            verbs.add(stats, 1, self.rows, i)
        self.assert_slots_agree(stats, 1, self.stats(range(self.n)), 1)
        stats = self.stats([])
        self.assert_slots_agree(stats, 1, stats, 0)

    def check_add_then_remove(self) -> None:
        """Rows that join and leave leave nothing behind."""
        stats = self.stats(range(self.n // 2))
        for change in (verbs.add, verbs.remove):
            for i in range(self.n // 2, self.n):
                assert change(stats, 1, self.rows, i) in (None, True)
        self.assert_slots_agree(stats, 1, self.stats(range(self.n // 2)), 1)

    def check_density_without_a_row(self) -> None:
        """Statistics that include a row tell its density given the rest of its cluster."""
        stats = self.stats(range(self.n))
        for i in range(self.n):
            others = [j for j in range(self.n) if j != i]
            expected = verbs.log_predictive(self.stats(others), 1, self.rows, i)
            np.testing.assert_allclose(
                verbs.log_predictive_without(stats, 1, self.rows, i), expected, rtol=1e-9, atol=1e-9
            )

    def check_slots_move_and_resize(self) -> None:
        """Slots are copied whole."""
        stats = self.stats(range(3), capacity=3)
        larger = resize(stats, 7)
        move(larger, 1, 6)
        for slot in (1, 6):
            self.assert_slots_agree(larger, slot, stats, 1)
        verbs.add(larger, 6, self.rows, 3)
        self.assert_slots_agree(larger, 1, stats, 1)

    def density(self, before: np.ndarray, row: np.ndarray) -> float:
        """Predictive density of a row given others, all as values."""
        values = np.vstack([before, row[None, :]])
        try:
            self.family.check_values(self.params, values)
        except ValueError:
            return 0.0
        rows, origin = self.family.represent(self.params, values)
        shifted = self.family.shift(self.params, origin)
        stats = self.family.allocate_stats(shifted, len(values), 2)
        summary = self.family.allocate_summary(shifted, 1)
        verbs.summarize(summary, 0, rows, np.arange(len(before)))
        verbs.fit(stats, 1, summary, 0)
        return math.exp(verbs.log_predictive(stats, 1, rows, len(before)))

    def check_predictives_are_normalized(self) -> None:
        """Predictive densities sum, or integrate, to one."""
        for before in (self.values[:0], self.values[:4]):
            if self.support is not None:
                given = self.values[0, self.d :]
                total = sum(self.density(before, np.concatenate([x, given])) for x in self.support)
                np.testing.assert_allclose(total, 1.0, rtol=1e-7)
            elif self.d == 1:
                np.testing.assert_allclose(self._integral(before, self.values[0], np.inf), 1.0, rtol=1e-6)

    def _integral(self, before: np.ndarray, row: np.ndarray, upper: float) -> float:
        """Probability that the only column is below ``upper``, given what comes with ``row``."""
        centre, spread = row[0], 1.0 + np.std(self.values[:, 0])

        def integrand(z: float) -> float:
            moved = row.copy()
            moved[0] = centre + spread * math.tan(z)
            return self.density(before, moved) * spread / math.cos(z) ** 2

        stop = math.atan((upper - centre) / spread)
        return float(quad(integrand, -math.pi / 2, stop, limit=400, epsabs=1e-10)[0])

    def check_drawn_parameters(self) -> None:
        """Densities given drawn parameters of a cluster average to the predictive, also of some columns alone."""
        n_draws, before = 40_000, range(self.n - 1)
        rng = np.random.default_rng(2)
        summary = self.summary([before])
        repeated = type(summary)(*(np.repeat(field, n_draws, axis=0) for field in summary))
        drawn = self.family.component.draw(rng, self.shifted, repeated)
        drawn = self.family.component.restore(drawn, self.origin)
        nothing = self.family.component.draw(rng, self.shifted, self.family.allocate_summary(self.shifted, 0))
        for name, letters in self.family.component.axes.items():
            assert nothing[name].shape == (0, *drawn[name].shape[1:])
            assert drawn[name].shape[0] == n_draws
            assert drawn[name].ndim == 1 + len(letters)
        wanted = [self.density(self.values[before], row) for row in self.values]
        self._assert_mean_densities(drawn, self.values, wanted)
        stats = self.stats(before)
        if self.d > 1 and is_implemented(verbs.log_predictive_present, type(stats)):
            absent = np.arange(self.n * self.d).reshape(self.n, self.d) % self.d == 0
            values = self.values.astype(np.float64)
            values[:, : self.d][absent] = np.nan
            wanted = [
                math.exp(verbs.log_predictive_present(stats, 1, self.rows, i, absent)) for i in range(self.n)
            ]
            self._assert_mean_densities(drawn, values, wanted)

    def _assert_mean_densities(self, drawn: dict[str, Any], values: np.ndarray, wanted: Sequence[float]) -> None:
        densities = np.exp(self.family.component.log_density(drawn, values))
        errors = densities.std(axis=1) / math.sqrt(densities.shape[1])
        np.testing.assert_array_less(np.abs(densities.mean(axis=1) - wanted), 4.5 * errors + 1e-12)

    def check_prior_draws(self) -> None:
        """Rows drawn from the prior follow the predictives: the first of a cluster, and the second given it."""
        rng = np.random.default_rng(1)
        given = self.values[:1, self.d :]
        if self.support is not None:
            n = 4_000
            labels = np.repeat(np.arange(n), 2)
            rows = self.family.draw_rows(rng, self.params, labels, np.repeat(given, 2 * n, axis=0))
            pairs = rows.reshape(n, 2, self.d)
            # Rows that are drawn are few; those that are left out of the support are one more kind.
            known = {tuple(x): i for i, x in enumerate(self.support)}
            order = [[known.get(tuple(x), len(known)) for x in pair] for pair in pairs]
            p = np.array([self.density(self.values[:0], np.concatenate([x, given[0]])) for x in self.support])
            self._assert_counts([first for first, _ in order], p, n)
            common = int(np.argmax(p))
            before = np.concatenate([self.support[common], given[0]])[None, :]
            second = [j for i, j in order if i == common]
            p = np.array([self.density(before, np.concatenate([x, given[0]])) for x in self.support])
            self._assert_counts(second, p, len(second))
        elif self.d == 1:
            n = 60
            labels = np.repeat(np.arange(n), 2)
            rows = self.family.draw_rows(rng, self.params, labels, np.repeat(given, 2 * n, axis=0))
            whole = [np.concatenate([x, given[0]]) for x in rows]
            nobody = self.values[:0]
            below = [
                self._integral(np.array([whole[i - 1]]) if i % 2 else nobody, whole[i], whole[i][0])
                for i in range(2 * n)
            ]
            for share in (below[::2], below[1::2]):
                assert kstest(share, "uniform").pvalue > 1e-3

    def _assert_counts(self, drawn: Sequence[int], p: np.ndarray, n: int) -> None:
        """Assert by a chi-square test that draws follow p, rare values and those beyond p pooled."""
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
        """Gradients equal finite differences, in the parameters and, where implemented, in the rows."""
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
        numeric = np.zeros((self.n, self.d))
        for index in np.ndindex(*numeric.shape):
            ends = []
            for sign in (1, -1):
                moved = self.values.copy()
                moved[index] += sign * 1e-6
                ends.append(likelihood.at(labels, moved, self.params).value())
            numeric[index] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(
            likelihood.at(labels, self.values, self.params).data_gradient()[:, : self.d],
            numeric,
            rtol=2e-5,
            atol=1e-5 * np.abs(numeric).max(),
        )

    def _slope(
        self, likelihood: MarginalLikelihood, labels: np.ndarray, field: str, value: np.ndarray, index: Any
    ) -> float:
        """Finite difference in one entry of a parameter; 0 where the entry is one that cannot move.

        Matrices with two equal axes are symmetric.
        """
        symmetric = value.ndim == 2 and len(set(self.family.axes[field])) == 1 and index[0] != index[1]
        step = 1e-5 * max(abs(value[index]), 0.1)
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
