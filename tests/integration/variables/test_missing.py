"""Missing entries, at random, that integrate out."""

import pickle
import subprocess
import sys
from dataclasses import replace

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled
from exact import assert_matches, codes
from scipy.linalg import block_diag
from scipy.special import logsumexp, multigammaln
from scipy.stats import kstest, multivariate_normal
from scipy.stats import t as student_t
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves.imputation import impute
from pymc_dpgmm.sampler.state.marginal import same_values
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.testing import Contract, draw_codes, log_likelihoods, normalized, partitions

pytestmark = pytest.mark.interpreted

N = 6


def gaps(seed, shape):
    """Which entries are missing: about a third, all of one row, and not all of any column."""
    rng = np.random.default_rng(seed)
    missing = rng.random(shape) < 0.35
    missing[2] = True
    missing[3] = False
    return missing


def by_column(log_marginal, n_given=0):
    """Log marginal likelihood of the entries that are there, column by column."""

    def slow(values, **params):
        values = np.asarray(values)
        d = values.shape[1] // (1 + n_given)
        total = 0.0
        for j in range(d):
            own = ~np.isnan(values[:, j])
            columns = values[own][:, j::d]
            mine = {
                name: (v if np.ndim(v) == 2 else np.broadcast_to(v, d))[j : j + 1] for name, v in params.items()
            }
            total += log_marginal(columns, **mine)
        return total

    return slow


def made(seed, draw, given=None):
    rng = np.random.default_rng(seed)
    values = draw(rng).astype(float)
    values[gaps(seed, values.shape)] = np.nan
    return values if given is None else np.hstack([values, np.broadcast_to(given, values.shape)])


def known_covariance(values, mu, covariance_of_means):
    """Log marginal likelihood of the entries that are there, all at once."""
    d, values = len(mu), np.asarray(values)
    rows, covariance = values[:, :d], values[:, d:].reshape(-1, d, d)
    whole = np.kron(np.ones((len(rows), len(rows))), covariance_of_means) + block_diag(*covariance)
    own = np.flatnonzero(~np.isnan(rows.ravel()))
    if not len(own):
        return 0.0
    return float(
        multivariate_normal(np.tile(mu, len(rows))[own], whole[np.ix_(own, own)]).logpdf(rows.ravel()[own])
    )


