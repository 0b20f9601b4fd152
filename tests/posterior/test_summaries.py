"""Tables and pictures of draws, leave-one-out, and how much partitions owe to the prior."""

import importlib

import arviz as az
import exact
import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from drawn import results
from scipy.stats import gamma

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.named_views import NO_CATEGORY

mpl.use("Agg")
from matplotlib.figure import Figure

# ArviZ warns of rows whose importance weights have heavy tails: those with a cluster of their own, by nature.
HIGH_K = pytest.mark.filterwarnings("ignore:Estimated shape parameter")
QUIET = {"chains": 2, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
RNG = np.random.default_rng(8)
# Three clusters of ten, six and four rows.
TRUTH = np.repeat([0, 1, 2], [10, 6, 4])
DATA = pd.DataFrame(
    RNG.normal(size=(20, 3)) + np.array([[0, 0, 0], [6, 6, 0], [-6, 6, 3]])[TRUTH], columns=["u", "v", "w"]
)


def drawn(n_draws=40, columns=("u", "v", "w"), alpha=None):
    """Draws that are the truth, or have one row elsewhere."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0) if alpha is None else alpha() if callable(alpha) else alpha
        data = DATA[list(columns)]
        dp.DPMixture("y", alpha, observed=data if len(columns) > 1 else data[columns[0]])
    labels = np.tile(TRUTH, (n_draws, 1))
    labels[::4, 3] = 3
    return model, results(model, {"y_labels": labels, "alpha": RNG.gamma(2.0, size=n_draws)})


def test_summary_has_scalars_and_clusters():
    _, idata = drawn()
    found = dp.summary(idata, "y", random_seed=0)
    assert {"alpha", "n_clusters", "entropy", "share[largest]"} <= set(found.scalars.index)
    assert found.scalars.loc["n_clusters", "mean"] == pytest.approx(3.25, abs=0.05)
    table = found.clusters
    assert table["size"].tolist() == [10, 6, 4]
    assert table["share"].tolist() == [0.5, 0.3, 0.2]
    np.testing.assert_allclose(table["overlap"], [0.975, 1.0, 1.0])
    means = table[["mean[u]", "mean[v]", "mean[w]"]].to_numpy()
    np.testing.assert_allclose(means, DATA.groupby(TRUTH).mean().to_numpy(), atol=0.6)
    assert table.filter(like="sd[").shape == (3, 3)
    printed = repr(found)
    assert "r_hat" in printed
    assert "sd[w]" in printed
    assert "<table" in found._repr_html_()


def test_summary_where_all_is_one_cluster_and_of_what_is_sampled():
    with pm.Model() as model:
        scale = pm.LogNormal("scale", 0.0, 1.0)
        base = dp.NormalInverseWishart(DATA.mean().to_numpy(), 0.1, 5.0, scale * np.eye(3))
        dp.DPMixture("y", 1.0, base, observed=DATA)
    scales = RNG.lognormal(size=8)
    psi = scales[:, None, None] * np.eye(3)
    draws = {"y_labels": np.zeros((8, 20), dtype=int), "scale": scales, "y_psi": psi}
    found = dp.summary(results(model, draws), "y", random_seed=0)
    assert list(found.scalars.index) == ["scale"]
    assert found.scalars.attrs["constant"]["n_clusters"] == 1.0
    assert not found.scalars.index.str.startswith("y_psi").any()


def test_purity_tells_clusters_that_are_mostly_united():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=DATA)
    labels = np.tile(np.where(TRUTH == 2, 0, TRUTH), (8, 1))
    table = dp.summary(results(model, {"y_labels": labels}), "y", TRUTH, random_seed=0).clusters
    np.testing.assert_allclose(table["overlap"], 1.0)
    np.testing.assert_allclose(table["purity"], [10 / 14, 1.0, 4 / 14], rtol=1e-2)


def test_references_follow_coordinates_and_may_be_text():
    _, idata = drawn()
    point = dp.point_partition(idata, "y", random_seed=0)
    radius = float(dp.credible_ball(idata, "y", point)["radius"])
    shuffled = point.isel(y_obs=np.random.default_rng(0).permutation(20))
    as_text = point["labels"].to_series().map({0: "a", 1: "b", 2: "c"}).sample(frac=1, random_state=1)
    for other in (shuffled, shuffled["labels"], as_text):
        assert float(dp.credible_ball(idata, "y", other)["radius"]) == radius
    assert "distance" in dp.partition_diagnostics(idata, "y", reference=point)
    one = idata.sel(chain=0)
    assert dp.co_clustering(one, "y").shape == (20, 20)
    with pytest.raises(ValueError, match="idata is a single group of results: pass all of it"):
        dp.summary(idata["posterior"], "y")
    with pytest.raises(ValueError, match="idata must have all 20 rows of y, got 5"):
        dp.summary(idata.isel(y_obs=slice(5)), "y")


def test_summary_of_views():
    counts = RNG.poisson(np.array([2, 20, 8])[TRUTH])
    with pm.Model() as model:
        base = {"a": dp.NormalInverseGamma.from_data(DATA["u"]), "b": dp.GammaPoisson(1.0, 0.1)}
        dp.DPMixture("t", 1.0, base, observed={"a": DATA["u"].to_numpy(), "b": counts})
    idata = results(model, {"t_labels": np.tile(TRUTH, (8, 1))})
    table = dp.summary(idata, "t", TRUTH, random_seed=0).clusters
    assert {"t_a_mean", "t_a_sd", "t_b_rate"} <= set(table.columns)
    np.testing.assert_allclose(table["t_b_rate"], pd.Series(counts).groupby(TRUTH).mean(), rtol=0.3)


def test_number_of_clusters_before_and_after():
    _, idata = drawn(alpha=0.7)
    found = dp.n_clusters(idata, "y")
    exactly = dp.CRP.n_clusters_pmf(0.7, 20)
    np.testing.assert_allclose(found["prior"], exactly[1 : found.sizes["n_clusters"] + 1])
    np.testing.assert_allclose(found["posterior"].sel(n_clusters=[3, 4]), [0.75, 0.25])
    model, idata = drawn()
    # That alpha is Gamma(2, 2) is stored.
    at_quantiles = [
        dp.CRP.n_clusters_pmf(alpha, 20) for alpha in gamma.ppf((np.arange(9000) + 0.5) / 9000, 2.0, scale=0.5)
    ]
    of_file = dp.n_clusters(idata, "y")["prior"]
    np.testing.assert_allclose(of_file, np.mean(at_quantiles, axis=0)[1 : len(of_file) + 1], atol=2e-4)
    _, other = drawn(alpha=lambda: pm.HalfNormal("alpha", 1.0))
    with pytest.raises(ValueError, match="alpha of y_labels is random: add draws of its prior"):
        dp.n_clusters(other, "y")
    alphas = np.random.default_rng(1).gamma(2.0, 0.5, size=4_000)
    averaged = np.mean([dp.CRP.n_clusters_pmf(alpha, 20) for alpha in alphas], axis=0)
    of_model = dp.n_clusters(idata, "y", model=model, random_seed=0)["prior"]
    np.testing.assert_allclose(of_model, averaged[1 : len(of_model) + 1], atol=0.02)
    prior = xr.Dataset({"alpha": (("chain", "draw"), alphas[None, :])})
    idata["prior"] = xr.DataTree(prior)
    of_group = dp.n_clusters(idata, "y")["prior"]
    np.testing.assert_allclose(of_group, averaged[1 : len(of_group) + 1], atol=0.02)


def texts(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def test_pictures_of_reals():
    _, idata = drawn()
    figure = dp.plot_clusters(idata, "y", random_seed=0)
    assert isinstance(figure, Figure)
    assert [texts(axes) for axes in figure.axes] == [("u", "v"), ("u", "w"), ("v", "w")]
    # Three groups of points and three outlines in each.
    assert all(len(axes.collections) == 3 and len(axes.lines) == 3 for axes in figure.axes)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["0: 10 rows", "1: 6 rows", "2: 4 rows"]
    assert texts(dp.plot_clusters(idata, "y", TRUTH, columns=["w", "u"]).axes[0]) == ("w", "u")
    assert texts(dp.plot_clusters(idata, "y", TRUTH, columns=["w"]).axes[0]) == ("w", "cluster")
    assert texts(dp.plot_density(idata, "y", columns="v", random_seed=0).axes[0]) == ("v", "density")
    assert texts(dp.plot_density(idata, "y", columns=["v", 0], random_seed=0).axes[0]) == ("v", "u")
    with pytest.raises(ValueError, match="plot_density takes one column, or two without x, got 3"):
        dp.plot_density(idata, "y")
    with pytest.raises(ValueError, match=r"there is no column 'z', only \['u', 'v', 'w'\]"):
        dp.plot_clusters(idata, "y", TRUTH, columns=["z"])


def test_pictures_of_partitions():
    model, idata = drawn()
    figure = dp.plot_co_clustering(idata, "y", TRUTH)
    (image,) = figure.axes[0].images
    shown = image.get_array()
    assert shown.shape == (20, 20)
    # Larger clusters come first, and the row that is sometimes elsewhere is at an edge of its own.
    inside = shown[:10, :10].mean(axis=1)
    assert {inside.argmin()} <= {0, 9}
    np.testing.assert_allclose(np.sort(inside)[:2], [0.775, 0.975])
    assert np.all(shown[:10, 10:] == 0.0)
    assert len(figure.axes[0].lines) == 4
    some = dp.plot_co_clustering(idata, "y", TRUTH, rows=[0, 12, 19, 1])
    assert some.axes[0].images[0].get_array().shape == (4, 4)
    unknown = drawn(alpha=lambda: pm.HalfNormal("alpha", 1.0))[1]
    alone = dp.plot_n_clusters(unknown, "y").axes[0]
    assert [t.get_text() for t in alone.get_legend().get_texts()] == ["posterior"]
    both = dp.plot_n_clusters(idata, "y", model=model).axes[0]
    assert {t.get_text() for t in both.get_legend().get_texts()} == {"prior", "posterior"}
    sizes = dp.plot_sizes(idata, "y", n_largest=5).axes[0]
    np.testing.assert_allclose(sizes.lines[0].get_ydata(), [0.5, 0.3, 0.2, 0.0])


def test_picture_of_counts():
    counts = RNG.poisson(np.array([2, 20, 8])[TRUTH])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 0.1), observed=counts)
    figure = dp.plot_density(results(model, {"y_labels": np.tile(TRUTH, (8, 1))}), "y", random_seed=0)
    assert texts(figure.axes[0]) == ("y", "probability")
    assert isinstance(figure, Figure)


def test_pictures_take_the_axes_that_they_are_given():
    model, idata = drawn()
    calls = {
        "clusters": lambda ax: dp.plot_clusters(idata, "y", TRUTH, columns=["u", "v"], ax=ax),
        "strip": lambda ax: dp.plot_clusters(idata, "y", TRUTH, columns=["u"], ax=ax),
        "together": lambda ax: dp.plot_co_clustering(idata, "y", TRUTH, ax=ax),
        "density": lambda ax: dp.plot_density(idata, "y", columns=["u"], ax=ax),
        "number": lambda ax: dp.plot_n_clusters(idata, "y", model=model, ax=ax),
        "sizes": lambda ax: dp.plot_sizes(idata, "y", ax=ax),
    }
    figure, grid = mpl.pyplot.subplots(2, 3, layout="constrained")
    for (name, call), ax in zip(calls.items(), grid.ravel(), strict=True):
        assert call(ax) is figure, name
        assert ax.get_xlabel(), name
        assert ax.has_data(), name
    assert len(mpl.pyplot.get_fignums()) == 1
    with pytest.raises(ValueError, match="ax takes one or two columns, got 3"):
        dp.plot_clusters(idata, "y", TRUTH, ax=grid[0, 0])


def test_columns_and_categories_keep_their_names():
    place, sex = np.where(TRUTH == 0, "south", "north"), np.array(["f", "m", "x"])[RNG.integers(3, size=20)]
    table = DATA.assign(place=place, sex=sex)
    base = {
        "size": (["u", "v"], dp.NormalInverseWishart),
        "kind": (["place", "sex"], dp.DirichletCategorical),
        "w": ("w", dp.NormalInverseGamma),
    }
    with pm.Model() as model:
        dp.DPMixture("t", 1.0, base, observed=table)
    idata = results(model, {"t_labels": np.tile(TRUTH, (8, 1))})
    # A table has the columns of all views, in any order.
    new = table.loc[[4, 12], ["sex", "w", "v", "place", "u"]]
    views = {"size": new[["u", "v"]], "kind": new[["place", "sex"]], "w": new["w"]}
    found = dp.membership(idata, "t", new, TRUTH)
    xr.testing.assert_identical(found, dp.membership(idata, "t", views, TRUTH))
    assert found["new_row"].to_numpy().tolist() == [4, 12]
    # A column that is not there is unknown.
    without = dp.membership(idata, "t", new.drop(columns="v"), TRUTH)
    xr.testing.assert_identical(without, dp.membership(idata, "t", new.assign(v=np.nan), TRUTH))
    assert not np.allclose(without["log_density"], found["log_density"])
    # Columns have other categories each.
    components = dp.component_draws(idata, "t_kind", TRUTH, random_seed=0)
    names = components["t_kind_category_name"]
    assert names.to_numpy().tolist() == [["north", "south", NO_CATEGORY], ["f", "m", "x"]]
    assert components["probability"].dims[-2:] == names.dims
    clusters = dp.summary(idata, "t", TRUTH, random_seed=0).clusters
    shown = clusters.filter(like="t_kind_probability").columns.str.removeprefix("t_kind_probability")
    assert list(shown) == ["[place, north]", "[place, south]", "[sex, f]", "[sex, m]", "[sex, x]"]
    assert clusters.loc[0, "t_kind_probability[place, south]"] > 0.7
    figure = dp.plot_clusters(idata, "t_kind", TRUTH)
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["north", "south"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["f", "m", "x"]
    # The name of a Series is that of its column.
    assert texts(dp.plot_density(idata, "t_w").axes[0]) == ("w", "density")
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=table["sex"])
    one = results(model, {"y_labels": np.tile(TRUTH, (8, 1))})
    assert dp.component_draws(one, "y", TRUTH)["y_category"].to_numpy().tolist() == ["f", "m", "x"]
    figure = dp.plot_density(one, "y")
    assert texts(figure.axes[0]) == ("sex", "probability")
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["f", "m", "x"]


def test_columns_of_tables_that_are_not_used_are_told_of():
    with pm.Model() as model:
        base = {"a": dp.NormalInverseGamma.from_data(DATA["u"]), "b": dp.GammaPoisson(1.0, 0.1)}
        dp.DPMixture("t", 1.0, base, observed={"a": DATA["u"], "b": RNG.poisson(3.0, size=20)})
    idata = results(model, {"t_labels": np.tile(TRUTH, (8, 1))})
    with pytest.warns(UserWarning, match=r"columns \['v', 'w'\] of the new rows are not used: they are none of"):
        found = dp.membership(idata, "t", DATA, TRUTH)
    xr.testing.assert_identical(found, dp.membership(idata, "t", {"a": DATA["u"]}, TRUTH))


@HIGH_K
def test_leave_one_out_agrees_with_enumeration():
    """The density of a row given all others is a ratio of two sums over partitions."""
    rows, base = np.array([0.1, 0.9, -0.3, 0.4, 1.1, -0.6, 0.5]), {"mu": 0.2, "kappa": 0.8, "a": 3.0, "b": 1.5}
    everything = exact.partitions(7)
    log_joint = exact.log_likelihoods(everything, rows[:, None], exact.nig_log_marginal, **base)
    log_joint += [exact.log_eppf(labels, 0.7) for labels in everything]
    evidence = np.logaddexp.reduce(log_joint)
    wanted = []
    for i in range(7):
        others = np.delete(rows, i)[:, None]
        smaller = exact.partitions(6)
        log_others = exact.log_likelihoods(smaller, others, exact.nig_log_marginal, **base)
        log_others += [exact.log_eppf(labels, 0.7) for labels in smaller]
        wanted.append(evidence - np.logaddexp.reduce(log_others))
    with pm.Model() as model:
        dp.DPMixture("y", 0.7, dp.NormalInverseGamma(**base), observed=rows)
    p = np.exp(log_joint - evidence)
    labels = everything[np.random.default_rng(2).choice(len(p), size=8_000, p=p / p.sum())]
    idata = results(model, {"y_labels": labels}, n_chains=4)
    dp.log_likelihood(idata, "y", random_seed=3)
    found = az.loo(idata, var_name="y", pointwise=True)
    np.testing.assert_allclose(found.elpd_i.to_numpy(), wanted, atol=0.06)
    assert found.elpd == pytest.approx(sum(wanted), abs=0.1)


@pytest.mark.slow
@HIGH_K
def test_leave_one_out_of_one_view():
    """One of a row's two entries is left out, and the other one stays; or both are."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(6, 2)) + 1.5 * (np.arange(6) % 2)[:, None]
    base = {"mu": np.zeros(1), "kappa": np.full(1, 0.5), "a": np.full(1, 2.0), "b": np.ones(1)}
    everything = exact.partitions(6)
    prior = np.array([exact.log_eppf(labels, 1.0) for labels in everything])

    def log_density(labels, seen):
        """Log density of the entries that are seen, (6, 2) bools, given a partition."""
        return sum(
            exact.nig_log_marginal(rows[own, j][:, None], **base)
            for k in np.unique(labels)
            for j in range(2)
            if (own := np.flatnonzero((labels == k) & seen[:, j])).size
        )

    def log_evidence(seen):
        return np.logaddexp.reduce(prior + [log_density(labels, seen) for labels in everything])

    all_seen = np.ones((6, 2), dtype=bool)
    p = exact.normalized(prior + [log_density(labels, all_seen) for labels in everything])
    parameters = {key: float(value[0]) for key, value in base.items()}
    with pm.Model() as model:
        views = {view: dp.NormalInverseGamma(**parameters) for view in "ab"}
        dp.DPMixture("y", 1.0, views, observed={"a": rows[:, 0], "b": rows[:, 1]})
    drawn = everything[rng.choice(len(everything), size=20_000, p=p)]
    idata = results(model, {"y_labels": drawn}, n_chains=4)
    for name, columns in (("y_b", [1]), ("y", [0, 1])):
        dp.log_likelihood(idata, "y_labels" if name == "y" else name, random_seed=1)
        found = az.loo(idata, var_name=name, pointwise=True).elpd_i.to_numpy()
        for i in range(6):
            seen = all_seen.copy()
            seen[i, columns] = False
            assert found[i] == pytest.approx(log_evidence(all_seen) - log_evidence(seen), abs=0.06)


def test_latent_rows_have_no_leave_one_out():
    with pm.Model() as model:
        y = dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), shape=(4,))
        pm.Poisson("counts", pm.math.exp(y), observed=[1, 2, 0, 4])
    idata = results(model, {"y_labels": np.zeros((8, 4), dtype=int), "y": np.zeros((8, 4))}, n_chains=4)
    with pytest.raises(ValueError, match="y is latent, so none of its rows can be left out"):
        dp.log_likelihood(idata, "y")


