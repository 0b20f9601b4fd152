"""Scans against enumeration of all partitions: Gibbs sampling, and metropolized Gibbs sampling."""

import math

import exact
import numpy as np
import pytest
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, c_function
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.choices import LEFT_OUT, accumulate, pick_metropolized, stays_surely
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.testing import draw_codes

N_DRAWS = 500_000


def cases():
    lopsided = np.array([[0.3, -0.1], [2.9, 3.3], [3.1, 2.9], [2.7, 3.5], [3.4, 3.2], [-4.0, 5.0]])
    for name in ("niw_crp", "nig_crp"):
        given = exact.reference(name)
        base = dict(given["base_measure"])
        yield pytest.param(
            base.pop("family"), np.array(given["y"]), base, given["partition_prior"]["alpha"], id=name
        )
    yield pytest.param(
        "NormalInverseWishart",
        lopsided + 1e6,
        {"mu": [1e6 - 1.0, 1e6 + 2.0], "kappa": 0.7, "nu": 2.3, "psi": [[0.5, 0.44], [0.44, 0.6]]},
        2.5,
        id="niw-far-from-zero",
    )
    yield pytest.param(
        "NormalInverseGamma",
        lopsided,
        {"mu": [0.5, -1.0], "kappa": [0.4, 1.7], "a": [0.8, 2.6], "b": [0.3, 1.1]},
        0.4,
        id="nig-columns-of-their-own",
    )
    yield pytest.param(
        "NormalInverseGamma",
        lopsided[:, [0, 1, 0, 1, 0, 1, 0, 1, 1, 0]] * np.linspace(0.5, 2.0, 10),
        {"mu": 0.2, "kappa": 0.3, "a": 1.5, "b": 2.0},
        1.0,
        id="nig-ten-columns",
    )
    yield pytest.param(
        "NormalInverseWishart",
        np.repeat(lopsided[:3], 2, axis=0),
        {"mu": 0.0, "kappa": 0.05, "nu": 4.0, "psi": [[0.02, 0.0], [0.0, 0.02]]},
        1.0,
        id="niw-duplicated-rows",
    )


@pytest.mark.parametrize(("family", "rows", "base", "alpha"), list(cases()))
def test_partition_frequencies(family, rows, base, alpha):
    check_frequencies(family, rows, base, alpha, N_DRAWS, seed=20130805)


@pytest.mark.parametrize(("family", "rows", "base", "alpha"), rest_slow(list(cases())[:2]))
def test_partition_frequencies_by_gibbs_sampling(family, rows, base, alpha):
    """These are the scans of many rows, and of some rows."""
    check_frequencies(family, rows, base, alpha, N_DRAWS, seed=3, metropolized=False)


@pytest.mark.slow
@pytest.mark.parametrize("metropolized", [True, False])
@pytest.mark.parametrize(("family", "rows", "base", "alpha"), list(cases()))
def test_partition_frequencies_long(family, rows, base, alpha, metropolized):
    """Six times the draws, from another seed."""
    check_frequencies(family, rows, base, alpha, 6 * N_DRAWS, seed=7, metropolized=metropolized)


def check_frequencies(family, rows, base, alpha, n_draws, seed, metropolized=True):
    params = getattr(dp, family)(**base).numbers(rows.shape[1])
    all_labels = exact.partitions(len(rows))
    # The enumeration sums squares about zero: shift data and mean together where that costs digits.
    shift = rows[0] if np.abs(rows).max() > 1e3 else 0.0
    local = base | {"mu": np.asarray(base["mu"], float) - shift}
    p = exact.posterior(all_labels, rows - shift, exact.LOG_MARGINALS[family], alpha, **local)
    views = [View(FAMILIES[family], params, rows)]
    codes, _ = draw_codes(
        views, chinese_restaurant(alpha), n_draws, n_moves=(0, 0), seed=seed, metropolized=metropolized
    )
    exact.assert_matches(codes, all_labels, p)


