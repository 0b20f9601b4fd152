"""Small graphs are evaluated in Python: a model is built before a compiler could have started."""

import numpy as np
import pymc as pm
import pytest
from pytensor.link.c.op import COp

import pymc_dpgmm as dp
from pymc_dpgmm.integration.process_density.process_model import ProcessModel
from pymc_dpgmm.integration.variables.models import PYTHON_MODE, value_of

ROWS = np.array([-1.0, 0.2, 0.3, 2.0])


@pytest.fixture
def without_compilers(monkeypatch):
    """Fail where PyTensor asks for the C++ code of an operation."""

    def refuse(op, *_):
        raise AssertionError(f"{op} is compiled")

    monkeypatch.setattr(COp, "make_c_thunk", refuse)


def test_the_number_of_components_needs_no_compiler(without_compilers):
    """The default prior, one that is given, and one whose range of numbers is doubled."""
    for components in (None, pm.Poisson.dist(3.0), pm.Geometric.dist(0.002)):
        with pm.Model() as model:
            dp.MFMixture("y", 1.0, components=components, observed=ROWS)
        log_p = value_of(model["y_labels"].owner.op.dist_params(model["y_labels"].owner)[1])
        assert np.exp(log_p).sum() == pytest.approx(1.0)


def test_rows_of_a_process_are_recognised_without_a_compiler(without_compilers):
    """Densities of mixtures have graphs inside of operations."""
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Gamma.dist(2.0, 1.0), shape=4)
        pm.ZeroInflatedPoisson("y", 0.7, theta, observed=[0, 1, 0, 4])
    found = ProcessModel(model, model["theta_labels"], {"mode": PYTHON_MODE})
    found.confirm(model.initial_point(random_seed=1))
    assert found.dependents == [model["y"]]
