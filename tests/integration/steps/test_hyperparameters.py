"""Hyperparameters that are drawn with the labels: which ones, and against enumeration with quadrature."""

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy import stats
from scipy.special import gammaln, logsumexp, multigammaln
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps import hyperparameters as module
from pymc_dpgmm.integration.steps.hyperparameters import hyperparameters
from pymc_dpgmm.integration.steps.targets import LabelsTarget
from pymc_dpgmm.integration.variables import dependents

ROWS = np.array([-1.4, -1.0, 0.2, 1.1, 1.6])
PARTITIONS = exact.partitions(len(ROWS))


def random_base():
    mu, b = pm.Normal("mu", 0.3, 0.8), pm.Gamma("b", 2.0, 3.0)
    dp.DPMixture("y", 1.3, dp.NormalInverseGamma(mu, 0.4, 2.0, b), observed=ROWS)


def random_discount():
    discount = pm.Uniform("discount", 0.0, 0.7)
    dp.PYMixture("y", 0.5, discount, dp.NormalInverseGamma(0.0, 0.4, 2.0, 0.5), observed=ROWS)


def random_alpha():
    alpha = pm.LogNormal("alpha", 0.0, 0.8)
    dp.DPMixture("y", alpha, dp.NormalInverseGamma(0.0, 0.4, 2.0, 0.5), observed=ROWS)