@pytest.mark.slow
@HIGH_K
def test_leave_one_out_with_a_drawn_missing_entry():
    """What is left out is what was observed of a row."""
    rng = np.random.default_rng(5)
    base = {"mu": [0.0, 0.0], "kappa": 0.5, "nu": 4.0, "psi": np.eye(2)}
    gaps = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=8)
    gaps[2, 1] = np.nan
    grid, others = np.linspace(-15, 15, 1_201), np.delete(gaps, 2, 0)
    joint = np.array([exact.niw_log_marginal(np.vstack([others, [gaps[2, 0], v]]), **base) for v in grid])
    total = np.logaddexp.reduce(joint)
    wanted = total + np.log(grid[1] - grid[0]) - exact.niw_log_marginal(others, **base)
    with pm.Model() as model:
        dp.FiniteMixture("y", 1.0, 1, dp.NormalInverseWishart(**base), observed=gaps)
    drawn = {
        "y_labels": np.zeros((8_000, 8), dtype=int),
        "y_missing": rng.choice(grid, size=8_000, p=np.exp(joint - total))[:, None],
    }
    idata = results(model, drawn, n_chains=4)
    dp.log_likelihood(idata, "y", random_seed=1)
    found = az.loo(idata, var_name="y", pointwise=True)
    assert float(found.elpd_i[2]) == pytest.approx(wanted, abs=0.06)


