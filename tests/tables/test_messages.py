"""What errors say: the words that lead out, and none that lead astray."""

import fractions

import numpy as np
import pandas as pd
import pyarrow as pa
import pymc as pm
import pytest
from drawn import results

import pymc_dpgmm as dp

Z = np.arange(30) % 2
NIG = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
X = 5.0 * Z + np.linspace(-1.0, 1.0, 30)
COVARIATES = pd.DataFrame({"one": np.ones(30), "z": np.linspace(-2.0, 2.0, 30)})


def draws_of(base, observed):
    with pm.Model() as model:
        dp.DPMixture("t", 1.0, base, observed=observed)
    return results(model, {"t_labels": np.tile(Z, (8, 1))}, n_chains=2)


@pytest.fixture(scope="module")
def mixed():
    """Numbers, categories and counts, each in a view of its own."""
    table = pd.DataFrame({"x": X, "k": np.where(Z, "a", "b"), "c": Z + 2})
    base = {"x": NIG, "k": dp.DirichletCategorical, "c": dp.GammaPoisson(1.0, 1.0)}
    return draws_of(base, {key: table[[key]] for key in table}), table


@pytest.fixture(scope="module")
def regression():
    base = dp.LinearRegression(np.zeros(2), np.eye(2), 2.0, 1.0, covariates=COVARIATES)
    return draws_of({"r": base, "x": NIG}, {"r": X, "x": X})


def changed(table, **columns):
    return table.iloc[:2].assign(**columns)


ASKED = {
    "no columns": (
        lambda i, t: dp.predict(i, "t", t, of=[]),
        ["of must name at least one column"],
        ["max()", "concatenate"],
    ),
    "fractions of a count": (
        lambda i, t: dp.log_density(i, "t", changed(t, c=[0.5, 1.0])),
        ["entries must be counts 0, 1, 2", "0.5 in row 0"],
        ["observed"],
    ),
    "text in counts": (
        lambda i, t: dp.log_density(i, "t", changed(t, c="u")),
        ["the data has numbers there"],
        ["get_dummies"],
    ),
    "fractions": (
        lambda i, t: dp.log_density(i, "t", changed(t, c=[fractions.Fraction(1, 2)] * 2)),
        ["x.astype(float)"],
        [],
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_questions(case, mixed):
    ask, words, others = ASKED[case]
    with pytest.raises((TypeError, ValueError)) as error:
        ask(*mixed)
    assert all(word in str(error.value) for word in words)
    assert not any(word in str(error.value) for word in others)


def test_gaps_of_a_mixed_table_are_filled(mixed):
    """Categories with gaps have no mean, and do not keep the numbers from theirs."""
    idata, table = mixed
    gaps = table.iloc[:4].copy()
    gaps.loc[0, ["x", "k"]] = np.nan
    found = dp.predict(idata, "t", gaps, random_seed=1)
    assert found["column"].to_numpy().tolist() == ["x"]
    np.testing.assert_allclose(found["mean"][1:, 0], gaps["x"].iloc[1:])
    assert "k" in dp.predict(idata, "t", gaps, kind="draws", random_seed=1)
    gaps["x"] = table["x"]
    with pytest.raises(ValueError, match=r"no gaps but in categories.*kind='draws' or 'probability'"):
        dp.predict(idata, "t", gaps)


def test_what_is_given_to_one_of_several_views(regression):
    for given in (None, {"covariates": COVARIATES.iloc[:2]}):
        with pytest.raises(ValueError, match=r"pass given=\{'r': \{'covariates': \.\.\.\}\}"):
            dp.predict(regression, "t", {"x": [1.0, 2.0]}, of="r", given=given)
    rows = {"x": pd.Series([1.0, 2.0], index=["u", "v"])}
    named = {"r": {"covariates": COVARIATES.iloc[:2].set_axis(["u", "v"])}}
    by_position = {"r": {"covariates": {"one": [1.0, 1.0], "z": COVARIATES["z"].iloc[:2].tolist()}}}
    found = [
        dp.predict(regression, "t", rows, of="r", given=given, random_seed=1) for given in (named, by_position)
    ]
    np.testing.assert_array_equal(found[0]["mean"], found[1]["mean"])


OBSERVED = {
    "codes 1 and 2": (
        pd.DataFrame({"a": [0, 1, 1], "b": [1, 2, 1]}),
        dp.BetaBernoulli(1.0, 1.0),
        "of codes 1 and 2 subtract 1), got 2.0 in row 1, column 1",
    ),
    "fields of several numbers": (
        np.zeros(4, dtype=[("a", float), ("b", float, (2,))]),
        None,
        "the fields ['b'] of a structured array have several numbers in a row",
    ),
    "fractions": ([fractions.Fraction(1, k) for k in (1, 2, 3)], None, "such as fractions, become floats"),
    "negative counts": (np.array([[1, 2], [3, -1]]), dp.GammaPoisson(1.0, 1.0), "-1.0 in row 1, column 1"),
}


@pytest.mark.parametrize("case", OBSERVED)
def test_data(case):
    observed, base, words = OBSERVED[case]
    with pm.Model(), pytest.raises((TypeError, ValueError)) as error:
        dp.DPMixture("y", 1.0, base, observed=observed)
    assert words in str(error.value)


def test_large_integers_of_arrow_beside_missing_ones():
    table = pa.table({"a": pa.array([2**53 + 1, None, 3, 5]), "b": [1.0, 2.0, 3.0, 4.0]})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=table)
    values = model.rvs_to_values[model["y"]].data
    np.testing.assert_array_equal(values[:, 0], [2.0**53, np.nan, 3.0, 5.0])


def test_a_base_without_numbers_is_told_of_before_anything_is_compiled(monkeypatch):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, np.nan), shape=4)
        pm.Normal("y", theta, 1.0, observed=np.zeros(4))
        step = dp.DirichletProcessStep()
    monkeypatch.setattr(type(step.targets[0].densities), "at", None)
    with pytest.raises(ValueError, match="theta starts at nan: look at the parameters of its base"):
        step.prepare(model.initial_point(random_seed=1))
