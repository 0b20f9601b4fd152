"""What ``pm.sample`` does with a mixture, against enumeration and quadrature."""

import exact
import numpy as np
import pymc as pm
import pytest
import sampled
from scipy.special import logsumexp
from scipy.stats import gamma

import pymc_dpgmm as dp


def sample(model, draws=10_000, **options):
    defaults = {"tune": 500, "chains": 4, "cores": 2, "random_seed": 20130805}
    return sampled.sample(model, draws, **(defaults | options))


def assert_partitions_match(idata, all_labels, p, name="y_labels"):
    exact.assert_matches(exact.codes(idata.posterior[name].to_numpy()), all_labels, p)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["niw_crp", "nig_crp"])
def test_fixed_alpha(name):
    """The whole way from a model to its draws, against enumeration."""
    given = exact.reference(name)
    base = dict(given["base_measure"])
    with pm.Model() as model:
        base = getattr(dp, base.pop("family"))(**base)
        dp.DPMixture("y", given["partition_prior"]["alpha"], base, observed=np.array(given["y"]))
    idata = sample(model)
    assert_partitions_match(idata, exact.partitions(7), np.array(given["posterior"]))


@pytest.mark.slow
def test_split_merge_alone():
    """Split and merge moves alone reach every partition with its probability."""
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    base.pop("family")
    with pm.Model() as model:
        base = dp.NormalInverseWishart(**base)
        dp.DPMixture("y", given["partition_prior"]["alpha"], base, observed=np.array(given["y"]))
        step = [dp.SplitMerge([model["y_labels"]], sequential=4, random=2)]
    idata = sample(model, step=step)
    assert (idata.sample_stats["y_labels_n_moved"] == 0).all()
    assert_partitions_match(idata, exact.partitions(7), np.array(given["posterior"]))


@pytest.mark.parametrize(
    "by",
    ["DPMixtureStep", *(pytest.param(step, marks=pytest.mark.slow) for step in ("ConcentrationGibbs", "NUTS"))],
)
def test_gamma_alpha(by):
    """Alpha under a gamma prior by every step that can draw it, against quadrature."""
    given = exact.reference("niw_crp_gamma_alpha")
    base = dict(given["base_measure"])
    base.pop("family")
    prior = given["alpha_prior"]
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", prior["alpha"], prior["beta"])
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(**base), observed=np.array(given["y"]))
        step = {
            "DPMixtureStep": lambda: None,
            "ConcentrationGibbs": lambda: [dp.ConcentrationGibbs([alpha])],
            "NUTS": lambda: [pm.NUTS([alpha])],
        }[by]()
    idata = sample(model, step=step, draws=10_000)
    alphas = idata.posterior["alpha"].to_numpy()
    assert ("tree_depth" in idata.sample_stats) == (by == "NUTS")
    assert_partitions_match(idata, exact.partitions(7), np.array(given["posterior"]))
    sampled.assert_mean_matches(alphas, given["alpha_mean"])
    assert alphas.std() == pytest.approx(given["alpha_sd"], rel=0.05)


ROWS = np.array([[0.3], [2.9], [3.4], [-1.0], [2.5]])


