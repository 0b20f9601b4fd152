"""What pictures show, and what is written at their axes."""

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from drawn import results

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.plots.panels import separation
from pymc_dpgmm.posterior.reading import read_labelled

mpl.use("Agg")

RNG = np.random.default_rng(5)
TRUTH = np.repeat([0, 1, 2], [16, 10, 6])
N = len(TRUTH)
SEX = np.array(["female", "male", "unknown"])[np.arange(N) % 3]
PLACE = np.where(TRUTH == 0, "south of the river", "north of the river")
DOSE = np.linspace(0.0, 10.0, N)


def fitted(base, observed, labels=TRUTH, **draws):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, base, observed=observed)
    return results(model, {"y_labels": np.tile(labels, (8, 1)), **draws})


def ticks(axis):
    low, high = sorted(axis.get_view_interval())
    axis.axes.figure.canvas.draw()
    shown = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [text.get_text() for at, text in shown if low <= at <= high]


def latent(d=1, n_draws=200):
    """Rows at -3 and 3, that are elsewhere in the first draw."""
    shape = (N,) if d == 1 else (N, d)
    base = (
        dp.NormalInverseGamma(0.0, 0.1, 3.0, 1.0) if d == 1 else dp.NormalInverseWishart(0.0, 0.1, 4.0, np.eye(2))
    )
    with pm.Model() as model:
        effect = dp.DPMixture("effect", 1.0, base, shape=shape)
        pm.Normal("w", effect, 1.0, observed=np.zeros(shape))
    middle = np.where(TRUTH == 0, -3.0, 3.0).reshape(-1, *([1] * (d - 1)))
    values = middle + RNG.normal(scale=0.5, size=(n_draws, *shape))
    values[0] = 0.01 * values[0]
    labels = np.tile(np.minimum(TRUTH, 1), (n_draws, 1))
    return results(model, {"effect_labels": labels, "effect": values}), values


def test_a_latent_density_is_seen_whole_and_with_all_draws():
    idata, values = latent()
    figure = dp.plot_density(idata, "effect", random_seed=1)
    (axes,) = figure.axes
    assert axes.get_legend().get_texts()[0].get_text() == "draws of the rows"
    line = axes.lines[0]
    # The curve is not cut where one draw ends.
    assert line.get_xdata().min() < -4.0
    assert line.get_xdata().max() > 4.0
    assert np.trapezoid(line.get_ydata(), line.get_xdata()) > 0.95
    # And the bars are the shares of all draws.
    bars = axes.patches
    within = sum(bar.get_height() * bar.get_width() for bar in bars if bar.get_x() + bar.get_width() <= 0.0)
    assert within == pytest.approx((values < 0.0).mean(), abs=0.02)
    found = dp.density(idata, "effect", random_seed=1)
    assert found["x"].min() < -4.0
    assert found["x"].max() > 4.0


def test_a_latent_density_of_two_columns_shows_draws():
    idata, _ = latent(d=2)
    (axes,) = dp.plot_density(idata, "effect", random_seed=1).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["draws of the rows"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("effect[0]", "effect[1]")
    points = axes.collections[0].get_offsets()
    assert 1_000 < len(points) <= 5_000
    assert axes.get_xlim()[0] < -4.0
    assert axes.get_ylim()[1] > 4.0


def test_clusters_of_latent_rows_are_drawn_at_posterior_means():
    idata, values = latent()
    (axes,) = dp.plot_clusters(idata, "effect", np.minimum(TRUTH, 1), random_seed=1).axes
    assert axes.get_xlabel() == "effect (posterior mean)"
    shown = np.sort(np.concatenate([own.get_offsets()[:, 0] for own in axes.collections]))
    np.testing.assert_allclose(shown, np.sort(values.mean(axis=0)))


def test_residuals_of_a_drawn_offset_are_no_data():
    y = np.where(TRUTH == 0, -3.0, 3.0) + DOSE
    with pm.Model() as model:
        b = pm.Normal("b")
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 3.0, 1.0), observed=y, offset=b * DOSE)
    slopes = np.r_[50.0, np.full(7, 1.0)]
    idata = results(model, {"y_labels": np.tile(np.minimum(TRUTH, 1), (8, 1)), "b": slopes})
    kwargs = {"model": model}
    (axes,) = dp.plot_density(idata, "y", **kwargs).axes
    assert "draws of the rows" in [text.get_text() for text in axes.get_legend().get_texts()]
    (axes,) = dp.plot_clusters(idata, "y", np.minimum(TRUTH, 1), **kwargs).axes
    assert axes.get_xlabel() == "y (posterior mean)"


