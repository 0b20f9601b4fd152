"""Results that were selected, joined, thinned or named: answers are those of their draws and names."""

import arviz as az
import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from drawn import results

import pymc_dpgmm as dp

mpl.use("Agg")
pytestmark = pytest.mark.interpreted

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
RNG = np.random.default_rng(2)
TRUTH = np.repeat([0, 1], [12, 8])
NAMED = pd.Series(RNG.normal(size=20) + 6.0 * TRUTH, index=[f"r{i}" for i in range(20)])


def drawn(observed=NAMED, n_draws=20):
    """Draws that are the truth, but for one row."""
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), observed=observed)
    labels = np.tile(TRUTH, (n_draws, 1))
    labels[::4, 3] = 1
    return model, results(model, {"y_labels": labels, "alpha": RNG.gamma(2.0, size=n_draws)})


ASKED = {
    "summary": lambda idata: dp.summary(idata, "y", random_seed=1).clusters,
    "diagnostics": lambda idata: dp.partition_diagnostics(idata, "y", warn=False),
    "components": lambda idata: dp.component_draws(idata, "y", random_seed=1),
    "density": lambda idata: dp.density(idata, "y", [0.0, 6.0], random_seed=1),
    "membership": lambda idata: dp.membership(idata, "y", [0.0]),
    "likelihood": lambda idata: dp.log_likelihood(idata, "y", random_seed=1, extend_inferencedata=False),
    "replicates": lambda idata: dp.sample_replicates(idata, "y", random_seed=1, extend_inferencedata=False),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("one", "some"), [({"chain": 1}, {"chain": [1]}), ({"draw": 3}, {"draw": [3]})])
def test_one_chain_or_draw_is_a_selection_of_one(asked, one, some):
    """Whether the dimension is dropped or not."""
    _, idata = drawn()

    def chosen(by):
        return idata.map_over_datasets(lambda g: g.sel({dim: own for dim, own in by.items() if dim in g.dims}))

    sel = [chosen(one), chosen(some)]
    found, wanted = (ASKED[asked](own) for own in sel)
    if isinstance(found, xr.DataTree):
        found, wanted = (next(iter(own.children.values())).to_dataset() for own in (found, wanted))
    (pd.testing.assert_frame_equal if isinstance(found, pd.DataFrame) else xr.testing.assert_equal)(found, wanted)


# Of ArviZ, of two chains with one draw each.
@pytest.mark.filterwarnings("ignore:Found chain dimension to be longer")
def test_topics_and_processes_of_one_draw():
    with pm.Model() as words:
        dp.LDA("w", 2, 0.5, 0.5, observed=[[4, 1, 0], [0, 2, 5]])
        idata = pm.sample(5, tune=5, chains=2, cores=1, random_seed=1, **QUIET)
    for own in (idata.sel(chain=1), idata.isel(draw=0)):
        assert dp.group_weights(own, "w", model=words)["weight"].sum().item() <= 2.0 + 1e-9
        assert dp.topics(own, "w").sizes["topic"] >= 1
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 3.0), shape=4)
        pm.Normal("y", theta, 1.0, observed=[-2.0, -1.9, 2.0, 2.1])
        idata = pm.sample(5, tune=5, chains=2, cores=1, random_seed=1, **QUIET)
    for own in (idata.sel(chain=1), idata.isel(draw=0)):
        assert "theta" in dp.component_draws(own, "theta", model=model, random_seed=1)
        group = dp.sample_replicates(own, "theta", model=model, random_seed=1, extend_inferencedata=False)
        assert group["posterior_predictive"]["y"].shape[-1] == 4


def test_chains_with_one_number_are_told_of():
    _, idata = drawn()
    twice = idata.map_over_datasets(lambda g: xr.concat([g, g], "chain") if "chain" in g.dims else g)
    with pytest.raises(ValueError, match="several chains have one number"):
        dp.summary(twice, "y", TRUTH)
    anew = twice.map_over_datasets(lambda g: g.assign_coords(chain=range(4)) if "chain" in g.dims else g)
    assert dp.summary(anew, "y", TRUTH).clusters["size"].tolist() == [12, 8]


