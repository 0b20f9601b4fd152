"""Learnt scales of base measures: against enumeration with quadrature, and where they are recognised."""

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled
from pymc.model.transform.conditioning import change_value_transforms
from scipy import stats
from scipy.special import gammaln, logsumexp, multigammaln
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.families.contract.scale import COLUMNS, least_degrees
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.integration.steps import learnt_scales as steps
from pymc_dpgmm.integration.steps.hyperparameters import LearntScaleDraw, learnt_scales
from pymc_dpgmm.integration.variables.models import PYTHON_MODE
from pymc_dpgmm.models import learnt_base
from pymc_dpgmm.sampler.hyperparameters import learnt_scales as kernels
from pymc_dpgmm.sampler.hyperparameters.scale_lattices import N_POINTS
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.tuning.column_divisions import column_divisions

ROWS = np.array([[-1.2, -0.7], [-0.8, -1.1], [0.4, 0.1], [1.3, 0.8], [1.0, 1.6]])
WITH_GAP = np.where([[False, True], *[[False, False]] * 4], np.nan, ROWS)
NORMAL = [dp.NormalInverseWishart, dp.NormalInverseGamma, dp.SphericalNormalInverseGamma]
PARTITIONS = exact.partitions(len(ROWS))
ALPHA = 1.3


def full_evidence(rows, kappa, degrees, psi):
    """Of a normal-inverse-Wishart cluster, for many scales: Murphy (2007), eq. 266."""
    n, d, nu = len(rows), rows.shape[1], degrees + max(rows.shape[1] - 1.0, 1.0)
    mean = rows.mean(axis=0)
    scatter = (rows - mean).T @ (rows - mean)
    whole = scatter + (kappa * n / (kappa + n))[:, None, None] * np.outer(mean, mean)
    psi = psi[:, :, None] * np.eye(d)
    risen = multigammaln((nu + n) / 2, d) - multigammaln(nu / 2, d)
    dets = nu / 2 * np.linalg.slogdet(psi)[1] - (nu + n) / 2 * np.linalg.slogdet(psi + whole)[1]
    return risen + dets + d / 2 * np.log(kappa / (kappa + n)) - n * d / 2 * np.log(np.pi)


def column_evidence(squares, offset, n, kappa, degrees, psi):
    """Of one column of a normal-inverse-gamma cluster: Murphy (2007), eq. 203."""
    a, b = (degrees + 1.0) / 2, psi / 2
    after = b + 0.5 * (squares + kappa * n / (kappa + n) * offset)
    constant = np.log(kappa / (kappa + n)) / 2 - n / 2 * np.log(2 * np.pi)
    return gammaln(a + n / 2) - gammaln(a) + a * np.log(b) - (a + n / 2) * np.log(after) + constant


def columns_evidence(rows, kappa, degrees, psi):
    total = 0.0
    for j in range(rows.shape[1]):
        own = rows[~np.isnan(rows[:, j]), j]
        if len(own):
            squares = np.sum((own - own.mean()) ** 2)
            total = total + column_evidence(squares, own.mean() ** 2, len(own), kappa, degrees, psi[:, j])
    return total


def spherical_evidence(rows, kappa, degrees, psi):
    """Of rows whose numbers, divided by scales, have one variance: eq. 203 with d numbers a row."""
    (n, d), a, scales = rows.shape, (degrees + 1.0) / 2, np.sqrt(psi / (degrees + 1.0)[:, None])
    means = rows.mean(axis=0)
    about = np.sum((rows - means) ** 2, axis=0) + (kappa * n / (kappa + n))[:, None] * means**2
    after = a + 0.5 * np.sum(about / scales**2, axis=1)
    constant = d / 2 * np.log(kappa / (kappa + n)) - n * d / 2 * np.log(2 * np.pi) - n * np.log(scales).sum(axis=1)
    return gammaln(a + n * d / 2) - gammaln(a) + a * np.log(a) - (a + n * d / 2) * np.log(after) + constant


# A base measure, the rows, the evidence of a cluster, and the median of its degrees of freedom.
CASES = {
    "full": (None, ROWS, full_evidence, 5.0),
    "columns": (dp.NormalInverseGamma, ROWS, columns_evidence, 3.0),
    "columns with a gap": (dp.NormalInverseGamma, WITH_GAP, columns_evidence, 3.0),
    "spherical": (dp.SphericalNormalInverseGamma, ROWS, spherical_evidence, 3.0),
    "one column": (None, ROWS[:, 0], columns_evidence, 3.0),
    "one column of a table": (dp.NormalInverseWishart, ROWS[:, :1], full_evidence, 3.0),
}