def regression(p, names=None):
    rng = np.random.default_rng(9)
    columns = [np.ones(N), DOSE, *rng.normal(size=(3, N))][:p]
    covariates = np.column_stack(columns)
    y = np.array([0.0, 5.0, -3.0])[TRUTH] + np.array([1.0, -1.0, 0.2])[TRUTH] * DOSE + rng.normal(0, 0.02, N)
    if names:
        covariates = pd.DataFrame(covariates, columns=names)
    base = dp.LinearRegression(0.0, 0.01, 2.0, 0.1, covariates=covariates)
    return fitted(base, pd.Series(y, name="response")), y


def test_a_regression_is_drawn_against_its_covariate():
    idata, y = regression(2, ["one", "dose"])
    figure = dp.plot_clusters(idata, "y", TRUTH, random_seed=1)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dose", "response")
    for k, points in enumerate(axes.collections):
        np.testing.assert_allclose(points.get_offsets(), np.column_stack([DOSE, y])[k == TRUTH])
    # Each cluster has its line.
    slopes = [np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0] for line in axes.lines]
    for k, slope in enumerate(slopes):
        covariates = np.column_stack([np.ones(N), DOSE])[k == TRUTH]
        # The posterior mean, to which the prior precision of 0.01 belongs.
        mean = np.linalg.solve(covariates.T @ covariates + 0.01 * np.eye(2), covariates.T @ y[k == TRUTH])
        assert abs(slope - mean[1]) < 0.1
    # Coefficients are named as the covariates are.
    assert dp.component_draws(idata, "y", TRUTH)["y_covariate"].to_numpy().tolist() == ["one", "dose"]
    assert "coefficients[dose]" in dp.summary(idata, "y", TRUTH).clusters


def test_covariates_may_be_chosen():
    idata, _ = regression(5, ["one", "dose", "a", "b", "c"])
    figure = dp.plot_clusters(idata, "y", TRUTH)
    assert [axes.get_xlabel() for axes in figure.axes] == ["dose", "a", "b"]
    assert figure.get_suptitle() == "3 of 4 covariates; columns= shows others"
    figure = dp.plot_clusters(idata, "y", TRUTH, columns=["c", 1])
    assert [axes.get_xlabel() for axes in figure.axes] == ["c", "dose"]
    assert figure.get_suptitle() == ""
    with pytest.raises(ValueError, match="there is no covariate 'z', only"):
        dp.plot_clusters(idata, "y", TRUTH, columns=["z"])
    _, ax = mpl.pyplot.subplots()
    with pytest.raises(ValueError, match="ax takes one covariate, got 3"):
        dp.plot_clusters(idata, "y", TRUTH, ax=ax)
    dp.plot_clusters(idata, "y", TRUTH, columns="c", ax=ax)
    assert ax.get_xlabel() == "c"
    unnamed, _ = regression(2)
    assert dp.plot_clusters(unnamed, "y", TRUTH).axes[0].get_xlabel() == "covariate 1"


def categories():
    return fitted(dp.DirichletCategorical, pd.DataFrame({"sex": SEX, "place": PLACE}))


