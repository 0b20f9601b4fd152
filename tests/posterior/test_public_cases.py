"""Public data with published answers: shares, births, unseen words, frailties, interval-censored times."""

from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled

import pymc_dpgmm as dp

pytestmark = pytest.mark.slow
CASES = Path(__file__).parent.parent / "data" / "cases"
RUN = {"draws": 2_000, "tune": 1_000, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}


def test_shares_of_positive_nodes():
    """The distribution of a share, by deconvolveR .59 below .2 and .07 above .8, and shares of new patients."""
    rows = pd.read_csv(CASES / "surg.csv")
    with pm.Model():
        base = dp.BetaBinomial(0.5, 0.5, trials=rows["n"].to_numpy())
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 1.0), base, observed=rows["s"].to_numpy())
        idata = pm.sample(**RUN)

    def masses(weights, parameters):
        share = parameters["probability"].reshape(len(weights))
        return [weights @ (share < 0.2), weights @ (share > 0.8)]

    found = dp.functional(idata, "y", masses, random_seed=1)
    np.testing.assert_allclose(found["mean"], [0.60, 0.06], atol=0.03)
    new, trials = [3, 7, 17], [6, 32, 18]
    shares = dp.new_units(idata, "y", known=new, given={"trials": trials}, random_seed=1)["probability"]
    np.testing.assert_allclose(shares.mean(("chain", "draw")), [0.45, 0.22, 0.92], atol=0.03)


def test_early_births_by_exposure():
    """The share of births before 37 weeks rises with the exposure to DDE as the table has it (BNPmix)."""
    births = pd.read_csv(CASES / "cpp.csv")[["gest", "dde"]]
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 1.0), observed=births)
        idata = pm.sample(**RUN | {"draws": 500, "tune": 500})
    edges = [0.0, 15.0, 30.0, 45.0, 60.0, np.inf]
    raw = [(own["gest"] < 37.0).mean() for _, own in births.groupby(pd.cut(births["dde"], edges))]
    np.testing.assert_allclose(raw, [0.086, 0.145, 0.168, 0.229, 0.270], atol=5e-4)
    middles = [own["dde"].median() for _, own in births.groupby(pd.cut(births["dde"], edges))]
    found = dp.predict(
        idata, "y", {"dde": middles}, of="gest", kind="probability", below=37.0, n_draws=300, random_seed=1
    )
    np.testing.assert_allclose(found["mean"], raw, atol=0.04)
    assert np.all(np.diff(found["mean"]) > 0.0)
    assert np.all((found["lower"] < found["mean"]) & (found["mean"] < found["upper"]))


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.mark.parametrize(
    ("alpha", "sizes", "effects", "mu", "tau"),
    [
        (1.0, [0.1454, 0.3352, 0.3140, 0.1545, 0.0433, 0.0070], [6.01, 4.86, 4.62, 6.05], 3.64, 3.34),
        (5.0, [0.002, 0.019, 0.089, 0.218, 0.305, 0.245], None, 4.14, 2.94),
        (1e6, None, [6.21, 3.93, 3.62, 6.30], 4.40, 2.73),
    ],
)
def test_effects_of_schools(alpha, sizes, effects, mu, tau):
    """Sums over all 4,140 partitions; with a very large alpha the plain hierarchical model (posteriordb)."""
    with pm.Model():
        mean, sd = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(mean, sd), shape=8)
        pm.Normal("y", theta, ERRORS, observed=SCHOOLS)
        idata = pm.sample(**RUN | {"draws": 10_000})
    posterior = idata["posterior"]
    sampled.assert_mean_matches(posterior["mu"].to_numpy(), mu, n_errors=5.0)
    # Quantiles at which the median is known to two digits.
    assert np.mean(posterior["tau"] < tau - 0.25) < 0.5 < np.mean(posterior["tau"] < tau + 0.25)
    if sizes is not None:
        for k, p in enumerate(sizes, start=1):
            sampled.assert_mean_matches(1.0 * (posterior["theta_n_clusters"] == k).to_numpy(), p, n_errors=5.0)
    if effects is not None:
        for school, effect in zip((0, 2, 4, 6), effects, strict=True):
            sampled.assert_mean_matches(posterior["theta"].to_numpy()[..., school], effect, n_errors=5.0)