@HIGH_K
def test_log_likelihood_has_the_dimension_of_the_data():
    """ArviZ puts the two together by names: other ones would give every pair of rows."""
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=np.arange(8.0))
    idata = results(model, {"y_labels": np.tile([0, 0, 0, 1, 1, 1, 1, 1], (400, 1))}, n_chains=4)
    dp.log_likelihood(idata, "y", random_seed=1)
    assert idata["log_likelihood"]["y"].dims[-1:] == idata["observed_data"]["y"].dims
    pm.sample_posterior_predictive(idata, model=model, extend_inferencedata=True, progressbar=False, random_seed=1)
    assert az.loo_expectations(idata, var_name="y")[0].shape == (8,)


@HIGH_K
def test_leave_one_out_with_heavy_tails():
    """Half of the weight is in clusters too small to be drawn one by one."""
    rows, base = np.array([0.1, 2.0, -3.0, 1.0, -1.5]), {"mu": 0.0, "kappa": 0.05, "a": 3.0, "b": 0.3}

    def log_joint(values):
        everything = exact.partitions(len(values))
        of_data = exact.log_likelihoods(everything, values[:, None], exact.nig_log_marginal, **base)
        return everything, of_data + np.array([exact.log_pitman_yor(labels, 1.0, 0.9) for labels in everything])

    everything, joint = log_joint(rows)
    evidence = np.logaddexp.reduce(joint)
    wanted = [evidence - np.logaddexp.reduce(log_joint(np.delete(rows, i))[1]) for i in range(5)]
    with pm.Model() as model:
        dp.PYMixture("y", 1.0, 0.9, dp.NormalInverseGamma(**base), observed=rows)
    p = np.exp(joint - evidence)
    drawn = everything[np.random.default_rng(2).choice(len(p), size=2_000, p=p / p.sum())]
    idata = results(model, {"y_labels": drawn}, n_chains=4)
    dp.log_likelihood(idata, "y", random_seed=1)
    np.testing.assert_allclose(az.loo(idata, var_name="y", pointwise=True).elpd_i, wanted, atol=0.12)


