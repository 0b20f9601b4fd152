"""The mixture as a part of a PyMC model: densities, gradients, prior draws, names and data."""

import subprocess
import sys

import cloudpickle
import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.integration.variables.operations import JointOp

pytestmark = pytest.mark.interpreted

ROWS = np.array([[0.1, 2.0], [1.5, 2.2], [-0.3, 0.4], [1.1, 3.0], [0.2, -1.0]])
LABELS = np.array([3, 0, 3, 0, 1])
NIW = {
    "mu": np.array([0.3, 1.0]),
    "kappa": 0.4,
    "nu": 3.5,
    "psi": np.array([[1.0, 0.3 * 0.8**0.5], [0.3 * 0.8**0.5, 0.8]]),
}
NIG = {"mu": np.array([0.3, 1.0]), "kappa": 0.4, "a": 1.2, "b": np.array([0.7, 0.5])}


def niw_model(labels_value=None):
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.5)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        kappa = pm.Gamma("kappa", 2.0, 3.0)
        extra = pm.Exponential("extra", 1.0)
        diagonal = pm.HalfNormal("diagonal", 2.0, shape=2)
        between = 0.3 * pm.math.sqrt(diagonal[0] * diagonal[1])
        psi = pm.math.stack([[diagonal[0], between], [between, diagonal[1]]])
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(mu, kappa, 1.0 + extra, psi), observed=ROWS)
    return model


def nig_model():
    with pm.Model() as model:
        alpha = pm.HalfCauchy("alpha", 2.0)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        kappa = pm.Gamma("kappa", 2.0, 3.0)
        a = pm.Gamma("a", 2.0, 1.0)
        b = pm.Gamma("b", 2.0, 1.0, shape=2)
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(mu, kappa, a, b), observed=ROWS)
    return model


def partition_log_joint(log_marginal, labels, alpha, **base):
    canonical = np.unique(labels, return_inverse=True)[1]
    return exact.log_eppf(canonical, alpha) + sum(
        log_marginal(ROWS[canonical == k], **base) for k in range(canonical.max() + 1)
    )


def test_logp_equals_the_closed_form():
    with niw_model() as model:
        point = {
            "alpha_log__": np.log(0.8),
            "mu": NIW["mu"],
            "kappa_log__": np.log(NIW["kappa"]),
            "extra_log__": np.log(2.5),
            "diagonal_log__": np.log([1.0, 0.8]),
            "y_labels": LABELS.astype("int16"),
        }
        terms = dict(zip([rv.name for rv in model.basic_RVs], model.compile_logp(sum=False)(point), strict=True))
    got = terms["y"].sum() + terms["y_labels"].sum()
    assert got == pytest.approx(partition_log_joint(exact.niw_log_marginal, LABELS, 0.8, **NIW), rel=1e-9)


def test_nig_logp_equals_the_closed_form():
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, dp.NormalInverseGamma(**NIG), observed=ROWS)
    got = model.compile_logp()({"y_labels": LABELS})
    assert got == pytest.approx(partition_log_joint(exact.nig_log_marginal, LABELS, 0.8, **NIG), rel=1e-9)


@pytest.mark.parametrize("make", [niw_model, nig_model])
def test_gradient_equals_finite_differences(make):
    model = make()
    point = model.initial_point(random_seed=4) | {"y_labels": LABELS.astype("int16")}
    free = [v for v in model.value_vars if v.name != "y_labels"]
    function = model.logp_dlogp_function(free, ravel_inputs=True, initial_point=point)
    function.set_extra_values(point)
    start = np.concatenate([np.ravel(point[v.name]) for v in free])
    _, gradient = function(start)
    for i in range(len(start)):
        step = np.zeros(len(start))
        step[i] = 1e-5
        numeric = (function(start + step)[0] - function(start - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=2e-6, abs=1e-6)


def test_names_of_labels_do_not_matter_and_bad_ones_have_density_zero():
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, dp.NormalInverseWishart(**NIW), observed=ROWS)
    logp = model.compile_logp()
    assert logp({"y_labels": LABELS}) == pytest.approx(logp({"y_labels": np.array([0, 1, 0, 1, 2])}), rel=1e-12)
    for bad in ([0, 5, 0, 1, 2], [0, -1, 0, 1, 2]):
        assert logp({"y_labels": np.array(bad)}) == -np.inf


def test_parameters_outside_their_support_have_density_zero():
    with pm.Model() as model:
        alpha = pm.Normal("alpha")
        kappa = pm.Normal("kappa", 1.0)
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(0.0, kappa, 3.0, np.eye(2)), observed=ROWS)
    logp = model.compile_logp()
    for alpha, kappa in ((1.0, -0.5), (-1.0, 0.5)):
        assert logp({"alpha": alpha, "kappa": kappa, "y_labels": LABELS}) == -np.inf
    assert np.isfinite(logp({"alpha": 1.0, "kappa": 0.5, "y_labels": LABELS}))


def test_a_number_is_a_shape_too():
    densities = []
    for shape in (4, (4,), np.int64(4)):
        with pm.Model() as model:
            labels = dp.CRP("labels", 1.0, 4)
            dp.CollapsedMixture("x", labels, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), shape=shape)
        point = {"labels": np.array([0, 0, 1, 1]), "x": np.arange(4.0)}
        densities.append(float(model.compile_logp()(point)))
    assert densities[0] == densities[1] == densities[2]


