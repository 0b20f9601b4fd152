"""PyMC's ``ZarrTrace`` in an environment of its own (``make test-zarr``): it does not work with zarr 3."""

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

zarr = pytest.importorskip("zarr", reason="PyMC's ZarrTrace needs zarr < 3 in an environment of its own")
pytestmark = pytest.mark.skipif(
    int(zarr.__version__.split(".")[0]) >= 3, reason="PyMC's ZarrTrace needs zarr < 3 in an environment of its own"
)


@pytest.mark.parametrize("cores", [1, 2])
def test_draws_and_states_go_to_zarr(tmp_path, cores):
    rows = np.random.default_rng(0).normal(size=(30, 2))
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=rows)
        options = {"tune": 20, "chains": 2, "random_seed": 1, "progressbar": False, "cores": cores}
        trace = pm.backends.ZarrTrace(store=zarr.DirectoryStore(str(tmp_path / "trace.zarr")))
        stored = pm.sample(40, trace=trace, compute_convergence_checks=False, **options)
        plain = pm.sample(40, compute_convergence_checks=False, **options)
    for name in ("y_labels", "alpha"):
        assert np.array_equal(stored.posterior[name], plain.posterior[name])