def test_no_leave_one_out_with_known_labels():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=DATA, known_labels=np.where(np.arange(20) < 3, 0, -1))
    with pytest.raises(ValueError, match=r"y_labels has known_labels or must_link"):
        dp.log_likelihood(results(model, {"y_labels": np.tile(TRUTH, (2, 1))}), "y")


@pytest.mark.slow
@HIGH_K
def test_leave_one_out_prefers_the_right_model():
    """Correlated clusters, with correlations and without, and a single cluster."""
    rng = np.random.default_rng(6)
    factor = np.array([[1.0, 0.0], [0.9, 0.4]])
    data = rng.normal(size=(80, 2)) @ factor.T + np.where(rng.random(80) < 0.4, 0.0, 5.0)[:, None]
    fits = {}
    for name, base in (("full", dp.NormalInverseWishart), ("diagonal", dp.NormalInverseGamma)):
        with pm.Model():
            dp.DPMixture("y", 1.0, base, observed=data)
            fits[name] = pm.sample(draws=500, tune=200, random_seed=1, **QUIET)
        dp.log_likelihood(fits[name], "y", random_seed=2)
    with pm.Model():
        dp.FiniteMixture("y", 1.0, 1, dp.NormalInverseWishart, observed=data)
        fits["one"] = pm.sample(draws=500, tune=100, random_seed=1, **QUIET)
    dp.log_likelihood(fits["one"], "y", random_seed=2)
    table = az.compare(fits)
    assert table.index[0] == "full"
    assert table.loc["diagonal", "elpd_diff"] < -5
    assert table.loc["one", "elpd_diff"] < -5