@pytest.mark.slow
def test_random_kappa_and_mu():
    """Hyperparameters by NUTS, against enumeration times quadrature on a grid."""
    psi, nu, alpha = [[0.6]], 2.4, 1.3
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 1.5)
        kappa = pm.Gamma("kappa", 2.0, 2.0)
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(mu, kappa, nu, psi), observed=ROWS)
    all_labels = exact.partitions(len(ROWS))
    crp = np.array([exact.log_eppf(p, alpha) for p in all_labels])
    z, z_weights = np.polynomial.hermite_e.hermegauss(24)
    mus = 1.0 + 1.5 * z
    edges, g_weights = np.polynomial.legendre.leggauss(30)
    kappas, k_weights = 6.0 * (edges + 1), 6.0 * g_weights
    logs = np.empty((len(mus), len(kappas), len(all_labels)))
    for i, m in enumerate(mus):
        for j, k in enumerate(kappas):
            logs[i, j] = crp + exact.log_likelihoods(
                all_labels, ROWS, exact.niw_log_marginal, mu=[m], kappa=k, nu=nu, psi=psi
            )
    log_prior = np.log(z_weights)[:, None] + (np.log(k_weights) + gamma(2.0, scale=0.5).logpdf(kappas))
    logs += log_prior[:, :, None]
    weights = np.exp(logs - logsumexp(logs))
    idata = sample(model)
    assert_partitions_match(idata, all_labels, weights.sum(axis=(0, 1)))
    sampled.assert_mean_matches(idata.posterior["mu"].to_numpy(), np.einsum("ijp,i->", weights, mus))
    sampled.assert_mean_matches(idata.posterior["kappa"].to_numpy(), np.einsum("ijp,j->", weights, kappas))


@pytest.mark.slow
def test_alpha_shared_and_transformed():
    """One alpha behind two mixtures, through a transformation: NUTS takes it and is right."""
    with pm.Model() as model:
        log_alpha = pm.Normal("log_alpha", 0.0, 1.0)
        alpha = pm.math.exp(log_alpha)
        base = dp.NormalInverseGamma(0.5, 0.3, 1.5, 0.6)
        dp.DPMixture("y", alpha, base, observed=ROWS[:4, 0])
        dp.DPMixture("z", alpha, base, observed=ROWS[1:, 0] + 0.5)
    all_labels = exact.partitions(4)
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    base = {"mu": 0.5, "kappa": 0.3, "a": 1.5, "b": 0.6}
    log_y = exact.log_likelihoods(all_labels, ROWS[:4], exact.nig_log_marginal, **base)
    log_z = exact.log_likelihoods(all_labels, ROWS[1:] + 0.5, exact.nig_log_marginal, **base)
    crp = np.array([[exact.log_eppf(p, np.exp(v)) for p in all_labels] for v in z])
    joint = np.log(weights)[:, None, None] + (crp + log_y)[:, :, None] + (crp + log_z)[:, None, :]
    joint = np.exp(joint - logsumexp(joint))
    idata = sample(model)
    assert_partitions_match(idata, all_labels, joint.sum(axis=(0, 2)), "y_labels")
    assert_partitions_match(idata, all_labels, joint.sum(axis=(0, 1)), "z_labels")
    sampled.assert_mean_matches(idata.posterior["log_alpha"].to_numpy(), joint.sum(axis=(1, 2)) @ z)


@pytest.mark.slow
def test_labels_without_data_follow_their_prior():
    """Without data, labels have the distribution of the prior."""
    with pm.Model() as model:
        dp.CRP("labels", 1.4, 5)
    all_labels = exact.partitions(5)
    p = np.exp([exact.log_eppf(labels, 1.4) for labels in all_labels])
    assert_partitions_match(sample(model), all_labels, p, "labels")


@pytest.mark.slow
def test_a_latent_mixture_under_a_gaussian_likelihood():
    """Rows by NUTS, labels by us, against importance sampling from the likelihood."""
    noise = 0.4
    with pm.Model() as model:
        beta = dp.DPMixture("beta", 0.9, dp.NormalInverseGamma(0.0, 1.0, 3.0, 2.0), shape=(3,))
        pm.Normal("y", beta, noise, observed=[1.0, 1.3, -2.0])
    idata = sample(model, draws=4000, tune=1000)
    sampled.assert_mean_matches(idata.posterior["beta"].to_numpy()[..., 2], latent_mean(noise))


