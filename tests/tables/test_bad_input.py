"""Bad input raises where it enters, names the argument, and leaves nothing in the model."""

import inspect

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.sparse import csr_array

import pymc_dpgmm as dp

ROWS = np.arange(12.0).reshape(6, 2) ** 0.5
EYE = np.eye(2)


def with_value(value):
    rows = ROWS.copy()
    rows[2, 1] = value
    return rows


NIW = dp.NormalInverseWishart
NIG = dp.NormalInverseGamma
SPHERICAL = dp.SphericalNormalInverseGamma(0.0, 1.0, 1.0, 1.0)

CASES = {
    "nan": (lambda: dp.DPMixture("y", 1.0, SPHERICAL, observed=with_value(np.nan)), ValueError, "missing entries"),
    "nan-frame": (
        lambda: dp.DPMixture("y", 1.0, SPHERICAL, observed=pd.DataFrame(with_value(np.nan))),
        ValueError,
        "1 missing entries",
    ),
    "masked": (
        lambda: dp.DPMixture("y", 1.0, SPHERICAL, observed=np.ma.masked_greater(ROWS, 3.0)),
        ValueError,
        r"missing entries \(NaN\), which SphericalNormalInverseGamma does not take",
    ),
    "infinite": (lambda: dp.DPMixture("y", 1.0, observed=with_value(np.inf)), ValueError, "must be finite"),
    "enormous": (
        lambda: dp.DPMixture("y", 1.0, observed=with_value(-1e160)),
        ValueError,
        r"within 1e\+100 of 0, got 1e\+160; rescale",
    ),
    "three-dimensional": (
        lambda: dp.DPMixture("y", 1.0, observed=np.zeros((2, 2, 2))),
        ValueError,
        r"\(n,\) or \(n, d\), got \(2, 2, 2\)",
    ),
    "scalar": (lambda: dp.DPMixture("y", 1.0, observed=3.0), ValueError, r"got \(\)"),
    "text": (lambda: dp.DPMixture("y", 1.0, observed=np.array(["a", "b"])), TypeError, "real numbers"),
    "complex": (lambda: dp.DPMixture("y", 1.0, observed=ROWS + 1j), TypeError, "are complex"),
    "empty": (lambda: dp.DPMixture("y", 1.0, observed=np.zeros((0, 2))), ValueError, "at least one row"),
    "no-columns": (lambda: dp.DPMixture("y", 1.0, observed=np.zeros((3, 0))), ValueError, "at least one"),
    "expression": (
        lambda: dp.DPMixture("y", 1.0, observed=pm.math.exp(ROWS)),
        TypeError,
        "expression of variables",
    ),
    "too-many-columns": (
        lambda: dp.DPMixture("y", 1.0, NIW(np.zeros(3), 1.0, 4.0, np.eye(3)), observed=ROWS),
        ValueError,
        "mu of NormalInverseWishart has d = 3, but the data has d = 2 columns",
    ),
    "vector-for-niw": (
        lambda: dp.DPMixture("y", 1.0, NIW(0.0, 1.0, 4.0, [[1.0]]), observed=ROWS[:, 0]),
        ValueError,
        "NormalInverseWishart needs data of shape",
    ),
    "kappa": (lambda: NIW(0.0, 0.0, 4.0, EYE), ValueError, "kappa must be > 0, got 0.0"),
    "nu": (lambda: NIW(0.0, 1.0, 1.0, EYE), ValueError, "nu must be > d - 1 = 1, got 1.0"),
    "asymmetric": (lambda: NIW(0.0, 1.0, 4.0, [[1, 0.5], [0.2, 1]]), ValueError, "psi must be symmetric"),
    "indefinite": (
        lambda: NIW(0.0, 1.0, 4.0, [[1, 2], [2, 1]]),
        ValueError,
        "psi must be positive definite",
    ),
    "zero-psi": (lambda: NIW(0.0, 1.0, 4.0, 0 * EYE), ValueError, "positive definite"),
    "not-square": (lambda: NIW(0.0, 1.0, 4.0, np.ones((2, 3))), ValueError, r"\(d, d\) matrix"),
    "text-mu": (lambda: NIW("far", 1.0, 4.0, EYE), TypeError, "mu must be real numbers"),
    "nan-mu": (lambda: NIW(np.nan, 1.0, 4.0, EYE), ValueError, "mu must be finite"),
    "a": (lambda: NIG(0.0, 1.0, 0.0, 1.0), ValueError, "a must be > 0"),
    "b": (lambda: NIG(0.0, 1.0, 1.0, [1.0, -1.0]), ValueError, "b must be > 0"),
    "columns-disagree": (
        lambda: NIG(np.zeros(3), 1.0, 1.0, np.ones(2)),
        ValueError,
        "mu with d = 3, b with d = 2",
    ),
    "alpha-zero": (lambda: dp.DPMixture("y", 0.0, observed=ROWS), ValueError, "alpha must be a finite number > 0"),
    "alpha-nan": (lambda: dp.DPMixture("y", np.nan, observed=ROWS), ValueError, "alpha must be"),
    "alpha-text": (lambda: dp.DPMixture("y", "1", observed=ROWS), TypeError, "alpha must be a real number"),
    "alpha-vector": (lambda: dp.DPMixture("y", [1.0, 2.0], observed=ROWS), ValueError, "alpha must be"),
    "no-rows": (lambda: dp.CRP("labels", 1.0, 0), ValueError, "n must be at least 1, got 0"),
    "fractional-rows": (lambda: dp.CRP("labels", 1.0, 2.5), TypeError, "n must be an integer"),
    "short-start": (
        lambda: dp.DPMixture("y", 1.0, observed=ROWS, initval=[0, 1]),
        ValueError,
        r"initval of labels must have shape \(6,\), got \(2,\)",
    ),
    "wild-start": (
        lambda: dp.DPMixture("y", 1.0, observed=ROWS, initval=[0, 1, 2, 3, 4, 9]),
        ValueError,
        r"0\.\.n-1 = 0\.\.5",
    ),
    "float-start": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, initval=np.zeros(6)), TypeError, "integers"),
    "taken": (lambda: dp.DPMixture("taken", 1.0, observed=ROWS), ValueError, "taken already exists"),
    "taken-labels": (lambda: dp.DPMixture("busy", 1.0, observed=ROWS), ValueError, "busy_labels already exists"),
    "dims": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, dims=("row", "column")), ValueError, "'row' has 3"),
    "few-dims": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, dims=("row",)), ValueError, "2 dimensions"),
    "latent-without-shape": (lambda: dp.DPMixture("y", 1.0, NIW(0, 1, 4, EYE)), ValueError, "needs shape"),
    "latent-without-base": (lambda: dp.DPMixture("y", 1.0, shape=(3, 2)), ValueError, "needs base= with"),
    "shape-mismatch": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, shape=(5, 2)), ValueError, "shape is"),
    "base-of-another-kind": (
        lambda: dp.DPMixture("y", 1.0, "niw", observed=ROWS),
        TypeError,
        "base must be a base measure",
    ),
    "latent-base-class": (
        lambda: dp.DPMixture("y", 1.0, NIW, shape=(5, 2)),
        ValueError,
        "needs base= with",
    ),
    "columns-of-text": (
        lambda: dp.DPMixture("y", 1.0, NIW, observed=pd.DataFrame({"a": [0.1, 2.0], "b": ["x", "y"]})),
        TypeError,
        r"the column \['b'\] is text: numbers written as text become numbers",
    ),
    "view-errors-name-the-view": (
        lambda: dp.DPMixture(
            "y", 1.0, {"a": NIG(0, 1, 1, 1), "b": dp.BetaBernoulli(1, 1)}, observed={"a": [0.1, 1], "b": [0, 2]}
        ),
        ValueError,
        "view 'b': binary columns must be 0 or 1",
    ),
    "view-named-labels": (
        lambda: dp.DPMixture("y", 1.0, {"labels": NIG(0, 1, 1, 1)}, observed={"labels": [0.1, 1]}),
        ValueError,
        "a view cannot be named 'labels'",
    ),
    "levels-for-one-column": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletCategorical(1.0, 3), observed=[[0, 1], [2, 0]]),
        ValueError,
        "levels must have one number per column: the data has 2, levels 1",
    ),
    "counts-of-one-column": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial([1.0, 1.0]), observed=[1, 2]),
        ValueError,
        r"got 1 dimensions; reshape it to \(n, 1\)$",
    ),
    "negative-counts": (
        lambda: dp.DPMixture("y", 1.0, dp.GammaPoisson(1, 1), observed=[1, -2, 3]),
        ValueError,
        "entries must be counts 0, 1, 2, ..., got negative values, as -2.0 in row 1",
    ),
    "fractional-counts": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial(1), observed=[[1, 2], [0, 0.5]]),
        ValueError,
        "got fractional values, as 0.5 in row 1",
    ),
    "negative-sparse-counts": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial(1), observed=csr_array([[1, 2], [0, -3]])),
        ValueError,
        "got negative values, as -3.0 in row 1",
    ),
    "fractional-sparse-counts": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial(1), observed=csr_array([[1, 2], [0, 0.3]])),
        ValueError,
        "got fractional values, as 0.3 in row 1",
    ),
    "sparse-for-niw": (
        lambda: dp.DPMixture("y", 1.0, NIW(0, 1, 4, EYE), observed=csr_array(ROWS)),
        TypeError,
        "sparse, which NormalInverseWishart does not take",
    ),
    "not-binary": (
        lambda: dp.DPMixture("y", 1.0, dp.BetaBernoulli(1, 1), observed=[[0, 1], [1, 2]]),
        ValueError,
        r"must be 0 or 1 \(of codes 1 and 2 subtract 1\), got 2.0 in row 1, column 1",
    ),
    "category-out-of-range": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletCategorical(1, [2, 3]), observed=[[0, 2], [2, 0]]),
        ValueError,
        r"column 0 must have codes 0\.\.1, for the 2 levels of the base measure, got 2.0 in row 1",
    ),
    "counts-missing": (
        lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial([1.0, 1.0]), observed=[[1, np.nan], [2, 1]]),
        ValueError,
        "1 missing entries",
    ),
    "alpha-not-in-the-model": (
        lambda: dp.DPMixture("y", pm.Gamma.dist(1.0, 1.0), observed=[1.0, 2.0]),
        ValueError,
        "alpha is a distribution, and no variable of the model: give it a name there",
    ),
    "levels": (lambda: dp.DirichletCategorical(1, [2, 0]), ValueError, "levels must be at least 1"),
    "fractional-levels": (lambda: dp.DirichletCategorical(1, 2.5), TypeError, "levels must be an integer"),
    "a-of-levels": (
        lambda: dp.DirichletCategorical([[1.0, 0.0], [1.0, 1.0]], [2, 2]),
        ValueError,
        "a must be > 0 for every level of every column",
    ),
    "levels-and-a": (lambda: dp.DirichletCategorical([1, 2, 3], [2, 2]), ValueError, "a has shape"),
    "more-successes": (
        lambda: dp.DPMixture("y", 1.0, dp.BetaBinomial(1, 1, [3, 3]), observed=[1, 4]),
        ValueError,
        "must not exceed trials, got 4.0 of 3.0 in row 1",
    ),
    "trials-of-missing-successes": (
        lambda: dp.DPMixture("y", 1.0, dp.BetaBinomial(1, 1, [3, 2.5]), observed=[1, np.nan]),
        ValueError,
        "trials must be counts 0, 1, 2, ..., got fractional values, as 2.5 in row 1",
    ),
    "trials-of-other-rows": (
        lambda: dp.DPMixture("y", 1.0, dp.BetaBinomial(1, 1, [3, 3, 3]), observed=[1, 2]),
        ValueError,
        "trials has 3 rows, but the data has 2",
    ),
    "exposure": (
        lambda: dp.DPMixture("y", 1.0, dp.GammaPoisson(1, 1, [1.0, 0.0]), observed=[1, 2]),
        ValueError,
        "exposure must be > 0, got 0.0 in row 1",
    ),
    "random-exposure": (
        lambda: dp.GammaPoisson(1, 1, pm.Gamma.dist(1, 1, shape=3)),
        TypeError,
        "exposure must be numbers or pm.Data",
    ),
    "covariates": (
        lambda: dp.DPMixture("y", 1.0, dp.LinearRegression(0, 1, 1, 1, ROWS), observed=[1.0, 2.0]),
        ValueError,
        "covariates has 6 rows, but the data has 2",
    ),
    "regression-of-a-matrix": (
        lambda: dp.DPMixture("y", 1.0, dp.LinearRegression(0, 1, 1, 1, ROWS), observed=ROWS),
        ValueError,
        r"LinearRegression needs data of shape \(n,\)",
    ),
    "offset-of-a-name": (
        lambda: dp.DPMixture("y", 1.0, NIG(0, 1, 1, 1), observed=[1.0, 2.0], offset="x"),
        TypeError,
        "offset must have one entry for every row, got the text",
    ),
    "precision": (
        lambda: dp.LinearRegression(0, [[1, 2], [2, 1]], 1, 1, ROWS),
        ValueError,
        "precision must be positive definite",
    ),
    "asymmetric-precision": (
        lambda: dp.LinearRegression(0, [[1, 0.5], [0.2, 1]], 1, 1, ROWS),
        ValueError,
        "precision must be symmetric",
    ),
    "coefficients": (
        lambda: dp.DPMixture("y", 1.0, dp.LinearRegression([0, 0, 0], 1, 1, 1, ROWS), observed=ROWS[:, 0]),
        ValueError,
        r"agree on the number of columns p|mu has shape \(3,\)",
    ),
    "latent-counts": (
        lambda: dp.DPMixture("y", 1.0, dp.GammaPoisson(1, 1), shape=(4,)),
        ValueError,
        "GammaPoisson describes observed data only",
    ),
    "negative-discount": (lambda: dp.PitmanYor("z", 1.0, -0.1, 5), ValueError, r"discount must lie in \[0, 1\)"),
    "discount-one": (
        lambda: dp.PYMixture("y", 1.0, 1.0, observed=ROWS),
        ValueError,
        r"discount must lie in \[0, 1\)",
    ),
    "alpha-below-discount": (
        lambda: dp.PYMixture("y", -0.3, 0.3, observed=ROWS),
        ValueError,
        "alpha must be > -discount, got alpha = -0.3 and discount = 0.3",
    ),
    "no-components": (
        lambda: dp.FiniteMixture("y", 1.0, 0, observed=ROWS),
        ValueError,
        "n_components must be at least 1, got 0",
    ),
    "fractional-components": (
        lambda: dp.FiniteMixture("y", 1.0, 2.5, observed=ROWS),
        TypeError,
        "n_components must be an integer",
    ),
    "gamma": (lambda: dp.MFMixture("y", 0.0, observed=ROWS), ValueError, "gamma must be a finite number > 0"),
    "components": (
        lambda: dp.MFMixture("y", 1.0, components=pm.Normal.dist(3), observed=ROWS),
        TypeError,
        "components must be a scalar distribution on the integers",
    ),
    "number-of-components": (
        lambda: dp.MFMixture("y", 1.0, components=3, observed=ROWS),
        TypeError,
        "components must be a scalar distribution on the integers",
    ),
    "views-of-different-lengths": (
        lambda: dp.DPMixture("y", 1.0, {"a": None, "b": None}, observed={"a": ROWS, "b": ROWS[:4]}),
        ValueError,
        "same number of rows, got y_a with 6, y_b with 4",
    ),
    "labels-of-other-rows": (
        lambda: dp.CollapsedMixture("y", dp.CRP("z", 1.0, 5), NIW(0, 1, 4, EYE), observed=ROWS),
        ValueError,
        "labels z are for n = 5 rows, but the data has 6",
    ),
    "views-without-data": (
        lambda: dp.DPMixture("y", 1.0, {"a": None}, observed=ROWS),
        TypeError,
        "observed must be a DataFrame or a dict",
    ),
    "views-differ": (
        lambda: dp.DPMixture("y", 1.0, {"a": None}, observed={"b": ROWS}),
        ValueError,
        r"same views, got \['a'\] and \['b'\]",
    ),
    "view-without-columns": (
        lambda: dp.DPMixture("y", 1.0, {"a": None}, observed=pd.DataFrame(ROWS)),
        TypeError,
        r"base\['a'\] must be \(columns, base\)",
    ),
    "unknown-column": (
        lambda: dp.DPMixture("y", 1.0, {"a": (["u", 0], None)}, observed=pd.DataFrame(ROWS)),
        ValueError,
        r"view 'a': observed has no columns \['u'\]",
    ),
    "no-views": (lambda: dp.DPMixture("y", 1.0, {}, observed=pd.DataFrame(ROWS)), ValueError, "no views"),
    "float-labels": (
        lambda: dp.CollapsedMixture("y", np.zeros(6), NIW(0, 1, 4, EYE), observed=ROWS, shape=(6, 2)),
        TypeError,
        "labels must be a vector of integers",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    build, error, message = CASES[case]
    with pm.Model(coords={"row": range(3)}) as model:
        pm.Normal("taken")
        pm.Normal("busy_labels")
        before = registered(model)
        with pytest.raises(error, match=message):
            build()
        if case == "labels-of-other-rows":
            # Labels of their own are a line of their own.
            del model.named_vars["z"]
            return
        assert registered(model) == before


def registered(model):
    return (
        list(model.named_vars),
        [v.name for v in model.basic_RVs],
        [v.name for v in model.deterministics],
        dict(model.coords),
        list(model.dim_lengths),
        list(model.rvs_to_initial_values.values()),
    )


def test_a_nested_model_is_put_back_too():
    with pm.Model(coords={"one": range(len(ROWS))}) as outer, pm.Model(name="inner") as inner:
        with pytest.raises(ValueError, match="dims must name"):
            dp.DPMixture("y", pm.Exponential("alpha", 1.0), observed=ROWS, dims=("one",))
        assert list(inner.named_vars) == list(outer.named_vars) == ["inner::alpha"]
        dp.DPMixture("y", inner["alpha"], observed=ROWS)
        assert "inner::y_labels" in outer.named_vars


@pytest.mark.parametrize("prior", [dp.CRP, dp.PitmanYor, dp.FiniteDirichlet, dp.MFM])
def test_priors_name_all_that_they_take(prior):
    """Where a user looks for it: help() and the completion of an editor."""
    found = list(inspect.signature(prior).parameters)
    assert found[0] == "name"
    assert found[-5:] == ["dims", "known_labels", "must_link", "initval", "observed"]
    assert ("components" in found) == (prior is dp.MFM)


def test_columns_may_have_the_names_of_what_variables_have():
    """A table with such columns was taken for a variable of the model."""
    frame = pd.DataFrame({"owner": [1.0, 2.0, 3.0], "type": [2.0, 1.0, 0.5], "name": [0.1, 0.2, 0.3]})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame)
    assert model.coords["y_feature"] == ("owner", "type", "name")