def test_sensitivity_fits_each_setting():
    def make(alpha, psi):
        with pm.Model() as model:
            base = dp.NormalInverseWishart(DATA.mean().to_numpy(), 0.1, 5.0, psi * np.eye(3))
            dp.DPMixture("y", alpha, base, observed=DATA)
        return model

    run = {"draws": 100, "tune": 100, "chains": 2, "cores": 1, "progressbar": False}
    settings = {"alpha": 1.0, "psi": 1.0}, {"psi": [100.0]}
    found = dp.sensitivity(make, "y", *settings, random_seed=1, with_labels=True, **run)
    assert found["parameter"].to_numpy().tolist() == ["baseline", "psi"]
    assert found["labels"].dims == ("setting", "y_obs")
    np.testing.assert_array_equal(found["point_n_clusters"], found["labels"].max("y_obs") + 1)
    assert float(found["mean"][1]) < float(found["mean"][0])
    assert float(found["distance"][0]) == 0.0
    frame = dp.sensitivity(make, "y", *settings, random_seed=1, **run).to_dataframe()
    assert len(frame) == 2
    np.testing.assert_array_equal(frame["distance"], found["distance"])
    assert {"mean", "sd", "largest_share", "r_hat", "value"} <= set(frame.columns)
    figure = dp.plot_sensitivity(found)
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "psi"]
    assert figure.axes[0].get_ylabel() == "clusters"
    np.testing.assert_array_equal(figure.axes[1].lines[1].get_ydata(), found["distance"])
    with pytest.raises(ValueError, match=r"variations must be of \['alpha', 'psi'\], .* got \['nu'\]"):
        dp.sensitivity(make, "y", {"alpha": 1.0, "psi": 1.0}, {"nu": [3]})


