"""ArviZ's functions on the results of a mixture, as the table in docs/posterior.md has them."""

import re
from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

mpl.use("Agg")

pytestmark = pytest.mark.interpreted

PAGE = (Path(__file__).parents[2] / "docs" / "posterior.md").read_text()
TABLE = PAGE[PAGE.index("## ArviZ's functions") :]
# Rows in clusters of their own have heavy tails, by nature.
HIGH_K = "Estimated shape parameter of Pareto distribution"
BUT = {"var_names": "~y_labels"}
PRIORS = {"prior_var_names": ["concentration", "mu"], **BUT}


def fitted(dims, columns=1):
    rng = np.random.default_rng(1)
    n = 24
    x = rng.normal(np.where(np.arange(n) % 2, 3.0, -3.0)[:, None], 1.0, size=(n, columns))
    coords = {"row": [f"r{i}" for i in range(n)], "column": list("uv")[:columns]}
    with pm.Model(coords=coords if dims else None):
        alpha = pm.Gamma("concentration", 1.0, 1.0)
        base = dp.NormalInverseGamma(pm.Normal("mu", 0.0, 3.0), 0.1, 2.0, 1.0)
        observed = x[:, 0] if columns == 1 else x
        dp.DPMixture("y", alpha, base, observed=observed, dims=("row", "column")[:columns] if dims else None)
        # With statistics of NUTS, which some functions read.
        by = {"continuous": "nuts"}
        idata = pm.sample(150, tune=150, chains=4, cores=1, random_seed=1, progressbar=False, dpmixture=by)
        idata.update(pm.sample_prior_predictive(100, random_seed=1))
        dp.log_likelihood(idata, "y", random_seed=1)
        dp.sample_replicates(idata, "y", random_seed=1)
        pm.stats.compute_log_prior(idata, progressbar=False)
    return idata


@pytest.fixture(scope="module", params=["dims", "no dims"])
def idata(request):
    return fitted(request.param == "dims")


# Right when the labels are left out; with them there are warnings, errors, or a picture of every row.
WITHOUT_LABELS = {
    name: lambda idata, name=name: getattr(az, name)(idata, **BUT)
    for name in (
        *("summary", "diagnose", "ess", "rhat", "mcse", "mean", "median", "mode", "std", "var", "mad", "iqr"),
        *("eti", "hdi", "kde", "histogram", "plot_autocorr", "plot_convergence_dist", "plot_dist"),
        *("plot_ess", "plot_ess_evolution", "plot_forest", "plot_mcse", "plot_pair", "plot_parallel"),
        *("plot_rank", "plot_rank_dist", "plot_ridge", "plot_trace", "plot_trace_dist", "plot_prior_posterior"),
        *("plot_dgof", "plot_dgof_dist"),
    )
} | {
    "rhat_nested": lambda idata: az.rhat_nested(idata, superchain_ids=[0, 0, 1, 1], **BUT),
    "ci_in_rope": lambda idata: az.ci_in_rope(idata, rope=(-1.0, 1.0), **BUT),
    "kl_divergence": lambda idata: az.kl_divergence(idata, idata, **BUT),
    "wasserstein": lambda idata: az.wasserstein(idata, idata, num_samples=100, **BUT),
    "plot_pair_focus": lambda idata: az.plot_pair_focus(idata, focus_var="mu", var_names=["concentration"]),
}
# Right when the densities of parameters alone are scaled, and not that of the labels.
PRIORS_NAMED = {
    name: lambda idata, name=name: getattr(az, name)(idata, **PRIORS)
    for name in ("psense_summary", "plot_psense_dist", "plot_psense_quantities")
} | {"psense": lambda idata: az.psense(idata, group="prior", group_var_names=PRIORS["prior_var_names"], **BUT)}
AS_IT_IS = {
    name: lambda idata, name=name: getattr(az, name)(idata)
    for name in (
        *("bfmi", "thin", "extract", "get_log_likelihood", "plot_energy", "loo", "loo_expectations"),
        *("loo_influence", "loo_metrics", "loo_pit", "loo_score", "metrics", "plot_loo_pit"),
        *("plot_loo_interval", "plot_ppc_dist", "plot_ppc_interval", "plot_ppc_pit", "plot_ppc_dist_pit"),
        "plot_ppc_tstat",
    )
} | {
    "loo_i": lambda idata: az.loo_i(0, idata),
    "loo_r2": lambda idata: az.loo_r2(idata, var_name="y"),
    "loo_subsample": lambda idata: az.loo_subsample(idata, observations=10, seed=1),
    "compare": lambda idata: az.compare({"a": idata, "b": idata}),
    "weight_predictions": lambda idata: az.weight_predictions([idata, idata], weights=[0.5, 0.5]),
    "plot_khat": lambda idata: az.plot_khat(az.loo(idata, pointwise=True)),
    "plot_compare": lambda idata: az.plot_compare(az.compare({"a": idata, "b": idata})),
    "qds": lambda idata: az.qds(idata, var_names=["mu"]),
    "bayes_factor": lambda idata: az.bayes_factor(idata, var_names=["mu"], ref_vals=0.5),
    "plot_bf": lambda idata: az.plot_bf(idata, var_names=["mu"], ref_val=0.5),
}
REFUSED = {
    "ecdf": (lambda idata: az.ecdf(idata), NotImplementedError, "DataTree ecdf not available yet"),
    "plot_ppc_rootogram": (lambda idata: az.plot_ppc_rootogram(idata), ValueError, "are continuous"),
    "plot_ecdf_pit": (lambda idata: az.plot_ecdf_pit(idata), KeyError, "prior_sbc"),
    "plot_lm": (lambda idata: az.plot_lm(idata), ValueError, "plot_dim"),
}
PICTURES = ("plot_loo_pit", "plot_ppc_pit", "plot_psense_dist", "plot_rank")
RIGHT = WITHOUT_LABELS | PRIORS_NAMED | AS_IT_IS