# Thinned labels.


def thinned(observed, every=4, model=None, keep=None, labels="y_labels", seed=1):
    keep = dp.ThinnedLabels(labels, every=every) if keep is None else keep
    with model or pm.Model():
        if model is None:
            base = dp.NormalInverseGamma.from_data(observed)
            dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), base, observed=observed)
        run = {"tune": 20, "chains": 2, "cores": 1, "random_seed": seed, "callback": keep, **QUIET}
        idata = pm.sample(40, **run, var_names=["alpha", "y_n_clusters"])
    idata["thinned"] = keep.to_datatree()
    return idata


def test_thinned_labels_have_the_names_of_the_rows():
    idata = thinned(NAMED)
    reference = pd.Series(TRUTH, index=NAMED.index)
    whole = dp.certainty(idata, "y", reference)
    xr.testing.assert_equal(whole, dp.certainty(idata, "y", reference.sample(frac=1.0, random_state=1)))
    assert whole["certainty"].dims == ("y_obs",)
    with pytest.raises(ValueError, match="reference"):
        dp.certainty(idata, "y", reference.set_axis(range(100, 120)))
    dp.log_likelihood(idata, "y", random_seed=1)
    assert idata["log_likelihood"]["y"].dims == ("chain", "draw", "y_obs")
    dp.sample_replicates(idata, "y", random_seed=1)
    assert idata["posterior_predictive"]["y"].dims == idata["log_likelihood"]["y"].dims


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_thinned_labels_without_names_have_the_rows_of_the_data():
    idata = thinned(NAMED.to_numpy(), every=1)
    assert idata["thinned"]["y_labels"].dims[-1] == "y_labels_dim_0"
    dp.log_likelihood(idata, "y", random_seed=1)
    dp.sample_replicates(idata, "y", random_seed=1)
    assert idata["log_likelihood"]["y"].dims == idata["posterior_predictive"]["y"].dims
    assert az.loo_expectations(idata, var_name="y")[0].shape == (20,)


def test_labels_of_two_mixtures_are_thinned_side_by_side():
    keep = [dp.ThinnedLabels(f"{name}_labels", every=5) for name in "ab"]
    with pm.Model():
        dp.DPMixture("a", 1.0, observed=NAMED.to_numpy())
        dp.DPMixture("b", 1.0, observed=NAMED.to_numpy()[:9])

        def both(trace, draw):
            for own in keep:
                own(trace, draw)

        idata = pm.sample(10, tune=5, chains=1, random_seed=1, callback=both, **QUIET)
    merged = xr.merge([own.to_datatree().to_dataset() for own in keep])
    idata["thinned"] = xr.DataTree(merged)
    assert (merged.sizes["a_labels_dim_0"], merged.sizes["b_labels_dim_0"]) == (20, 9)


def test_a_second_run_begins_anew():
    """Draws of the first do not get among those of the second."""
    keep = dp.ThinnedLabels("y_labels", every=4)
    thinned(NAMED.to_numpy(), keep=keep)
    again = thinned(NAMED.to_numpy()[::-1].copy(), keep=keep, seed=2)["thinned"]
    fresh = thinned(NAMED.to_numpy()[::-1].copy(), seed=2)["thinned"]
    xr.testing.assert_equal(again.to_dataset(), fresh.to_dataset())


def test_draws_that_were_selected_by_position_are_told_of():
    """A slice by position takes other draws of thinned labels than of everything else."""
    idata = thinned(NAMED)
    apart = idata.map_over_datasets(lambda g: g.isel(draw=slice(None, None, 10)) if "draw" in g.dims else g)
    with pytest.raises(ValueError, match="Select all groups by the numbers of the labels"):
        dp.summary(apart, "y", TRUTH)
    numbers = idata["thinned"]["draw"].to_numpy()[::2]
    by_number = idata.map_over_datasets(lambda g: g.sel(draw=numbers) if "draw" in g.dims else g)
    assert "log_joint" in dp.partition_diagnostics(by_number, "y", warn=False)