TRIALS = np.array([4, 7, 3])
COVARIANCE = np.array([[0.5, 0.3], [0.3, 0.8]])
CASES = {
    "nig": (
        dp.NormalInverseGamma([0.3, -0.2], [0.4, 0.7], [1.6, 2.5], [0.7, 1.4]),
        made(0, lambda rng: rng.normal(size=(N, 2)) + rng.integers(2, size=(N, 1)) * 1.5),
        by_column(exact.nig_log_marginal),
        2,
    ),
    "bernoulli": (
        dp.BetaBernoulli([0.6, 1.4, 0.9], [0.8, 0.5, 1.2]),
        made(1, lambda rng: rng.integers(2, size=(N, 3))),
        by_column(exact.LOG_MARGINALS["BetaBernoulli"]),
        3,
    ),
    "poisson": (
        dp.GammaPoisson([0.8, 1.7], [0.3, 0.6], exposure=np.ones(N)),
        made(2, lambda rng: rng.poisson(3, size=(N, 2)), given=np.linspace(0.5, 2, N)[:, None]),
        by_column(exact.LOG_MARGINALS["GammaPoisson"], n_given=1),
        2,
    ),
    "binomial": (
        dp.BetaBinomial([0.7, 1.2, 0.5], [1.5, 0.6, 0.8], trials=TRIALS[:1].repeat(N)),
        made(3, lambda rng: rng.binomial(TRIALS, 0.4, size=(N, 3)), given=TRIALS),
        by_column(exact.LOG_MARGINALS["BetaBinomial"], n_given=1),
        3,
    ),
    "known-variance": (
        dp.NormalKnownVariance([0.3, -0.2], [1.5, 0.7], variance=0.5),
        made(5, lambda rng: rng.normal(size=(N, 2)) + rng.integers(2, size=(N, 1)), given=np.array([0.3, 0.8])),
        by_column(exact.LOG_MARGINALS["NormalKnownVariance"], n_given=1),
        2,
    ),
    "known-covariance": (
        dp.NormalKnownCovariance([0.3, -0.2], [[1.5, 0.4], [0.4, 0.7]], np.repeat(COVARIANCE[None], N, axis=0)),
        np.hstack([made(5, lambda rng: rng.normal(size=(N, 2))), np.tile(COVARIANCE.ravel(), (N, 1))]),
        known_covariance,
        2,
    ),
    "exponential": (
        dp.GammaExponential([1.5, 3.0], [0.4, 2.0]),
        made(6, lambda rng: rng.exponential([0.5, 4.0], size=(N, 2)), given=np.arange(N)[:, None] % 3 > 0),
        by_column(exact.LOG_MARGINALS["GammaExponential"], n_given=1),
        2,
    ),
    "gamma": (
        dp.GammaGamma([1.5, 3.0], [0.4, 2.0], shape=2.0),
        made(7, lambda rng: rng.exponential([0.5, 4.0], size=(N, 2)), given=np.array([0.7, 2.5])),
        by_column(exact.LOG_MARGINALS["GammaGamma"], n_given=1),
        2,
    ),
    "negative-binomial": (
        dp.BetaNegativeBinomial([2.6, 3.0], [1.4, 4.0], size=2.0),
        made(8, lambda rng: rng.poisson([2.0, 9.0], size=(N, 2)), given=np.array([0.7, 2.5])),
        by_column(exact.LOG_MARGINALS["BetaNegativeBinomial"], n_given=1),
        2,
    ),
    "directions": (
        dp.VonMises([0.4, -1.0], [0.3, 2.0], [1.5, 6.0]),
        made(9, lambda rng: rng.vonmises([3.0, 0.5], [1.0, 3.0], size=(N, 2))),
        by_column(exact.LOG_MARGINALS["VonMises"]),
        2,
    ),
    "categorical": (
        dp.DirichletCategorical([[0.4, 1.5, 0.9], [0.2, 0.7, 1.0], [1.1, 0.6, 0.3]], [3, 2, 3]),
        made(4, lambda rng: rng.integers([3, 2, 3], size=(N, 3))),
        by_column(exact.categorical_log_marginal),
        3,
    ),
}


def incomplete(base):
    """The same base measure for rows with gaps, for what takes base measures alone."""
    family = base.family.incomplete
    kind = type("Incomplete", (type(base),), {"family": family})
    other = object.__new__(kind)
    other.parameters, other.given = base.parameters, base.given
    return other


@pytest.mark.parametrize("case", slow_but(CASES, "nig", "bernoulli"))
def test_the_contract_of_families(case):
    """What a family says of rows with gaps: all ways to the same statistics and densities agree."""
    base, values, slow, d = CASES[case]
    contract = Contract(incomplete(base), values, slow, d=d)
    contract.check_predictives_telescope()
    contract.check_clusters_merge()
    contract.check_adding_equals_gathering()
    contract.check_add_then_remove()
    contract.check_density_without_a_row()
    contract.check_shortcuts()


@pytest.mark.parametrize("case", ["nig"])
def test_partition_frequencies(case):
    check_frequencies(case, 200_000)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_partition_frequencies_long(case):
    """Missing entries of every family that has them, against sums over the observed ones."""
    check_frequencies(case, 500_000)


def check_frequencies(case, n_draws):
    base, values, slow, d = CASES[case]
    family = base.family.incomplete
    view = View(family, family.params(*base.numbers(d)), values)
    all_labels = partitions(N)
    log_rows = log_likelihoods(all_labels, lambda members: slow(values[members], **view.params._asdict()))
    p = normalized(log_rows + np.array([exact.log_eppf(labels, 0.8) for labels in all_labels]))
    assert p.max() < 0.9
    drawn, _ = draw_codes([view], chinese_restaurant(0.8), n_draws)
    assert_matches(drawn, all_labels, p)