def latent_mean(noise):
    """E beta_3, by importance sampling with 4,000 draws and all partitions enumerated."""
    rng = np.random.default_rng(1)
    beta = np.array([1.0, 1.3, -2.0]) + noise * rng.standard_normal((4000, 3))
    all_labels = exact.partitions(3)
    crp = np.array([exact.log_eppf(p, 0.9) for p in all_labels])
    logs = np.array(
        [
            logsumexp(
                crp
                + exact.log_likelihoods(
                    all_labels, row[:, None], exact.nig_log_marginal, mu=0.0, kappa=1.0, a=3.0, b=2.0
                )
            )
            for row in beta
        ]
    )
    weights = np.exp(logs - logsumexp(logs))
    return weights @ beta[:, 2]


@pytest.mark.parametrize(
    "run", [{"draws": 100, "tune": 100, "chains": 2}, pytest.param({"draws": 300}, marks=pytest.mark.slow)]
)
def test_support_left_during_sampling(run):
    """A parameter that can leave its support: the sampler survives and stays inside."""
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.5, 1.0, initval=1.0)
        kappa = pm.Normal("kappa", 0.5, 0.5, initval=0.5)
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(0.0, kappa, 3.0, [[1.0]]), observed=ROWS)
    idata = sample(model, **run)
    assert idata.posterior["alpha"].min() > 0
    assert idata.posterior["kappa"].min() > 0


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1.0, 2.0]]),
        np.full((6, 2), 3.0),
        np.repeat([[0.0, 1.0], [5.0, 5.0]], 4, axis=0),
        np.random.default_rng(0).normal(size=(4, 9)),
        np.array([3.0]),
    ],
    ids=["one-row", "constant", "duplicated", "wide", "one-number"],
)
# The warnings have a test of their own; here it is the sampler that such data must not stop.
@pytest.mark.filterwarnings(
    "ignore:.*is constant:UserWarning",
    "ignore:.*one row has none:UserWarning",
    "ignore:.*few for clusters:UserWarning",
)
def test_unusual_data_works(rows):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=rows)
    idata = sample(model, draws=50, tune=20, cores=1)
    assert np.all(np.isfinite(idata.sample_stats["y_labels_log_joint"]))


def test_far_apart_starts_agree():
    """From one cluster, from 200 random ones and from all singletons; two of the five clusters overlap."""
    import arviz as az

    rng = np.random.default_rng(0)
    n = 600
    means = np.array([[0.0, 0.0], [4.0, 0.0], [20.0, 0.0], [0.0, 20.0], [-15.0, -15.0]])
    rows = means[np.arange(n) % 5] + rng.normal(size=(n, 2))
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=rows)
        starts = [np.zeros(n, dtype=int), rng.integers(200, size=n), np.arange(n)]
        idata = pm.sample(
            500,
            tune=200,
            chains=3,
            cores=2,
            initvals=[{"y_labels": start} for start in starts],
            random_seed=3,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    stats = idata.sample_stats
    for name in ("n_clusters", "entropy", "log_joint"):
        assert float(az.rhat(stats[f"y_labels_{name}"].astype(float))) < 1.03
    assert stats["y_labels_n_clusters"].min() >= 5


def test_groups_that_no_division_in_two_is_worth():
    """Three groups in a row under one long normal: halves of them are worse than the whole, thirds better."""
    rng = np.random.default_rng(5)
    truth = np.arange(150) % 3
    data = rng.normal(size=(150, 9)) + 4.0 * truth[:, None]
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
        dtype = model.initial_point()["y_labels"].dtype
    start = {"y_labels": np.zeros(150, dtype=dtype)}
    idata = sample(model, draws=50, tune=150, chains=2, cores=1, random_seed=1, initvals=start)
    logp = model.compile_logp()
    of_pairs = [logp({"y_labels": labels.astype(dtype)}) for labels in (truth == 0, truth == 2)]
    assert max(of_pairs) < logp({"y_labels": np.zeros(150, dtype=dtype)}) < logp({"y_labels": truth.astype(dtype)})
    for labels in idata["posterior"]["y_labels"].to_numpy()[:, -1]:
        sizes = [len(np.unique(labels[truth == k])) for k in range(3)]
        assert len(np.unique(labels)) >= 3
        assert max(sizes) <= 3
