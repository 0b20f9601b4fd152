"""What PyMC would do wrongly with labels is done right, or is refused in words that name what is right."""

import importlib
import inspect
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from drawn import results
from scipy.sparse import csr_array

import pymc_dpgmm as dp
from pymc_dpgmm.integration.hooks import chains
from pymc_dpgmm.integration.internals import pymc_internals

ROWS = np.array([-1.5, -1.2, 0.1, 2.0, 2.2, 2.9])
NIG = dp.NormalInverseGamma(mu=0.0, kappa=0.5, a=3.0, b=1.5)
SHORT = {"draws": 120, "tune": 50, "chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}


def mixture(known=None):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, NIG, observed=ROWS, known_labels=known)
    return model


def draws_of(model, **others):
    labels = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 1]])
    return results(model, {"y_labels": labels, **others})


def test_pymc_computes_the_log_likelihood_by_row():
    model = mixture()
    idata = draws_of(model)
    pm.compute_log_likelihood(idata, model=model, progressbar=False)
    own = dp.log_likelihood(idata, "y", extend_inferencedata=False, random_seed=0)["log_likelihood"]["y"]
    assert idata["log_likelihood"]["y"].shape == (2, 2, len(ROWS))
    np.testing.assert_array_equal(idata["log_likelihood"]["y"], own)


def test_pymc_computes_that_of_other_variables_too():
    with mixture() as model:
        mu = pm.Normal("mu")
        pm.Normal("z", mu, 1.0, observed=[0.3, 0.1])
    idata = draws_of(model, mu=np.array([0.0, 0.5, 1.0, 2.0]))
    found = pm.compute_log_likelihood(idata, model=model, progressbar=False, extend_inferencedata=False)
    assert {name: values.shape[2:] for name, values in found.items()} == {"z": (2,), "y": (6,)}
    alone = pm.compute_log_likelihood(idata, var_names=["z"], model=model, progressbar=False)
    assert list(alone["log_likelihood"].dataset) == ["z"]
    np.testing.assert_array_equal(alone["log_likelihood"]["z"], found["z"])


def test_log_likelihoods_that_there_are_not():
    model = mixture(known=[0, 0, -1, 1, -1, -1])
    idata = draws_of(model)
    with pytest.warns(UserWarning, match="log likelihood of y is left out: y_labels has known_labels"):
        found = pm.compute_log_likelihood(idata, model=model, progressbar=False, extend_inferencedata=False)
    assert not found.data_vars
    with pytest.raises(ValueError, match="known_labels"):
        pm.compute_log_likelihood(idata, var_names=["y"], model=model, progressbar=False)


def test_draws_are_kept_where_the_log_likelihood_is_asked_for_with_them():
    with mixture(), pytest.warns(FutureWarning, match="log_likelihood"):
        idata = pm.sample(**SHORT, idata_kwargs={"log_likelihood": True})
    assert idata["log_likelihood"]["y"].shape == (2, 120, len(ROWS))
    # Of six rows and few draws, a Pareto k is large now and then.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        assert np.isfinite(az.loo(idata, var_name="y").elpd)


def test_rows_whose_labels_enter_another_likelihood_are_not_left_out():
    """Leaving out rows of y alone is another question where z has told of their labels."""
    with mixture() as model:
        theta = pm.Normal("theta", 0.0, 3.0, shape=6)
        pm.Normal("z", theta[model["y_labels"]], 1.0, observed=np.linspace(-2, 2, 6))
        idata = pm.sample(**SHORT, compute_convergence_checks=False)
    for refused in (lambda: dp.log_likelihood(idata, "y"), lambda: dp.log_likelihood(idata, "y_labels")):
        with pytest.raises(ValueError, match="z depend on y_labels too"):
            refused()
    with pytest.warns(UserWarning, match="log likelihood of y is left out"):
        pm.compute_log_likelihood(idata, model=model, progressbar=False)
    assert list(idata["log_likelihood"].dataset) == ["z"]