@pytest.mark.filterwarnings(f"ignore:{HIGH_K}")
@pytest.mark.parametrize(
    "name",
    # Pictures take the most time: here are those that beside the table have advice of their own.
    [
        pytest.param(name, marks=pytest.mark.slow if name.startswith("plot_") and name not in PICTURES else ())
        for name in RIGHT
    ],
)
def test_what_the_table_calls_right(idata, name):
    """Without a warning, whatever is asked for."""
    found = RIGHT[name](idata)
    assert found is not None
    if name in ("loo_pit", "loo_expectations"):
        array = found["y"] if name == "loo_pit" else found[0]
        assert array.dims == idata["observed_data"]["y"].dims


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_table_calls_refused(idata, name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call(idata)


def test_tables_without_labels_have_the_parameters(idata):
    wanted = {"concentration", "mu", "y_n_clusters"}
    assert set(az.summary(idata, **BUT).index) == wanted
    found = az.psense_summary(idata, **PRIORS)
    assert set(found.index) == wanted
    assert not found.isna().any(axis=None)
    # What the advice is for.
    with pytest.warns(RuntimeWarning, match="invalid value encountered"):
        assert len(az.summary(idata)) == len(wanted) + 24
    assert "y_labels" in idata["log_prior"]
    named = idata.copy()
    named["posterior"] = named["posterior"].to_dataset().rename(concentration="alpha")
    with pytest.raises(ValueError, match="alpha already exists"):
        az.plot_psense_dist(named, prior_var_names=["mu"], **BUT)


@pytest.mark.filterwarnings(f"ignore:{HIGH_K}")
def test_data_of_several_columns():
    """The log likelihood is of whole rows, and replicates of entries: PIT is of one column at a time."""
    several = fitted(True, columns=2)
    assert az.loo(several, pointwise=True).elpd_i.shape == (24,)
    with pytest.raises(ValueError, match="could not be broadcast together"):
        az.loo_pit(several, var_names="y")
    with pytest.raises(TypeError, match="only 0-dimensional arrays"):
        az.plot_ppc_pit(several)
    for j in range(2):
        one = several.isel(column=j)
        assert az.loo_pit(one, var_names="y")["y"].dims == ("row",)
        az.plot_loo_pit(one)
        az.plot_ppc_pit(one)


def test_the_table_names_every_function_that_is_tried():
    named = set(re.findall(r"`az\.([a-z0-9_]+)`", TABLE))
    assert set(RIGHT) | set(REFUSED) <= named