def test_new_words_of_shakespeare():
    """As much text again has 11,486 new words by the estimate of Good and Toulmin."""
    n_words = np.loadtxt(CASES / "bardWordCount.txt").astype(int)
    times = np.arange(1, len(n_words) + 1)
    assert np.sum(n_words * (-1.0) ** (times + 1)) == 11_486
    labels = np.repeat(np.arange(n_words.sum()), np.repeat(times, n_words))
    with pm.Model():
        dp.PitmanYor(
            "word", pm.Gamma("strength", 1.0, 1e-4), pm.Uniform("discount"), n=len(labels), observed=labels
        )
        idata = pm.sample(**RUN | {"draws": 300, "tune": 300})
    found = dp.functional(idata, "word", "new_clusters", len(labels), random_seed=1)
    assert found["mean"].item() == pytest.approx(11_486, rel=0.03)


def test_frailties_of_kidney_patients():
    """One normal cluster of frailties: a Weibull regression that BUGS has fitted."""
    rows = pd.read_csv(CASES / "kidney.csv")
    patient, _ = pd.factorize(rows["patient"])
    disease = np.eye(4)[rows["disease"].astype(int) - 1][:, 1:]
    X = np.column_stack([rows["age"], rows["sex"], disease])
    with pm.Model():
        level, b = pm.Normal("level", 0.0, 100.0), pm.Normal("b", 0.0, 100.0, shape=5)
        shape = pm.Gamma("shape", 1.0, 1e-3, initval=1.0)
        precision = pm.Gamma("precision", 1e-3, 1e-3, initval=1.0)
        base = pm.Normal.dist(0.0, 1.0 / pm.math.sqrt(precision))
        frailty = dp.DirichletProcess("frailty", 1e6, base, shape=patient.max() + 1)
        log_rate = level + X @ b + frailty[patient]
        t, event = rows["t"].to_numpy(float), rows["event"].to_numpy()
        log_hazard = pm.math.log(shape) + (shape - 1.0) * np.log(t) + log_rate
        pm.Potential("time", event * log_hazard - t**shape * pm.math.exp(log_rate))
        idata = pm.sample(**RUN | {"draws": 4_000})
    posterior = idata["posterior"]
    assert posterior["shape"].mean().item() == pytest.approx(1.25, abs=0.1)
    assert posterior["level"].mean().item() == pytest.approx(-4.78, abs=0.4)
    assert posterior["b"].mean(("chain", "draw"))[1].item() == pytest.approx(-1.97, abs=0.2)


def test_times_between_visits():
    """Interval-censored deterioration under two treatments: Turnbull's curves at 12, 24 and 36 months."""
    rows = pd.read_csv(CASES / "deterioration.csv")
    months = np.array([12.0, 24.0, 36.0])
    for treatment, turnbull in ((0.0, [0.76, 0.76, 0.59]), (1.0, [0.84, 0.44, 0.11])):
        own = rows[rows["trt"] == treatment]
        low = np.log(np.where(own["left"] < 0.1, 0.05, own["left"]))
        high = np.log(np.where(own["right"] < 0.0, 1e6, own["right"]))
        with pm.Model() as model:
            sd = pm.LogNormal("sd", -0.7, 0.5)
            theta = dp.DirichletProcess(
                "theta", pm.Gamma("alpha", 2.0, 1.0), pm.Normal.dist(3.5, 1.0), shape=len(own)
            )
            z_low, z_high = (low - theta) / sd, (high - theta) / sd
            is_above = z_low > 0.0
            a, b = pm.math.switch(is_above, -z_high, z_low), pm.math.switch(is_above, -z_low, z_high)
            log_cdf = pm.logcdf(pm.Normal.dist(), pm.math.stack([a, b]))
            pm.Potential("time", pm.math.logdiffexp(log_cdf[1], log_cdf[0]))
            idata = pm.sample(**RUN)
        new = dp.sample_new_rows(idata, "theta", 50, random_seed=1, model=model)["theta"].to_numpy()
        scale = idata["posterior"]["sd"].to_numpy()[..., None]
        times = np.exp(new + scale * np.random.default_rng(2).normal(size=new.shape))
        alive = [np.mean(times > month) for month in months]
        np.testing.assert_allclose(alive, turnbull, atol=0.13)
