"""``dp.DirichletProcess``, the prior of rows' parameters, against enumeration and quadrature."""

import copy
import functools

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import sampled
import ties
from drawn import results
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy import stats
from scipy.special import logsumexp
from slowly import rest_slow
from sweeps_in_python import SweepsInPython, scan

import pymc_dpgmm as dp
from pymc_dpgmm.integration.internals.pymc_internals import assign_step_methods
from pymc_dpgmm.integration.process_density import ProcessModel
from pymc_dpgmm.integration.steps.assignment import assigned, moved_together
from pymc_dpgmm.integration.steps.atoms_target import AtomsTarget
from pymc_dpgmm.integration.steps.hyperparameters import hyperparameters
from pymc_dpgmm.integration.variables.models import PYTHON_MODE
from pymc_dpgmm.integration.variables.records import add_record
from pymc_dpgmm.native.compiled import c_function
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant, log_seat_new, pitman_yor
from pymc_dpgmm.sampler.atoms import compiled_sweeps
from pymc_dpgmm.sampler.atoms.auxiliary import ScannedRows
from pymc_dpgmm.sampler.atoms.beside import Beside, evidence_beside

ALL_MOVES = {"n_sweeps": 1, "n_scans": 1, "hamiltonian": 1, "split_merge": 1}
ALONE = {
    "scan": {"n_sweeps": 1, "n_scans": 1, "hamiltonian": 0, "split_merge": 0},
    "hamiltonian": {"n_sweeps": 1, "n_scans": 0, "hamiltonian": 1, "split_merge": 0},
    "split_merge": {"n_sweeps": 1, "n_scans": 0, "hamiltonian": 0, "split_merge": 1},
}


def poisson():
    given = exact.reference("poisson_lognormal_crp")
    y = np.array(given["y"])
    grid = ties.cells(-8.0, 8.0, 4000)
    log_base = stats.norm.logpdf(grid.middles, given["mu"], given["sigma"]) + np.log(grid.width)
    log_rows = stats.poisson.logpmf(y[:, None], np.exp(grid.middles))
    log_priors = [exact.log_eppf(p, given["alpha"]) for p in exact.partitions(len(y))]
    with pm.Model() as model:
        base = pm.LogNormal.dist(given["mu"], given["sigma"])
        rate = dp.DirichletProcess("rate", given["alpha"], base, shape=len(y))
        pm.Poisson("y", rate, observed=y)
    values = np.exp(grid.middles)
    return model, ["rate"], ties.Oracle(log_priors, [values], [values * grid.width], log_base, log_rows)


def censored():
    t, end = np.array([0.4, 0.7, 0.9, 4.0, 6.0]), 4.5
    t = np.minimum(t, end)
    grid = ties.cells(-6.0, 7.0, 4000)
    log_base = stats.norm.logpdf(grid.middles, 0.5, 1.2) + np.log(grid.width)
    scale = np.exp(grid.middles)
    density, beyond = (
        f(t[:, None], 1.5, scale=scale) for f in (stats.weibull_min.logpdf, stats.weibull_min.logsf)
    )
    log_rows = np.where(t[:, None] < end, density, beyond)
    log_priors = [exact.log_eppf(p, 0.8) for p in exact.partitions(len(t))]
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 0.8, pm.Normal.dist(0.5, 1.2), shape=len(t))
        life = pm.Weibull.dist(alpha=1.5, beta=pm.math.exp(theta))
        pm.Censored("t", life, lower=None, upper=end, observed=t)
    return model, ["theta"], ties.of_numbers(log_priors, grid, log_base, log_rows)


def tied():
    """Location and scale, the location's base depending on the scale as in a normal-inverse-gamma prior."""
    y = np.array([-1.1, -0.8, 1.9, 2.4, 2.2])
    m, s = ties.cells(-9.0, 10.0, 380), ties.cells(np.log(0.03), np.log(30.0), 240)
    loc, log_variance = (part.ravel() for part in np.meshgrid(m.middles, s.middles, indexing="ij"))
    variance = np.exp(log_variance)
    log_base = (
        stats.norm.logpdf(loc, 0.3, np.sqrt(variance / 0.4))
        + stats.invgamma.logpdf(variance, 2.0, scale=0.7)
        + log_variance
        + np.log(m.width * s.width)
    )
    log_rows = stats.norm.logpdf(y[:, None], loc, np.sqrt(variance))
    log_priors = [exact.log_eppf(p, 1.3) for p in exact.partitions(len(y))]
    with pm.Model() as model:
        s2 = pm.InverseGamma.dist(2.0, 0.7)
        base = {"mean": pm.Normal.dist(0.3, pm.math.sqrt(s2 / 0.4)), "variance": s2}
        c = dp.DirichletProcess("c", 1.3, base, shape=len(y))
        pm.Normal("y", c["mean"], pm.math.sqrt(c["variance"]), observed=y)
    widths = [np.full(len(loc), m.width), variance * s.width]
    return model, ["c_mean", "c_variance"], ties.Oracle(log_priors, [loc, variance], widths, log_base, log_rows)


def discrete():
    y = np.array([0.2, 0.9, 2.3, 5.1, 4.4])
    values = np.arange(40)
    log_base = stats.poisson.logpmf(values, 2.5)
    log_rows = stats.norm.logpdf(y[:, None], values, 0.8)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(len(y))]
    with pm.Model() as model:
        k = dp.DirichletProcess("k", 1.0, pm.Poisson.dist(2.5), shape=len(y))
        pm.Normal("y", k, 0.8, observed=y)
    return model, ["k"], ties.Oracle(log_priors, [values], [np.zeros(40)], log_base, log_rows)


def mixed():
    """A discrete and a continuous value, tied."""
    y = np.array([-1.0, 0.3, 2.2, 2.9])
    m = ties.cells(-8.0, 8.0, 800)
    values = np.tile(np.arange(3), 800)
    loc = np.repeat(m.middles, 3)
    log_base = stats.norm.logpdf(loc, 0.2, 1.5) + np.log(m.width) + np.log([0.2, 0.5, 0.3])[values]
    log_rows = stats.norm.logpdf(y[:, None], loc + values, 0.6)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(len(y))]
    with pm.Model() as model:
        base = {"kind": pm.Categorical.dist([0.2, 0.5, 0.3]), "mean": pm.Normal.dist(0.2, 1.5)}
        c = dp.DirichletProcess("c", 1.0, base, shape=len(y))
        pm.Normal("y", c["kind"] + c["mean"], 0.6, observed=y)
    widths = [np.zeros(len(loc)), np.full(len(loc), m.width)]
    return model, ["c_kind", "c_mean"], ties.Oracle(log_priors, [values, loc], widths, log_base, log_rows)


def units():
    """Unbalanced units with a covariate, under a Pitman-Yor process."""
    unit = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
    y = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 1])
    x = np.array([0.3, -0.5, 0.1, 0.9, -1.0, 0.2, 0.7, -0.3, 0.1, 1.2])
    grid = ties.cells(-10.0, 10.0, 4000)
    log_base = stats.norm.logpdf(grid.middles, -0.3, 1.8) + np.log(grid.width)
    p = 1.0 / (1.0 + np.exp(-(grid.middles + 0.7 * x[:, None])))
    by_observation = stats.bernoulli.logpmf(y[:, None], p)
    log_rows = np.array([by_observation[unit == u].sum(axis=0) for u in range(4)])
    log_priors = [exact.log_pitman_yor(labels, 0.6, 0.3) for labels in exact.partitions(4)]
    with pm.Model() as model:
        prior = dp.PitmanYor.dist(0.6, 0.3, 4)
        theta = dp.DirichletProcess("theta", base=pm.Normal.dist(-0.3, 1.8), prior=prior)
        pm.Bernoulli("y", logit_p=theta[unit] + 0.7 * x, observed=y)
    return model, ["theta"], ties.of_numbers(log_priors, grid, log_base, log_rows)


def known():
    """Some rows are known to be together, and some apart, under a mixture of finite mixtures."""
    y = np.array([0.1, 0.4, 1.9, 2.5, 1.1])
    grid = ties.cells(-9.0, 9.0, 3000)
    log_base = stats.norm.logpdf(grid.middles, 0.5, 1.5) + np.log(grid.width)
    log_rows = stats.norm.logpdf(y[:, None], grid.middles, 0.7)
    number = stats.geom(0.3)
    log_components = number.logpmf(np.arange(1, 200))
    log_priors = np.array([exact.log_mfm(labels, 0.8, log_components) for labels in exact.partitions(5)])
    # Rows 0 and 2 are known to be apart, rows 3 and 4 to be together.
    apart = np.array([p[0] != p[2] and p[3] == p[4] for p in exact.partitions(5)])
    log_priors = np.where(apart, log_priors, -np.inf)
    with pm.Model() as model:
        given = {"known_labels": ["a", None, "b", None, None], "must_link": [-1, -1, -1, 0, 0]}
        prior = dp.MFM.dist(0.8, n=5, components=pm.Geometric.dist(0.3), **given)
        theta = dp.DirichletProcess("theta", base=pm.Normal.dist(0.5, 1.5), prior=prior)
        pm.Normal("y", theta, 0.7, observed=y)
    return model, ["theta"], ties.of_numbers(log_priors, grid, log_base, log_rows)


