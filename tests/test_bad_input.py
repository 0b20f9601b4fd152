"""Bad input raises where it enters, names the argument, and leaves nothing in the model."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dpgmm as dp

ROWS = np.arange(12.0).reshape(6, 2) ** 0.5
EYE = np.eye(2)


def with_value(value):
    rows = ROWS.copy()
    rows[2, 1] = value
    return rows


NIW = dp.NormalInverseWishart
NIG = dp.NormalInverseGamma

CASES = {
    "nan": (lambda: dp.DPMixture("y", 1.0, observed=with_value(np.nan)), ValueError, "missing values"),
    "nan-frame": (
        lambda: dp.DPMixture("y", 1.0, observed=pd.DataFrame(with_value(np.nan))),
        ValueError,
        "1 NaN; missing values are not supported yet",
    ),
    "masked": (
        lambda: dp.DPMixture("y", 1.0, observed=np.ma.masked_greater(ROWS, 3.0)),
        ValueError,
        "masked entries; missing values",
    ),
    "infinite": (lambda: dp.DPMixture("y", 1.0, observed=with_value(np.inf)), ValueError, "must be finite"),
    "three-dimensional": (
        lambda: dp.DPMixture("y", 1.0, observed=np.zeros((2, 2, 2))),
        ValueError,
        r"\(n,\) or \(n, d\), got \(2, 2, 2\)",
    ),
    "scalar": (lambda: dp.DPMixture("y", 1.0, observed=3.0), ValueError, r"got \(\)"),
    "text": (lambda: dp.DPMixture("y", 1.0, observed=np.array(["a", "b"])), TypeError, "real numbers"),
    "complex": (lambda: dp.DPMixture("y", 1.0, observed=ROWS + 1j), TypeError, "dtype complex128"),
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
    "latent-without-base": (lambda: dp.DPMixture("y", 1.0, shape=(3, 2)), ValueError, "needs a base measure"),
    "shape-mismatch": (lambda: dp.DPMixture("y", 1.0, observed=ROWS, shape=(5, 2)), ValueError, "shape is"),
    "base-class": (lambda: dp.DPMixture("y", 1.0, NIW, observed=ROWS), TypeError, "base must be a base measure"),
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
    with pm.Model() as outer, pm.Model(name="inner") as inner:
        with pytest.raises(ValueError, match="dims must name"):
            dp.DPMixture("y", pm.Exponential("alpha", 1.0), observed=ROWS, dims=("one",))
        assert list(inner.named_vars) == list(outer.named_vars) == ["inner::alpha"]
        dp.DPMixture("y", inner["alpha"], observed=ROWS)
        assert "inner::y_labels" in outer.named_vars
