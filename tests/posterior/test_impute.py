"""Completed tables: what is there stays, what is missing has its posterior, and pooled intervals cover."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy import stats

import pymc_dpgmm as dp

RNG = np.random.default_rng(4)
N = 60
WHOLE = pd.DataFrame(
    {
        "height": RNG.normal(170.0, 10.0, N),
        "weight": RNG.normal(70.0, 8.0, N),
        "visits": RNG.poisson(3.0, N).astype(float),
        "smokes": pd.array(RNG.random(N) < 0.4, dtype="boolean"),
        "region": pd.Categorical(RNG.choice(["north", "south", "west"], N)),
    },
    index=[f"person {i}" for i in range(N)],
)


def with_gaps():
    frame = WHOLE.copy()
    for j, column in enumerate(frame):
        frame.loc[frame.index[j::9], column] = None
    return frame


def test_tables_are_like_the_data():
    frame = with_gaps()
    with pm.Model():
        dp.DPMixture("t", 1.0, observed=frame)
        idata = pm.sample(30, tune=100, chains=2, cores=1, random_seed=1, progressbar=False)
    tables = dp.impute(idata, "t", 5, random_seed=1)
    assert len(tables) == 5
    for table in tables:
        assert table.index.tolist() == frame.index.tolist()
        assert list(table.columns) == list(frame.columns)
        assert not table.isna().any().any()
        assert table["visits"].dtype == np.int64
        assert table["smokes"].dtype == np.bool_
        assert table["region"].cat.categories.tolist() == ["north", "south", "west"]
        for column in frame:
            is_there = frame[column].notna()
            own, wanted = table.loc[is_there, column], frame.loc[is_there, column]
            if column in ("height", "weight"):
                np.testing.assert_allclose(own, wanted)
            else:
                assert (own.astype(str) == wanted.map(_as_text).astype(str)).all()
    gaps = frame["height"].isna()
    drawn = np.stack([table.loc[gaps, "height"] for table in tables])
    assert np.all(drawn.std(axis=0) > 1.0)
    again = dp.impute(idata, "t", 5, random_seed=1)
    pd.testing.assert_frame_equal(tables[2], again[2])


def _as_text(value):
    return int(value) if isinstance(value, float) else value


@pytest.mark.parametrize("family", ["normal", "poisson", "known covariance"])
def test_what_is_missing_has_its_posterior(family):
    """In one cluster: the predictive given all that is there, and given the rest of the row."""
    rng = np.random.default_rng(1)
    if family == "normal":
        rows = rng.normal(2.0, 1.0, size=9)
        base = dp.NormalInverseGamma(0.0, 0.5, 2.0, 1.0)
        kappa, a = 8.5, 6.0
        known = rows[1:]
        mean = known.sum() / kappa
        b = 1.0 + 0.5 * np.sum((known - known.mean()) ** 2) + 0.5 * 0.5 * 8 / kappa * known.mean() ** 2
        wanted = stats.t(2 * a, mean, np.sqrt(b / a * (1.0 + 1.0 / kappa)))
    elif family == "poisson":
        rows = rng.poisson(4.0, size=9).astype(float)
        base = dp.GammaPoisson(1.0, 0.3)
        total = rows[1:].sum()
        wanted = stats.nbinom(1.0 + total, 8.3 / 9.3)
    else:
        covariance = np.array([[1.0, 0.7], [0.7, 1.0]])
        rows = rng.multivariate_normal([1.0, -1.0], covariance, size=9)
        base = dp.NormalKnownCovariance(0.0, np.eye(2) * 4.0, np.repeat(covariance[None], 9, axis=0))
        precision = np.eye(2) / 4.0 + 8.0 * np.linalg.inv(covariance)
        pull = np.linalg.inv(covariance) @ rows[1:].sum(axis=0)
        precision[1, 1] += 1.0
        pull[1] += rows[0, 1]
        spread = np.linalg.inv(precision)
        mean = spread @ pull
        slope = 0.7
        centre = mean[0] + slope * (rows[0, 1] - mean[1])
        variance = 1.0 - 0.49 + spread[0, 0] - 2.0 * slope * spread[0, 1] + slope**2 * spread[1, 1]
        wanted = stats.norm(centre, np.sqrt(variance))
    observed = rows.copy()
    observed.reshape(9, -1)[0, 0] = np.nan
    with pm.Model():
        dp.DPMixture("y", 1e-9, base, observed=observed)
        idata = pm.sample(1_500, tune=20, chains=2, cores=1, random_seed=1, progressbar=False)
    drawn = np.array([table.iloc[0, 0] for table in dp.impute(idata, "y", 3_000, random_seed=2)])
    assert drawn.mean() == pytest.approx(wanted.mean(), abs=4.0 * wanted.std() / np.sqrt(3_000))
    assert drawn.std() == pytest.approx(wanted.std(), rel=0.08)


@pytest.mark.slow
def test_intervals_of_pooled_estimates_cover():
    """Of the mean of a column of which a third is missing where another column is large (Rubin 1987)."""
    n, m, n_replicates, covered = 80, 20, 200, 0
    for replicate in range(n_replicates):
        rng = np.random.default_rng([9, replicate])
        rows = rng.multivariate_normal([0.0, 1.0], [[1.0, 0.6], [0.6, 1.0]], size=n)
        rows[rng.random(n) < np.where(rows[:, 0] > 0.0, 0.6, 0.1), 1] = np.nan
        with pm.Model():
            dp.DPMixture("y", 0.5, observed=rows)
            idata = pm.sample(200, tune=200, chains=1, random_seed=replicate, progressbar=False)
        means, variances = np.array(
            [(t[1].mean(), t[1].var() / n) for t in map(_numbered, dp.impute(idata, "y", m, random_seed=1))]
        ).T
        between = means.var(ddof=1)
        total = variances.mean() + (1.0 + 1.0 / m) * between
        degrees = (m - 1) * (1.0 + variances.mean() / ((1.0 + 1.0 / m) * between)) ** 2
        half = stats.t.ppf(0.95, degrees) * np.sqrt(total)
        covered += abs(means.mean() - 1.0) < half
    # Of 200 intervals of 90 %, with an error of .021.
    assert 0.84 < covered / n_replicates < 0.96


def _numbered(table):
    return table.set_axis(range(table.shape[1]), axis=1)


def test_what_is_refused():
    with pm.Model():
        y = dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), shape=(5,))
        pm.Normal("z", y, 1.0, observed=np.arange(5.0))
        idata = pm.sample(10, tune=10, chains=1, random_seed=1, progressbar=False)
    with pytest.raises(ValueError, match=r"the rows of \['y'\] are latent"):
        dp.impute(idata, "y")
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=[1.0, np.nan, 2.0])
        idata = pm.sample(10, tune=10, chains=1, random_seed=1, progressbar=False)
    with pytest.raises(ValueError, match="m must be at most the number of draws, 10, got 20"):
        dp.impute(idata, "y")