def profile():
    """Counts, and a profile of two other columns, one with a power, whose parameters are integrated out."""
    model, names, oracle = poisson()
    rng = np.random.default_rng(8)
    x, kinds = rng.normal(size=oracle.n), rng.integers(3, size=oracle.n)
    given = {"mu": 0.3, "kappa": 0.4, "a": 2.0, "b": 0.8}
    with model:
        base = dp.NormalInverseGamma(**given)
        dp.CollapsedMixture("x", model["rate_labels"], base, observed=x)
        of_kinds = dp.DirichletCategorical(np.full(3, 0.7))
        dp.CollapsedMixture("kind", model["rate_labels"], of_kinds, observed=kinds, power=0.6)
    labels = exact.partitions(oracle.n)
    log_x = exact.log_likelihoods(labels, x[:, None], exact.nig_log_marginal, **given)
    of_kinds = {"a": np.full((1, 3), 0.7), "levels": (3,)}
    log_kinds = exact.log_likelihoods(labels, kinds[:, None], exact.categorical_log_marginal, **of_kinds)
    return model, names, oracle.given(log_x + 0.6 * log_kinds)


def known_profile():
    """Some rows are known to be together, and some apart; a profile of several rows of each unit."""
    model, names, oracle = known()
    unit = np.array([0, 0, 1, 2, 2, 2, 3, 4])
    x = np.array([0.1, 0.7, -0.4, 1.9, 2.2, 1.2, 2.0, 0.3])
    given = {"mu": 0.5, "kappa": 0.5, "a": 1.5, "b": 0.6}
    with model:
        dp.CollapsedMixture("x", model["theta_labels"][unit], dp.NormalInverseGamma(**given), observed=x)
    labels = exact.partitions(oracle.n)
    rows = [np.array(own)[unit] for own in labels]
    return model, names, oracle.given(exact.log_likelihoods(rows, x[:, None], exact.nig_log_marginal, **given))


def angles():
    """Directions about means of which the data tells little, so that they reach both ends of the circle."""
    y = np.array([0.3, 2.8, -2.9])
    grid = ties.cells(-np.pi, np.pi, 2_000)
    log_base = stats.vonmises.logpdf(grid.middles, 0.2, loc=0.5) + np.log(grid.width)
    log_rows = stats.vonmises.logpdf(y[:, None], 0.6, loc=grid.middles)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(3)]
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.VonMises.dist(0.5, 0.2), shape=3)
        pm.VonMises("y", theta, 0.6, observed=y)
    return model, ["theta"], ties.of_numbers(log_priors, grid, log_base, log_rows)


def indexing():
    """Discrete parameters that index known numbers, of which there are few."""
    y, means = np.array([0.2, 0.9, 2.3, 5.1]), np.array([0.0, 2.0, 4.5])
    log_base = np.log([0.2, 0.3, 0.5])
    log_rows = stats.norm.logpdf(y[:, None], means, 0.8)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(4)]
    with pm.Model() as model:
        k = dp.DirichletProcess("k", 1.0, pm.Categorical.dist([0.2, 0.3, 0.5]), shape=4)
        pm.Normal("y", pt.constant(means)[k], 0.8, observed=y)
    return model, ["k"], ties.Oracle(log_priors, [np.arange(3)], [np.zeros(3)], log_base, log_rows)


def wide():
    """Discrete values that the data leaves wide, so that far ones share the bins of proposals."""
    y = np.array([52.0, 61.0, 75.0, 90.0])
    values = np.arange(400)
    log_base = stats.poisson.logpmf(values, 70.0)
    log_rows = stats.norm.logpdf(y[:, None], values, 18.0)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(4)]
    with pm.Model() as model:
        k = dp.DirichletProcess("k", 1.0, pm.Poisson.dist(70.0), shape=4)
        pm.Normal("y", k, 18.0, observed=y)
    return model, ["k"], ties.Oracle(log_priors, [values], [np.zeros(400)], log_base, log_rows)


def several():
    """Two discrete values and a continuous one, whose base knows the first by its number, for trials of units."""
    successes, trials = np.array([3, 1, 8, 7]), np.array([10, 9, 10, 9])
    shares, means = np.array([0.3, 0.7]), np.array([-1.0, 1.2])
    m = ties.cells(-5.0, 5.0, 200)
    kind, more, theta = (
        part.ravel() for part in np.meshgrid(np.arange(2), np.arange(6), m.middles, indexing="ij")
    )
    log_base = np.log(shares[kind]) + stats.binom.logpmf(more, 5, 0.4) + np.log(m.width)
    log_base = log_base + stats.norm.logpdf(theta, means[kind], 0.7)
    p = 1.0 / (1.0 + np.exp(-(theta + 0.3 * more - 0.6)))
    log_rows = stats.binom.logpmf(successes[:, None], trials[:, None], p)
    log_priors = [exact.log_eppf(p, 1.0) for p in exact.partitions(4)]
    with pm.Model() as model:
        of_kind = pm.Categorical.dist(shares)
        base = {"kind": of_kind, "more": pm.Binomial.dist(5, 0.4)}
        base["theta"] = pm.Normal.dist(pt.constant(means)[of_kind], 0.7)
        c = dp.DirichletProcess("c", 1.0, base, shape=4)
        pm.Binomial("y", trials, logit_p=c["theta"] + 0.3 * c["more"] - 0.6, observed=successes)
    widths = [np.zeros(len(kind)), np.zeros(len(kind)), np.full(len(kind), m.width)]
    values = [kind, more, theta]
    return model, ["c_kind", "c_more", "c_theta"], ties.Oracle(log_priors, values, widths, log_base, log_rows)


# Models and quadratures serve several tests.
CASES = {
    f.__name__: functools.cache(f)
    for f in (
        poisson,
        censored,
        tied,
        discrete,
        mixed,
        units,
        known,
        profile,
        known_profile,
        angles,
        indexing,
        wide,
        several,
    )
}


def after_one_draw(case, options, n_draws, seed=3):
    """Exact draws of a posterior, and what one draw of the step makes of them."""
    model, names, oracle = CASES[case]()
    rng = np.random.default_rng(seed)
    with model:
        step = dp.DirichletProcessStep(**options)
    step.setup_chain(rng, 0, 0)
    step.stop_tuning()
    labels_name = step.targets[0].name
    dtype = model.named_vars[labels_name].dtype
    labels = np.empty((n_draws, oracle.n), dtype=int)
    values = [np.empty((n_draws, oracle.n)) for _ in names]
    for draw, (own, rows, _) in enumerate(oracle.draws(rng, n_draws)):
        point = {labels_name: own.astype(dtype)} | {
            name: row.astype(model.named_vars[name].dtype) for name, row in zip(names, rows, strict=True)
        }
        point, _ = step.step(point)
        labels[draw] = point[labels_name]
        for found, name in zip(values, names, strict=True):
            found[draw] = point[name]
    return oracle, labels, values


def assert_invariant(oracle, labels, values):
    drawn = exact.codes(labels)
    distance = exact.total_variation(exact.frequencies(drawn, oracle.labels), oracle.p)
    bound = exact.total_variation_bound(oracle.p, len(labels))
    assert distance < bound, (distance, bound)
    for parameter, found in enumerate(values):
        ties.assert_means(found, oracle, parameter)


def test_the_oracle_is_that_of_the_reference():
    given = exact.reference("poisson_lognormal_crp")
    _, _, oracle = poisson()
    p = dict(zip(given["partitions"], given["posterior"], strict=True))
    wanted = [p["".join(map(str, labels))] for labels in oracle.labels]
    np.testing.assert_allclose(oracle.p, wanted, rtol=1e-6)
    assert oracle.log_evidence == pytest.approx(given["log_evidence"], abs=1e-7)
    np.testing.assert_allclose(oracle.means()[0], given["mean_theta"], rtol=1e-6)


@pytest.mark.parametrize("case", rest_slow(["poisson", "known_profile", "angles", "several"]))
def test_a_draw_leaves_the_posterior_invariant(case):
    """A whole draw in two models, from draws of the posterior."""
    assert_invariant(*after_one_draw(case, ALL_MOVES, 1_500))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_draw_leaves_the_posterior_invariant_in_many_draws(case):
    """A whole draw under any likelihood, against enumeration with quadrature over atoms."""
    assert_invariant(*after_one_draw(case, ALL_MOVES, 20_000))


@pytest.mark.slow
@pytest.mark.parametrize("move", ALONE)
@pytest.mark.parametrize(
    "case", ["poisson", "censored", "tied", "units", "known", "profile", "known_profile", "angles"]
)
def test_each_move_alone_leaves_the_posterior_invariant_in_many_draws(case, move):
    """Each of its moves alone, so that two errors cannot cancel."""
    assert_invariant(*after_one_draw(case, ALONE[move], 20_000))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["discrete", "mixed", "wide", "several"])