def test_groups_of_other_draws_are_not_joined():
    idata = thinned(NAMED)
    other = xr.zeros_like(idata["posterior"]["alpha"]).rename("z")
    idata["log_likelihood"] = xr.DataTree(other.to_dataset())
    with pytest.raises(ValueError, match=r"log_likelihood has \['z'\] of other draws than the labels"):
        dp.log_likelihood(idata, "y", random_seed=1)
    assert dp.log_likelihood(idata, "y", random_seed=1, extend_inferencedata=False)


# Names of clusters.


@pytest.mark.parametrize("names", [[7, 3], ["late", "early"], [1, 2]])
def test_clusters_have_the_names_of_the_reference(names):
    _, idata = drawn()
    reference = np.array(names)[TRUTH]
    found = dp.certainty(idata, "y", reference)
    assert found["labels"].to_numpy().tolist() == reference.tolist()
    assert found["second"].to_numpy()[0] == names[1]
    in_order = sorted(names) if isinstance(names[0], int) else names
    for asked in (
        dp.component_draws(idata, "y", reference, random_seed=1),
        dp.membership(idata, "y", [0.0], reference),
    ):
        assert asked["cluster"].to_numpy().tolist() == in_order
        assert asked["reference"].to_numpy().tolist() == reference.tolist()
    of_size = dict(zip(names, [12, 8], strict=True))
    assert dp.summary(idata, "y", reference).clusters["size"].to_dict() == of_size
    assert dp.membership(idata, "y", [0.0], reference)["probability"].sel(cluster=names[0]).item() > 0.9
    assert dp.chain_differences(idata, "y", reference)["cluster"].to_numpy().tolist() == in_order
    figure = dp.plot_clusters(idata, "y", reference)
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [f"{names[0]}: 12 rows", f"{names[1]}: 8 rows"]


def test_one_cluster_has_no_second():
    _, idata = drawn()
    assert set(dp.certainty(idata, "y", np.full(20, 4))["second"].to_numpy()) == {-1}
    assert set(dp.certainty(idata, "y", np.full(20, "all"))["second"].to_numpy()) == {""}
    with pytest.raises(ValueError, match="reference is a Dataset without labels"):
        dp.certainty(idata, "y", xr.Dataset({"found": ("y_obs", TRUTH)}))


# Summaries.


def test_what_varies_little_beside_its_mean_varies():
    mu = 1.7e9 + 200.0 * RNG.normal(size=20)
    with pm.Model() as model:
        base = dp.NormalInverseGamma(pm.Normal("mu", 1.7e9, 1e3), 0.1, 2.0, 1.0)
        dp.DPMixture("y", 1.0, base, observed=NAMED.to_numpy() + 1.7e9)
    idata = results(model, {"y_labels": np.tile(TRUTH, (20, 1)), "mu": mu})
    found = dp.summary(idata, "y", random_seed=1)
    assert found.scalars.loc["mu", "sd"] == pytest.approx(mu.std(ddof=1), rel=0.05)
    assert set(found.scalars.attrs["constant"]) >= {"n_clusters", "entropy"}


def test_one_draw_is_printed_with_its_digits():
    _, idata = drawn()
    one = dp.summary(idata.isel(draw=[1], chain=[0]), "y", TRUTH, random_seed=1)
    line = next(line for line in repr(one).split("\n") if line.startswith("share[largest]"))
    assert line.split()[1] == "0.600"


def test_hyperparameters_named_like_a_statistic():
    with pm.Model() as model:
        share = pm.Normal("entropy", 0.0, 1.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(share, 0.1, 2.0, 1.0), observed=NAMED.to_numpy())
    idata = results(model, {"y_labels": np.tile(TRUTH, (20, 1)), "entropy": RNG.normal(size=20)})
    found = dp.summary(idata, "y", TRUTH, random_seed=1)
    assert "entropy" in found.scalars.index
    assert {"y_labels_entropy"} <= {*found.scalars.index, *found.scalars.attrs["constant"]}