def test_coordinates_and_ticks_of_categories_are_their_names():
    idata = categories()
    sexes, sides = ["female", "male", "unknown"], ["north of the river", "south of the river"]
    found = dp.density(idata, "y", random_seed=1)
    assert found["sex"].to_numpy().tolist() == sexes
    assert found["place"].to_numpy().tolist() == sides
    assert float(found["mean"].sum()) == pytest.approx(1.0)
    alone = dp.density(idata, "y", columns="place", random_seed=1)
    assert alone["x"].to_numpy().tolist() == sides
    # A name and its probability belong together.
    np.testing.assert_allclose(alone["mean"], found["mean"].sum("sex"), atol=1e-12)
    assert float(alone["mean"].sel(x=sides[1])) == pytest.approx(float((TRUTH == 0).mean()), abs=0.05)
    clusters = dp.plot_clusters(idata, "y", TRUTH).axes[0]
    tiles = dp.plot_density(idata, "y", random_seed=1).axes[0]
    for axes in (clusters, tiles):
        assert ticks(axes.xaxis) == sexes
        assert ticks(axes.yaxis) == sides
    strip = dp.plot_clusters(idata, "y", TRUTH, columns="sex").axes[0]
    assert ticks(strip.xaxis) == sexes
    # Points that are given in another order are where their names are.
    bars = dp.plot_density(idata, "y", ["unknown", "female"], columns="sex", random_seed=1).axes[0]
    assert ticks(bars.xaxis) == sexes
    (shown,) = (container.lines[0] for container in bars.containers if hasattr(container, "lines"))
    given = dp.density(idata, "y", ["unknown", "female"], columns="sex", random_seed=1)
    assert shown.get_xdata().tolist() == [2, 0]
    np.testing.assert_allclose(shown.get_ydata(), given["mean"])


def test_categories_of_groups_have_names_and_do_not_hide_each_other():
    with pm.Model() as model:
        table = pd.DataFrame({"sex": SEX, "place": PLACE})
        dp.HDPMixture("y", 1.0, 1.0, dp.DirichletCategorical, group=np.arange(N) % 2, observed=table)
    openers = (np.unique(TRUTH, return_index=True)[1][TRUTH] == np.arange(N)).astype(int)
    openers[[1, 17, 27]] = 1
    idata = results(model, {"y_labels": np.tile(TRUTH, (8, 1)), "y_openers": np.tile(openers, (8, 1))})
    figure = dp.plot_groups(idata, "y", TRUTH)
    for axes in figure.axes:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["female", "male", "unknown"]
        points = np.concatenate([own.get_offsets() for own in axes.collections])
        assert len(np.unique(points, axis=0)) == N // 2
        np.testing.assert_array_less(np.abs(points - np.round(points)), 0.31)


def test_columns_in_another_order_are_not_transposed():
    idata = fitted(None, pd.DataFrame({"u": 10.0 * TRUTH + RNG.normal(size=N), "v": RNG.normal(size=N)}))
    (axes,) = dp.plot_density(idata, "y", columns=["v", "u"], random_seed=1).axes
    (lines,) = (own for own in axes.collections if type(own).__name__ == "QuadContourSet")
    outer = np.concatenate([path.vertices for path in lines.get_paths()])
    assert np.abs(outer[:, 0]).max() < 6.0
    assert outer[:, 1].max() > 15.0


def test_ticks_of_bools_are_at_whole_numbers():
    flags = pd.DataFrame(RNG.random((N, 3)) < 0.5, columns=["smokes", "drinks", "runs"])
    idata = fitted(dp.BetaBernoulli(1.0, 1.0), flags)
    figures = [
        dp.plot_clusters(idata, "y", TRUTH),
        dp.plot_clusters(idata, "y", TRUTH, columns="runs"),
        dp.plot_density(idata, "y", columns="runs", random_seed=1),
        dp.plot_density(idata, "y", columns=["runs", "drinks"], random_seed=1),
    ]
    for figure in figures:
        for axes in figure.axes:
            if axes.get_xlabel():
                assert ticks(axes.xaxis) == ["0", "1"]
    for axes in figures[0].axes:
        assert ticks(axes.yaxis) == ["0", "1"]


def boxes(axis):
    axis.axes.figure.canvas.draw()
    return [text.get_window_extent() for text in axis.get_ticklabels() if text.get_text()]