def test_moves_of_discrete_values_leave_the_posterior_invariant(case):
    """Metropolis steps alone, of one or two discrete values, also beside a continuous one."""
    options = {"n_sweeps": 2, "n_scans": 0, "hamiltonian": 0, "split_merge": 0}
    assert_invariant(*after_one_draw(case, options, 10_000))


class AlwaysTaken(SweepsInPython):
    """Steps of discrete values that are accepted whatever the rows say."""

    def _move_discrete(self, position):
        moved = self.free.copy()
        moved[:, self._density.columns[position].start] += self._rng.choice([-15, 15], size=len(moved))
        possible = self._density.base_of(position, moved) > -np.inf
        self.free = np.where(possible[:, None], moved, self.free)


@pytest.mark.slow
def test_steps_of_discrete_values_that_are_always_taken_are_seen(monkeypatch):
    """The enumeration of discrete values can fail."""
    monkeypatch.setattr(AtomsTarget, "sweeps", lambda target, *given: AlwaysTaken(target).begin(*given))
    oracle, labels, _ = after_one_draw("wide", ALONE["scan"] | {"n_sweeps": 3}, 3_000)
    distance = exact.total_variation(exact.frequencies(exact.codes(labels), oracle.labels), oracle.p)
    assert distance > exact.total_variation_bound(oracle.p, len(labels))


@pytest.mark.slow
def test_a_million_scans():
    """Labels and means of a chain of scans and Hamiltonian moves."""
    model, _, oracle = CASES["poisson"]()
    with model:
        options = {"n_scans": 1, "hamiltonian": 1, "split_merge": 0, "n_sweeps": 25}
        idata = run(model, 20_000, tune=200, step=dp.DirichletProcessStep(**options))
    posterior = idata.posterior
    exact.assert_matches(exact.codes(posterior["rate_labels"].to_numpy()), oracle.labels, oracle.p)
    for i, mean in enumerate(oracle.means()[0]):
        assert_mean(posterior["rate"].to_numpy()[:, :, i], mean)


# Neal (2000), table 1: nine points, atoms drawn exactly. Autocorrelation times of the number of clusters and of
# the first parameter for Algorithm 8 are 5.2 and 5.6, 3.7 and 4.7, 2.0 and 2.8 there; with a pool of atoms used
# again they were measured to be 6.4 and 6.8, 4.4 and 5.1, 2.0 and 2.7 by other code.
NEAL = {1: (6.4, 6.8), 2: (4.4, 5.1), 30: (2.0, 2.7)}


def autocorrelation_time(values):
    return len(values) / float(az.ess(values[None] * 1.0, method="mean"))


@pytest.mark.slow
@pytest.mark.parametrize("m", NEAL)
def test_autocorrelation_times_of_neal(m):
    """Scans mix as published (Neal 2000, table 1)."""
    y = np.array([-1.48, -1.40, -1.16, -1.08, -1.02, 0.14, 0.51, 0.53, 0.78])
    rng, n_draws = np.random.default_rng(4), 100_000
    rows, prior = ScannedRows(np.ones(9), np.zeros(9, dtype=np.int64)), chinese_restaurant(1.0)

    def density(atoms):
        return -0.5 * ((y - atoms[:, None]) / 0.1) ** 2

    labels, atoms = np.zeros(9, dtype=np.int64), np.zeros(1)
    found = np.empty((2, n_draws))
    for draw in range(n_draws):
        pool = np.append(atoms, rng.normal(size=m + 30))
        scanned = scan(rng, rows, prior, labels, density(pool), m, None)
        labels = scanned.labels
        sizes = np.bincount(labels)
        precision = 1.0 + 100.0 * sizes
        atoms = 100.0 * np.bincount(labels, weights=y) / precision + rng.normal(size=len(sizes)) / np.sqrt(
            precision
        )
        found[:, draw] = len(sizes), atoms[labels[0]]
    times = [autocorrelation_time(own) for own in found]
    np.testing.assert_allclose(times, NEAL[m], rtol=0.15)


# The scan, in Python: Neal (2000), Algorithm 8, with the pool of Favaro and Teh (2013). Each mistake is one that
# code elsewhere has made.


def twin_of_scan(rng, log_new, discount, labels, log_rows, m, mistake=None):
    """Return the atom of each row after one scan: positions in ``log_rows`` (atoms, n), fresh ones last."""
    n_clusters, n = labels.max() + 1, len(labels)
    labels, sizes = labels.copy(), dict(enumerate(np.bincount(labels)))
    auxiliary, fresh = list(range(n_clusters, n_clusters + m)), n_clusters + m
    active = list(range(n_clusters))
    for i in range(n):
        own = labels[i]
        sizes[own] -= 1
        if sizes[own] == 0:
            # As the compiled scan does it: the last one takes the place.
            where = active.index(own)
            active[where] = active[-1]
            active.pop()
            auxiliary[int(rng.random() * m)] = own
        opened = log_new[len(active)] - (0.0 if mistake == "no 1/m" else np.log(m))
        weights = [np.log(sizes[k] - discount) + log_rows[k, i] for k in active]
        weights = np.array(weights + [opened + log_rows[k, i] for k in auxiliary])
        weights = np.exp(weights - weights.max())
        left, chosen = rng.random() * weights.sum(), 0
        while chosen < len(weights) - 1 and left >= weights[chosen]:
            left -= weights[chosen]
            chosen += 1
        if chosen < len(active):
            slot = active[chosen]
        else:
            slot = auxiliary[chosen - len(active)]
            if mistake != "an atom serves two clusters":
                auxiliary[chosen - len(active)] = fresh
                fresh += 1
            elif slot in active:
                # The same atom once more: another cluster with its value.
                log_rows[fresh] = log_rows[slot]
                slot, fresh = fresh, fresh + 1
            active.append(slot)
            sizes[slot] = 0
        labels[i] = slot
        sizes[slot] += 1
    return labels


def random_scan(seed, m, discount, n=12, n_clusters=4):
    rng = np.random.default_rng(seed)
    labels = canonical_labels(rng.integers(n_clusters, size=n))[0]
    return rng, labels, 2.0 * rng.standard_normal((labels.max() + 1 + m + 2 * n, n))


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_the_scan_is_its_twin(seed, m):

    rng, labels, log_rows = random_scan(seed, m, 0.2)
    prior, n = pitman_yor(1.4, 0.2), len(labels)
    rows = ScannedRows(np.ones(n), np.zeros(n, dtype=np.int64))
    state = rng.bit_generator.state
    # Few at first, so that the scan has to ask for more.
    some = labels.max() + 1 + m + 1
    rest = iter([log_rows[some : some + 2], log_rows[some + 2 :]])
    found = scan(rng, rows, prior, labels, log_rows[:some], m, lambda: next(rest))
    rng.bit_generator.state = state
    log_new = [log_seat_new(prior, k) for k in range(n + 1)]
    wanted = twin_of_scan(rng, log_new, 0.2, labels, log_rows, m)
    np.testing.assert_array_equal(found.chosen[found.labels], wanted)
    np.testing.assert_array_equal(found.labels, canonical_labels(np.unique(wanted, return_inverse=True)[1])[0])
    assert found.n_moved == np.sum(wanted != labels)


def _cell(oracle, cells, log_rows, k):
    """The cell of an atom, which the twin may have copied to another place."""
    same = np.flatnonzero((log_rows == log_rows[k]).all(axis=1))
    return cells[same[0]]


def scanned_by_twin(mistake, n_draws=5_000, m=2, n_scans=4):
    """What the twin makes of exact draws of labels and atoms."""
    _, _, oracle = CASES["censored"]()
    rng = np.random.default_rng(8)
    log_new = [log_seat_new(chinese_restaurant(0.8), k) for k in range(oracle.n + 1)]
    p = np.exp(oracle.log_base[0])
    cumulated = np.cumsum(p) / p.sum()
    found = np.empty((n_draws, oracle.n), dtype=int)
    for draw, (labels, (values,), _) in enumerate(oracle.draws(rng, n_draws)):
        first = np.unique(labels, return_index=True)[1]
        own = np.searchsorted(oracle.values[0], values[first]).clip(max=len(p) - 1)
        for _ in range(n_scans):
            cells = np.append(own, np.searchsorted(cumulated, rng.random(m + 2 * oracle.n)).clip(max=len(p) - 1))
            log_rows = oracle.log_rows[:, cells].T.copy()
            after = twin_of_scan(rng, log_new, 0.0, labels, log_rows, m, mistake)
            chosen, first, labels = np.unique(after, return_index=True, return_inverse=True)
            own = np.array([_cell(oracle, cells, log_rows, k) for k in chosen])
        found[draw] = canonical_labels(labels)[0]
    distance = exact.total_variation(exact.frequencies(exact.codes(found), oracle.labels), oracle.p)
    return distance, exact.total_variation_bound(oracle.p, n_draws)