@c_function(NOTHING(INTS, FLOATS, INT, INT, INTS, INT))
def follow(head, log_weights, m, own, followers, n):
    """Fill ``followers`` with indices that follow ``own``, each drawn anew."""
    s = memory_at(head)
    for t in range(n):
        for j in range(m):
            s.log_weights[j] = log_weights[j]
        accumulate(s, s.log_weights, m)
        followers[t] = pick_metropolized(uniform(s.bits), s.log_weights, m, own, 1)


@pytest.mark.parametrize(
    "log_weights",
    [[0.0], [0.3, 0.3], [2.0, -1.0, 0.5, 1.9], [-40.0, 0.0, -math.inf], [-700.0, -1.0, -1.0, -900.0, -1.5]],
)
def test_who_follows_whom(log_weights):
    """The formula is in detailed balance, leaves more often than Gibbs sampling, and gives the frequencies."""
    w = np.exp(np.array(log_weights) - max(log_weights))
    matrix = w / (w.sum() - 0.9 * np.minimum(w, w[:, None]))
    np.fill_diagonal(matrix, 0.0)
    assert np.all(matrix.sum(axis=1) <= 1.0)
    np.fill_diagonal(matrix, 1.0 - matrix.sum(axis=1))
    np.testing.assert_allclose(w[:, None] * matrix, (w[:, None] * matrix).T, atol=1e-15)
    assert np.all(np.diag(matrix) <= w / w.sum() + 1e-15)
    rng, n, m = np.random.default_rng(8), 100_000, len(w)
    view = View(FAMILIES["NormalInverseGamma"], dp.NormalInverseGamma(0.0, 1.0, 1.0, 1.0).numbers(1), np.eye(9, 1))
    state = State([view], np.arange(9))
    state.use(rng)
    given, followers = np.array(log_weights), np.empty(n, dtype=np.int64)
    for own in range(m):
        if np.isinf(given[own]):
            # The place of a row is never impossible.
            continue
        follow(state.address, given.ctypes.data, m, own, followers.ctypes.data, n)
        found = np.bincount(followers, minlength=m) / n
        np.testing.assert_allclose(found, matrix[own], atol=5.0 * np.sqrt(0.25 / n))


@pytest.mark.parametrize("name", ["niw_crp", "nig_crp"])
def test_enumeration_agrees_with_the_reference(name):
    given = exact.reference(name)
    base = dict(given["base_measure"])
    log_marginal = exact.LOG_MARGINALS[base.pop("family")]
    all_labels = exact.partitions(len(given["y"]))
    assert ["".join(map(str, p)) for p in all_labels] == given["partitions"]
    p = exact.posterior(all_labels, np.array(given["y"]), log_marginal, given["partition_prior"]["alpha"], **base)
    np.testing.assert_allclose(p, given["posterior"], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("mistake", rest_slow(["alpha", "nu"]))
def test_small_mistakes_are_seen(mistake):
    """With nu off by 0.1, or alpha by 5 %, the comparison above fails."""
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    base.pop("family")
    rows, alpha = np.array(given["y"]), given["partition_prior"]["alpha"]
    wrong = base | ({"nu": base["nu"] + 0.1} if mistake == "nu" else {})
    prior = chinese_restaurant(alpha * (1.05 if mistake == "alpha" else 1.0))
    view = View(FAMILIES["NormalInverseWishart"], dp.NormalInverseWishart(**wrong).numbers(2), rows)
    codes, _ = draw_codes([view], prior, N_DRAWS, n_moves=(0, 0))
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, exact.partitions(len(rows)), np.array(given["posterior"]))


def test_most_rows_stay_at_the_first_look():
    """The bound of the probabilities of all other indices is one, and it decides for most that stay."""
    rng = np.random.default_rng(2)
    decided, stayed = 0, 0
    for _ in range(2_000):
        w = rng.dirichlet(np.full(5, 0.2))
        own = int(rng.choice(5, p=w))
        p = w / (1.0 - LEFT_OUT * np.minimum(w, w[own]))
        p[own] = 0.0
        rest, u = 1.0 - w[own], rng.random()
        is_decided = stays_surely(u, 1.0, w[own], rest)
        assert not is_decided or u >= p.sum() - 1e-12
        decided += is_decided
        stayed += u >= p.sum()
    assert decided > 0.8 * stayed
