"""The views that a mixture without a base measure makes of a frame: their columns, and what is refused."""

import logging
import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sklearn.metrics import adjusted_rand_score

import pymc_dpgmm as dp

N = 120
RNG = np.random.default_rng(3)
COLUMNS = {
    "reals": (RNG.normal(size=N), "numbers"),
    "with gaps": (np.where(np.arange(N) % 7, RNG.normal(size=N), np.nan), "numbers"),
    "years": (2007 + np.arange(N) % 3, "categories"),
    "doses": (np.array([0.5, 1.0, 2.5])[np.arange(N) % 3], "categories"),
    "stars": (1 + np.arange(N) % 5, "categories"),
    "seven points": (1 + np.arange(N) % 7, "numbers"),
    "bools": (np.arange(N) % 3 > 0, "binary"),
    "zeros and ones": (np.arange(N) % 2, "binary"),
    "with an unknown one": (np.r_[np.nan, np.ones(N // 2), np.zeros(N - N // 2 - 1)], "binary"),
    "one of many": (np.r_[1.0, np.zeros(N - 1)], "binary"),
    "text": (np.array(["a", "b", "c"])[np.arange(N) % 3], "categories"),
    "few rows a level": (np.r_[np.arange(N - 4) / 7.0, np.full(4, 3.0)], "numbers"),
    "visits": (RNG.poisson(np.array([1.0, 4.0, 12.0])[np.arange(N) % 3]), "counts"),
    "visits with gaps": (np.where(np.arange(N) % 9, RNG.poisson(2.0, N), np.nan), "counts"),
    "ages": (np.r_[0, RNG.integers(18, 80, size=N - 1)], "numbers"),
    "incomes": (np.where(np.arange(N) % 3, np.round(RNG.lognormal(9.0, 0.5, N)), 0.0), "numbers"),
    "less spread than counts": (np.r_[0, 3 + np.arange(N - 1) % 6], "numbers"),
    "with a half": (np.r_[0.5, 0.0, RNG.poisson(2.0, N - 2)], "numbers"),
    "below zero": (np.r_[-1.0, 0.0, RNG.poisson(2.0, N - 2)], "numbers"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kind_of_a_column(name):
    column, view = COLUMNS[name]
    frame = pd.DataFrame({"x": RNG.normal(size=N), name: column})
    assert name in dp.default_views(frame)[view][0]


def test_views_and_classes():
    views = dp.default_views(pd.DataFrame({name: column for name, (column, _) in COLUMNS.items()}))
    assert {view: base for view, (_, base) in views.items()} == {
        "numbers": dp.NormalInverseWishart,
        "counts": dp.GammaPoisson,
        "binary": dp.BetaBernoulli,
        "categories": dp.DirichletCategorical,
    }
    assert [column for columns, _ in views.values() for column in columns] == [
        name for view in views for name, (_, own) in COLUMNS.items() if own == view
    ]
    assert dp.default_views(pd.DataFrame({"x": RNG.normal(size=N)}))["numbers"] == (["x"], dp.NormalInverseGamma)
    wide = pd.DataFrame(RNG.normal(size=(N, 51)))
    assert dp.default_views(wide)["numbers"][1] == dp.NormalInverseGamma


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pd.date_range("2020-01-01", periods=N), r"\['other'\] is dates: dates become numbers as days"),
        ([f"name {i}" for i in range(N)], r"name the rows: put them into the index with .set_index\('other'\)"),
        (np.where(np.arange(N) % 2, "1.5", "2"), "numbers written as text become numbers with pandas.to_numeric"),
    ],
)
def test_columns_that_are_refused(column, told):
    frame = pd.DataFrame({"x": RNG.normal(size=N), "other": column})
    for function in (dp.default_views, lambda frame: dp.DPMixture("y", 1.0, observed=frame)):
        with pm.Model() as model, pytest.raises(TypeError, match=told):
            function(frame)
        assert not model.named_vars


def test_an_array_has_no_views():
    with pytest.raises(TypeError, match="whose columns have names"):
        dp.default_views(RNG.normal(size=(N, 2)))


def test_a_constant_column():
    frame = pd.DataFrame({"visits": COLUMNS["visits"][0], "same": 3})
    with pm.Model(), pytest.warns(UserWarning, match=r"the columns \['same'\] of observed are constant"):
        y = dp.DPMixture("y", 1.0, observed=frame)
    assert y.owner.op.layout.family_name == "GammaPoisson"
    assert y.type.shape == (N, 1)


def test_each_view_is_told_of(caplog):
    frame = pd.DataFrame({name: COLUMNS[name][0] for name in ("reals", "doses", "bools")})
    with pm.Model(), caplog.at_level(logging.INFO, "pymc.dpgmm"):
        dp.DPMixture("y", 1.0, observed=frame)
    assert [record.getMessage() for record in caplog.records] == [
        "y_numbers: ['reals'] as NormalInverseGamma",
        "y_binary: ['bools'] as BetaBernoulli",
        "y_categories: ['doses'] as DirichletCategorical",
    ]


def test_a_frame_of_all_kinds_is_clustered_and_asked_by_columns():
    groups = np.arange(N) % 3
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "size": rng.normal(4.0 * groups),
            "year": 2007 + (groups + (rng.random(N) < 0.1)) % 3,
            "visits": rng.poisson(np.array([1.0, 6.0, 20.0])[groups]),
            "smokes": rng.random(N) < np.array([0.1, 0.5, 0.9])[groups],
        }
    )
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        dp.DPMixture("y", 1.0, observed=frame)
        idata = pm.sample(200, tune=200, chains=2, cores=1, random_seed=1, progressbar=False)
    assert adjusted_rand_score(groups, dp.point_partition(idata, "y")["labels"]) > 0.8
    new = frame.iloc[:3][["size", "visits"]]
    found = dp.predict(idata, "y", new, of=["smokes"], random_seed=1)
    assert found["mean"].shape == (3, 1)
    years = dp.predict(idata, "y", new, of=["year"], kind="draws", random_seed=1)
    drawn = next(iter(years.data_vars.values()))
    assert set(np.unique(drawn)) <= {2007, 2008, 2009}
    np.testing.assert_allclose(
        dp.log_density(idata, "y", frame.iloc[:2])["row"],
        dp.log_density(idata, "y", frame.iloc[:2][["visits", "smokes", "year", "size"]])["row"],
    )
    density = dp.density(idata, "y", columns="visits", random_seed=1)
    assert float(density["mean"].sum()) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(ValueError, match=r"several views: choose .* columns=, from \['size', 'visits', "):
        dp.density(idata, "y")