def test_the_twin_leaves_the_posterior_invariant():
    distance, bound = scanned_by_twin(None)
    assert distance < bound


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["no 1/m", "an atom serves two clusters"])
def test_mistakes_in_the_scan_are_seen(mistake):
    """The enumeration that the twin of a scan passes can fail."""
    distance, bound = scanned_by_twin(mistake, m=1 if "serves" in mistake else 2)
    assert distance > bound


@c_function(evidence_beside.signature)
def no_evidence(head, rows, n_rows, found):
    found[0] = 0.0


def without_splits_of_the_profile(monkeypatch):
    monkeypatch.setattr(compiled_sweeps, "evidence_beside", no_evidence)
    return "split_merge"


def with_a_view_that_counts_twice(monkeypatch):
    made = Beside.__init__
    monkeypatch.setattr(Beside, "__init__", lambda self, views, labels: made(self, [*views, views[0]], labels))
    return "scan"


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [without_splits_of_the_profile, with_a_view_that_counts_twice])
def test_mistakes_beside_atoms_are_seen(monkeypatch, mistake):
    """The enumeration of a process with a profile can fail."""
    move = mistake(monkeypatch)
    oracle, labels, _ = after_one_draw("profile", ALONE[move] | {"n_sweeps": 3}, 2_500)
    distance = exact.total_variation(exact.frequencies(exact.codes(labels), oracle.labels), oracle.p)
    assert distance > exact.total_variation_bound(oracle.p, len(labels))


def test_what_is_beside_atoms_has_their_labels_and_the_right_evidence():
    model, _, _ = profile()
    x, kinds = (model.rvs_to_values[model[name]].data for name in ("x", "kind"))
    with model:
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(4), 0, 0)
    step.stop_tuning()
    point = model.initial_point()
    met = set()
    for _ in range(60):
        point, (statistics,) = step.step(point)
        labels, beside = np.asarray(point["rate_labels"]), step.beside[0].beside
        np.testing.assert_array_equal(beside.state.labels(), labels)
        own = {"mu": 0.3, "kappa": 0.4, "a": 2.0, "b": 0.8}
        (log_x,) = exact.log_likelihoods([labels], x[:, None], exact.nig_log_marginal, **own)
        of_kinds = {"a": np.full((1, 3), 0.7), "levels": (3,)}
        (log_kinds,) = exact.log_likelihoods([labels], kinds[:, None], exact.categorical_log_marginal, **of_kinds)
        assert beside.total_log_evidence() == pytest.approx(log_x + 0.6 * log_kinds, abs=1e-9)
        # PyMC's density of everything but the labels' own atoms is in the statistic.
        assert statistics["rate_labels_log_joint"] == pytest.approx(log_joint_of(model, point), abs=1e-8)
        met.add(int(labels.max()))
    assert len(met) > 2


def log_joint_of(model, point):
    """Log density of labels, the atoms of clusters, and data, without the Jacobian of a transformed value."""
    return float(model.compile_logp(mode=PYTHON_MODE)(point))


@pytest.mark.slow
def test_a_profile_in_a_whole_model():
    """A response of any likelihood with fixed effects, and a table of covariates whose clusters it shares."""
    rng = np.random.default_rng(3)
    z = rng.integers(3, size=90)
    x = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])[z] + rng.normal(size=(90, 2))
    age = rng.normal(size=90)
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(-(np.array([-2.0, 0.0, 2.0])[z] + 0.8 * age))))
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", pm.Gamma("alpha", 1.0, 1.0), pm.Normal.dist(0.0, 2.0), shape=90)
        beta, mu = pm.Normal("beta", 0.0, 1.0), pm.Normal("mu", 0.0, 3.0)
        base = dp.NormalInverseGamma(mu, 0.1, 2.0, 1.0)
        dp.CollapsedMixture("x", model["theta_labels"], base, observed=x)
        pm.Bernoulli("y", logit_p=theta + beta * age, observed=y)
    idata = run(model, 400, tune=200)
    found = dp.point_partition(idata, "theta")["labels"].to_numpy()
    # The groups are far apart in the profile: rows of one are rarely with rows of another.
    assert all(np.bincount(z[found == k]).max() > 0.9 * np.sum(found == k) for k in set(found[found < 3]))
    assert len(set(z[[np.flatnonzero(found == k)[0] for k in range(3)]])) == 3
    summary = dp.summary(idata, "theta_labels")
    assert {"theta", "x_mean[0]", "x_mean[1]"} <= set(summary.clusters.columns)
    effects = summary.clusters["theta"].astype(float).to_numpy()[:3]
    assert np.ptp(effects) > 1.5
    # The view of the profile is asked like any other.
    given = dp.membership(idata, "x", np.array([[0.0, 4.0]]))
    assert np.all(np.isfinite(given["weight"] if "weight" in given else given.to_array()))
    with pytest.raises(NotImplementedError, match="no pointwise log likelihoods"):
        dp.log_likelihood(idata, "theta", model=model)


def test_what_a_profile_cannot_have():
    gaps = np.array([[1.0, np.nan], [0.0, 2.0], [1.5, 0.3]])
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
        base = dp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))
        dp.CollapsedMixture("x", model["theta_labels"], base, observed=gaps)
        pm.Normal("y", theta, 1.0, observed=np.zeros(3))
    with pytest.raises(NotImplementedError, match="missing entries of x would have to be drawn"), model:
        pm.sample(5, tune=5, chains=1, progressbar=False, quiet=True)


# Everything in one model, through pm.sample.


def run(model, draws=2_000, **options):
    defaults = {"tune": 500, "chains": 2, "cores": 1, "random_seed": 17}
    return sampled.sample(model, draws, **(defaults | options))


def assert_mean(values, mean):
    sampled.assert_mean_matches(values, mean, 4.5)


def random_mean():
    """The mean of the base, and the concentration, are random."""
    y = np.array([-0.5, 2.8, 3.2, 3.0])
    grid, hyper = ties.cells(-9.0, 11.0, 1200), ties.cells(-8.0, 8.0, 100)
    alphas = ties.cells(np.log(0.02), np.log(12.0), 80)
    m, log_alpha = (part.ravel() for part in np.meshgrid(hyper.middles, alphas.middles, indexing="ij"))
    log_hyper = stats.norm.logpdf(m, 0.5, 1.5) + stats.gamma.logpdf(np.exp(log_alpha), 2.0) + log_alpha
    # The prior on partitions depends on the concentration.
    labels = exact.partitions(4)
    log_eppf = np.array([[exact.log_eppf(p, alpha) for alpha in np.exp(alphas.middles)] for p in labels])
    log_rows = stats.norm.logpdf(y[:, None], grid.middles, 0.8)
    log_base = stats.norm.logpdf(grid.middles, hyper.middles[:, None], 0.9) + np.log(grid.width)
    return y, labels, log_rows, log_base, log_eppf, log_hyper, hyper.middles, np.exp(alphas.middles)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"continuous": "nuts"}])
def test_hyperparameters_see_the_atoms_of_clusters_once(how):
    """A base with a random mean counts each cluster, and not each row."""
    y, labels, log_rows, log_base, log_eppf, log_hyper, means, alphas = random_mean()
    by_mean = np.array(
        [
            sum(logsumexp(log_base + log_rows[p == k].sum(axis=0), axis=1) for k in range(p.max() + 1))
            for p in labels
        ]
    )
    joint = by_mean[:, :, None] + log_eppf[:, None, :] + log_hyper.reshape(1, len(means), len(alphas))
    joint = np.exp(joint - logsumexp(joint))
    with pm.Model() as model:
        m, alpha = pm.Normal("m", 0.5, 1.5), pm.Gamma("alpha", 2.0, 1.0)
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(m, 0.9), shape=len(y))
        pm.Normal("y", theta, 0.8, observed=y)
    idata = run(model, dpmixture=how)
    posterior = idata.posterior
    exact.assert_matches(exact.codes(posterior["theta_labels"].to_numpy()), labels, joint.sum(axis=(1, 2)))
    assert_mean(posterior["m"].to_numpy(), joint.sum(axis=(0, 2)) @ means)
    assert_mean(posterior["alpha"].to_numpy(), joint.sum(axis=(0, 1)) @ alphas)
    # An atom at 0 of a cluster that is empty, had it informed the base too.
    stale = joint * np.exp(stats.norm.logpdf(0.0, means, 0.9))[None, :, None]
    with pytest.raises(AssertionError):
        assert_mean(posterior["m"].to_numpy(), stale.sum(axis=(0, 2)) @ means / stale.sum())
    # Had every row informed the base, and not every cluster once, the mean would be this.
    log_wrong = np.array(
        [
            sum(
                logsumexp(log_base * np.sum(p == k) + log_rows[p == k].sum(axis=0), axis=1)
                for k in range(p.max() + 1)
            )
            for p in labels
        ]
    )
    wrong = log_wrong[:, :, None] + log_eppf[:, None, :] + log_hyper.reshape(1, len(means), len(alphas))
    wrong = np.exp(wrong - logsumexp(wrong))
    with pytest.raises(AssertionError):
        assert_mean(posterior["m"].to_numpy(), wrong.sum(axis=(0, 2)) @ means)