def test_the_mode_is_not_that_of_a_random_start():
    model = mixture()
    with model, pytest.raises(ValueError, match=r"would hold y_labels at a random start.*dp.point_partition"):
        pm.find_MAP(progressbar=False)
    with pm.Model() as other:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        dp.DPMixture("y", alpha, NIG, observed=ROWS)
    start = {"y_labels": np.array([0, 0, 0, 1, 1, 1])}
    with other, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        found = pm.find_MAP(initvals=start, progressbar=False)
    # p(alpha, labels): alpha^(1 + K) exp(-alpha) Gamma(alpha) / Gamma(alpha + n), on a grid.
    grid = np.linspace(0.05, 5.0, 4951)
    log_p = 3.0 * np.log(grid) - grid - np.sum(np.log(grid[:, None] + np.arange(6)), axis=1)
    assert found["alpha"] == pytest.approx(grid[np.argmax(log_p)], abs=2e-3)
    with pm.Model():
        pm.Normal("x", 1.0, 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            assert pm.find_MAP(progressbar=False)["x"] == pytest.approx(1.0, abs=1e-3)


def test_labels_are_not_weights():
    with pm.Model():
        labels = dp.CRP("labels", 1.0, 6)
        pm.Mixture("y", w=labels, comp_dists=pm.Normal.dist(np.zeros(6), 1.0), observed=ROWS)
        with pytest.raises(TypeError, match=r"labels as the weights of pm.Mixture.*theta\[labels\]"):
            pm.sample(**SHORT)


@pytest.mark.parametrize("base", [lambda: pm.Normal.dist(0.0, 1.0), lambda: pm.Normal], ids=["variable", "class"])
def test_distributions_of_pymc_are_no_base_measures(base):
    with pm.Model() as model:
        with pytest.raises(TypeError, match=r"NormalInverseWishart.*a distribution of PyMC.*dp\.DirichletProcess"):
            dp.DPMixture("y", 1.0, base(), observed=ROWS)
        with pytest.raises(TypeError, match="a distribution of PyMC"):
            dp.CollapsedMixture("y", dp.CRP("l", 1.0, 6), base(), observed=ROWS)
    assert list(model.named_vars) == ["l"]


def test_sparse_counts_with_a_class_for_base():
    counts = csr_array(np.array([[1, 0, 2], [0, 3, 0], [1, 1, 1]]))
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial, observed=counts)
    with pm.Model() as other:
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial(a=1.0), observed=counts)
    point = {"y_labels": np.array([0, 1, 0])}
    assert model.compile_logp()(point) == pytest.approx(other.compile_logp()(point), rel=1e-12)
    with pytest.raises(TypeError, match=r"sparse, which BetaBernoulli does not take; use .toarray"):
        dp.BetaBernoulli.from_data(counts)


def test_default_base_measures_of_masked_data_leave_out_what_is_masked():
    masked = np.ma.masked_greater(np.column_stack([ROWS, ROWS**2]), 4.0)
    filled = np.where(np.ma.getmaskarray(masked), np.nan, masked.data)
    for name, value in dp.NormalInverseWishart.from_data(masked).parameters.items():
        np.testing.assert_array_equal(value, dp.NormalInverseWishart.from_data(filled).parameters[name])


