"""Expressions of a model at a point."""

import numpy as np
import pymc as pm
import pytest

from pymc_dpgmm.integration.steps.points import MOST_KEPT, PointFunction


@pytest.mark.parametrize("n", [3, MOST_KEPT + 1])
@pytest.mark.parametrize("read", [lambda x: x, lambda x: 2.0 * x, lambda x: x[::-1]])
def test_values_follow_arrays_that_are_written_to(n, read):
    # In processes of its own PyMC writes every draw into the same arrays.
    with pm.Model() as model:
        x = pm.Normal("x", size=n)
    values = PointFunction(model, [read(x)])
    point = {"x": np.arange(float(n))}
    first = values(point)[0].copy()
    assert np.array_equal(first, read(np.arange(float(n))))
    kept = values(point)
    point["x"] += 1.0
    assert np.array_equal(values(point)[0], read(np.arange(float(n)) + 1.0))
    if n <= MOST_KEPT:
        assert np.array_equal(kept[0], first)


def test_values_are_kept_while_numbers_and_data_stay():
    with pm.Model() as model:
        data = pm.Data("data", np.ones(2))
        values = PointFunction(model, [pm.LogNormal("s") * data])
    point = {"s_log__": np.array(0.0)}
    first = values(point)
    assert values({"s_log__": np.array(0.0)}) is first
    assert np.allclose(values({"s_log__": np.log(3.0)})[0], 3.0)
    with model:
        pm.set_data({"data": np.array([2.0, 5.0])})
    assert np.allclose(values(point)[0], [2.0, 5.0])