def test_which_variables_move_with_atoms():
    """All that is continuous, but for hyperparameters of other mixtures."""
    y, z = np.arange(6.0), np.arange(5.0)
    with pm.Model() as model:
        m, alpha = pm.Normal("m"), pm.LogNormal("alpha")
        spread = pm.HalfNormal("spread", pm.HalfNormal("deeper"))
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(m, spread), shape=6)
        pm.Normal("y", theta, pm.HalfNormal("sigma"), observed=y)
        both, own = pm.Normal("both"), pm.HalfNormal("own")
        other = dp.DirichletProcess("other", 1.0, pm.Normal.dist(both, 1.0), shape=5)
        pm.Normal("z", other, 1.0, observed=z)
        dp.DPMixture("x", 1.0, dp.NormalInverseGamma(both, 1.0, 2.0, own), observed=y)
    assert [rv.name for rv in hyperparameters(model)] == ["own"]
    with model:
        _, selected = assign_step_methods(model)
    steps = assigned(model, selected, {}, dp.DPMixtureStep)
    assert not steps.get(pm.NUTS)
    together = [value.name for value in moved_together(model, steps[dp.DPMixtureStep])]
    assert sorted(together) == ["alpha_log__", "both", "deeper_log__", "m", "sigma_log__", "spread_log__"]
    by_nuts = assigned(model, selected, {"continuous": "nuts"}, dp.DPMixtureStep)
    assert {value.name for value in by_nuts[pm.NUTS]} == {*together, "own_log__"}
    with pytest.raises(ValueError, match=r'continuous must be "nuts" or be left out, got .none.'):
        sampled.sample(model_of_two_clusters(), 5, tune=5, dpmixture={"continuous": "none"})


@pytest.mark.slow
def test_a_conjugate_model_written_out_agrees():
    """The normal-inverse-gamma family, integrated out and with its atoms."""
    y = np.array([-2.3, -1.9, -2.2, 0.1, 3.0, 3.4, 2.8, 3.1])
    with pm.Model() as collapsed:
        base = dp.NormalInverseGamma(mu=0.2, kappa=0.3, a=2.5, b=0.8)
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), base, observed=y)
    with pm.Model() as written_out:
        s2 = pm.InverseGamma.dist(2.5, 0.8)
        base = {"mean": pm.Normal.dist(0.2, pm.math.sqrt(s2 / 0.3)), "variance": s2}
        c = dp.DirichletProcess("c", pm.Gamma("alpha", 2.0, 2.0), base, shape=len(y))
        pm.Normal("y", c["mean"], pm.math.sqrt(c["variance"]), observed=y)
    wanted, found = run(collapsed), run(written_out, 3_000)
    for key, own in (("y_n_clusters", "c_n_clusters"), ("alpha", "alpha")):
        values, others = wanted.posterior[key].to_numpy(), found.posterior[own].to_numpy()
        errors = [v.std() / np.sqrt(float(az.ess(v * 1.0, method="mean"))) for v in (values, others)]
        assert abs(values.mean() - others.mean()) < 4.5 * np.hypot(*errors)
    together = [dp.co_clustering(idata, name).to_numpy() for idata, name in ((wanted, "y"), (found, "c"))]
    np.testing.assert_allclose(*together, atol=0.06)
    reference = [0, 0, 0, 1, 2, 2, 2, 2]
    means = [
        dp.component_draws(idata, name, reference, random_seed=1)["mean"].mean(("chain", "draw")).to_numpy()
        for idata, name in ((wanted, "y"), (found, "c"))
    ]
    np.testing.assert_allclose(*means, atol=0.25)
    points = [-2.0, 0.0, 3.0]
    densities = [
        dp.density(wanted, "y", points, random_seed=1)["mean"].to_numpy(),
        dp.density(found, "c", points, random_seed=1, model=written_out)["mean"].to_numpy(),
    ]
    np.testing.assert_allclose(*densities, rtol=0.1)


def model_of_two_clusters():
    y = np.concatenate([np.full(12, -3.0), np.full(12, 3.0)]) + np.random.default_rng(2).normal(size=24)
    with pm.Model() as model:
        m = pm.Normal("m", 0.0, 2.0)
        theta = dp.DirichletProcess("theta", pm.Gamma("alpha", 1.0, 1.0), pm.Normal.dist(m, 3.0), shape=24)
        pm.Normal("y", theta, 1.0, observed=y)
    return model


@pytest.mark.slow
def test_draws_do_not_depend_on_cores():
    """A process in chains one after the other, and at once."""
    model = model_of_two_clusters()
    runs = [run(model, 60, tune=60, cores=cores) for cores in (1, 2)]
    np.testing.assert_array_equal(*(found.posterior["theta"].to_numpy() for found in runs))
    np.testing.assert_array_equal(*(found.posterior["m"].to_numpy() for found in runs))


@pytest.mark.slow
def test_far_apart_starts_meet():
    """Chains from one cluster and from many agree under any likelihood."""
    model = model_of_two_clusters()
    starts = [np.zeros(24, dtype=int), np.arange(24)]
    given = [{"theta_labels": start, "theta": 0.1 * start} for start in starts]
    found = run(model, 1_000, initvals=given)
    assert float(az.rhat(found.posterior["theta_n_clusters"].to_numpy())) < 1.05
    assert float(az.rhat(found.posterior["theta"].to_numpy()[:, :, 0])) < 1.05


# What is done with draws.


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(-3.0, 1.0, 15), rng.normal(3.0, 1.0, 15)])
    with pm.Model(coords={"site": [f"s{i}" for i in range(30)]}) as model:
        m = pm.Normal("m", 0.0, 2.0)
        base = {"loc": pm.Normal.dist(m, 3.0), "scale": pm.LogNormal.dist(0.0, 0.5)}
        c = dp.DirichletProcess("c", pm.Gamma("alpha", 1.0, 1.0), base, dims="site")
        pm.Normal("y", c["loc"], c["scale"], observed=y, dims="site")
    return model, y, run(model, 300, tune=300)


def test_summaries(clusters):
    _, y, idata = clusters
    found = dp.summary(idata, "c", [0] * 15 + [1] * 15, random_seed=1)
    np.testing.assert_allclose(found.clusters["loc"], [y[:15].mean(), y[15:].mean()], atol=0.8)
    assert {"alpha", "m", "n_clusters"} <= set(found.scalars.index)
    components = dp.component_draws(idata, "c", [0] * 15 + [1] * 15)
    assert components["loc"].dims == ("chain", "draw", "cluster")
    ragged = dp.component_draws(idata, "c", ragged=True)
    first = ragged["loc"][(ragged["component_chain"] == 0) & (ragged["component_draw"] == 0)].to_numpy()
    assert set(first) == set(idata.posterior["c_loc"].to_numpy()[0, 0])
    assert dp.point_partition(idata, "c")["labels"].dims == ("site",)


@pytest.mark.interpreted
def test_another_model_is_refused(clusters):
    model, y, idata = clusters
    assert dp.sample_new_rows(idata, "c", 2, model=model, random_seed=1)["loc"].sizes["new_row"] == 2

    def other(n=30, spread=3.0, name="c", shift=0.0):
        with pm.Model() as model:
            m = pm.Normal("m", 0.0, 2.0)
            base = {"loc": pm.Normal.dist(m, spread), "scale": pm.LogNormal.dist(0.0, 0.5)}
            c = dp.DirichletProcess(name, pm.Gamma("alpha", 1.0, 1.0), base, shape=n)
            pm.Normal("y", c["loc"], c["scale"], observed=np.resize(y, n) + shift)
        return model

    cases = [
        (other(n=20), "its c_labels has 20 entries, and the draws have 30"),
        (other(spread=4.0), "the base of c_loc differs"),
        (other(name="b"), "it has no"),
        (other(shift=1.0), "the data of y differ"),
    ]
    for wrong, message in cases:
        with pytest.raises(ValueError, match=f"model= is not the model of the draws: {message}"):
            dp.log_likelihood(idata, "c", model=wrong)
    # A model that is equal is taken; few draws show it.
    dp.log_likelihood(idata.isel(draw=slice(0, 5)), "c", model=other(), extend_inferencedata=False)


@pytest.mark.parametrize("kind", [pm.Metropolis, pm.Slice, pm.DEMetropolisZ])
def test_other_steps_of_atoms_are_refused(kind):
    with pm.Model():
        theta = dp.DirichletProcess("theta", 1.0, base=pm.Normal.dist(0.0, 1.0), shape=6)
        pm.Normal("y", theta, 1.0, observed=np.arange(6.0))
        with pytest.raises(ValueError, match="theta can only be sampled together with the labels"):
            pm.sample(2, tune=2, step=[kind([theta])], chains=1, progressbar=False)