def test_a_family_without_gaps_is_the_family_with_none():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, 2))
    with_gaps = np.vstack([values, [[np.nan, 0.3]], [[0.1, np.nan]]])
    base = CASES["nig"][0]
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, base, observed=with_gaps)
    with pm.Model() as separate:
        labels = dp.CRP("y_labels", 1.0, N + 2)
        for j, name in enumerate("ab"):
            own = dp.NormalInverseGamma(*(v[j] for v in base.parameters.values()))
            rows = np.flatnonzero(~np.isnan(with_gaps[:, j]))
            dp.CollapsedMixture(name, labels[rows], own, observed=with_gaps[rows, j])
    for seed in range(5):
        point = {"y_labels": np.random.default_rng(seed).integers(3, size=N + 2)}
        np.testing.assert_allclose(model.compile_logp()(point), separate.compile_logp()(point), rtol=1e-12)


def test_gradients():
    base, values, _, _ = CASES["nig"]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        shift = pm.Normal("shift", 0, 1, shape=(1, 2))
        own = dp.NormalInverseGamma(mu, base.parameters["kappa"], base.parameters["a"], base.parameters["b"])
        dp.DPMixture("y", 1.0, own, observed=values, offset=shift)
    logp, labels = model.compile_logp(), np.array([0, 1, 0, 1, 1, 0])
    point = {"mu": np.array([0.2, -0.4]), "shift": np.array([[0.3, 0.1]]), "y_labels": labels}
    for name in ("mu", "shift"):
        gradient = np.ravel(model.compile_dlogp(model[name])(point))
        for j in range(2):
            high, low = dict(point), dict(point)
            step = np.zeros(point[name].shape)
            step.flat[j] = 1e-5
            high[name], low[name] = point[name] + step, point[name] - step
            np.testing.assert_allclose(gradient[j], (logp(high) - logp(low)) / 2e-5, rtol=1e-5)


def test_a_row_without_entries_follows_the_prior_given_the_other_rows():
    values = np.array([-3.0, -3.2, -2.9, 3.1, 3.0, np.nan])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.05, 2.0, 0.1), observed=values)
        step = dp.DPMixtureStep()
    step.setup_chain(np.random.default_rng(1), 0, 3_000)
    point, found = model.initial_point(random_seed=1), []
    for _ in range(3_000):
        point, _ = step.step(point)
        found.append(point["y_labels"])
    found = np.array(found)
    usual = (found[:, :5] == [0, 0, 0, 1, 1]).all(axis=1)
    assert usual.mean() > 0.9
    # Chinese restaurant: 3, 2 and alpha = 1 of 6.
    shares = np.bincount(found[usual, 5], minlength=3) / usual.sum()
    np.testing.assert_allclose(shares, np.array([3, 2, 1]) / 6, atol=0.04)


def test_data_frames_masked_arrays_and_defaults():
    frame = pd.DataFrame({"a": [0.1, np.nan, 2.0, 1.5], "b": [1.0, 2.0, np.nan, 0.5]})
    masked = np.ma.masked_invalid(frame.to_numpy())
    densities = []
    for observed in (frame, masked, frame.to_numpy()):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, dp.NormalInverseGamma.from_data(frame), observed=observed)
        assert [v.name for v in model.free_RVs] == ["y_labels"]
        densities.append(model.compile_logp()({"y_labels": np.array([0, 0, 1, 1])}))
    assert densities[0] == densities[1] == densities[2]
    np.testing.assert_allclose(dp.NormalInverseGamma.from_data(frame).parameters["mu"], [1.2, 3.5 / 3])


def test_categories_with_gaps():
    """A missing category is neither a level nor a code, in a fit, afterwards, and under NUTS."""
    frame = pd.DataFrame({"colour": ["red", None, "blue", "red", "blue", "red"], "size": [1, 2, 1, np.nan, 0, 1]})
    base = dp.DirichletCategorical.from_data(frame)
    assert base.parameters["levels"].tolist() == [2, 3]
    with pm.Model() as model:
        a = pm.Gamma("a", 2.0, 2.0)
        dp.DPMixture("y", 1.0, dp.DirichletCategorical(a, [2, 3]), observed=frame)
        idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    logp, gradient = model.compile_logp(), model.compile_dlogp([a])
    at = {"a_log__": np.array(0.3), "y_labels": np.array([0, 0, 1, 0, 1, 1])}
    up, down = (logp(at | {"a_log__": np.array(0.3 + step)}) for step in (1e-6, -1e-6))
    assert gradient(at)[0] == pytest.approx((up - down) / 2e-6, rel=1e-5)
    found = dp.membership(
        idata, "y", pd.DataFrame({"colour": ["red", None], "size": [np.nan, 1]}), [0, 0, 1, 0, 1, 0]
    )
    np.testing.assert_allclose(found["probability"].sum("cluster") + found["new_cluster"], 1.0)
    assert dp.sample_new_rows(idata, "y", random_seed=1)["y"].notnull().all()