def test_latent_rows_have_a_gradient():
    with pm.Model() as model:
        dp.DPMixture("beta", 1.0, dp.NormalInverseWishart(**NIW), shape=(5, 2))
    point = {"beta": ROWS, "beta_labels": LABELS}
    gradient = model.compile_dlogp([model["beta"]])(point)
    logp = model.compile_logp()
    for i in range(ROWS.size):
        step = np.zeros(ROWS.size)
        step[i] = 1e-5
        up = logp(point | {"beta": ROWS + step.reshape(ROWS.shape)})
        down = logp(point | {"beta": ROWS - step.reshape(ROWS.shape)})
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-6)


def test_prior_predictive_draws_rows_from_the_prior():
    with pm.Model():
        base = dp.NormalInverseWishart([1.0, -2.0], 2.0, 8.0, np.diag([2.0, 1.0]))
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 1.0), base, observed=ROWS)
        drawn = pm.sample_prior_predictive(4000, random_seed=3)
    first = drawn.prior_predictive["y"].to_numpy()[0, :, 0]
    error = 5 * first.std(axis=0) / np.sqrt(len(first))
    assert np.all(np.abs(first.mean(axis=0) - [1.0, -2.0]) < error)
    np.testing.assert_allclose(first.var(axis=0), np.array([2.0, 1.0]) / 5 * 1.5, rtol=0.15)
    labels = drawn.prior["y_labels"].to_numpy()[0]
    assert np.all(labels[:, 0] == 0)
    counts = drawn.prior["y_n_clusters"].to_numpy()[0]
    assert np.array_equal(counts, labels.max(axis=1) + 1)


def test_pandas_names_become_coords():
    frame = pd.DataFrame(ROWS, columns=["duration", "waiting"], index=list("abcde"))
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame)
        dp.DPMixture("z", 1.0, observed=pd.Series(ROWS[:, 0], index=pd.RangeIndex(5)))
    assert model.named_vars_to_dims["y"] == ("y_obs", "y_feature")
    assert model.named_vars_to_dims["y_labels"] == ("y_obs",)
    assert model.coords["y_feature"] == ("duration", "waiting")
    assert model.coords["y_obs"] == tuple("abcde")
    assert model.named_vars_to_dims["z_labels"] == ("z_obs",)


def test_given_dims_win_and_data_containers_work():
    frame = pd.DataFrame(ROWS, columns=["duration", "waiting"])
    with pm.Model(coords={"eruption": range(5), "column": ["a", "b"]}) as model:
        dp.DPMixture("y", 1.0, observed=frame, dims=("eruption", "column"))
        data = pm.Data("data", ROWS, dims=("eruption", "column"))
        dp.DPMixture("z", 1.0, observed=data)
        assert model.named_vars_to_dims["y_labels"] == ("eruption",)
        assert model.named_vars_to_dims["z_labels"] == ("eruption",)
        values = model.point_logps(model.initial_point(0))
    assert np.all(np.isfinite(list(values.values())))


def test_graphviz():
    graphviz = pytest.importorskip("graphviz")
    drawn = pm.model_to_graphviz(niw_model())
    assert isinstance(drawn, graphviz.Digraph)
    assert "CRP" in drawn.source
    assert "CollapsedMixture" in drawn.source


def test_labels_are_stored_in_few_bytes():
    with pm.Model() as model:
        dp.CRP("few", 1.0, 32_767)
        dp.CRP("many", 1.0, 32_768)
    assert (model["few"].dtype, model["many"].dtype) == ("int16", "int32")


def test_starts_differ_by_chain_and_the_users_win():
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=np.random.default_rng(0).normal(size=(60, 2)))
        dp.DPMixture("z", 1.0, observed=ROWS, initval=LABELS)
    points = [model.initial_point(random_seed=seed) for seed in range(20)]
    assert len({p["y_labels"].max() for p in points}) > 5
    assert all(np.array_equal(p["z_labels"], LABELS) for p in points)


@pytest.mark.interpreted(False)
def test_value_and_gradients_come_from_one_node():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 0.3, 2.0, 1.0), shape=(5,))
    value = model.logp()
    wanted = [value, *pytensor.grad(value, model.continuous_value_vars)]
    nodes = model.compile_fn(wanted, inputs=model.value_vars).f.maker.fgraph.apply_nodes
    ops = [node.op for node in nodes if "Marginal" in type(node.op).__name__ or isinstance(node.op, JointOp)]
    assert len(ops) == 1
    assert len(ops[0].parts) == 3


def test_a_pickled_density_compiles_in_another_process(tmp_path):
    """Without a warning that numba does not know the operations of the package."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, base=dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=np.arange(5.0))
    path = tmp_path / "density.pickle"
    path.write_bytes(cloudpickle.dumps((model.value_vars, model.logp())))
    script = f"""if True:
        import warnings
        warnings.simplefilter("error", UserWarning)
        import cloudpickle, pathlib, pymc
        inputs, density = cloudpickle.loads(pathlib.Path({str(path)!r}).read_bytes())
        values = dict(alpha_log__=0.3, y_labels=[0, 0, 1, 1, 2])
        print(repr(float(pymc.compile(inputs, density)(*(values[v.name] for v in inputs)))))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    point = {"alpha_log__": np.array(0.3), "y_labels": np.array([0, 0, 1, 1, 2])}
    assert float(done.stdout) == pytest.approx(float(model.compile_logp()(point)))