def known_shares(rows):
    """Half of the smallest difference of two numbers, squared, over the variance of each column."""
    unit = np.array([np.nanmin(np.diff(np.unique(c[~np.isnan(c)]))) for c in rows.T])
    return unit**2 / 4.0 / np.nanvar(rows, axis=0)


def posterior(case):
    """Probabilities of the partitions, and means of the logarithms of kappa, degrees and the first share."""
    _, rows, evidence, median = CASES[case]
    rows = rows.reshape(len(rows), -1)
    d = rows.shape[1]
    least, variances = known_shares(rows), np.nanvar(rows, axis=0)
    axes = [np.linspace(-4.5, 4.5, 17), np.linspace(-4.5, 4.5, 17), *[np.linspace(-9.0, 2.0, 26)] * d]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")])
    log_kappa, log_degrees, logs = (
        np.log(0.001 if d == 1 else 0.01) + points[0],
        np.log(median) + 1.5 * points[1],
        points[2:].T,
    )
    log_prior = stats.norm.logpdf(points[:2]).sum(axis=0) + np.sum(logs - 2.0 * np.exp(logs), axis=1)
    nu = np.exp(log_degrees) + (d - 1.0 if case == "full" else 1.0)
    psi = nu[:, None] * variances * (np.exp(logs) + least)
    centred = rows - np.nanmean(rows, axis=0)
    known = {}
    log_p = []
    for labels in PARTITIONS:
        total = log_prior + exact.log_eppf(labels, ALPHA)
        for k in range(labels.max() + 1):
            members = tuple(np.flatnonzero(labels == k))
            if members not in known:
                known[members] = evidence(centred[list(members)], np.exp(log_kappa), np.exp(log_degrees), psi)
            total = total + known[members]
        log_p.append(total)
    p = np.exp(np.array(log_p) - logsumexp(log_p))
    return p.sum(axis=1), p.sum(axis=0) @ np.stack([log_kappa, log_degrees, logs[:, 0]], axis=1)


def draws(case, n_draws):
    base, rows, *_ = CASES[case]
    with pm.Model() as model:
        dp.DPMixture("y", ALPHA, base, observed=rows)
    found = sampled.sample(model, n_draws, tune=500, chains=2, cores=1, random_seed=4).posterior
    numbers = found["y_kappa"].to_numpy(), found["y_degrees"].to_numpy(), found["y_within"].to_numpy()[..., 0]
    return exact.codes(found["y_labels"].to_numpy()), np.log(numbers)


def check(case, n_draws):
    p, means = posterior(case)
    codes, logs = draws(case, n_draws)
    exact.assert_matches(codes, PARTITIONS, p)
    for values, mean in zip(logs, means, strict=True):
        sampled.assert_mean_matches(values, mean)


@pytest.mark.parametrize("case", rest_slow(CASES))
def test_labels_and_scales_follow_the_posterior(case):
    """Labels, kappa, degrees of freedom and shares of three families, against enumeration and quadrature."""
    check(case, 1_500)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_many_draws_follow_the_posterior(case):
    """The same with twenty times the draws."""
    check(case, 32_000)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["prior", "variances"])
def test_mistakes_are_seen(mistake, monkeypatch):
    """The comparison fails for another prior of shares, and for spherical clusters taken for columns."""
    if mistake == "prior":
        draw = kernels.draw_scale
        monkeypatch.setattr(
            steps, "draw_scale", lambda rng, scale, prior, *rest: draw(rng, scale, prior._replace(rate=3.0), *rest)
        )
    else:
        form = dp.SphericalNormalInverseGamma.family.scale

        def clusters(params, s):
            found = form.clusters(params, s)
            return found._replace(sizes=np.broadcast_to(found.sizes, found.offsets.shape))

        columns = form._replace(clusters=clusters, covariances=COLUMNS)
        monkeypatch.setattr(LearntScaleDraw, "form", property(lambda self: columns))
    with pytest.raises(AssertionError):
        check("full" if mistake == "prior" else "spherical", 15_000)