def test_an_empty_level_is_a_level():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=["", "a", "b", "a"] * 5)
    idata = results(model, {"y_labels": np.tile(np.arange(20) % 2, (20, 1))})
    columns = dp.summary(idata, "y", np.arange(20) % 2).clusters.columns
    assert {"probability[]", "probability[a]", "probability[b]"} <= set(columns)


def test_draws_at_one_distance_are_in_the_ball_together():
    """Every draw moves one row of a balanced partition; by Binder's loss all are at the same distance."""
    center = np.repeat(np.arange(4), 6)
    labels = []
    for i in range(24):
        for k in range(4):
            if k != center[i]:
                moved = center.copy()
                moved[i] = k
                labels.append(moved)
    posterior = xr.Dataset({"y_labels": (("chain", "draw", "row"), np.array(labels)[None])})
    idata = xr.DataTree.from_dict({"posterior": posterior})
    for loss in ("binder", "vi"):
        assert dp.credible_ball(idata, "y", center, probability=0.5, loss=loss)["probability"] == pytest.approx(
            1.0
        )


# Questions to several views, and pictures.


def test_contrasts_between_rows_that_know_different_views():
    rng = np.random.default_rng(4)
    group = np.arange(60) % 3
    table = pd.DataFrame({name: rng.normal(size=60) + 4.0 * (group == k) for k, name in enumerate("aby")})
    with pm.Model() as model:
        views = {name: (name, dp.NormalInverseGamma.from_data(table[name])) for name in "aby"}
        dp.DPMixture("m", 1.0, views, observed=table)
    idata = results(model, {"m_labels": np.tile(group, (20, 1))})
    run = {"of": "y", "random_seed": 1, "progressbar": False}
    found = dp.contrast(idata, "m", {"a": [1.0]}, {"b": [5.0]}, **run)["mean"].item()
    # A second row that changes nothing keeps both views in both questions.
    both = [
        pd.DataFrame({"a": [1.0, 0.0], "b": [np.nan, 0.0]}),
        pd.DataFrame({"a": [np.nan, 0.0], "b": [5.0, 0.0]}),
    ]
    assert found == pytest.approx(2.0 * dp.contrast(idata, "m", *both, **run)["mean"].item(), rel=1e-6)
    nothing = dp.contrast(idata, "m", {"a": [np.nan]}, {"a": [1.0]}, **run)["mean"].item()
    assert np.isfinite(nothing)


def test_named_rows_of_one_name_in_two_submodels():
    with pm.Model() as model:
        for prefix, rows in (("s", NAMED), ("t", NAMED.iloc[:9])):
            with pm.Model(prefix):
                dp.DPMixture("y", 1.0, observed=rows)
    assert (len(model.coords["s::y_obs"]), len(model.coords["t::y_obs"])) == (20, 9)


def test_predictions_along_categories():
    rng = np.random.default_rng(1)
    sex = np.array(["female", "male"])[np.arange(40) % 2]
    table = pd.DataFrame({"sex": sex, "height": rng.normal(size=40) + 12.0 * (sex == "male")})
    with pm.Model() as model:
        views = {"s": ("sex", dp.DirichletCategorical), "h": ("height", dp.NormalInverseGamma)}
        dp.DPMixture("m", 1.0, views, observed=table)
    idata = results(model, {"m_labels": np.tile(np.arange(40) % 2, (10, 1))})
    for of in ("height", "sex"):
        figure = dp.plot_predict(idata, "m", "sex" if of == "height" else "height", of=of, random_seed=1)
        axes = figure.axes[0]
        if of == "height":
            assert [text.get_text() for text in axes.get_xticklabels()] == ["female", "male"]
            (mean,) = (line for line in axes.lines if line.get_label() == "mean")
            assert mean.get_linestyle() == "None"
            assert np.diff(mean.get_ydata())[0] > 8.0
    with pytest.raises(ValueError, match="probability must lie in"):
        dp.plot_predict(idata, "m", "height", of="sex", probability=1.5)


