"""A small model of each kind that steps of the package draw, to be held to what every step must do."""

import numpy as np
import pymc as pm

import pymc_dpgmm as dp

_RNG = np.random.default_rng(3)
ROWS = _RNG.normal(size=(24, 2)) + 4.0 * (np.arange(24) % 2)[:, None]
COUNTS = _RNG.poisson([2.0, 20.0], size=(12, 2)).ravel()
GROUP = np.arange(24) // 8
NIG = {"mu": 0.0, "kappa": 0.1, "a": 2.0, "b": 1.0}


def base(**changed):
    """Normal clusters of one column."""
    return dp.NormalInverseGamma(**{**NIG, **changed})


def _alpha():
    return pm.Gamma("alpha", 2.0, 2.0)


def observed():
    """Rows of two columns, and a drawn concentration."""
    dp.DPMixture("y", _alpha(), dp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)), observed=ROWS)


def missing():
    """Rows with gaps."""
    rows = ROWS.copy()
    rows[::5, 1] = np.nan
    dp.DPMixture("y", _alpha(), dp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)), observed=rows)


def latent():
    """Rows that are log rates of counts."""
    y = dp.DPMixture("y", _alpha(), base(), shape=(24,))
    pm.Poisson("w", pm.math.exp(y), observed=COUNTS)


def latent_with_shared_numbers():
    """Latent rows with a number that all share, which NUTS leaves to their step, and the mean of their base."""
    mean = pm.Normal("mean", 0.0, 3.0)
    y = dp.DPMixture("y", _alpha(), base(mu=mean), shape=(24,))
    b = pm.Normal("b", 0.0, 1.0)
    pm.Poisson("w", pm.math.exp(y + b * np.linspace(-1.0, 1.0, 24)), observed=COUNTS)


def latent_beside_nuts():
    """Latent rows beside a variable that NUTS draws."""
    y = dp.DPMixture("y", 1.0, base(), shape=(24,))
    pm.Normal("free", 0.0, 1.0)
    pm.Poisson("w", pm.math.exp(y), observed=COUNTS)


def units():
    """Several rows that have one label."""
    dp.DPMixture("y", _alpha(), base(), observed=ROWS[:, 0], unit=np.arange(24) // 2)


def views():
    """Two views of different families on the same labels."""
    labels = dp.CRP("z", _alpha(), 24)
    dp.CollapsedMixture("x", labels, base(), observed=ROWS[:, 0])
    dp.CollapsedMixture("counts", labels, dp.GammaPoisson(1.0, 0.1), observed=COUNTS)


def process():
    """Parameters of rows under a likelihood that is not conjugate to them."""
    theta = dp.DirichletProcess("theta", _alpha(), pm.Normal.dist(0.0, 2.0), shape=24)
    pm.Poisson("w", pm.math.exp(theta), observed=COUNTS)


def process_with_shared_numbers():
    """A process beside a number that all rows share, and a drawn scale of its base."""
    scale = pm.HalfNormal("scale", 2.0)
    theta = dp.DirichletProcess("theta", _alpha(), pm.Normal.dist(0.0, scale), shape=24)
    b = pm.Normal("b", 0.0, 1.0)
    pm.Poisson("w", pm.math.exp(theta + b * np.linspace(-1.0, 1.0, 24)), observed=COUNTS)


def discrete_process():
    """A process of whole numbers."""
    theta = dp.DirichletProcess("theta", 1.0, pm.Poisson.dist(5.0), shape=24)
    pm.Normal("w", theta, 1.0, observed=ROWS[:, 0])


def groups():
    """Rows in groups that share clusters."""
    gamma = pm.Gamma("gamma", 2.0, 2.0)
    dp.HDPMixture("y", _alpha(), gamma, base(), group=GROUP, observed=ROWS[:, 0])


def topics():
    """Topics with names."""
    dp.LDA("w", 3, 0.5, 0.5, observed=np.arange(24) % 5, group=GROUP)


def offsets():
    """A regression whose residuals are clustered."""
    b = pm.Normal("b", 0.0, 1.0)
    dp.DPMixture("y", _alpha(), base(), observed=ROWS[:, 0], offset=b * np.linspace(-1.0, 1.0, 24))


def hyperparameters():
    """Random numbers in the base measure."""
    mean, kappa = pm.Normal("mean", 0.0, 3.0), pm.Gamma("kappa", 1.0, 5.0)
    dp.DPMixture("y", _alpha(), base(mu=mean, kappa=kappa), observed=ROWS[:, 0])


def learnt_scale():
    """The base measure of who names none."""
    dp.DPMixture("y", _alpha(), observed=ROWS)


def dependents():
    """A variable of which each cluster has one, and labels on which it depends."""
    mu = pm.Normal("mu", 0.0, 3.0, shape=24)
    pm.Normal("w", mu[dp.CRP("z", 1.0, 24)], 1.0, observed=ROWS[:, 0])


def segments():
    """Rows in order, which change."""
    dp.ChangePoints("y", pm.Beta("p", 1.0, 9.0), base(), observed=ROWS[:, 0], sequence=GROUP)


def hidden_states():
    """Rows in order, each of whose states depends on the one before."""
    gamma, kappa = pm.Gamma("gamma", 2.0, 1.0), pm.Gamma("kappa", 2.0, 1.0)
    dp.HDPHMM("y", _alpha(), gamma, base(), kappa=kappa, observed=ROWS[:, 0], sequence=GROUP)


def components():
    """A random number of components."""
    dp.FiniteMixture("y", 1.0, 1 + pm.Poisson("k", 1.0), base(), observed=ROWS[:, 0])


KINDS = {
    of.__name__: of
    for of in (
        observed,
        missing,
        latent,
        latent_with_shared_numbers,
        latent_beside_nuts,
        units,
        views,
        process,
        process_with_shared_numbers,
        discrete_process,
        groups,
        topics,
        offsets,
        hyperparameters,
        learnt_scale,
        dependents,
        segments,
        hidden_states,
        components,
    )
}


def model_of(kind):
    """A model of a kind."""
    with pm.Model() as model:
        KINDS[kind]()
    return model