@pytest.mark.parametrize("kind", rest_slow(NORMAL))
def test_a_draw_is_in_proportion_to_the_evidence_of_the_family(kind, monkeypatch):
    """Points of a line have the probabilities that the family's own evidence and the priors give them.

    Draws are repeated from one state with lattices of one spacing; each changes kappa first.
    """
    monkeypatch.setattr(kernels, "_MOST_ROUNDS", 1)
    rng = np.random.default_rng(3)
    d, labels = 3, np.repeat([0, 1], [4, 5])
    rows = rng.normal(size=(9, d)) + labels[:, None]
    family = kind.family
    table = ClusterTable(View(family, at_scale(kind, rows, 0.2), rows), 2, for_sampling=False)
    table.sum_up(labels, np.bincount(labels))
    clusters = family.scale.clusters(table.shifted, table.sums(0, 2))
    prior = kernels.ScalePrior(np.log(0.1), 1.0, np.log(5.0), 1.5, 2.0)
    scale, least = kernels.Scale(0.2, 4.0, np.full(d, 0.4)), np.full(d, 0.01)
    known = rows.var(axis=0), least, clusters, family.scale.covariances
    found = [np.log(kernels.draw_scale(rng, scale, prior, *known).kappa / 0.2) for _ in range(20_000)]
    # A lattice of spacing h through the state, which lies at any of its places alike.
    log_p = {}

    def density(step):
        if step not in log_p:
            table.set_params_of_evidence(at_scale(kind, rows, 0.2 * np.exp(step)))
            log_p[step] = table.total_log_evidence(2) + stats.norm.logpdf(np.log(0.2) + step, np.log(0.1), 1.0)
        return log_p[step]

    spacings = np.exp(np.linspace(*np.log([0.05, 1.5]), 200))
    mean = 0.0
    for h in spacings:
        for before in range(N_POINTS):
            steps_of = h * (np.arange(N_POINTS) - before)
            weights = np.exp([density(step) for step in steps_of])
            mean += steps_of @ weights / weights.sum() / len(spacings) / N_POINTS
    assert abs(np.mean(found) - mean) < 4.5 * np.std(found) / np.sqrt(len(found))


EVIDENCE = dict(zip(NORMAL, (full_evidence, columns_evidence, spherical_evidence), strict=True))


@pytest.mark.parametrize("kind", rest_slow(NORMAL))
def test_a_share_near_its_known_part_moves(kind):
    """Of many rows of a binary column, a share lies within a hair's breadth above what is known of it."""
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], 200)
    rows = np.column_stack([labels, rng.normal(size=400) + 2.0 * labels])
    rows = rows - rows.mean(axis=0)
    variances, least, family = rows.var(axis=0), np.array([1.0, 1e-6]), kind.family
    table = ClusterTable(View(family, at_scale(kind, rows, 0.1), rows), 2, for_sampling=False)
    table.sum_up(labels, np.bincount(labels))
    clusters = family.scale.clusters(table.shifted, table.sums(0, 2))
    # Kappa and the degrees of freedom are all but known.
    prior = kernels.ScalePrior(np.log(0.1), 1e-6, np.log(4.0), 1e-6, 2.0)
    logs = [axis.ravel() for axis in np.meshgrid(np.linspace(-13, 3, 500), np.linspace(-3, 5, 500), indexing="ij")]
    shares = np.exp(np.stack(logs, axis=1))
    nu = 4.0 + least_degrees(family.scale.covariances, 2)
    psi = nu * variances * (shares + least)
    log_p = np.sum(np.log(shares) - 2.0 * shares, axis=1)
    for k in range(2):
        numbers = np.full(len(psi), 0.1), np.full(len(psi), 4.0)
        log_p += EVIDENCE[kind](rows[labels == k], *numbers, psi)
    p = np.exp(log_p - logsumexp(log_p))
    for first in (1e-4, 0.3):
        scale, found = kernels.Scale(0.1, 4.0, np.array([first, 0.5])), []
        for _ in range(6_000):
            scale = kernels.draw_scale(rng, scale, prior, variances, least, clusters, family.scale.covariances)
            found.append(np.log(scale.within))
        for values, of_column in zip(np.array(found)[200:].T, logs, strict=True):
            sampled.assert_mean_matches(values[None], p @ of_column)