def test_new_rows_are_atoms_or_draws_of_the_base(clusters):
    model, y, idata = clusters
    found = dp.sample_new_rows(idata, "c", 200, random_seed=1, model=model)
    loc, cluster = found["loc"].to_numpy(), found["cluster"].to_numpy()
    labels = idata.posterior["c_labels"].to_numpy()
    alpha, m = idata.posterior["alpha"].to_numpy(), idata.posterior["m"].to_numpy()
    seen, opened, z = 0, 0.0, []
    for chain, draw in np.ndindex(*labels.shape[:2]):
        own, n_clusters = idata.posterior["c_loc"].to_numpy()[chain, draw], labels[chain, draw].max() + 1
        old = cluster[chain, draw] < n_clusters
        atoms = dict(zip(labels[chain, draw], own, strict=True))
        np.testing.assert_array_equal(loc[chain, draw][old], [atoms[k] for k in cluster[chain, draw][old]])
        # The first new row opens a cluster with probability alpha / (alpha + n).
        seen += not old[0]
        opened += alpha[chain, draw] / (alpha[chain, draw] + len(y))
        z += ((np.unique(loc[chain, draw][~old]) - m[chain, draw]) / 3.0).tolist()
    assert abs(seen - opened) < 4.5 * np.sqrt(opened)
    assert stats.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.slow
def test_log_likelihood_leaves_out_the_row_and_its_own_parameters(clusters):
    """What is stored for leave-one-out does not use the row twice."""
    model, y, idata = clusters
    own = dp.log_likelihood(idata, "c", random_seed=1, model=model, extend_inferencedata=False)
    found = own["log_likelihood"]["y"]
    assert found.dims == ("chain", "draw", "site")
    labels, alpha = idata.posterior["c_labels"].to_numpy()[0, 7], float(idata.posterior["alpha"][0, 7])
    loc, scale = (idata.posterior[name].to_numpy()[0, 7] for name in ("c_loc", "c_scale"))
    m = float(idata.posterior["m"][0, 7])
    rng = np.random.default_rng(1)
    new = stats.norm.pdf(y[:, None], rng.normal(m, 3.0, 100_000), np.exp(0.5 * rng.normal(size=100_000))).mean(1)
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        total = np.sum(stats.norm.pdf(y[i], loc[others], scale[others])) + alpha * new[i]
        wanted = np.log(total / (len(y) - 1 + alpha))
        # The integral over the base is a mean over few draws, of little weight where there are other rows.
        assert float(found[0, 7, i]) == pytest.approx(wanted, abs=0.15)
    assert labels.max() >= 1
    assert np.isfinite(az.loo(dp.log_likelihood(idata, "c", random_seed=1, model=model), var_name="y").elpd)


@pytest.mark.interpreted
def test_predictive_draws(clusters):
    model, y, idata = clusters
    with model:
        replicated = pm.sample_posterior_predictive(idata, random_seed=1, progressbar=False)
        drawn = pm.sample_prior_predictive(2_000, random_seed=1)
    np.testing.assert_allclose(replicated.posterior_predictive["y"].mean(("chain", "draw")), y, atol=2.5)
    labels = drawn.prior["c_labels"].to_numpy()[0]
    loc = drawn.prior["c_loc"].to_numpy()[0]
    assert all(len(set(own)) == p.max() + 1 for p, own in zip(labels, loc, strict=True))
    z = (loc[:, 0] - drawn.prior["m"].to_numpy()[0]) / 3.0
    assert stats.kstest(z, "norm").pvalue > 1e-3


@pytest.mark.interpreted
@pytest.mark.interpreted(False)
def test_bands_of_a_density_are_those_of_the_random_measure():
    """Clusters without rows have weights by stick-breaking: 64 equal ones would make bands far too narrow."""
    rows, points = np.array([-12.0, -7.0, -6.5, 3.0, 3.2]), np.array([-20.0, -6.6, 0.0, 12.0])
    alpha, sd = 4.0, 0.7
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", alpha, base=pm.Normal.dist(0.0, 10.0), shape=5)
        pm.Normal("y", theta, sd, observed=rows)
    idata = sampled.sample(model, 1_000, tune=300, chains=1, random_seed=1)
    found = dp.density(idata, "theta", points, probability=0.95, random_seed=2, model=model)
    rng = np.random.default_rng(3)
    expected = np.empty((1_000, len(points)))
    drawn = (idata["posterior"][name].to_numpy()[0] for name in ("theta_labels", "theta"))
    for s, (labels, values) in enumerate(zip(*drawn, strict=True)):
        # The posterior of the measure given all rows' parameters: a Dirichlet process with atoms (Ferguson 1973),
        # by sticks of its own.
        _, first, counts = np.unique(labels, return_index=True, return_counts=True)
        weights = rng.dirichlet([*counts, alpha])
        sticks = rng.beta(1.0, alpha, 400)
        rest = weights[-1] * sticks * np.cumprod([1.0, *(1.0 - sticks[:-1])])
        atoms = np.append(values[first], rng.normal(0.0, 10.0, 400))
        densities = np.exp(-0.5 * ((points - atoms[:, None]) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))
        expected[s] = np.append(weights[:-1], rest) @ densities
    # Lower limits are nearly zero. Of the upper ones, the share of draws beyond, with errors of both samples.
    beyond = (expected > found["upper"].to_numpy()).mean(axis=0)
    assert (abs(beyond - 0.025) < 4.0 * np.sqrt(2.0 * 0.025 * 0.975 / 500)).all()
    mean, error = found["mean"].to_numpy(), expected.std(axis=0) / np.sqrt(1_000 / 4.0)
    assert (abs(mean - expected.mean(axis=0)) < 4.0 * error).all()


@pytest.mark.interpreted
def test_density_is_refused_where_rows_have_covariates():
    x = np.arange(6.0)
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 2.0), shape=6)
        pm.Normal("y", theta + x, 1.0, observed=x)
    idata = run(model, 20, tune=20)
    with pytest.raises(ValueError, match="covariates"):
        dp.density(idata, "theta", model=model)
    with pytest.raises(ValueError, match="pass model="):
        dp.density(idata, "theta")
    with pytest.raises(NotImplementedError, match="families"):
        dp.membership(idata, "theta", [1.0])


@pytest.mark.interpreted
def test_parameters_have_no_columns_and_nothing_given():
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 2.0), shape=6)
        pm.Normal("y", theta, 1.0, observed=np.arange(6.0))
    idata = run(model, 20, tune=20)
    with pytest.raises(ValueError, match="columns= for mixtures of rows"):
        dp.density(idata, "theta", [1.0], columns=["b"], model=model)
    with pytest.raises(ValueError, match="given= for mixtures of rows"):
        dp.density(idata, "theta", [1.0], given={"exposure": [2.0]}, model=model)
    with pytest.raises(ValueError, match="given= for mixtures of rows"):
        dp.sample_new_rows(idata, "theta", 2, given={"exposure": [2.0, 1.0]}, model=model)


# What is refused, in words.


def test_bad_arguments():
    base = pm.Normal.dist(0.0, 1.0)
    with pm.Model() as model:
        registered = pm.Normal("registered")
        bad = [
            (ValueError, "number of rows is missing", lambda: dp.DirichletProcess("a", 1.0, base)),
            (ValueError, "at least 1", lambda: dp.DirichletProcess("a", 1.0, base, shape=0)),
            (ValueError, "alpha must be", lambda: dp.DirichletProcess("a", 0.0, base, shape=3)),
            (TypeError, "needs alpha", lambda: dp.DirichletProcess("a", base=base, shape=3)),
            (TypeError, r"made with .dist", lambda: dp.DirichletProcess("a", 1.0, 2.0, shape=3)),
            (TypeError, r"made with .dist", lambda: dp.DirichletProcess("a", 1.0, shape=3)),
            (TypeError, r"made with .dist", lambda: dp.DirichletProcess("a", 1.0, base + 1.0, shape=3)),
            (ValueError, "already", lambda: dp.DirichletProcess("a", 1.0, registered, shape=3)),
            (ValueError, "no entries", lambda: dp.DirichletProcess("a", 1.0, {}, shape=3)),
            (ValueError, "labels", lambda: dp.DirichletProcess("a", 1.0, {"labels": base}, shape=3)),
            (ValueError, "shape", lambda: dp.DirichletProcess("a", 1.0, base, shape=(3, 2))),
            (
                ValueError,
                "must have the same number of rows, got 3 by shape",
                lambda: dp.DirichletProcess("a", None, base, shape=3, prior=dp.CRP.dist(1, 4)),
            ),
            (TypeError, "left out", lambda: dp.DirichletProcess("a", 1.0, base, prior=dp.CRP.dist(1, 4))),
            (TypeError, "prior on partitions", lambda: dp.DirichletProcess("a", None, base, shape=3, prior=base)),
        ]
        for kind, words, call in bad:
            with pytest.raises(kind, match=words):
                call()
        length = pm.Data("length", np.array(3))
        unknown = pm.MvNormal.dist(np.zeros(3), np.eye(3))[:length]
        with pytest.raises(TypeError, match="expression"):
            dp.DirichletProcess("a", 1.0, unknown, shape=3)
        unknown = pm.Normal.dist(0.0, 1.0, shape=(length,))
        with pytest.raises(ValueError, match="not known before sampling"):
            dp.DirichletProcess("a", 1.0, unknown, shape=3)
    assert [rv.name for rv in model.basic_RVs] == ["registered"]