def log_likelihoods(**base):
    return exact.log_likelihoods(PARTITIONS, ROWS[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **base)


def log_evidence_on_a_grid(rows, mu, b, kappa=0.4, a=2.0):
    """Of a normal-inverse-gamma cluster, for many mu and b: Murphy (2007), eq. 203."""
    n, mean = len(rows), rows.mean()
    b_n = b + 0.5 * np.sum((rows - mean) ** 2) + 0.5 * kappa * n / (kappa + n) * (mean - mu) ** 2
    constant = gammaln(a + n / 2) - gammaln(a) + 0.5 * np.log(kappa / (kappa + n)) - 0.5 * n * np.log(2.0 * np.pi)
    return constant + a * np.log(b) - (a + n / 2) * np.log(b_n)


def joint_of_base():
    """Log densities (partitions, grid) and the grid of the mean."""
    grid = np.meshgrid(np.linspace(-3.0, 3.5, 40), np.exp(np.linspace(-4.5, 2.0, 40)), indexing="ij")
    mu, b = (part.ravel() for part in grid)
    weight = stats.norm.logpdf(mu, 0.3, 0.8) + stats.gamma.logpdf(b, 2.0, scale=1.0 / 3.0) + np.log(b)
    rows = []
    for labels in PARTITIONS:
        clusters = [ROWS[labels == k] for k in range(labels.max() + 1)]
        evidence = sum(log_evidence_on_a_grid(own, mu, b) for own in clusters)
        rows.append(exact.log_eppf(labels, 1.3) + evidence + weight)
    return np.array(rows), mu


def joint_of_discount():
    grid = (np.arange(200) + 0.5) / 200 * 0.7
    likelihood = log_likelihoods(mu=0.0, kappa=0.4, a=2.0, b=0.5)
    columns = [likelihood + [exact.log_pitman_yor(labels, 0.5, d) for labels in PARTITIONS] for d in grid]
    return np.transpose(columns), grid


def joint_of_alpha():
    grid = np.exp(np.linspace(-6.0, 4.0, 300))
    likelihood = log_likelihoods(mu=0.0, kappa=0.4, a=2.0, b=0.5)
    columns = [
        likelihood + [exact.log_eppf(labels, a) for labels in PARTITIONS] + stats.norm.logpdf(np.log(a), 0.0, 0.8)
        for a in grid
    ]
    return np.transpose(columns), grid


TWO = np.array([[-1.2, -0.7], [-0.8, -1.1], [0.4, 0.1], [1.3, 0.8], [1.0, 1.6]])
PLANE = {"mu": np.zeros(2), "kappa": 0.4, "nu": 4.0}


def random_factor():
    """The scale matrix has a random Cholesky factor."""
    sds = pm.Gamma.dist(3.0, 3.0, shape=2)
    packed = pm.LKJCholeskyCov("factor", n=2, eta=2.0, sd_dist=sds, compute_corr=False)
    factor = pm.math.expand_packed_triangular(2, packed)
    psi = pt.sum(factor[:, None, :] * factor[None, :, :], axis=2)
    pm.Deterministic("correlation", psi[0, 1] / pt.sqrt(psi[0, 0] * psi[1, 1]))
    dp.DPMixture("y", 1.3, dp.NormalInverseWishart(psi=psi, **PLANE), observed=TWO)


def log_evidence_of_plane(rows, psi):
    """Of a normal-inverse-Wishart cluster, for many matrices psi (G, 2, 2): Murphy (2007), eq. 266."""
    n, kappa, nu = len(rows), PLANE["kappa"], PLANE["nu"]
    mean = rows.mean(axis=0)
    scatter = (rows - mean).T @ (rows - mean) + kappa * n / (kappa + n) * np.outer(mean, mean)
    constant = multigammaln((nu + n) / 2, 2) - multigammaln(nu / 2, 2) + np.log(kappa / (kappa + n))
    dets = nu / 2 * np.linalg.slogdet(psi)[1] - (nu + n) / 2 * np.linalg.slogdet(psi + scatter)[1]
    return constant - n * np.log(np.pi) + dets


def joint_of_factor():
    log_sd, r = np.linspace(-3.5, 2.0, 34), np.tanh(np.linspace(-3.0, 3.0, 33))
    grid = np.meshgrid(np.exp(log_sd), np.exp(log_sd), r, indexing="ij")
    first, second, correlation = (part.ravel() for part in grid)
    psi = np.empty((len(first), 2, 2))
    psi[:, 0, 0], psi[:, 1, 1] = first**2, second**2
    psi[:, 0, 1] = psi[:, 1, 0] = correlation * first * second
    # Grids of equal steps in log sd and in atanh r. With two columns, the density of r is (1 - r^2)^(eta - 1).
    weight = sum(stats.gamma.logpdf(sd, 3.0, scale=1.0 / 3.0) + np.log(sd) for sd in (first, second))
    weight = weight + np.log1p(-(correlation**2)) + np.log1p(-(correlation**2))
    known = {}
    rows = []
    for labels in PARTITIONS:
        log_p = exact.log_eppf(labels, 1.3) + weight
        for k in range(labels.max() + 1):
            members = tuple(np.flatnonzero(labels == k))
            if members not in known:
                known[members] = log_evidence_of_plane(TWO[list(members)], psi)
            log_p = log_p + known[members]
        rows.append(log_p)
    return np.array(rows), correlation


def random_components():
    """The number of components is random too, and drawn by a step of its own."""
    m = pm.DiscreteUniform("m", 1, 4)
    dp.FiniteMixture("y", 1.5, m, dp.NormalInverseGamma(pm.Normal("mu", 0.3, 0.8), 0.4, 2.0, 0.5), observed=ROWS)


def joint_of_components():
    means = np.linspace(-3.0, 3.5, 60)
    log_prior = logsumexp(
        [[exact.log_finite_dirichlet(labels, 1.5, m) for labels in PARTITIONS] for m in range(1, 5)], axis=0
    )
    columns = [
        log_prior + log_likelihoods(mu=mu, kappa=0.4, a=2.0, b=0.5) + stats.norm.logpdf(mu, 0.3, 0.8)
        for mu in means
    ]
    return np.transpose(columns), means


CASES = {
    "base": (random_base, joint_of_base, "mu"),
    "discount": (random_discount, joint_of_discount, "discount"),
    "alpha": (random_alpha, joint_of_alpha, "alpha"),
    "factor": (random_factor, joint_of_factor, "correlation"),
    "components": (random_components, joint_of_components, "mu"),
}


def posterior(case):
    """Probabilities of the partitions, and the mean of a hyperparameter, by quadrature."""
    log_p, grid = CASES[case][1]()
    p = np.exp(log_p - logsumexp(log_p))
    return p.sum(axis=1), p.sum(axis=0) @ grid


def draws(case, n_draws, **options):
    build, _, name = CASES[case]
    with pm.Model() as model:
        build()
    idata = sampled.sample(model, n_draws, tune=500, chains=2, cores=1, random_seed=4, **options)
    return exact.codes(idata.posterior["y_labels"].to_numpy()), idata.posterior[name].to_numpy(), idata


def check(case, codes, values):
    p, mean = posterior(case)
    exact.assert_matches(codes, PARTITIONS, p)
    sampled.assert_mean_matches(values, mean)


# PyMC's own graphs of Cholesky factors warn where there is no BLAS.
without_blas = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")


@without_blas
@pytest.mark.parametrize("case", rest_slow(CASES))
def test_labels_and_hyperparameters_follow_the_posterior(case):
    """Slices of every kind of hyperparameter, against enumeration and quadrature."""
    codes, values, _ = draws(case, 2_000)
    check(case, codes, values)


@pytest.mark.slow
@without_blas
@pytest.mark.parametrize("case", CASES)
def test_many_draws_follow_the_posterior(case):
    """The same with fifteen times the draws."""
    codes, values, _ = draws(case, 30_000)
    check(case, codes, values)


def without_likelihood(model, variable):
    return [other for other in dependents(model, variable) if other.name != "seen"]


def test_a_likelihood_of_a_variable_is_not_forgotten(monkeypatch):
    """A mean on which a likelihood depends is no hyperparameter; it would be drawn without the likelihood."""
    means = []
    for mistake in (False, True):
        with pm.Model() as model:
            random_base()
            pm.Normal("seen", model["mu"], 0.2, observed=1.5)
        if mistake:
            monkeypatch.setattr(module, "dependents", without_likelihood)
        drawn = sampled.sample(model, 2_000, tune=500, chains=1, random_seed=4)
        means.append(float(drawn.posterior["mu"].mean()))
    assert means[0] > means[1] + 0.5


@pytest.mark.slow
def test_a_missing_jacobian_is_seen(monkeypatch):
    """The comparison of hyperparameters can fail."""
    logp = pm.Model.logp
    monkeypatch.setattr(pm.Model, "logp", lambda model, **given: logp(model, jacobian=False, **given))
    codes, values, _ = draws("base", 15_000)
    with pytest.raises(AssertionError):
        check("base", codes, values)


def test_draws_do_not_depend_on_cores():
    with pm.Model() as model:
        random_base()
    one, two = (
        sampled.sample(model, 50, tune=50, chains=2, cores=cores, random_seed=4).posterior for cores in (1, 2)
    )
    np.testing.assert_array_equal(one["mu"], two["mu"])
    np.testing.assert_array_equal(one["y_labels"], two["y_labels"])


def names_of(build):
    with pm.Model() as model:
        build()
    return [rv.name for rv in hyperparameters(model)]


def normal(mu, b=1.0, **given):
    return dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 0.4, 2.0, b), **({"observed": ROWS} | given))