@pytest.mark.parametrize("kind", NORMAL)
def test_the_density_of_rounded_columns_is_bounded(kind):
    """However small kappa and the degrees of freedom are, a cluster for each number of a column gains no more."""
    rng = np.random.default_rng(5)
    levels = rng.integers(3, size=300)
    rows = np.column_stack([levels, rng.normal(size=300)])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, kind, observed=rows)
    density = model.compile_logp(vars=[model["y"]], mode=PYTHON_MODE)
    point = model.initial_point() | {"y_labels": levels}
    found = [
        density(point | {"y_kappa_log__": np.array(size), "y_degrees_log__": np.array(size)})
        for size in (0.0, -20.0, -40.0, -80.0)
    ]
    assert max(found[2:]) < max(found[:2])


def at_scale(kind, rows, kappa):
    """Parameters of a base measure at a scale, written out."""
    d = rows.shape[1]
    typical = rows.var(axis=0) * 0.41
    if kind is dp.NormalInverseWishart:
        return kind(rows.mean(axis=0), kappa, d + 3.0, (d + 3.0) * typical).numbers(d)
    if kind is dp.NormalInverseGamma:
        return kind(rows.mean(axis=0), kappa, 2.5, 2.5 * typical).numbers(d)
    return kind(rows.mean(axis=0), kappa, 2.5, 2.5, scale=np.sqrt(typical)).numbers(d)


def names(build):
    with pm.Model() as model:
        build()
    return sorted(rv.name for scale in learnt_scales(model).values() for rv in scale.variables)


LEARNT = ["y_degrees", "y_kappa", "y_within"]


def with_likelihood_of_kappa():
    y = dp.DPMixture("y", 1.0, observed=ROWS)
    pm.Normal("seen", pm.modelcontext(None)["y_kappa"], observed=0.3)
    return y


@pytest.mark.parametrize(
    ("build", "expected"),
    {
        "table": (lambda: dp.DPMixture("y", 1.0, observed=ROWS), LEARNT),
        "class": (lambda: dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=ROWS), LEARNT),
        "groups": (lambda: dp.HDPMixture("y", 1.0, 1.0, group=[0, 0, 1, 1, 1], observed=ROWS), LEARNT),
        "units": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, unit=[0, 0, 1, 1, 2]), LEARNT),
        "one column": (lambda: dp.DPMixture("y", 1.0, observed=ROWS[:, 0]), LEARNT),
        "one column of a table": (lambda: dp.DPMixture("y", 1.0, observed=ROWS[:, :1]), LEARNT),
        "class of one column": (
            lambda: dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=ROWS[:, 0]),
            LEARNT,
        ),
        "numbers": (lambda: dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(ROWS), observed=ROWS), []),
        "bools": (lambda: dp.DPMixture("y", 1.0, observed=ROWS > 0), []),
        "a likelihood": (with_likelihood_of_kappa, []),
    }.values(),
)
def test_which_scales_are_learnt(build, expected):
    assert names(build) == expected


def drawn_by(model):
    with model:
        step = pm.sampling.mcmc.assign_step_methods(model)[1]
        made = pm.sampling.mcmc.instantiate_steppers(model, [], step, compile_kwargs={})
    return made if isinstance(made, list) else [made]


def test_many_columns_are_drawn_with_the_labels():
    """Their number does not matter, unlike that of coordinates which are drawn by slices."""
    rows = np.random.default_rng(0).normal(size=(12, 25))
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), dp.NormalInverseWishart, observed=rows)
    (step,) = drawn_by(model)
    assert {v.name for v in step.vars} == {v.name for v in model.value_vars}
    assert [type(group).__name__ for group in step.hyperparameters] == ["LearntScaleDraw"]


@pytest.mark.parametrize("kappa", [lambda kappa: kappa, lambda kappa: pm.math.maximum(kappa, 1e-3)])
def test_a_scale_of_a_users_own_is_not_taken_for_one(kappa):
    """Whatever its numbers are at any number of points: only the record of a default base says that it is one."""
    with pm.Model() as model:
        degrees, within = pm.LogNormal("degrees", 1.0, 1.0), pm.Exponential("within", 2.0, shape=2)
        nu = degrees + 1.0
        base = dp.NormalInverseWishart(0.0, kappa(pm.LogNormal("kappa", 0.0, 1.0)), nu, nu * within)
        dp.DPMixture("y", 1.0, base, observed=ROWS)
    assert not learnt_scales(model)
    (step,) = drawn_by(model)
    assert [type(group).__name__ for group in step.hyperparameters] == ["Hyperparameters"]