SHARED = {
    "a walk over rows": lambda t: pm.Normal("y", t[1:] - t[:-1], 1.0, observed=np.zeros(5)),
    "a mean of all rows": lambda t: pm.Normal("y", t - t.mean(), 1.0, observed=np.zeros(6)),
    "a covariance of rows": lambda t: pm.MvNormal("y", t, np.eye(6) + 0.5, observed=np.zeros(6)),
    "rows that meet rarely": lambda t: pm.Potential(
        "y", -100 * pm.math.maximum(abs(t - pt.concatenate([t[1:], t[:1]])) - 7, 0)
    ),
    "rows by a random index": lambda t: pm.Normal("y", t[pm.Categorical("k", np.ones(6) / 6, shape=6)], 1.0),
    "a potential of two rows": lambda t: pm.Potential("y", t[0] * t[1]),
}


def first_draw(model):
    with model:
        return dp.DirichletProcessStep().step(model.initial_point(random_seed=1))


@pytest.mark.parametrize("case", SHARED)
def test_rows_that_depend_on_each_other_are_refused(case):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=6)
        SHARED[case](theta)
    with pytest.raises(NotImplementedError, match="several rows"):
        first_draw(model)


def test_steps_that_do_not_fit_are_refused():
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        pm.Normal("y", theta, 1.0, observed=np.zeros(4))
        other = pm.Normal("other")
    run_quietly = {"chains": 1, "progressbar": False, "quiet": True}
    with model:
        with pytest.raises(NotImplementedError, match="DirichletProcessStep"):
            pm.sample(5, tune=5, step=pm.NUTS([theta, other]), **run_quietly)
        with pytest.raises(TypeError, match="sampled together"):
            dp.CollapsedGibbs([model["theta_labels"]])
        with pytest.raises(ValueError, match="unknown options for atoms"):
            pm.sample(5, tune=5, dpmixture={"atoms": {"scans": 3}}, **run_quietly)
        with pytest.raises(ValueError, match=r"n_sweeps are options for the labels of a dp\.DPMixture"):
            pm.sample(5, tune=5, dpmixture={"n_sweeps": 3}, **run_quietly)
        with pytest.raises(ValueError, match="at least 1"):
            dp.DirichletProcessStep(n_auxiliary=0)
        with pytest.raises(NotImplementedError, match=r"pm\.sample assigns them"):
            pm.sample_smc(5, chains=1, progressbar=False)
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        pm.Normal("y", theta + model["theta_n_clusters"], 1.0, observed=np.zeros(4))
    with pytest.raises(NotImplementedError, match="nothing but the parameters"), model:
        dp.DirichletProcessStep()


def test_atoms_take_their_shape_from_another_entry():
    scale = pm.HalfNormal.dist(1.0, shape=2)
    with pm.Model() as model:
        rows = dp.DirichletProcess("c", 1.0, {"mean": pm.Normal.dist(0.0, scale), "scale": scale}, shape=4)
    assert rows["mean"].type.ndim == 2
    drawn = pm.draw(model["c_mean"], draws=3, random_seed=1)
    assert drawn.shape == (3, 4, 2)


@pytest.mark.parametrize("fix", [pm.observe, pm.do])
def test_fixed_labels_are_refused_in_words(fix):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
        pm.Normal("y", theta, 1.0, observed=np.zeros(3))
    fixed = fix(model, {"theta_labels": np.zeros(3, dtype=model["theta_labels"].dtype)})
    with pytest.raises(NotImplementedError, match="the labels of theta are fixed"), fixed:
        pm.sample(5, tune=5, chains=1, progressbar=False)


def test_directions_of_atoms_are_averaged_as_unit_vectors():
    angles = np.array([3.1, -3.1, 3.0, -3.0, 0.1, 0.0])
    for base, given in (
        (pm.VonMises.dist(0.0, 0.1), {}),
        (pm.Uniform.dist(-np.pi, np.pi), {"directions": ["m"]}),
    ):
        with pm.Model() as model:
            m = dp.DirichletProcess("m", 1.0, base, shape=6, **given)
            pm.VonMises("y", m, 20.0, observed=angles)
        labels = np.tile([0, 0, 0, 0, 1, 1], (4, 1))
        signs = np.array([1.0, -1.0, 1.0, -1.0])
        atoms = np.where(labels == 0, 3.05 * signs[:, None], 0.05)
        table = dp.summary(
            results(model, {"m_labels": labels, "m": atoms}), "m", labels[0], random_seed=1
        ).clusters
        assert abs(table["m"][0]) > 3.0
        assert table["m"][1] == pytest.approx(0.05)
    with pm.Model(), pytest.raises(ValueError, match=r"directions must be a sequence of names among \['m'\]"):
        dp.DirichletProcess("m", 1.0, base, shape=6, directions=["mu"])


@pytest.mark.parametrize("case", rest_slow(["hyperparameters", "known_profile", "tied"]))
def test_a_restored_step_repeats_its_draws(case):
    """To the last bit, also with hyperparameters, and where collapsed mixtures are beside the atoms."""
    model = model_of_two_clusters() if case == "hyperparameters" else CASES[case]()[0]
    with model:
        step = dp.DirichletProcessStep(model.free_RVs if case == "hyperparameters" else None)
    step.setup_chain(np.random.default_rng(1), 50, 50)
    point = model.initial_point(random_seed=1)
    for _ in range(40):
        point, _ = step.step(point)
    state = copy.deepcopy(step.sampling_state)
    runs = []
    for _ in range(2):
        step.sampling_state = copy.deepcopy(state)
        own = point
        for draw in range(20):
            if draw == 10:
                step.stop_tuning()
            own, _ = step.step(own)
        runs.append(own)
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name])