@pytest.mark.parametrize(
    ("base", "observed", "message"),
    [
        (dp.DirichletMultinomial([1.0, 1.0]), [[1, np.nan], [2, 1]], "DirichletMultinomial does not take"),
        (
            dp.BetaBernoulli(1.0, 1.0),
            [[1, np.nan], [2, 1]],
            r"must be 0 or 1 \(of codes 1 and 2 subtract 1\), got 2.0 in row 1",
        ),
        (None, [np.nan, np.nan], "all entries of (column 0 of )?observed are missing"),
    ],
)
def test_bad_input(base, observed, message):
    with pm.Model() as model, pytest.raises(ValueError, match=message):
        dp.DPMixture("y", 1.0, base, observed=np.array(observed))
    assert not model.named_vars


def test_entries_that_get_lost_later_are_named():
    with pm.Model() as model:
        data = pm.Data("data", np.array([0.1, 0.7, 2.0]))
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 1.0, 1.0), observed=data)
        step = dp.DPMixtureStep()
        pm.set_data({"data": np.array([0.1, np.nan, 2.0])})
        with pytest.raises(ValueError, match=r"1 missing entries \(NaN\), and none when the model was built"):
            step.step(model.initial_point())


def test_every_incomplete_family_is_registered_and_has_a_case():
    names = {family.incomplete.name for family in FAMILIES.values() if family.incomplete}
    assert names == {family.name for family in FAMILIES.values() if family.takes_missing}
    assert names == {base.family.incomplete.name for base, *_ in CASES.values()}


PSI = np.array([[0.9, 0.5], [0.5, 1.4]])
NIW = {"mu": np.array([0.4, -0.2]), "kappa": 0.4, "nu": 3.6, "psi": PSI}
GAPPED = np.array([[0.1, 0.3], [np.nan, 1.6], [1.9, 1.2], [0.5, np.nan], [np.nan, np.nan]])
# Nodes and weights of the integral over one entry: Gauss and Legendre on (-1, 1), mapped to the line.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(120)
LINE = 0.5 + np.tan(0.5 * np.pi * NODES)
LOG_WEIGHTS = np.log(WEIGHTS * 0.5 * np.pi / np.cos(0.5 * np.pi * NODES) ** 2)


def niw_on_grids(rows):
    """Log marginal likelihood of rows (n, d) of arrays that broadcast, up to what depends on n alone."""
    mu, kappa, nu, psi = NIW["mu"], NIW["kappa"], NIW["nu"], NIW["psi"]
    n = len(rows)
    means = [sum(row[j] for row in rows) / n for j in range(2)]
    scale = [
        [
            psi[i, j]
            + sum((row[i] - means[i]) * (row[j] - means[j]) for row in rows)
            + kappa * n / (kappa + n) * (means[i] - mu[i]) * (means[j] - mu[j])
            for j in range(2)
        ]
        for i in range(2)
    ]
    log_det = np.log(scale[0][0] * scale[1][1] - scale[0][1] * scale[1][0])
    constant = np.log(kappa / (kappa + n)) + multigammaln(0.5 * (nu + n), 2) - multigammaln(0.5 * nu, 2)
    return constant - n * np.log(np.pi) + 0.5 * nu * np.log(np.linalg.det(psi)) - 0.5 * (nu + n) * log_det


def integrated(members):
    """Log marginal likelihood of a cluster's present entries, by quadrature over the missing ones."""
    free = {(1, 0): LINE[:, None], (3, 1): LINE[None, :]}
    rows = [[free.get((i, j), GAPPED[i, j]) for j in range(2)] for i in members if i != 4]
    if not rows:
        return 0.0
    value = niw_on_grids(rows)
    if 1 in members:
        value = value + LOG_WEIGHTS[:, None]
    if 3 in members:
        value = value + LOG_WEIGHTS[None, :]
    return logsumexp(value)