@pytest.mark.parametrize("width", [3.0, 6.0, 14.0])
def test_names_do_not_cover_each_other(width):
    idata = categories()
    for columns in (["sex", "place"], ["place", "sex"]):
        for picture in (dp.plot_clusters, dp.plot_density):
            figure, ax = mpl.pyplot.subplots(figsize=(width, 3.5), layout="constrained")
            given = {"partition": TRUTH} if picture is dp.plot_clusters else {"random_seed": 1}
            picture(idata, "y", columns=columns, ax=ax, **given)
            turned = [text.get_rotation() for text in ax.get_xticklabels()]
            found = boxes(ax.xaxis)
            if not any(turned):
                assert all(a.x1 < b.x0 for a, b in pairwise(found)), (width, columns)
            mpl.pyplot.close(figure)


def columns_of(d, n_informative=2):
    """Columns without clusters, but for some of the last."""
    values = RNG.normal(size=(N, d))
    values[:, d - n_informative :] += np.array([0.0, 8.0, -8.0])[TRUTH][:, None]
    return pd.DataFrame(values, columns=[f"c{j}" for j in range(d)])


@pytest.mark.parametrize("d", [2, 3, 4, 5, 9])
def test_panels_are_few_and_large_enough_to_read(d):
    idata = fitted(None, columns_of(d))
    figure = dp.plot_clusters(idata, "y", TRUTH, random_seed=1)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == min(d * (d - 1) // 2, 6)
    # Not wider than a page that leaves letters their size.
    assert figure.get_figwidth() <= 10.0
    figure.canvas.draw()
    for axes in shown:
        box = axes.get_window_extent()
        assert min(box.width, box.height) / figure.dpi > 1.7
        assert axes.xaxis.label.get_fontsize() >= 10
        assert len(shown) == 1 or len(ticks(axes.xaxis)) <= 6
        found = boxes(axes.xaxis)
        assert all(a.x1 < b.x0 for a, b in pairwise(found))
    names = {axes.get_xlabel() for axes in shown} | {axes.get_ylabel() for axes in shown}
    if d > 4:
        assert {f"c{d - 2}", f"c{d - 1}"} <= names
        assert len(names) == 4
        said = f"the 4 of {d} columns in which clusters differ most; columns= shows others"
        assert figure.get_suptitle() == said
    else:
        assert figure.get_suptitle() == ""


def test_columns_that_a_user_chooses_are_shown():
    idata = fitted(None, columns_of(8))
    figure = dp.plot_clusters(idata, "y", TRUTH, columns=["c0", "c1", "c2", "c3", "c4"], random_seed=1)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 10
    with pytest.raises(ValueError, match="pairs of 7 columns are too many to see; choose at most 6"):
        dp.plot_clusters(idata, "y", TRUTH, columns=list(range(7)))


def test_separation_is_the_share_of_variance_between_clusters():
    table = columns_of(4)
    table.iloc[3, 0] = np.nan
    view = read_labelled(fitted(dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), table), "y").sole()
    found = separation(view, view.data(0, completed=False), TRUTH)
    for j, column in enumerate(table):
        own = table[column].dropna()
        middle = own.groupby(TRUTH[own.index]).transform("mean")
        assert found[j] == pytest.approx(((middle - own.mean()) ** 2).sum() / ((own - own.mean()) ** 2).sum())
    categorical = read_labelled(categories(), "y").sole()
    shares = separation(categorical, categorical.data(0), TRUTH)
    assert shares[1] == pytest.approx(1.0)
    assert shares[0] < 0.2


def test_rows_of_counts_may_be_sparse():
    from scipy.sparse import csr_array

    counts = RNG.poisson(np.where(TRUTH[:, None] == np.arange(9) % 3, 9.0, 1.0))
    dense, sparse = (fitted(dp.DirichletMultinomial(1.0), own) for own in (counts, csr_array(counts)))
    views = [read_labelled(idata, "y").sole() for idata in (dense, sparse)]
    shares = [separation(view, view.data(0), TRUTH) for view in views]
    np.testing.assert_allclose(*shares, atol=1e-12)
    figure = dp.plot_clusters(sparse, "y", TRUTH)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 6