def with_parents():
    centre, spread = pm.Normal("centre"), pm.HalfNormal("spread")
    normal(pm.Normal("mu", centre, spread))


def with_gamma_alpha():
    dp.DPMixture(
        "y", pm.Gamma("alpha", 1.0, 1.0), dp.NormalInverseGamma(pm.Normal("mu"), 0.4, 2.0, 1.0), observed=ROWS
    )


def with_likelihood():
    mu = pm.Normal("mu")
    normal(mu, pm.HalfNormal("b"))
    pm.Normal("other", mu, 1.0, observed=0.3)


def with_potential():
    mu = pm.Normal("mu")
    normal(mu, pm.HalfNormal("b"))
    pm.Potential("tilt", 0.1 * mu)


def with_a_parent_of_another_child():
    centre = pm.Normal("centre")
    normal(pm.Normal("mu", centre, 1.0))
    pm.Normal("other", centre, 1.0, observed=0.3)


def with_offset():
    slope = pm.Normal("slope")
    normal(pm.Normal("mu"), offset=slope * np.arange(5.0))


def with_an_offset_for_nuts():
    """Of many numbers."""
    sd = pm.HalfNormal("sd")
    normal(pm.Normal("mu"), offset=pm.Normal("slopes", 0.0, sd, shape=9) @ np.ones((9, 5)))


def with_an_offset_of_latent_rows():
    slope = pm.Normal("slope")
    base = dp.NormalInverseGamma(pm.Normal("mu"), 0.4, 2.0, 1.0)
    effects = dp.DPMixture("y", 1.0, base, shape=5, offset=slope * np.arange(5.0))
    pm.Poisson("counts", pt.exp(effects), observed=[1, 2, 0, 4, 1])


def with_an_offset_and_a_likelihood():
    slope = pm.Normal("slope")
    normal(pm.Normal("mu"), offset=slope * np.arange(5.0))
    pm.Normal("seen", slope, 1.0, observed=0.3)