def drawn_with_gaps(observed, n_draws, offset=None, seed=1):
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseWishart(**NIW), observed=observed, offset=offset)
        step = dp.DPMixtureStep()
    assert {v.name for v in step.vars} == {"y_labels", "y_missing"}
    step.setup_chain(np.random.default_rng(seed), 0, n_draws)
    point = model.initial_point(random_seed=seed)
    labels, missing = [], []
    for _ in range(n_draws):
        point, _ = step.step(point)
        labels.append(point["y_labels"])
        missing.append(point["y_missing"])
    return np.array(labels), np.array(missing)


@pytest.mark.slow
def test_full_covariance_with_missing_entries():
    """Drawn entries under full covariances, against quadrature over them."""
    all_labels = partitions(len(GAPPED))
    log_rows = log_likelihoods(all_labels, lambda members: integrated(list(members)))
    p = normalized(log_rows + np.array([exact.log_eppf(labels, 0.9) for labels in all_labels]))
    assert p.max() < 0.6
    labels, missing = drawn_with_gaps(GAPPED, 40_000)
    assert_matches(codes(labels), all_labels, p)
    # The entry of row 1 where it is with row 2 alone, against its density on the grid.
    alone = (labels[:, 1] == labels[:, 2]) & np.all(labels[:, [0, 3, 4]] != labels[:, 1:2], axis=1)
    density = np.exp(niw_on_grids([[LINE, 1.6], [1.9, 1.2]]) + LOG_WEIGHTS)
    # Half of the weight of a node lies below it.
    cumulative = (np.cumsum(density) - 0.5 * density) / density.sum()
    drawn = missing[alone, 0][::3]
    assert len(drawn) > 500
    assert kstest(drawn, lambda x: np.interp(x, LINE, cumulative)).pvalue > 1e-3


@pytest.mark.slow
def test_a_cluster_drawn_as_if_nothing_were_missing_is_seen():
    """The comparison with missing entries can fail."""
    all_labels = partitions(len(GAPPED))
    filled = np.where(np.isnan(GAPPED), np.nanmean(GAPPED, axis=0), GAPPED)
    log_rows = log_likelihoods(all_labels, lambda members: exact.niw_log_marginal(filled[members], **NIW))
    p = normalized(log_rows + np.array([exact.log_eppf(labels, 0.9) for labels in all_labels]))
    labels, _ = drawn_with_gaps(GAPPED, 40_000)
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(codes(labels), all_labels, p)


def test_missing_entries_beside_an_offset_and_far_from_zero():
    labels, missing = drawn_with_gaps(GAPPED, 4_000)
    shifted, moved = drawn_with_gaps(GAPPED + 1e4, 4_000, offset=np.full((5, 2), 1e4))
    np.testing.assert_allclose(np.median(moved - 1e4, axis=0), np.median(missing, axis=0), atol=0.2)
    np.testing.assert_allclose((shifted == 0).mean(axis=0), (labels == 0).mean(axis=0), atol=0.08)