def test_names_of_levels_are_all_in_the_legend():
    levels = ["_none", *"abcdefgh"]
    table = pd.DataFrame({"k": levels * 6, "v": np.arange(54.0)})
    with pm.Model() as model:
        dp.DPMixture(
            "m", 1.0, {"k": ("k", dp.DirichletCategorical), "v": ("v", dp.NormalInverseGamma)}, observed=table
        )
    idata = results(model, {"m_labels": np.tile(np.arange(54) % 3, (10, 1))})
    axes = dp.plot_predict(idata, "m", "v", of="k", random_seed=1).axes[0]
    assert [text.get_text().strip() for text in axes.get_legend().get_texts()] == sorted(levels)
    styles = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == len(levels)


def test_contours_of_clusters_that_are_narrow_beside_their_distance():
    rows = np.random.default_rng(1).normal(size=(200, 2)) + 400.0 * (np.arange(200) % 2)[:, None]
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(rows), observed=rows)
    idata = results(model, {"y_labels": np.tile(np.arange(200) % 2, (10, 1))})
    assert dp.plot_density(idata, "y", random_seed=1).axes


def test_rows_with_gaps_that_a_picture_leaves_out_are_told_of():
    rows = np.column_stack([NAMED.to_numpy(), NAMED.to_numpy()])
    rows[:5, 0] = np.nan
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=rows)
    idata = results(model, {"y_labels": np.tile(TRUTH, (10, 1))})
    figure = dp.plot_clusters(idata, "y", TRUTH)
    assert "5 rows with missing entries are not shown" in figure.get_suptitle()


def test_grids_of_large_counts_are_thin():
    counts = np.r_[np.arange(30), 200_000]
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 0.01), observed=counts)
    idata = results(model, {"y_labels": np.tile(np.r_[np.zeros(30, int), 1], (4, 1))})
    assert 1_000 < dp.density(idata, "y", random_seed=1).sizes["x"] <= 5_001


def test_small_mistakes_are_named():
    _, idata = drawn()
    assert dp.plot_co_clustering(idata, "y", rows=(1, 2, 5))
    with pytest.raises(ValueError, match="rows are none"):
        dp.co_clustering(idata, "y", rows=[])
    with pytest.raises(TypeError, match=r"got dtype bool and shape \(3,\)"):
        dp.co_clustering(idata, "y", rows=np.zeros(3, dtype=bool))
    with pm.Model():
        dp.LDA("w", 2, 0.5, 0.5, observed=[[4, 1, 0], [0, 2, 5]])
        words = pm.sample(5, tune=5, chains=1, random_seed=1, **QUIET)
    with pytest.raises(ValueError, match="n_topics must be at least 1"):
        dp.plot_topics(words, "w", n_topics=0)


# Runs that continue.


def test_checkpoints_of_runs_with_arrays_among_their_options(tmp_path):
    with pm.Model() as model:
        dp.DPMixture(
            "y", pm.HalfNormal("alpha", 1.0), dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=[1.0, 2.0]
        )
        pm.Normal("other", shape=2)
    run = dp.ResumableRun(model, chains=1, tune=5, random_seed=1, nuts={"scaling": np.ones(2)})
    for _ in range(2):
        run.sample(10, checkpoint=tmp_path / "run.pickle", progressbar=False)
    again = dp.ResumableRun.load(tmp_path / "run.pickle", model)
    assert again.sample(5, progressbar=False).posterior.sizes["draw"] == 25


def test_a_run_does_not_go_on_with_more_or_less_in_the_model(tmp_path):
    def built(has_more):
        with pm.Model() as model:
            mu = pm.Normal("mu")
            dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 0.1, 2.0, 1.0), observed=[1.0, 2.0])
            if has_more:
                pm.Normal("w", mu, 1.0, observed=[0.5])
        return model

    for has_more in (False, True):
        path = tmp_path / f"{has_more}.pickle"
        dp.ResumableRun(built(has_more), chains=1, tune=2, random_seed=1).save(path)
        with pytest.raises(ValueError, match=f"only the {'saved run' if has_more else 'model'} has w"):
            dp.ResumableRun.load(path, built(not has_more))