def with_latent_rows():
    effects = dp.DPMixture("y", 1.0, dp.NormalInverseGamma(pm.Normal("mu"), 0.4, 2.0, 1.0), shape=5)
    pm.Poisson("counts", pt.exp(effects), observed=[1, 2, 0, 4, 1])


def with_atoms():
    atoms = dp.DirichletProcess("theta", pm.LogNormal("alpha"), pm.Normal.dist(pm.Normal("mu"), 1.0), shape=5)
    pm.Normal("x", atoms, 0.5, observed=ROWS)


def with_groups():
    base = dp.NormalInverseGamma(pm.Normal("mu"), 0.4, 2.0, 1.0)
    dp.HDPMixture("y", 1.0, 1.0, base, group=[0, 0, 1, 1, 1], observed=ROWS)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (random_base, ["mu", "b"]),
        (random_discount, ["discount"]),
        (random_alpha, ["alpha"]),
        (with_parents, ["centre", "spread", "mu"]),
        (with_gamma_alpha, ["mu"]),
        (with_likelihood, ["b"]),
        (with_potential, ["b"]),
        (with_a_parent_of_another_child, ["mu"]),
        (with_offset, ["slope", "mu"]),
        (with_an_offset_for_nuts, ["mu"]),
        (with_an_offset_of_latent_rows, ["mu"]),
        (with_an_offset_and_a_likelihood, ["mu"]),
        (with_latent_rows, ["mu"]),
        (with_atoms, []),
        (with_groups, []),
        (lambda: pm.Normal("mu"), []),
    ],
)
def test_which_variables_are_drawn_with_the_labels(build, expected):
    assert names_of(build) == expected


@pytest.mark.parametrize(
    ("options", "has_nuts"),
    [({}, False), ({"continuous": "nuts"}, True)],
)
def test_a_user_chooses_how_hyperparameters_are_drawn(options, has_nuts):
    _, _, idata = draws("base", 20, dpmixture=options)
    assert ("step_size" in idata.sample_stats) == has_nuts


def test_many_coordinates_are_left_to_nuts(monkeypatch):
    monkeypatch.setattr(module, "MOST_COORDINATES", 1)
    assert "step_size" in draws("base", 20)[2].sample_stats


def test_coordinates_of_different_mixtures_do_not_add_up(monkeypatch):
    """Each costs what it costs alone."""
    monkeypatch.setattr(module, "MOST_COORDINATES", 1)
    with pm.Model() as model:
        for name in ("one", "two"):
            mu = pm.Normal(f"mu_{name}")
            dp.DPMixture(name, 1.0, dp.NormalInverseGamma(mu, 0.4, 2.0, 0.5), observed=ROWS)
    known = hyperparameters(model)
    assert len(module.chosen_hyperparameters(model, known, model.free_RVs)) == 2


@pytest.mark.interpreted
def test_hyperparameters_share_nuts_with_the_rest_of_the_model():
    """Where they are left to NUTS, one step moves them together with everything else."""
    with pm.Model() as model:
        with_likelihood()
    idata = sampled.sample(model, 20, tune=20, chains=1, random_seed=1, dpmixture={"continuous": "nuts"})
    assert idata.sample_stats["step_size"].ndim == 2
    assert sampled.sample(model, 20, tune=20, chains=1, random_seed=1).sample_stats["step_size"].ndim == 2


def test_options_of_nuts_are_ignored_where_it_has_nothing_to_do(caplog):
    with pm.Model():
        random_base()
        with caplog.at_level("INFO", logger="pymc"):
            idata = pm.sample(20, tune=20, chains=1, progressbar=False, target_accept=0.95, random_seed=1)
    assert "step_size" not in idata.sample_stats
    assert "its options, such as target_accept, are ignored" in caplog.text


def test_another_choice_is_refused():
    with pytest.raises(ValueError, match=r"continuous must be .nuts. or be left out, got 'slice'"):
        draws("base", 20, dpmixture={"continuous": "slice"})