@pytest.mark.parametrize(
    "changed",
    {
        "do": lambda model: pm.do(model, {"y_kappa": 0.1}),
        "observe": lambda model: pm.observe(model, {"y_kappa": 0.1}),
        "no transformation": lambda model: change_value_transforms(model, {"y_kappa": None}),
    }.values(),
)
def test_a_scale_that_was_changed_afterwards_is_not_taken_for_one(changed):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=ROWS)
    assert learnt_scales(model)
    assert learnt_scales(pm.model.fgraph.clone_model(model))
    assert not learnt_scales(changed(model))


@pytest.mark.parametrize("kind", NORMAL)
def test_scalings_of_columns_change_nothing(kind):
    """By powers of two, so that no digit is lost."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(30, 3)) + 4.0 * (np.arange(30) % 2)[:, None]
    drawn = []
    for table in (rows, rows * [0.5, 4.0, 1024.0]):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, kind, observed=table)
        drawn.append(sampled.sample(model, 30, tune=30, chains=1, random_seed=1).posterior)
    np.testing.assert_array_equal(drawn[0]["y_labels"], drawn[1]["y_labels"])
    np.testing.assert_allclose(drawn[0]["y_within"], drawn[1]["y_within"], rtol=1e-6)


def test_rounded_columns_have_a_least_scale():
    """Half a unit, so that a cluster of each number that occurs has no unbounded density."""
    rows = np.array([[0.25, 3.0, 1.0], [np.nan, 5.0, 1.0], [0.75, 4.0, 1.0], [0.5, 3.0, 1.0]])
    variances = np.nanvar(rows, axis=0)
    shares = learnt_base._known_shares(rows)
    np.testing.assert_allclose(shares, [0.125**2 / variances[0], 0.25 / variances[1], learnt_base.LEAST_SHARE])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=np.round(np.random.default_rng(6).normal(size=(80, 2))))
    found = sampled.sample(model, 200, tune=200, chains=1, random_seed=1)
    assert np.ptp(found.sample_stats["y_labels_log_joint"].to_numpy()) < 150.0


@pytest.mark.parametrize("base", rest_slow([None, dp.SphericalNormalInverseGamma], 1))
def test_groups_are_found_among_columns_of_noise(base):
    """Three groups that are eight standard deviations apart in two of fourteen columns."""
    rng = np.random.default_rng(14)
    labels = np.repeat(np.arange(3), 40)
    centres = np.zeros((3, 14))
    centres[1, 0], centres[2, 1] = 8.0, 8.0
    table = pd.DataFrame(centres[labels] + rng.normal(size=(120, 14)), columns=list("abcdefghijklmn"))
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=table)
    idata = sampled.sample(model, 100, tune=400, chains=2, random_seed=1)
    found = dp.point_partition(idata, "y")["labels"].to_numpy()
    assert len(np.unique(found)) == 3
    assert exact.codes(found[None, None]).tolist() == exact.codes(labels[None, None]).tolist()
    assert idata.posterior["y_within"].dims == ("chain", "draw", "y_feature")
    scalars = dp.summary(idata, "y").scalars
    assert {"y_kappa", "y_degrees", "y_within[a]"} <= set(scalars.index)


SPHERICAL = dp.SphericalNormalInverseGamma


@pytest.mark.parametrize(
    ("base", "n", "d"),
    rest_slow([(SPHERICAL, 40, 14), (None, 40, 14), (dp.NormalInverseGamma, 40, 14), (None, 100, 30)], 1),
)
def test_chains_find_the_scale_with_the_groups(base, n, d):
    """None stays where two groups are one, and the column in which they differ counts as wide."""
    rng = np.random.default_rng(14)
    rows = rng.normal(size=(3 * n, d))
    rows[n : 2 * n, 0] += 8.0
    rows[2 * n :, 1] += 8.0
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=rows)
    # One after the other: none hears of a later one, and of what an earlier one has found it takes labels alone.
    idata = sampled.sample(model, 60, tune=300, chains=8, cores=1, random_seed=5)
    log_joint = idata.sample_stats["y_labels_log_joint"].mean("draw")
    assert float(log_joint.max() - log_joint.min()) < 10.0
    assert int(idata.sample_stats["y_labels_n_clusters"].min()) >= 3
    assert float(idata.posterior["y_within"][..., :2].mean(("chain", "draw")).max()) < 0.2


def test_no_trial_worsens_what_a_search_has():
    """At the partition that is sought, trials return nothing."""
    rng = np.random.default_rng(2)
    rows = np.concatenate([rng.normal(size=(30, 3)), 20.0 + rng.normal(size=(30, 3))])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=rows, initval=np.repeat([0, 1], 30))
        step = dp.DPMixtureStep(model.free_RVs)
    point = model.initial_point(random_seed=1)
    step.setup_chain(np.random.default_rng(1), tune=200, draws=10)
    for _ in range(100):
        point, _ = step.step(point)
    (trial,) = step.scale_trials.values()
    for seed in range(20):
        assert trial.tried(np.random.default_rng(seed), point, step.prepared[0]) is None


def test_columns_divide_where_they_have_two_parts():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(60, 3))
    values[20:40, 1] += 10.0
    values[[0, 41], 1], values[::7, 2] = np.nan, np.nan
    labels = np.repeat([0, 1], [40, 20])
    best, *others = column_divisions(values, labels)
    ends = {tuple(range(1, 20)), tuple(range(20, 40))}
    assert tuple(sorted(best.rows)) in ends
    assert best.score > 20.0
    assert max(division.score for division in others) < 6.0
    assert len(others) == 5
    # Of many normal rows, the halves have as much variance as those of a normal distribution.
    (division,) = column_divisions(rng.normal(size=(100_000, 1)), np.zeros(100_000, dtype=np.int64))
    assert abs(division.score) < 1_000.0
    assert column_divisions(np.ones((9, 1)), np.zeros(9, dtype=np.int64)) == []
    assert column_divisions(rng.normal(size=(3, 1)), np.zeros(3, dtype=np.int64)) == []


def test_more_than_fifty_columns_are_independent_by_default():
    rows = np.random.default_rng(0).normal(size=(160, 51))
    with pm.Model() as model, pytest.warns(UserWarning, match="observed has 51 columns: without base="):
        y = dp.DPMixture("y", 1.0, observed=rows)
    assert y.owner.op.layout.family_name == "NormalInverseGamma"
    assert len(learnt_scales(model)) == 1
    with pm.Model():
        assert dp.DPMixture("y", 1.0, observed=rows[:, :50]).owner.op.layout.family_name == "NormalInverseWishart"


def test_few_rows_for_full_covariances_are_told_of():
    """By default only, and what the message says silences it."""
    few, enough = np.random.default_rng(1).normal(size=(17, 6)), np.random.default_rng(1).normal(size=(18, 6))
    with (
        pm.Model(),
        pytest.warns(UserWarning, match=r"17 rows of 6 columns, few for .*base=dp.NormalInverseGamma"),
    ):
        dp.DPMixture("y", 1.0, observed=few)
    for rows, base in ((enough, None), (few, dp.NormalInverseGamma), (few, dp.NormalInverseWishart)):
        with pm.Model():
            dp.DPMixture("y", 1.0, base, observed=rows)


def test_a_square_matrix_may_be_given_by_its_diagonal():
    diagonal = np.array([0.5, 2.0])
    densities = []
    for psi in (np.diag(diagonal), diagonal):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, dp.NormalInverseWishart(0.0, 0.1, 4.0, psi), observed=ROWS)
        densities.append(model.compile_logp()({"y_labels": np.array([0, 0, 1, 1, 1])}))
    assert densities[0] == densities[1]
    with pytest.raises(ValueError, match=r"psi must be a \(d, d\) matrix or its diagonal \(d,\)"):
        dp.NormalInverseWishart(0.0, 0.1, 4.0, 1.0)
    with pytest.raises(ValueError, match="positive"):
        dp.NormalInverseWishart(0.0, 0.1, 4.0, [0.5, -2.0])


@pytest.mark.parametrize("scale", [1e-80, 1e-66, 1e66, 1e78])
def test_columns_whose_squares_are_no_numbers_are_refused(scale):
    """Fourth powers of the scale would be infinite or 0, and the posterior wrong without a word."""
    rows = scale * np.random.default_rng(0).normal(size=(30, 2))
    with pm.Model() as model, pytest.raises(ValueError, match="rescale the data"):
        dp.DPMixture("y", 1.0, observed=rows)
    assert not model.basic_RVs