def test_scales_that_are_none():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame(rng.normal(size=(200, 2)), columns=["height", "weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (1e-9, 1.0, 1e9):
            dp.NormalInverseWishart.from_data(scale * rows)
        dp.NormalInverseGamma.from_data(rng.standard_t(2.5, size=5_000))
        dp.GammaPoisson.from_data([[3]])
    rows.loc[17, "weight"] = 700.0
    with pytest.warns(UserWarning, match="row 17 alone makes 100% of the variance of column weight, from which"):
        dp.NormalInverseWishart.from_data(rows)
    with pytest.warns(UserWarning, match="column 1 is constant"):
        dp.NormalInverseGamma.from_data(np.column_stack([ROWS, np.ones(6)]))
    with pytest.warns(UserWarning, match="one row has none"):
        dp.SphericalNormalInverseGamma.from_data([[1.0, 2.0]])


def test_models_print_what_the_user_has_written():
    with pm.Model() as model:
        alpha, kappa, beta = pm.Gamma("alpha", 1, 1), pm.Gamma("kappa", 2, 1), pm.Normal("beta_1")
        dp.DPMixture("my_y", alpha, dp.NormalInverseGamma(0.5, kappa, 2.0, 1.0), observed=ROWS, offset=beta * ROWS)
    plain = "CollapsedMixture(my_y_labels, NormalInverseGamma(mu="
    for printed in (model.str_repr(), pm.model.fgraph.clone_model(model).str_repr()):
        lines = printed.splitlines()
        wanted = {"alpha", "kappa", "beta_1", "my_y_labels", "my_y_n_clusters", "my_y"}
        assert {line.split()[0] for line in lines} == wanted
        assert lines[0].startswith("          alpha ~ Gamma(1, ")
        assert plain in lines[-1]
        assert lines[-1].endswith("), offset=f(beta_1))")
        assert "kappa=kappa" in lines[-1] or "kappa=f(kappa)" in lines[-1]
    latex = model._repr_latex_()
    assert "record" not in latex
    assert r"\text{NormalInverseGamma}(mu=" in latex
    assert latex.count("&") == 12


def test_large_draws_of_labels_are_told_of_before_sampling(monkeypatch):
    rows = np.random.default_rng(0).normal(size=200)
    monkeypatch.setattr(chains, "LARGEST_TRACE", 2 * 60 * 200)
    options = {"draws": 40, "tune": 20, "chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}
    options["compute_convergence_checks"] = False
    with pm.Model():
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, observed=rows)
        # Labels of 200 rows are int16.
        with pytest.warns(UserWarning, match=r"draws of y_labels, .* will take 0.0 GiB.*ThinnedLabels"):
            pm.sample(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pm.sample(**options, var_names=["alpha"])
            monkeypatch.setattr(chains, "LARGEST_TRACE", 2 * 2 * 60 * 200)
            pm.sample(**options)


def test_wrapped_functions_of_pymc_are_where_they_were():
    for name, places in pymc_internals.WRAPPED.items():
        functions = {id(getattr(importlib.import_module(place), name)) for place in places}
        assert len(functions) == 1, name
    wanted = {"var_names", "extend_inferencedata", "model", "kind"}
    assert wanted <= set(inspect.signature(pm.stats.log_density.compute_log_density).parameters)
    assert {"model", "initvals"} <= set(inspect.signature(pm.find_MAP).parameters)
    assert list(inspect.signature(pm.printing.str_for_model).parameters) == [
        "model",
        "formatting",
        "include_params",
    ]


@pytest.mark.interpreted
def test_draws_are_those_of_the_data_that_are_stored_with_them():
    """Whatever was sampled, or which step was made, after them."""
    run = {"draws": 5, "tune": 5, "chains": 1, "random_seed": 1, "progressbar": False, "quiet": True}
    run |= {"compute_convergence_checks": False}
    with pm.Model() as model:
        x = pm.Data("x", np.array([-2.0, -1.9, 2.0, 2.1]))
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=x)
        first = pm.sample(**run)
        pm.set_data({"x": np.array([7.0, 7.1, 3.0, 3.1])})
        step = dp.DPMixtureStep()
        with pytest.raises(ValueError, match=r"x was changed by pm\.set_data"):
            pm.sample_posterior_predictive(first, progressbar=False)
        second = pm.sample(step=step, **run)
        assert pm.sample_posterior_predictive(second, progressbar=False)["posterior_predictive"]["y"].shape == (
            1,
            5,
            4,
        )
        with pytest.raises(ValueError, match=r"x was changed by pm\.set_data"):
            pm.sample_posterior_predictive(first, progressbar=False)
        # A step that was made before the data changed samples the labels of those that are there.
        pm.set_data({"x": np.array([0.0, 0.1, 5.0, 5.1])})
        third = pm.sample(step=step, **run)
        assert pm.sample_posterior_predictive(third, progressbar=False)["posterior_predictive"]["y"].shape == (
            1,
            5,
            4,
        )
    assert model["x"].eval()[0] == 0.0


@pytest.mark.interpreted
def test_single_precision_beside_missing_entries_that_nuts_would_sample():
    import pytensor

    rows = np.array([[0.1, np.nan], [0.4, 0.2], [3.0, 2.9], [2.7, 3.3]])
    with pytensor.config.change_flags(floatX="float32"), pm.Model():
        base = dp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))
        y = dp.DPMixture("y", 1.0, base, observed=rows, unit=[0, 0, 1, 1])
        pm.Normal("z", 0.0, 1.0)
        with pytest.raises(NotImplementedError, match="y_missing has double precision"):
            pm.sample(5, tune=5, chains=1, progressbar=False, dpmixture={"continuous": "nuts"})
        drawn = pm.sample(20, tune=20, chains=1, progressbar=False, compute_convergence_checks=False).posterior
    assert y is not None
    assert len(np.unique(drawn["y_missing"])) > 10


@pytest.mark.parametrize("kind", [list, np.int64, np.int16, np.float64, np.uint8, pd.Series])
@pytest.mark.parametrize("fix", ["observe", "do"])
def test_labels_are_fixed_at_integers_of_any_type(fix, kind):
    """PyMC knows only the small integers that draws are stored in."""
    labels = kind([0, 0, 1, 1]) if kind in (list, pd.Series) else np.array([0, 0, 1, 1], dtype=kind)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=[0.0, 0.1, 2.0, 2.1])
    fixed = getattr(pm, fix)(model, {"y_labels": labels})
    assert "y_labels" not in [rv.name for rv in fixed.free_RVs]
    value = fixed.rvs_to_values[fixed["y_labels"]] if fix == "observe" else fixed["y_labels"]
    np.testing.assert_array_equal(value.eval(), [0, 0, 1, 1])
    with pytest.raises(TypeError, match="y_labels must be numbers of clusters"):
        getattr(pm, fix)(model, {model["y_labels"]: [0.0, 0.5, 1.0, 1.0]})
    with pytest.raises(ValueError, match=r"y_labels must lie in 0\.\.n-1 = 0\.\.3, got 4"):
        getattr(pm, fix)(model, {"y_labels": [0, 0, 1, 4]})