@pytest.mark.slow
def test_vectors_and_factors_of_matrices():
    """Slices of vectors and Cholesky factors agree with NUTS."""
    rows = np.random.default_rng(0).normal(size=(30, 2)) + np.repeat([[0.0, 0.0], [4.0, 4.0]], 15, axis=0)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0, shape=2)
        spread, below = pm.HalfNormal("spread", 1.0, shape=2), pm.Normal("below")
        factor = pt.stacklists([[spread[0], 0.0], [below, spread[1]]])
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart(mu, 0.2, 4.0, factor @ factor.T), observed=rows)
    assert [rv.name for rv in hyperparameters(model)] == ["mu", "spread", "below"]
    found = {
        how: sampled.sample(model, 1_500, tune=500, chains=2, cores=1, random_seed=3, dpmixture=options).posterior
        for how, options in (("slices", {}), ("nuts", {"continuous": "nuts"}))
    }
    for name in ("mu", "spread", "below"):
        values = {how: posterior[name].to_numpy() for how, posterior in found.items()}
        for j in np.ndindex(values["nuts"].shape[2:]):
            one, two = (v[(..., *j)] for v in values.values())
            error = np.sqrt(sum(v.var() / float(az.ess(v, method="mean")) for v in (one, two)))
            assert abs(one.mean() - two.mean()) < 4.5 * error


def test_variables_wait_where_there_is_no_density():
    with pm.Model() as model:
        random_base()
    target = LabelsTarget(model, model.rvs_to_values[model["y_labels"]])
    values = [model.rvs_to_values[rv] for rv in hyperparameters(model)]
    (drawer,) = module.hyperparameters_of_step(model, values, [target], None)
    start = model.initial_point(random_seed=1)
    state = target.state(start, target.prior(start), None).state
    for without, states in ((np.array(np.inf), [state]), (start["mu"], [None])):
        point = start | {"mu": without}
        drawer.draw(np.random.default_rng(0), point, states, {}, True)
        assert point["b_log__"] == start["b_log__"]


def test_hyperparameters_of_different_mixtures_are_drawn_by_themselves():
    with pm.Model() as model:
        mean, shared = pm.Normal("mean"), pm.HalfNormal("shared")
        for name, mu in (("a", mean), ("b", pm.Normal("other")), ("c", pm.Normal("third", mean))):
            dp.DPMixture(
                name, 1.0, dp.NormalInverseGamma(mu, 0.3, 2.5, shared if name == "b" else 1.0), observed=ROWS
            )
    values = [model.rvs_to_values[rv] for rv in module.hyperparameters(model)]
    names = [sorted(value.name for value in group.values) for group in module.separate(model, values)]
    assert sorted(names) == [["mean", "third"], ["other", "shared_log__"]]


def with_an_offset(mu, b):
    dp.DPMixture(
        "y", 1.3, dp.NormalInverseGamma(mu, 1.0, 2.0, b), observed=ROWS, offset=pm.Normal("beta", 0.0, 3.0)
    )


def latent(mu, b):
    x = dp.DPMixture("x", 1.3, dp.NormalInverseGamma(mu, 1.0, 2.0, b), shape=5)
    pm.Normal("y", x, 1.0, observed=ROWS + 3.0)


def with_entries_that_are_drawn(mu, b):
    gap = np.column_stack([ROWS, ROWS + 2.0])
    gap[1, 1] = np.nan
    dp.DPMixture("y", 1.3, dp.NormalInverseGamma(mu, 1.0, 2.0, b), observed=gap, impute=True)


@pytest.mark.parametrize("build", [with_an_offset, latent, with_entries_that_are_drawn])
def test_parameters_that_are_no_variables_follow_the_origin_of_the_rows(build):
    """Rows that move have an origin that moves, and a mean is relative to it, also where nobody sets it anew."""
    columns = 2 if build is with_entries_that_are_drawn else 1
    found = []
    for mu in (0.0, np.zeros(columns)):
        with pm.Model() as model:
            build(mu, pm.Gamma("b", 2.0, 3.0))
        found.append(sampled.sample(model, 60, tune=40, chains=1, random_seed=3).posterior["b"].to_numpy())
    # A scalar is computed at every evaluation. Rounding parts the two chains in the end.
    np.testing.assert_allclose(found[0][:, :20], found[1][:, :20], rtol=1e-6)


def test_hyperparameters_of_other_labels_move_by_their_gradient():
    """A step of some labels alone does not have the sums of the others' clusters."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        for name in "yw":
            dp.DPMixture(name, 1.0, dp.NormalInverseGamma(mu, 0.4, 2.0, 0.5), observed=ROWS)
        step = dp.DPMixtureStep([model["y_labels"], mu])
    assert step.continuous.watched == ["mu"]
    assert step.hyperparameters == []