@pytest.mark.slow
def test_entries_that_integrate_out_are_drawn_where_asked_for():
    """Entries that need not be drawn have their conditional distribution where a user wants them."""
    base, values, slow, _ = CASES["nig"]
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, base, observed=values, impute=True)
        step = dp.DPMixtureStep()
    n_draws = 40_000
    step.setup_chain(np.random.default_rng(1), 0, n_draws)
    point = model.initial_point(random_seed=1)
    labels, missing = np.empty((n_draws, N), dtype=int), []
    for draw in range(n_draws):
        point, _ = step.step(point)
        labels[draw] = point["y_labels"]
        missing.append(point["y_missing"])
    missing = np.array(missing)
    all_labels = partitions(N)
    params = base.numbers(2)._asdict()
    log_rows = log_likelihoods(all_labels, lambda members: slow(values[members], **params))
    p = normalized(log_rows + np.array([exact.log_eppf(partition, 0.8) for partition in all_labels]))
    assert_matches(codes(labels), all_labels, p)
    # An entry given the rows of its cluster that have the column, at their most frequent: a t (Murphy 2007,
    # eq. 204).
    rows, columns = np.nonzero(np.isnan(values))
    for position in range(2):
        i, j = rows[position], columns[position]
        mu, kappa, a, b = (params[key][j] for key in ("mu", "kappa", "a", "b"))
        company = (labels == labels[:, [i]]) & ~np.isnan(values[:, j])
        sets, which, counts = np.unique(company, axis=0, return_inverse=True, return_counts=True)
        x = values[sets[counts.argmax()], j]
        n = len(x)
        mean = (kappa * mu + x.sum()) / (kappa + n)
        b_n = b + 0.5 * (np.sum(x**2) + kappa * mu**2 - (kappa + n) * mean**2)
        scale = np.sqrt(b_n * (kappa + n + 1) / ((a + 0.5 * n) * (kappa + n)))
        drawn = missing[which == counts.argmax(), position][::3]
        assert len(drawn) > 1_000
        assert kstest(drawn, student_t(2 * a + n, mean, scale).cdf).pvalue > 1e-3


def test_only_gaussian_entries_are_drawn():
    base, values, _, _ = CASES["bernoulli"]
    with pm.Model(), pytest.raises(ValueError, match="BetaBernoulli are integrated out and cannot be drawn"):
        dp.DPMixture("y", 1.0, base, observed=values, impute=True)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 1.0, 1.0), observed=[0.1, np.nan, 2.0], impute=True)
        assert model["y_missing"].eval().shape == (1,)


NAMED = pd.DataFrame(GAPPED, index=list("vwxyz"), columns=["size", "mass"])


@pytest.mark.parametrize(
    ("observed", "coords", "names"),
    {
        "numbered": (GAPPED, {}, ["1, 0", "3, 1", "4, 0", "4, 1"]),
        "table": (NAMED, {}, ["w, size", "y, mass", "z, size", "z, mass"]),
        "coordinates": (
            GAPPED,
            {"row": np.arange(5) + 10, "column": ["size", "mass"]},
            ["11, size", "13, mass", "14, size", "14, mass"],
        ),
    }.values(),
)
def test_missing_entries_have_the_names_of_their_rows_and_columns(observed, coords, names):
    with pm.Model(coords=coords) as model:
        dims = tuple(coords) or None
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart(**NIW), observed=observed, dims=dims)
    assert list(model.coords["y_missing_entry"]) == names
    assert model.named_vars_to_dims["y_missing"] == ("y_missing_entry",)


def test_missing_entries_of_one_column_and_of_submodels_have_names():
    base = dp.NormalInverseGamma(0.0, 1.0, 1.0, 1.0)
    with pm.Model() as model:
        for name, data in {"a": [0.1, np.nan, 2.0], "b": [np.nan, 0.2]}.items():
            with pm.Model(name=name):
                dp.DPMixture("y", 1.0, base, observed=data, impute=True)
    assert list(model.coords["a::y_missing_entry"]) == ["1"]
    assert list(model.coords["b::y_missing_entry"]) == ["0"]


def test_views_draw_what_can_be_drawn():
    bases = {"a": CASES["nig"][0], "b": CASES["bernoulli"][0]}
    data = {"a": CASES["nig"][1], "b": CASES["bernoulli"][1]}
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, bases, observed=data, impute=True)
    assert {v.name for v in model.free_RVs} == {"y_labels", "y_a_missing"}
    with pm.Model(), pytest.raises(ValueError, match="impute=True needs a view of Gaussian data"):
        dp.DPMixture("y", 1.0, {"b": bases["b"]}, observed={"b": data["b"]}, impute=True)