def with_single_rows():
    """Draws in which rows 3 and 7 are often alone, and a reference in which they are clusters by themselves."""
    model, _ = drawn()
    labels = np.tile(TRUTH, (40, 1))
    labels[::4, 3] = 3
    labels[::2, 7] = 4
    reference = TRUTH.copy()
    reference[[3, 7]] = [3, 4]
    return results(model, {"y_labels": labels, "alpha": RNG.gamma(2.0, size=40)}), labels, reference


def test_certainty_is_the_mean_of_co_clustering():
    idata, labels, reference = with_single_rows()
    found = dp.certainty(idata, "y", reference)
    together = np.mean(labels[:, :, None] == labels[:, None, :], axis=0)
    for i in range(20):
        shares = {}
        for k in range(5):
            others = np.flatnonzero((reference == k) & (np.arange(20) != i))
            shares[k] = together[i, others].mean() if len(others) else np.nan
        own = shares.pop(reference[i])
        if np.isnan(own):
            own = np.mean([np.sum(draw == draw[i]) == 1 for draw in labels])
        assert found["certainty"][i] == pytest.approx(own)
        companions = np.zeros(5)
        for draw in labels:
            others = (draw == draw[i]) & (np.arange(20) != i)
            if others.any():
                companions += np.bincount(reference[others], minlength=5) / others.sum() / len(labels)
        companions[reference[i]] = -1.0
        assert found["second_certainty"][i] == pytest.approx(max(companions.max(), 0.0))
        assert companions[int(found["second"][i])] == companions.max()
    point = dp.point_partition(idata, "y")
    np.testing.assert_array_equal(point["certainty"], dp.certainty(idata, "y", point)["certainty"])
    one = dp.certainty(idata, "y", np.zeros(20, dtype=int))
    assert (one["second"] == -1).all()
    assert (one["second_certainty"] == 0).all()
    assert list(found.to_dataframe().columns) == ["labels", "certainty", "second", "second_certainty"]


def test_tables_fit_the_terminal(monkeypatch):
    _, idata = drawn()
    found = dp.summary(idata, "y", random_seed=0)
    for width in (80, 130):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = repr(found).splitlines()
        assert max(map(len, lines)) <= width
        assert sum("sd[w]" in line for line in lines) == 1


def test_single_rows_are_not_printed_as_clusters(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    idata, _, reference = with_single_rows()
    found = dp.summary(idata, "y", reference, random_seed=0)
    assert found.clusters["size"].tolist() == [8, 6, 4, 1, 1]
    printed = repr(found).split("\n\n")[1].splitlines()
    assert printed[2 + 3 :] == [
        "Row 3 is uncertain, a cluster by itself, alone in 25% of the draws",
        "Row 7 is a cluster by itself, alone in 50% of the draws",
    ]
    assert "Row 3 is uncertain" in found._repr_html_()
    figure = dp.plot_clusters(idata, "y", reference, columns=["u", "v"])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][-1] == "2 single rows"
    assert len(figure.axes[0].lines) == 3


def test_what_never_changes_is_told_below_the_table():
    model, _ = drawn()
    idata = results(model, {"y_labels": np.tile(TRUTH, (40, 1)), "alpha": RNG.gamma(2.0, size=40)})
    found = dp.summary(idata, "y", random_seed=0)
    assert list(found.scalars.index) == ["alpha"]
    assert found.scalars.attrs["constant"]["n_clusters"] == 3.0
    assert "The same in all draws: n_clusters = 3, entropy = 1.03" in repr(found)
    assert found.scalars["mean"].dtype == np.float64


def test_printed_numbers_have_the_digits_that_they_deserve():
    model, _ = drawn()
    labels = np.tile(TRUTH, (40, 1))
    labels[::4, 3] = 3
    idata = results(model, {"y_labels": labels, "alpha": 1234.0 + RNG.normal(size=40, scale=30.0)})
    lines = repr(dp.summary(idata, "y", random_seed=0)).splitlines()
    (line,) = [line.split() for line in lines if line.startswith("alpha")]
    assert all("." not in number for number in line[1:7])
    assert max(map(len, lines[:5])) < 80


