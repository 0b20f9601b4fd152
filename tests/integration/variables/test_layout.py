"""What a mixture's random variable knows of its inputs and of the data of its labels."""

import copy
import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.integration.variables import mixture_inputs
from pymc_dpgmm.integration.variables.layout import Layout, MixtureInputs
from pymc_dpgmm.integration.variables.snapshots import check_unchanged, last_sampled, note_sampling

OPTIONAL = ["given", "missing", "positions", "offset", "data", "rows"]


@pytest.mark.parametrize("present", [[], ["data"], OPTIONAL, ["missing", "positions", "data"], ["offset"]])
@pytest.mark.parametrize("family", ["NormalInverseWishart", "LinearRegression"])
def test_inputs_are_found_by_name(family, present):
    params = [f"parameter {i}" for i in range(len(Layout(family, 2, False, False).family.axes))]
    inputs = MixtureInputs("labels", params, behind=["x"], **{name: name for name in present})
    layout = Layout(family, 2, False, False, behind=(("x", 1),)).having(inputs)
    assert layout.split(inputs.in_order()) == inputs
    assert layout.signature().split("->")[0].count("(") == len(inputs.in_order())
    assert hash(layout) == hash(copy.deepcopy(layout))


def model_with_data():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(4.0))
        gaps = np.array([0.1, np.nan, 1.2, -2.0])
        base = dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
        dp.DPMixture("y", 1.0, base, observed=gaps, offset=x, impute=True)
    return model


def test_inputs_of_a_model():
    model = model_with_data()
    inputs = mixture_inputs(model["y"])
    assert inputs.labels is model["y_labels"]
    assert inputs.missing is model["y_missing"]
    np.testing.assert_array_equal(inputs.positions.data, [1])
    assert inputs.given is None
    assert inputs.rows is None
    np.testing.assert_array_equal(inputs.offset.eval(), np.arange(4.0))


def test_snapshots_are_frozen_and_copies_keep_the_last_sampling():
    model = model_with_data()
    built, inputs = model["y"].owner.op.built, mixture_inputs(model["y"]).in_order()
    with pytest.raises(TypeError):
        built.values["x"] = np.zeros(4)
    model.set_data("x", np.ones(4))
    with pytest.raises(ValueError, match=r"x was changed by pm.set_data"):
        check_unchanged(built, {"x": np.ones(4)}, "y")
    note_sampling(built, inputs)
    check_unchanged(built, {"x": np.ones(4)}, "y")
    np.testing.assert_array_equal(built.values["x"], np.arange(4.0))
    for own in (pickle.loads(pickle.dumps(built)), copy.deepcopy(built)):
        np.testing.assert_array_equal(last_sampled(own).values["x"], np.ones(4))


def test_operations_are_those_of_one_mixture():
    """Two mixtures of the same kind remember their own data."""
    first, second = (model_with_data()["y"].owner.op for _ in range(2))
    assert first != second
    again = type(first)(**{name: getattr(first, name) for name in first.__props__})
    assert again == first
    assert hash(again) == hash(first)