@pytest.mark.slow
def test_two_processes_and_a_mixture_in_one_model():
    """Steps of several processes and mixtures do not disturb each other."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=10), np.repeat([-3.0, 3.0], 5) + rng.normal(size=10)
    with pm.Model() as model:
        dp.DPMixture("x", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=x)
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        a = dp.DirichletProcess("a", alpha, pm.Normal.dist(0.0, 3.0), shape=10)
        b = dp.DirichletProcess("b", 1.0, pm.Normal.dist(0.0, 1.0), shape=10)
        pm.Normal("y", a + b, 1.0, observed=y)
    posterior = run(model, 100, tune=200, chains=1).posterior
    assert set(posterior) >= {"x_labels", "a_labels", "b_labels", "a", "b", "alpha"}
    means = posterior["a"].to_numpy() + posterior["b"].to_numpy()
    np.testing.assert_allclose(means.mean(axis=(0, 1)), y, atol=2.0)


# Densities of rows and clusters, beside those of the whole model.

SIX = np.array([0.2, 0.5, 1.7, 2.2, 0.9, 1.1])
CODES = np.array([0, 1, 2, 3, 1, 0])


def normal():
    return dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=6)


def share():
    return dp.DirichletProcess("theta", 1.0, pm.Beta.dist(2.0, 2.0), shape=6)


def latent_with_a_bound():
    scale = dp.DirichletProcess("scale", 1.0, pm.LogNormal.dist(0.0, 1.0), shape=6)
    z = pm.Uniform("z", 0.0, scale, shape=6)
    pm.Normal("y", z, 0.3, observed=SIX)


def products():
    vector = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0, shape=2), shape=6)
    x = np.column_stack([SIX, np.ones(6)])
    pm.Normal("y", (x[:, None, :] @ vector[:, :, None])[:, 0, 0], 1.0, observed=SIX)
    pm.Normal("z", pt.vecdot(x, vector), 1.0, observed=SIX)


def choice():
    kind = dp.DirichletProcess("kind", 1.0, pm.Categorical.dist([0.2, 0.3, 0.5]), shape=6)
    pm.Normal("y", pm.Normal("mu", shape=3)[kind], 1.0, observed=SIX)


def bounded_by_another():
    b = pm.Gamma.dist(2.0, 1.0)
    c = dp.DirichletProcess("c", 1.0, {"v": pm.Uniform.dist(0.0, b, shape=2), "b": b}, shape=6)
    pm.Normal("y", c["v"].sum(axis=1), c["b"], observed=SIX)


def differences():
    """Sums over rows, scaled and less what no row has a part in."""
    theta, b = normal(), pm.Normal("b")
    away = ((theta - b) ** 2).sum()
    pm.Potential("p", -0.3 * away - 0.2 * b**2)
    pm.Potential("q", -away / 2.0 - b)
    pm.Potential("r", b**2 * -away * 0.5)
    pm.Potential("s", 1.0 - (theta**2).sum() / pm.math.exp(b))


def series():
    theta = normal()
    data = np.outer(SIX, np.ones(5))
    pm.AR(
        "y", rho=0.1 * theta[:, None], sigma=1.0, init_dist=pm.Normal.dist(), steps=4, shape=(6, 5), observed=data
    )
    pm.GaussianRandomWalk("z", mu=theta, init_dist=pm.Normal.dist(), steps=4, shape=(6, 5), observed=data)


RIGHT = {
    "latent_with_a_bound": latent_with_a_bound,
    "products": products,
    "choice": choice,
    "bounded_by_another": bounded_by_another,
    "series": series,
    "a length": lambda: pm.Potential("p", normal() ** 2 / model_rows()),
    "ordered": lambda: pm.OrderedLogistic("y", eta=normal(), cutpoints=[-1.0, 0.0, 1.0], observed=CODES),
    "cutpoints": lambda: pm.OrderedLogistic("y", normal(), pm.Normal("c", [-1.0, 0.0, 1.0], 0.1), observed=CODES),
    "differences": differences,
    "hurdle": lambda: pm.HurdleGamma("y", psi=share(), alpha=2.0, beta=1.0, observed=CODES.astype(float)),
    "inflated": lambda: pm.ZeroInflatedPoisson("y", psi=share(), mu=3.0, observed=CODES),
    "invalid": lambda: pm.Normal("y", 0.0, normal(), observed=SIX),
}


def model_rows():
    return pm.modelcontext(None)["theta"].shape[0]


@pytest.mark.interpreted
@pytest.mark.parametrize("case", RIGHT)
def test_densities_of_rows_and_clusters_are_those_of_the_model(case):
    with pm.Model() as model:
        RIGHT[case]()
    (labels,) = [rv for rv in model.free_RVs if rv.name.endswith("_labels")]
    # How a graph is computed is PyTensor's; interpreted, it needs no compilation.
    found = ProcessModel(model, labels, {"mode": PYTHON_MODE})
    point = model.initial_point(random_seed=3)
    found.confirm(point)
    densities, names = found.densities.at(point), [model.rvs_to_values[rv].name for rv in found.parameters]
    atoms = densities.draws(5, 3)
    whole, base = (model.compile_logp(vars=own, mode=PYTHON_MODE) for own in (found.dependents, found.parameters))
    rows, totals = densities.by_row(atoms), []
    for seed in (1, 2):
        own = np.random.default_rng(seed).permutation(np.arange(6) % 3)
        at = point | {name: atom[own].astype(point[name].dtype) for name, atom in zip(names, atoms, strict=True)}
        at[labels.name] = own.astype(point[labels.name].dtype)
        by_cluster = densities.log_density(atoms, own).sum()
        wanted = float(whole(at))
        if np.isfinite(wanted):
            # What depends on no row's parameters cancels.
            totals.append([wanted, rows[own, np.arange(6)].sum(), by_cluster - float(base(at))])
        else:
            assert by_cluster == -np.inf
            assert np.all(np.isneginf(rows[atoms[0] <= 0.0]))
            assert np.all(np.isfinite(rows[atoms[0] > 0.0]))
    if totals:
        np.testing.assert_allclose(*np.diff(totals, axis=1), atol=1e-9)


@pytest.mark.slow
def test_bounds_of_latent_variables_that_depend_on_the_parameters():
    """One row: E[log scale] and E[z] by quadrature."""
    with pm.Model() as model:
        scale = dp.DirichletProcess("scale", 1.0, pm.LogNormal.dist(0.0, 1.0), shape=1)
        z = pm.Uniform("z", 0.0, scale, shape=1)
        pm.Normal("y", z, 0.3, observed=[2.0])
    posterior = run(model, 3_000).posterior
    s, u = (part.ravel() for part in np.meshgrid(np.linspace(-5, 5, 800), np.linspace(0.001, 0.999, 600)))
    p = exact.normalized(stats.norm.logpdf(s) + stats.norm.logpdf(2.0, u * np.exp(s), 0.3))
    assert_mean(np.log(posterior["scale"].to_numpy()[:, :, 0]), p @ s)
    assert_mean(posterior["z"].to_numpy()[:, :, 0], p @ (u * np.exp(s)))


@pytest.mark.slow
def test_densities_of_censored_and_integer_data():
    """dp.density of censored and of integer data integrates, or sums, to one."""
    with pm.Model() as censored:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.5, 1.0), shape=6)
        life = pm.Weibull.dist(1.5, pm.math.exp(theta))
        pm.Censored("t", life, lower=None, upper=4.5, observed=np.minimum(3.0 * SIX, 4.5))
    idata = run(censored, 20, tune=20, chains=1)
    found = dp.density(idata, "theta", [0.5, 1.0, 4.5], random_seed=1, model=censored)
    assert np.all(found["mean"] > 0.0)
    with pm.Model() as counts:
        rate = dp.DirichletProcess("rate", 1.0, pm.LogNormal.dist(0.5, 1.0), shape=6)
        pm.Poisson("y", rate, observed=pm.Data("data", CODES))
    idata = run(counts, 200, tune=100, chains=1)
    found = dp.density(idata, "rate", np.arange(60.0), random_seed=1, model=counts)
    assert float(found["mean"].sum()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
def test_atoms_next_to_their_bounds():
    """Atoms of a beta base stay inside (0, 1) where nearly all its mass is at the ends."""
    with pm.Model() as model:
        t = dp.DirichletProcess("t", 1.0, pm.Beta.dist(0.1, 0.1), shape=30)
        pm.Binomial("y", 6, t, observed=np.repeat([0, 6, 3], 10))
    idata = run(model, 100, tune=200, chains=1)
    assert np.all(idata.posterior["t"] < 1.0)
    assert np.all(idata.posterior["t"] > 0.0)
    assert float(idata.sample_stats["t_labels_accepted"].mean()) > 0.3


def submodels():
    """The same names inside two submodels and outside."""
    y = np.array([-2.0, -1.9, 2.0, 2.1])
    with pm.Model() as model:
        for name in ("a", "b"):
            with pm.Model(name=name):
                dp.DirichletProcess("t", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        dp.DirichletProcess(
            "t", 1.0, {"mu": pm.Normal.dist(0.0, 1.0), "sd": pm.InverseGamma.dist(3.0, 1.0)}, shape=4
        )
        pm.Normal("x", model["a::t"] + model["b::t"], 0.5, observed=y)
        pm.Normal("y", model["t_mu"], model["t_sd"], observed=y)
    return model


@pytest.mark.interpreted
def test_processes_of_submodels_have_results_of_their_own():
    """Records have the whole name, so that models can be copied and draws be asked for each process."""
    model = submodels()
    for copied in (copy.copy(model), copy.deepcopy(model), freeze_dims_and_data(model)):
        assert {var.name for var in copied.data_vars} == {var.name for var in model.data_vars}
    idata = sampled.sample(model, 20, tune=20, chains=1, random_seed=1)
    with model:
        pm.compute_log_likelihood(idata, progressbar=False)
    assert set(idata["log_likelihood"].data_vars) == {"x", "y"}
    for name, parameters in (("a::t", {"a::t"}), ("b::t", {"b::t"}), ("t", {"mu", "sd"})):
        assert parameters <= set(dp.component_draws(idata, name, [0, 0, 1, 1], random_seed=1).data_vars)
        assert parameters <= set(dp.sample_new_rows(idata, name, 2, random_seed=1, model=model).data_vars)


def test_a_record_is_never_added_twice():
    with pm.Model() as model:
        dp.DirichletProcess("t", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        with pytest.raises(ValueError, match="already has a record of t_atoms"):
            add_record(model, "t_atoms", {})


@pytest.mark.interpreted
def test_single_precision():
    """Rows keep the precision of the model."""
    with pytensor.config.change_flags(floatX="float32"), pm.Model():
        t = dp.DirichletProcess("t", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        pm.Normal("y", t, pm.HalfNormal("s"), observed=np.array([-2.0, -1.9, 2.0, 2.1], dtype="float32"))
        idata = pm.sample(
            20, tune=20, chains=1, cores=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    assert idata["posterior"]["t"].dtype == np.float32
    assert np.isfinite(idata["posterior"]["t"]).all()


@pytest.mark.parametrize("n_draws", rest_slow([1_500, 15_000]))
def test_partitions_in_single_precision(n_draws):
    """Densities of single precision are read as what they are; splits would hide what scans do."""
    y = np.array([-0.8, 0.1, 1.3])
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        t = dp.DirichletProcess("t", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
        pm.Normal("y", t, 0.5, observed=y.astype("float32"))
        idata = sampled.sample(
            model, n_draws, tune=200, chains=2, cores=1, random_seed=1, dpmixture={"atoms": {"split_merge": 0}}
        )
    labels = exact.partitions(3)
    log_p = [
        exact.log_eppf(p, 1.0) + stats.multivariate_normal.logpdf(y, cov=(p[:, None] == p) + 0.25 * np.eye(3))
        for p in labels
    ]
    exact.assert_matches(
        exact.codes(idata.posterior["t_labels"].to_numpy()), labels, np.exp(log_p - logsumexp(log_p))
    )