def overlapping(n_draws=40):
    """Draws of two clusters, in either of which most rows may be."""
    x = np.linspace(-1.0, 1.0, 12)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=x)
    labels = (np.random.default_rng(4).random((n_draws, len(x))) < np.linspace(0.0, 1.0, len(x))).astype(int)
    return results(model, {"y_labels": labels})


def test_a_partition_with_fewer_clusters_than_all_draws_says_so():
    idata = overlapping()
    point = dp.point_partition(idata, "y")
    assert int(point["n_clusters"]) == 1
    note = "The point partition has 1 cluster, but every draw has 2 or more"
    assert point.attrs["note"].startswith(note)
    printed = dp.summary(idata, "y", random_seed=1)
    assert note in repr(printed)
    assert note in printed._repr_html_()
    assert "costs=(0.5, 1)" in repr(printed)
    assert 'loss="binder"' in repr(printed)
    # What is advised helps, and nothing is said where there is nothing to say.
    for other in ({"costs": (0.5, 1.0)}, {"loss": "binder"}):
        found = dp.point_partition(idata, "y", **other)
        assert int(found["n_clusters"]) >= 2
        assert "note" not in found.attrs
    assert "note" not in dp.point_partition(idata, "y", max_clusters=1).attrs
    assert "every draw" not in repr(dp.summary(idata, "y", np.zeros(12, dtype=int), random_seed=1))
    assert "every draw" not in repr(dp.summary(drawn()[1], "y", random_seed=1))


def fixed_model(kind):
    x = np.repeat([0.0, 5.0], 6) + np.tile(np.linspace(-1.0, 1.0, 6), 2)
    alpha, base = pm.Gamma("alpha", 1.0, 1.0), dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    if kind == "views":
        dp.DPMixture("y", alpha, {"u": base, "v": dp.GammaPoisson(1.0, 1.0)}, observed={"u": x, "v": 5 * KIND})
    elif kind == "groups":
        dp.HDPMixture("y", 1.0, alpha, base, group=np.arange(12) % 2, observed=x)
    else:
        dp.DPMixture("y", alpha, base, observed=x)


KIND = np.repeat([0, 1], 6)
AFTERWARDS = [
    dp.partition_diagnostics,
    dp.co_clustering,
    dp.point_partition,
    dp.certainty,
    dp.credible_ball,
    dp.component_draws,
    dp.density,
    lambda idata, name: dp.membership(idata, name, [0.0, 5.0]),
    lambda idata, name: dp.sample_new_rows(idata, name, 3),
    dp.plot_clusters,
    dp.plot_co_clustering,
    dp.plot_density,
    dp.plot_sizes,
]


@pytest.mark.interpreted(False)
@pytest.mark.parametrize("fix", [pm.observe, pm.do])
@pytest.mark.parametrize("kind", ["one", "views", "groups"])
def test_labels_that_are_fixed_are_read_where_they_are(kind, fix):
    with pm.Model() as model:
        fixed_model(kind)
    with fix(model, {"y_labels": KIND.astype(model["y_labels"].dtype)}):
        idata = pm.sample(12, tune=12, random_seed=1, **QUIET)
    assert "y_labels" not in idata.posterior
    summary = dp.summary(idata, "y", random_seed=1)
    assert summary.clusters["size"].tolist() == [6, 6]
    assert summary.clusters["certainty"].tolist() == [1.0, 1.0]
    assert summary.scalars.index.tolist() == ["alpha"]
    assert summary.scalars.attrs["constant"]["n_clusters"] == 2.0
    assert dp.point_partition(idata, "y")["labels"].to_numpy().tolist() == KIND.tolist()
    assert set(np.unique(dp.co_clustering(idata, "y"))) == {0.0, 1.0}
    name = "y_u" if kind == "views" else "y"
    for function in AFTERWARDS:
        function(idata, name)
    mean = dp.component_draws(idata, name, random_seed=1)["mean"].mean(("chain", "draw")).to_numpy().ravel()
    np.testing.assert_allclose(mean, [0.0, 5.0], atol=0.8)
    if kind != "groups":
        assert int(dp.n_clusters(idata, "y")["posterior"].idxmax()) == 2


def test_counts_are_not_taken_for_fixed_labels():
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), dp.GammaPoisson(1.0, 1.0), observed=5 * KIND)
    idata = results(model, {"y_labels": np.tile(KIND, (8, 1)), "alpha": np.ones(8)})
    without = idata.copy()
    without["posterior"] = xr.DataTree(idata["posterior"].dataset.drop_vars("y_labels"))
    assert dp.point_partition(idata, "y").sizes == {next(iter(dp.point_partition(idata, "y").dims)): 12}
    with pytest.raises(ValueError, match="labels"):
        dp.point_partition(without, "y")