@pytest.mark.slow
def test_nuts_draws_missing_entries_where_clusters_have_no_exact_draw():
    # Other parts of the model depend on the labels, or units have several rows.
    """Entries that only NUTS can draw are right beside labels."""
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart(**NIW), observed=GAPPED, unit=[0, 0, 1, 1, 2])
        drawn = pm.sample(
            30, tune=30, chains=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    assert drawn.posterior["y_missing"].shape == (1, 30, 4)
    assert np.isnan(drawn.observed_data["y"].values).sum() == 4
    with model:
        assert pm.sample_prior_predictive(2, random_seed=1).prior_predictive["y"].shape == (1, 2, 5, 2)


def test_data_with_gaps_are_the_same_data():
    values = np.array([[0.1, np.nan], [2.0, 1.0]])
    assert same_values(values, values.copy())
    assert not same_values(values, np.nan_to_num(values))
    assert not same_values(values, values + 1)


def test_imputation_through_sample():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=120)
    complete = np.column_stack([group * 6.0, group * -6.0]) + rng.multivariate_normal(
        [0, 0], [[1, 0.8], [0.8, 1]], 120
    )
    observed = complete.copy()
    observed[:40, 0] = np.nan
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=observed)
        drawn = pm.sample(200, tune=200, chains=2, cores=1, random_seed=1, progressbar=False)
    imputed = drawn.posterior["y_missing"].mean(("chain", "draw")).values
    # The other column tells the cluster, and within it the conditional mean with standard deviation 0.6.
    error = imputed - complete[:40, 0]
    assert np.sqrt(np.mean(error**2)) < 0.85
    # Tails are heavy, since new clusters may be anywhere: quartiles tell of the draws in the row's own cluster.
    lower, upper = drawn.posterior["y_missing"].quantile([0.25, 0.75], ("chain", "draw"))
    assert 0.6 < np.median(upper - lower) / 1.349 < 0.75
    # Pictures show what was observed.
    figure = dp.plot_clusters(drawn, "y", group)
    shown = [np.ma.filled(own.get_offsets(), np.nan) for own in figure.axes[0].collections]
    assert sum(np.isfinite(own).all(axis=1).sum() for own in shown) == 80


class WithoutQuadratic(BaseMeasure):
    """Normal columns whose densities leader sweeps compute from the values, as with a family of a user's own."""

    family = replace(
        dp.NormalInverseGamma.family,
        name="WithoutQuadratic",
        component=replace(dp.NormalInverseGamma.family.component, quadratic=None),
        incomplete=None,
        expected=None,
    )

    def __init__(self, mu, kappa, a, b):
        super().__init__(mu=mu, kappa=kappa, a=a, b=b)


def test_leader_sweeps_see_the_entries_that_have_been_drawn():
    """Nothing tells the cluster of rows with a gap: half of them are in the narrow one, half in the wide one."""
    rng = np.random.default_rng(0)
    n, gaps = 2_000, np.arange(2_000) >= 1_600
    z = np.arange(n) % 2
    x = np.column_stack([rng.normal(size=n), np.where(z == 0, rng.normal(-3.0, 0.3, n), rng.normal(3.0, 2.0, n))])
    x[gaps, 1] = np.nan
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, WithoutQuadratic(0.0, 0.05, 2.0, 0.5), observed=x, initval=z)
    options = {"leader_sweeps": 1, "split_merge": {"search": False}}
    drawn = sampled.sample(model, 60, tune=10, chains=1, random_seed=1, dpmixture=options)
    shares = []
    for labels in drawn.posterior["y_labels"].to_numpy()[0]:
        wide = np.bincount(labels[(z == 1) & ~gaps]).argmax()
        shares.append(np.mean(labels[gaps] == wide))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)


CONTINUE = """
import pickle
import sys
import numpy as np
from pymc_dpgmm.sampler.moves.imputation import impute
with open(sys.argv[1], "rb") as file:
    rng, state, values, missing = pickle.load(file)
print(*impute(rng, state, values, missing)[0])
"""


def test_a_state_goes_on_in_another_process(tmp_path):
    rng = np.random.default_rng(3)
    base = dp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))
    values, missing = [rng.normal(size=(N, 2))], [gaps(1, (N, 2))]
    state = State([View(base.family, base.numbers(2), values[0])], np.zeros(N, dtype=int))
    state.set_prior(chinese_restaurant(1.0))
    impute(rng, state, values, missing)
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps((rng, state, values, missing)))
    done = subprocess.run([sys.executable, "-c", CONTINUE, str(path)], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(np.array(done.stdout.split(), dtype=float), impute(rng, state, values, missing)[0])