def test_wide_tables_are_cut_with_a_note():
    counts = RNG.poisson(1.0, size=(20, 300))
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial(a=1.0), observed=counts)
    idata = results(model, {"y_labels": np.tile(TRUTH, (8, 1))})
    found = dp.summary(idata, "y", TRUTH, random_seed=0)
    assert found.clusters.shape[1] == 306
    assert len(repr(found)) < 3_000
    assert "266 more columns are in the frame .clusters" in repr(found)
    few = repr(dp.summary(idata, "y", TRUTH, max_columns=7, random_seed=0))
    assert "299 more columns" in few
    whole = repr(dp.summary(idata, "y", TRUTH, max_columns=None, random_seed=0))
    assert whole.count("probability[") == 300
    assert "more columns" not in whole
    with pytest.raises(ValueError, match="and 288 more") as error:
        dp.density(idata, "y", columns=["no"])
    assert len(str(error.value)) < 400


def test_many_values_of_counts_are_a_band_and_ticks_are_whole():
    counts = RNG.poisson(np.array([3.0, 40.0, 150.0])[TRUTH])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 0.02), observed=counts)
    idata = results(model, {"y_labels": np.tile(TRUTH, (8, 1))})
    (axes,) = dp.plot_density(idata, "y", random_seed=0).axes
    assert len(axes.collections) == 1
    assert not axes.containers[1:]
    for picture in (axes, dp.plot_n_clusters(idata, "y").axes[0]):
        picture.figure.canvas.draw()
        assert all(float(tick).is_integer() for tick in picture.get_xticks())


def test_pictures_are_shown_once_in_a_notebook():
    """Whether a figure is the value of its cell, is assigned, is not looked at, or is shown."""
    import pickle

    import nbformat
    from nbclient import NotebookClient

    _, idata = drawn()
    figure = dp.plot_sizes(idata, "y")
    assert pickle.loads(pickle.dumps(figure)) is not None
    setup = """
import numpy as np, xarray as xr, pymc_dpgmm as dp, matplotlib.pyplot as plt
labels = xr.Dataset({"y_labels": (("chain", "draw", "row"), np.tile([0, 0, 1], (2, 8, 1)))})
idata = xr.DataTree.from_dict({"posterior": labels})
"""
    plot = 'dp.plot_sizes(idata, "y")'
    cells = [setup, plot, f"figure = {plot}", f"{plot};", f"{plot}\nplt.show()", "figure", f"{plot}\n1 + 1"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [
        sum("image/png" in output.get("data", {}) for output in cell["outputs"]) for cell in notebook["cells"]
    ]
    assert pictures == [0, 1, 1, 1, 1, 1, 1]


def test_rows_that_belong_nowhere_have_no_weight_and_parameters(monkeypatch):
    """One rule in the table, its data frame and draws of components: a row alone in a tenth of the draws."""
    monkeypatch.setenv("COLUMNS", "200")
    model, _ = drawn()
    labels = np.tile(TRUTH, (40, 1))
    labels[::10, 3] = 3
    reference = TRUTH.copy()
    reference[3] = 3
    module = importlib.import_module("pymc_dpgmm.posterior.point_partition")
    monkeypatch.setattr(module, "point_partition_of", lambda *args, **kwargs: (reference, 0.0))
    idata = results(model, {"y_labels": labels, "alpha": RNG.gamma(2.0, size=40)})
    components = dp.component_draws(idata, "y", random_seed=0)
    found = dp.summary(idata, "y", random_seed=0)
    for weight in (components["weight"].mean(("chain", "draw")).to_numpy(), found.clusters["weight"].to_numpy()):
        assert np.isnan(weight).tolist() == [False, False, False, True]
    assert np.isnan(components["mean"].sel(cluster=3)).all()
    assert not np.isnan(components["mean"].sel(cluster=[0, 1, 2])).any()
    assert "Row 3 is uncertain, a cluster by itself, alone in 10% of the draws" in repr(found)
    # What a user names is answered.
    assert not np.isnan(dp.component_draws(idata, "y", reference, random_seed=0)["weight"]).any()
    assert found.scalars.index[2] == "share[largest]"


def test_rows_whose_cluster_is_a_part_of_another_one_in_most_draws_are_grey():
    """The third cluster of the partition is one of its own in a fifth of the draws."""
    model, _ = drawn()
    labels = np.tile(TRUTH, (40, 1))
    third = np.flatnonzero(TRUTH == 2)
    labels[np.arange(40) % 5 > 0] = np.where(TRUTH == 2, 0, TRUTH)
    idata = results(model, {"y_labels": labels, "alpha": RNG.gamma(2.0, size=40)})
    found = dp.point_partition(idata, "y").assign(labels=("y_obs", TRUTH))
    figure = dp.plot_clusters(idata, "y", found, columns=["u", "v"])
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[-1] == f"none: {len(third)} rows"
    assert len(texts) == 3
    assert len(figure.axes[0].lines) == 2
    # What a user calls a cluster is one.
    own = dp.plot_clusters(idata, "y", TRUTH, columns=["u", "v"])
    assert len(own.legends[0].get_texts()) == 3
    assert len(own.axes[0].lines) == 3
