"""Some columns of new rows given the others, against quadrature over complete rows by separate code."""

import functools
import sys

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from drawn import results
from predicted_rows import (
    ALPHAS,
    CASES,
    DESIGN,
    LABELS,
    NIG,
    NODES,
    PAIRS,
    REAL,
    WEIGHTS,
    Case,
    X,
    stored,
    stored_data,
)
from scipy import stats
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.arrays import predictions
from pymc_dpgmm.posterior.arrays.mixtures import Clusters
from pymc_dpgmm.posterior.arrays.new_rows import NewRows

pytestmark = pytest.mark.interpreted

RNG = np.random.default_rng(6)


def fitted(case, labels=LABELS, alphas=ALPHAS):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), case.base, observed=case.rows)
    return results(model, {"y_labels": labels, "alpha": alphas}, n_chains=1)


def log_joint(case):
    """Return a function of a point: the log density of a new row and each of its clusters in all draws, (m,)."""
    log_marginal = exact.LOG_MARGINALS[case.base.family.name]
    params = case.base.numbers(2)._asdict()
    data, of_cluster, seats = stored_data(case), [], []
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        members = [data[labels == k] for k in range(labels.max() + 1)] + [data[:0]]
        of_cluster += members
        seats += [m / (len(labels) + alpha) for m in [*map(len, members[:-1]), alpha]]
    without_row = np.log(seats) - np.array([log_marginal(own, **params) for own in of_cluster])

    def at(point):
        row = stored(case, np.array([[case.row, point]]))
        return without_row + np.array([log_marginal(np.vstack([own, row]), **params) for own in of_cluster])

    return at


def of_points(case):
    """Points, quadrature weights, and the predictive density of the unknown entry, normalised: (g,) each."""
    points, weights = (NODES, WEIGHTS) if case.support is None else (case.support, np.ones(len(case.support)))
    weights = weights if case.weights is None else case.weights
    at = log_joint(case)
    density = np.array([np.exp(at(point)).sum() for point in points])
    return points, weights, density / (weights @ density)


ORACLES = {}


def oracle(name):
    if name not in ORACLES:
        ORACLES[name] = of_points(CASES[name])
    return ORACLES[name]


def ask(name, kind="mean", **options):
    case = CASES[name]
    new = np.array([[case.row, np.nan]])
    return dp.predict(fitted(case), "y", new, kind=kind, given=case.given, random_seed=1, **options)


# One by default of those whose columns depend on each other, of those that do not, and of counts.
BY_DEFAULT = "niw", "nig", "poisson", "categorical"
# Of these a test takes several seconds.
LONG = "gamma", "exponential", "negative-binomial"


@pytest.mark.parametrize("name", slow_but([name for name in CASES if name != "categorical"], *BY_DEFAULT))
def test_means(name):
    """The conditional mean, averaged over draws that count by the density of what is known."""
    points, weights, density = oracle(name)
    assert ask(name)["mean"].item() == pytest.approx(weights @ (points * density), rel=1e-8)


@pytest.mark.parametrize("name", slow_but(CASES, lambda name: name not in LONG))
def test_densities(name):
    """Densities of one column given the other, at all points."""
    points, _, density = oracle(name)
    chosen = slice(len(points) // 5, -len(points) // 5, len(points) // 28) if name in REAL else slice(0, 12)
    found = ask(name, "density", x=points[chosen])["mean"].to_numpy()[0]
    np.testing.assert_allclose(found, density[chosen], rtol=1e-8)


@pytest.mark.parametrize("name", ["categorical", "bernoulli"])
def test_probabilities(name):
    points, _, density = oracle(name)
    found = ask(name, "probability")
    np.testing.assert_allclose(found["mean"].to_numpy()[0], density, rtol=1e-8)
    np.testing.assert_array_equal(found["category"], points)
    assert np.all(found["lower"] <= found["upper"])


@pytest.mark.parametrize("name", slow_but(CASES, *BY_DEFAULT))
def test_draws_and_quantiles(name):
    """Draws have the density; repeated labels make draws that are independent given the partition."""
    times = 500
    case = CASES[name]
    idata = fitted(case, np.tile(LABELS, (times, 1)), np.tile(ALPHAS, times))
    new = np.array([[case.row, np.nan]])
    found = dp.predict(idata, "y", new, kind="draws", given=case.given, random_seed=3)
    values = found["1"].to_numpy().ravel()
    points, weights, density = oracle(name)
    if name in REAL:
        below = np.cumsum(weights * density)
        assert stats.kstest(values, lambda x, p=points, b=below: np.interp(x, p, b)).pvalue > 1e-4
        asked = dp.predict(
            idata, "y", new, kind="quantiles", quantiles=[0.1, 0.5, 0.9], given=case.given, random_seed=4
        )
        levels = np.interp(asked["quantiles"].to_numpy().ravel(), points, below)
        np.testing.assert_allclose(levels, [0.1, 0.5, 0.9], atol=4 * 0.5 / np.sqrt(3 * times))
        return
    counts = np.array([np.sum(values == point) for point in points])
    kept = density * len(values) > 5
    expected = density[kept] / density[kept].sum() * counts[kept].sum()
    assert stats.chisquare(counts[kept], expected).pvalue > 1e-4


def test_directions_are_averaged_as_unit_vectors():
    """Beside an independent column, against sums over a grid of the circle; bands and quantiles across its cut."""
    angles = np.array([3.0, -3.1, 2.9, 0.4, -3.0, 0.2])
    bases = {"x": dp.NormalInverseGamma(**NIG), "angle": dp.VonMises(3.0, 0.5, 4.0)}
    times = 400
    with pm.Model() as model:
        dp.DPMixture("m", pm.Gamma("alpha", 2.0, 2.0), bases, observed={"x": X, "angle": angles})
    values = {"m_labels": np.tile(LABELS, (times, 1)), "alpha": np.tile(ALPHAS, times)}
    idata = results(model, values, n_chains=1)
    grid = np.linspace(-np.pi, np.pi, 240, endpoint=False)
    density = np.zeros(len(grid))
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            own = labels == k
            x, at = X[own][:, None], angles[own][:, None]
            seat = (own.sum() if own.any() else alpha) / (6 + alpha)
            known = np.exp(
                exact.nig_log_marginal(np.vstack([x, [[0.9]]]), **NIG) - exact.nig_log_marginal(x, **NIG)
            )
            before = exact.von_mises_log_marginal(at, 3.0, 0.5, 4.0)
            each = [exact.von_mises_log_marginal(np.vstack([at, [[g]]]), 3.0, 0.5, 4.0) for g in grid]
            density += seat * known * np.exp(np.array(each) - before)
    density /= density.sum()
    new = {"x": np.array([0.9])}
    wanted = np.angle(density @ np.exp(1j * grid))
    found = dp.predict(idata, "m", new, of="angle", random_seed=1, n_draws=3 * times)
    assert found["mean"].item() == pytest.approx(wanted, abs=1e-7)
    assert found["lower"].item() < found["mean"].item() < found["upper"].item() < found["lower"].item() + np.pi
    asked = dp.predict(idata, "m", new, of="angle", kind="quantiles", quantiles=[0.1, 0.5, 0.9], random_seed=1)
    turned = np.angle(np.exp(1j * (grid - wanted)))
    order = np.argsort(turned)
    below = np.interp(asked["quantiles"].to_numpy().ravel() - wanted, turned[order], np.cumsum(density[order]))
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=4 * 0.5 / np.sqrt(3 * times))
    # The mean direction of the cluster on both sides of the cut is not 0.
    table = dp.summary(idata, "m", LABELS[1], random_seed=1).clusters
    assert np.abs(table["m_angle_direction"]).max() > 2.5


def test_some_of_three_columns():
    """Columns that are neither known nor asked for are integrated out: the mixture of the other two."""
    rows = np.column_stack([PAIRS, RNG.normal(size=6)])
    psi = np.array([[1.0, 0.6, -0.2], [0.6, 0.9, 0.1], [-0.2, 0.1, 0.7]])
    three = Case(dp.NormalInverseWishart([0.2, -0.1, 0.0], 0.4, 5.5, psi), rows, 1.0)
    two = CASES["niw"]
    new = np.array([[1.0, np.nan, np.nan], [-0.7, np.nan, np.nan]])
    of_three = dp.predict(fitted(three), "y", new, of=1, random_seed=1)["mean"]
    of_two = dp.predict(fitted(two), "y", new[:, :2], of=1, random_seed=1)["mean"]
    np.testing.assert_allclose(of_three, of_two, rtol=1e-12)
    assert of_three.dims == ("new_row",)


# A response with a line in each cluster, and the covariate as a view of its own.
LINES = {
    "x": dp.NormalInverseGamma(**NIG),
    "y": dp.LinearRegression(0.1, 0.3, 3.0, 0.8, covariates=DESIGN),
}
NEW_X = np.array([-1.0, 0.4, 3.0])
NEW_DESIGN = np.column_stack([np.ones(3), NEW_X])


def fitted_lines(labels=LABELS, alphas=ALPHAS):
    with pm.Model() as model:
        observed = {"x": X, "y": PAIRS[:, 1]}
        dp.DPMixture("m", pm.Gamma("alpha", 2.0, 2.0), LINES, observed=observed)
    return results(model, {"m_labels": labels, "alpha": alphas}, n_chains=1)


def ask_line(idata, kind="mean", **options):
    given = {"y": {"covariates": NEW_DESIGN}}
    return dp.predict(idata, "m", {"x": NEW_X}, of="y", kind=kind, given=given, random_seed=1, **options)


def test_a_response_given_its_covariate():
    """Weights by the view of the covariate, lines by the posterior of the coefficients, written out."""
    y, total, weighed = PAIRS[:, 1], np.zeros(3), np.zeros(3)
    precision = 0.3 * np.eye(2)
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            own = labels == k
            seat = (own.sum() if own.any() else alpha) / (6 + alpha)
            known = np.array(
                [
                    exact.nig_log_marginal(np.append(X[own], x)[:, None], **NIG)
                    - exact.nig_log_marginal(X[own][:, None], **NIG)
                    for x in NEW_X
                ]
            )
            posterior = precision + DESIGN[own].T @ DESIGN[own]
            line = np.linalg.solve(posterior, precision @ [0.1, 0.1] + DESIGN[own].T @ y[own])
            weighed += seat * np.exp(known) * (NEW_DESIGN @ line)
            total += seat * np.exp(known)
    found = ask_line(fitted_lines())
    np.testing.assert_allclose(found["mean"], weighed / total, rtol=1e-9)
    assert found["mean"].dims == ("new_row",)


def test_covariates_are_matched_by_name():
    """In another order than the rows, and refused for other rows; whether or not entries of the view are known."""
    idata, names = fitted_lines(), ["p", "q", "r"]
    x, design = pd.Series(NEW_X, index=names), pd.DataFrame(NEW_DESIGN, index=names)
    for kind, of, new in (("mean", "y", {"x": x}), ("mean", "x", {"y": x})):
        by_name, by_position = (
            dp.predict(idata, "m", new, of=of, kind=kind, given={"y": {"covariates": own}}, random_seed=1)["mean"]
            for own in (design.iloc[::-1], NEW_DESIGN)
        )
        np.testing.assert_allclose(by_name, by_position, rtol=1e-12)
        assert by_name["new_row"].to_numpy().tolist() == names
        with pytest.raises(ValueError, match="the index of other rows"):
            dp.predict(idata, "m", new, of=of, given={"y": {"covariates": design.set_axis(["p", "q", "s"])}})
    views = {"x": x.iloc[::-1], "y": pd.Series([0.1, 0.2, 0.3], index=names)}
    found = dp.log_density(idata, "m", views, given={"y": {"covariates": design}})["row"]
    wanted = dp.log_density(
        idata, "m", {"x": NEW_X, "y": [0.1, 0.2, 0.3]}, given={"y": {"covariates": NEW_DESIGN}}
    )["row"]
    np.testing.assert_allclose(found.sel(new_row=names), wanted, rtol=1e-12)


def stick_breaking(rng, sizes, alpha):
    """Weights of the clusters and of 60 more, by separate code."""
    *weights, rest = rng.dirichlet([*sizes, alpha])
    sticks = rng.beta(1.0, alpha, size=60)
    return np.concatenate([weights, rest * sticks * np.cumprod(np.append(1.0, 1.0 - sticks[:-1]))])


def simulated_lines(rng, at=NEW_X):
    """The regression curve of a draw of the random measure, given the second partition: (3,)."""
    labels, alpha = LABELS[1], ALPHAS[1]
    weights = stick_breaking(rng, np.bincount(labels), alpha)
    heights, log_known = np.empty((len(weights), 3)), np.empty((len(weights), 3))
    for k in range(len(weights)):
        x, y, design = X[labels == k], PAIRS[labels == k, 1], DESIGN[labels == k]
        kappa, mean = NIG["kappa"] + len(x), (NIG["kappa"] * NIG["mu"] + x.sum()) / (NIG["kappa"] + len(x))
        b = NIG["b"] + 0.5 * (NIG["kappa"] * NIG["mu"] ** 2 + (x**2).sum() - kappa * mean**2)
        variance = b / rng.gamma(NIG["a"] + len(x) / 2)
        mean = rng.normal(mean, np.sqrt(variance / kappa))
        log_known[k] = np.log(weights[k] + 1e-300) + stats.norm.logpdf(at, mean, np.sqrt(variance))
        precision = 0.3 * np.eye(2) + design.T @ design
        line = np.linalg.solve(precision, 0.3 * np.array([0.1, 0.1]) + design.T @ y)
        b = 0.8 + 0.5 * (y @ y + 0.3 * 0.02 - line @ precision @ line)
        variance = b / rng.gamma(3.0 + len(x) / 2)
        heights[k] = NEW_DESIGN @ rng.multivariate_normal(line, variance * np.linalg.inv(precision))
    known = np.exp(log_known - log_known.max(axis=0))
    return (known * heights).sum(axis=0) / known.sum(axis=0)


def test_bands_are_those_of_the_random_measure():
    """Quantiles of the regression curve, against stick-breaking by separate code."""
    times, rng = 400, np.random.default_rng(5)
    curves = np.array([simulated_lines(rng) for _ in range(times)])
    found = ask_line(fitted_lines(np.tile(LABELS[1], (times, 1)), np.full(times, ALPHAS[1])), probability=0.8)
    for key, level in (("lower", 0.1), ("upper", 0.9)):
        below = np.mean(curves < found[key].to_numpy(), axis=0)
        np.testing.assert_allclose(below, level, atol=4 * np.sqrt(2 * 0.09 / times))


def forgets(partition_rows, partition, without=None):
    seats = np.log(partition.seats.probabilities())
    return np.repeat(seats[None], partition_rows.n_rows, axis=0)


LOG_JOINT = NewRows.log_joint


def without_new_cluster(rows, partition, without=None):
    found = LOG_JOINT(rows, partition, without)
    found[:, -1] = -np.inf
    return found


def as_marginals(clusters):
    drawn = PREDICTIVE(clusters)
    return drawn | {"factor": drawn["factor"] * np.eye(2)}


PREDICTIVE = Clusters.predictive
MISTAKES = {
    "known entries are forgotten": (NewRows, "log_joint", forgets),
    "no new cluster": (NewRows, "log_joint", without_new_cluster),
    "entries by the cluster's marginal": (Clusters, "predictive", as_marginals),
    "draws count alike": (
        predictions,
        "_normalized",
        lambda log_known: (np.full(log_known.shape, 1 / len(log_known)), np.ones(log_known.shape[1])),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake, monkeypatch):
    """The comparison of means can fail."""
    monkeypatch.setattr(*MISTAKES[mistake])
    points, weights, density = oracle("niw")
    assert abs(ask("niw")["mean"].item() / (weights @ (points * density)) - 1.0) > 1e-3


# How rows are read.


def mixed():
    """Two views of named columns, one with categories."""
    table = pd.DataFrame(
        {
            "height": PAIRS[:, 0],
            "weight": PAIRS[:, 1],
            "kind": pd.Categorical(["a", "b", "b", "c", "b", "c"]),
            "colour": ["red", "blue", "red", "blue", "red", "red"],
        }
    )
    body, traits = table[["height", "weight"]], table[["kind", "colour"]]
    with pm.Model() as model:
        dp.DPMixture(
            "m",
            pm.Gamma("alpha", 2.0, 2.0),
            {"body": CASES["niw"].base, "traits": dp.DirichletCategorical.from_data(traits)},
            observed={"body": body, "traits": traits},
        )
    return table, results(model, {"m_labels": LABELS, "alpha": ALPHAS}, n_chains=1)


def test_a_table_with_gaps():
    """Known entries come back as they are; columns are found by name in any order."""
    table, idata = mixed()
    new = table.iloc[:3][["colour", "weight", "height"]].copy()
    new.index = ["p", "q", "r"]
    new.loc["q", "weight"] = np.nan
    found = dp.predict(idata, "m", new, of=None, kind="draws", random_seed=1)
    assert set(found) == {"weight", "kind", "effective_draws"}
    np.testing.assert_array_equal(found["weight"].sel(new_row="p"), new.loc["p", "weight"])
    assert set(np.unique(found["kind"])) <= {"a", "b", "c"}
    assert len(np.unique(found["weight"].sel(new_row="q"))) == 3
    means = dp.predict(idata, "m", new, of=["weight", "height"], random_seed=1)
    assert means["column"].to_numpy().tolist() == ["weight", "height"]
    # Entries of columns that are asked for by name are not used.
    without = dp.predict(idata, "m", new[["colour"]], of=["weight", "height"], random_seed=1)
    np.testing.assert_allclose(means["mean"], without["mean"])
    by_view = dp.predict(idata, "m", {"traits": new[["colour"]]}, of="body", random_seed=1)
    np.testing.assert_allclose(means["mean"], by_view["mean"].sel(column=means["column"]))
    of_dict = dp.predict(idata, "m", {"colour": new["colour"].tolist()}, of="body", random_seed=1)
    np.testing.assert_allclose(of_dict["mean"], by_view["mean"])
    of_row = dp.predict(idata, "m", {"colour": new["colour"].iloc[0]}, of="body", random_seed=1)
    np.testing.assert_allclose(of_row["mean"], by_view["mean"][:1])
    series = dp.predict(idata, "m", new[["colour"]].iloc[0], of="body", random_seed=1)
    np.testing.assert_allclose(series["mean"].sel(column=means["column"]), means["mean"][:1])


def test_a_density_given_other_columns_of_the_row():
    """That of one column is a prediction, and that of two is the product of one and the other given it."""
    table, idata = mixed()
    known = {"colour": "blue", "weight": 0.4}
    x = [-1.0, 0.3, 2.0]
    found = dp.density(idata, "m_body", x, columns="height", known=known, random_seed=1)
    expected = dp.predict(idata, "m", known, of="height", kind="density", x=x, random_seed=1)
    for name in ("mean", "lower", "upper"):
        np.testing.assert_allclose(found[name], expected[name][0])
    assert found.attrs["columns"] == ["height"]
    alone = dp.density(idata, "m", x, columns="height", random_seed=1)
    xr.testing.assert_identical(alone, dp.density(idata, "m_body", x, columns="height", random_seed=1))
    whole = dp.density(idata, "m", x, columns="height", known=pd.DataFrame([known]), random_seed=1)
    np.testing.assert_array_equal(whole["mean"], found["mean"])
    both = dp.density(idata, "m_body", [[0.3, 0.4], [2.0, 0.4]], known={"colour": "blue"}, random_seed=1)
    of_weight = dp.density(idata, "m", [0.4], columns="weight", known={"colour": "blue"}, random_seed=1)
    np.testing.assert_allclose(both["mean"], found["mean"][1:].to_numpy() * of_weight["mean"].to_numpy())
    grid = dp.density(idata, "m_body", known={"colour": "blue"}, random_seed=1)
    steps = [np.diff(grid[name])[0] for name in ("height", "weight")]
    assert grid["mean"].sum() * np.prod(steps) == pytest.approx(
        dp.density(idata, "m_body", random_seed=1)["mean"].sum().item() * np.prod(steps), abs=0.1
    )
    for wrong, message in (
        (
            lambda: dp.density(idata, "m", x, columns="height", known=table[["colour"]]),
            "known must be one row, got 6",
        ),
        (lambda: dp.density(idata, "m", columns=["height", "kind"], known=known), "columns must be of one view"),
        (lambda: dp.density(idata, "m", x, known=known), "several views"),
        (lambda: dp.density(idata, "m", x, columns="weight", known=known), r"known has ..weight.., whose density"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_rows_whose_gaps_are_drawn():
    """The draws are those of a prediction; what is known comes back as it is, in every draw."""
    table, idata = mixed()
    new = table[["height", "weight", "colour"]].iloc[:3].copy()
    new.loc[1, "weight"] = np.nan
    rows = dp.sample_new_rows(idata, "m", known=new, random_seed=4)
    drawn = dp.predict(idata, "m", new, kind="draws", random_seed=4)
    body = rows["m_body"]
    assert body.dims == ("chain", "draw", "new_row", "m_body_feature")
    for name in ("height", "weight"):
        own = body.sel(m_body_feature=name)
        expected = drawn["weight"] if name == "weight" else np.broadcast_to(new["height"], own.shape)
        np.testing.assert_array_equal(own, expected)
    np.testing.assert_array_equal(rows["m_traits"].sel(m_traits_feature="kind"), drawn["kind"])
    np.testing.assert_array_equal(rows["effective_draws"], drawn["effective_draws"])
    assert "cluster" not in rows
    assert rows["new_row"].to_numpy().tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="n_rows or known, not both"):
        dp.sample_new_rows(idata, "m", 3, known=new)


def test_a_category_given_numbers_and_back(tmp_path):
    """Probabilities of levels by name, also from a saved file."""
    table, idata = mixed()
    new = table[["height", "weight"]].iloc[[1, 3]]
    found = dp.predict(idata, "m", new, of="kind", kind="probability", random_seed=1)
    assert found["category"].to_numpy().tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(found["mean"].sum("category"), 1.0)
    assert found["new_row"].to_numpy().tolist() == [1, 3]
    assert float(found["mean"].sel(new_row=1, category="b")) > float(found["mean"].sel(new_row=3, category="b"))
    idata.to_netcdf(tmp_path / "fit.nc")
    with xr.open_datatree(tmp_path / "fit.nc") as again:
        read = dp.predict(again.load(), "m", new, of="kind", kind="probability", random_seed=1)
    xr.testing.assert_allclose(found, read)
    some = dp.predict(idata, "m", new, of="kind", kind="density", x=["c", "a"], random_seed=1)
    np.testing.assert_allclose(some["mean"], found["mean"].sel(category=["c", "a"]))


def test_vague_base_measures():
    """Covariances of new clusters that are singular to working precision."""
    rows = np.column_stack([PAIRS, RNG.normal(size=6)])
    with pm.Model() as model:
        dp.DPMixture("y", 5.0, dp.NormalInverseWishart(0.0, 0.01, 2.0 + 1e-3, np.eye(3)), observed=rows)
    idata = results(model, {"y_labels": np.tile(LABELS, (30, 1))}, n_chains=1)
    new = np.array([[0.3, np.nan, np.nan], [0.3, np.nan, 1.0], [30.0, 1.0, np.nan]])
    found = dp.predict(idata, "y", new, random_seed=1)
    for key in ("mean", "lower", "upper"):
        assert np.isfinite(found[key]).all()
    density = dp.predict(idata, "y", new, of=1, kind="density", x=[0.0, 1.0], random_seed=1)
    assert np.isfinite(density["upper"]).all()
    assert np.isfinite(dp.density(idata, "y", [0.0, 1.0], columns=1, random_seed=1)["upper"]).all()


def test_nothing_known():
    """Without new rows the answer is the marginal; all of a view by its name."""
    case = CASES["nig"]
    found = dp.predict(fitted(case), "y", of=[0, 1], random_seed=1)
    assert found["mean"].shape == (1, 2)
    density = dp.predict(fitted(case), "y", of=0, kind="density", x=[0.3, 1.0], random_seed=1)
    marginal = dp.density(fitted(case), "y", [0.3, 1.0], columns=0, random_seed=1)
    np.testing.assert_allclose(density["mean"][0], marginal["mean"])


def test_rows_of_a_user_stay_as_they_are():
    """Entries of columns that are asked for are not used, and not erased either."""
    for rows in (PAIRS.copy(), pd.DataFrame(PAIRS.copy(), columns=["0", "1"])):
        dp.predict(fitted(CASES["niw"]), "y", rows, of=1, random_seed=1)
        np.testing.assert_array_equal(rows, PAIRS)


def test_rows_in_blocks(monkeypatch):
    """Many rows are answered block by block, each as alone."""
    idata, new = fitted(CASES["niw"]), np.column_stack([np.linspace(-2, 2, 7), np.full(7, np.nan)])
    whole = dp.predict(idata, "y", new, random_seed=1)
    monkeypatch.setattr(sys.modules["pymc_dpgmm.posterior.predict"], "_NUMBERS_OF_A_BLOCK", 6)
    parts = dp.predict(idata, "y", new, random_seed=1, progressbar=False)
    np.testing.assert_allclose(parts["mean"], whole["mean"], rtol=1e-10)


def test_some_of_the_draws():
    """The first, the middle and the last of the draws are those of a run that has no others."""
    labels, alphas = np.repeat(LABELS, 4, axis=0)[:9], np.linspace(0.5, 2.0, 9)
    new = np.array([[0.4, np.nan]])
    some = dp.predict(fitted(CASES["niw"], labels, alphas), "y", new, n_draws=3, random_seed=1)
    few = dp.predict(fitted(CASES["niw"], labels[[0, 4, 8]], alphas[[0, 4, 8]]), "y", new, random_seed=1)
    xr.testing.assert_allclose(some, few)


def test_rows_of_groups_and_of_units():
    """A group's weights serve its new rows; a new row of units is a unit of its own."""
    with pm.Model() as model:
        group = ["u", "u", "u", "v", "v", "v"]
        dp.HDPMixture("y", 1.0, 1.0, CASES["niw"].base, group=group, observed=PAIRS)
    labels = np.tile([0, 1, 1, 0, 0, 0], (2, 1))
    idata = results(model, {"y_labels": labels, "y_openers": np.tile([1, 1, 0, 1, 0, 0], (2, 1))}, n_chains=1)
    new = np.array([[0.5, np.nan]])
    means = [dp.predict(idata, "y", new, group=own, random_seed=1)["mean"].item() for own in ("u", "v", None)]
    assert len(set(means)) == 3
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, CASES["niw"].base, observed=PAIRS, unit=[0, 0, 1, 1, 2, 2])
    idata = results(model, {"y_labels": np.tile([0, 1, 0], (2, 1))}, n_chains=1)
    by_rows = with_labels(np.tile([0, 0, 1, 1, 0, 0], (2, 1)), alpha=1.0)
    found = [dp.predict(one, "y", new, random_seed=1)["mean"].item() for one in (idata, by_rows)]
    # Two units to one are not four rows to two.
    assert found[0] != pytest.approx(found[1], rel=1e-6)


def with_labels(labels, alpha):
    with pm.Model() as model:
        dp.DPMixture("y", alpha, CASES["niw"].base, observed=PAIRS)
    return results(model, {"y_labels": labels}, n_chains=1)


def test_what_is_refused():
    table, idata = mixed()
    rows = table[["height", "weight", "kind", "colour"]]
    with pytest.raises(ValueError, match="no gaps, so that nothing is asked for"):
        dp.predict(idata, "m", rows)
    with pytest.raises(ValueError, match="there is no column or view 'age', only the columns"):
        dp.predict(idata, "m", rows, of="age")
    with pytest.raises(ValueError, match=r"categories have no mean.*'probability' or 'draws'.*of=\['height'\]"):
        dp.predict(idata, "m", rows, of=["kind", "height"])
    with pytest.raises(ValueError, match="is for one column: choose one"):
        dp.predict(idata, "m", rows, of=["height", "weight"], kind="density")
    with pytest.raises(ValueError, match="height has no categories"):
        dp.predict(idata, "m", rows, of="height", kind="probability")
    with pytest.raises(ValueError, match="kind must be one of"):
        dp.predict(idata, "m", rows, of="height", kind="median")
    with pytest.raises(ValueError, match="none of the columns"):
        dp.predict(idata, "m", pd.DataFrame({"hieght": [1.0]}))
    with pytest.raises(ValueError, match=r"quantiles must lie in \(0, 1\)"):
        dp.predict(idata, "m", rows, of="height", kind="quantiles", quantiles=[5, 95])
    with pytest.raises(ValueError, match="x must be some of the levels"):
        dp.predict(idata, "m", rows, of="kind", kind="density", x=["d"])
    with pytest.raises(ValueError, match=r"a table, a dict of some of the views .* or a dict of some of the"):
        dp.predict(idata, "m", {"hieght": 1.0})
    with pytest.raises(ValueError, match="along and of must be different"):
        dp.plot_predict(idata, "m", "height", of="height")
    with pytest.warns(UserWarning, match="the columns \\['age'\\] of the new rows are not used"):
        dp.predict(idata, "m", rows.assign(age=3.0), of="height")
    with pytest.raises(ValueError, match="need \\['covariates'\\]"):
        dp.predict(fitted_lines(), "m", {"x": NEW_X}, of="y")


def test_unusual_rows_are_told():
    """Where known entries are far from all draws but few, the answer rests on these."""
    times = 30
    labels = np.tile(LABELS[2], (times, 1))
    idata = fitted(CASES["niw"], labels, np.append(np.full(times - 1, 1e-12), 1.0))
    with pytest.warns(UserWarning, match="the known entries of the rows \\[1\\] are so unusual"):
        found = dp.predict(idata, "y", np.array([[0.0, np.nan], [900.0, np.nan]]), random_seed=1)
    assert found["effective_draws"][0] > 20 > 5 > found["effective_draws"][1]
    far = np.array([[900.0, np.nan]])
    with pytest.warns(UserWarning, match="so unusual"):
        density = dp.density(idata, "y", [0.0], columns=1, known=far, random_seed=1)
    assert density.attrs["effective_draws"] == pytest.approx(found["effective_draws"][1].item())
    with pytest.warns(UserWarning, match="so unusual"):
        dp.sample_new_rows(idata, "y", known=far, random_seed=1)


def test_digits_of_a_long_exposure():
    """Means of counts are those of the negative binomial at any exposure."""
    case = CASES["exposed"]
    new = np.array([[2.0, np.nan]])
    short, long = (
        dp.predict(fitted(case), "y", new, given={"exposure": [[2.5, e]]}, random_seed=1)["mean"].item()
        for e in (1.0, 1e6)
    )
    assert long / short == pytest.approx(1e6, rel=1e-12)


# Surprise and dependence.


@pytest.mark.parametrize("name", CASES)
def test_log_densities_of_rows_and_entries(name):
    """Of a row by the exact marginals, and of an entry given the other by quadrature."""
    case, (points, _, density) = CASES[name], oracle(name)
    at = 150 if name in REAL else 1
    point = points[at]
    found = dp.log_density(fitted(case), "y", np.array([[case.row, point]]), given=case.given)
    wanted = np.log(np.exp(log_joint(case)(point)).sum() / len(LABELS))
    assert found["row"].item() == pytest.approx(wanted, rel=1e-9)
    assert found["entry"].isel(column=1).item() == pytest.approx(np.log(density[at]), rel=1e-7)
    gap = dp.log_density(fitted(case), "y", np.array([[case.row, np.nan]]), given=case.given)
    assert np.isnan(gap["entry"].to_numpy()).tolist() == [[False, True]]
    # The chain rule.
    total = gap["row"].item() + found["entry"].isel(column=1).item()
    assert total == pytest.approx(found["row"].item(), rel=1e-9)


def test_a_cell_that_looks_wrong():
    """Columns of two views, with names."""
    table, idata = mixed()
    new = table.iloc[[1, 1]].copy()
    new.iloc[1, 1] = -9.0
    found = dp.log_density(idata, "m", new)
    assert found["entry"].sel(column="weight")[1] < found["entry"].sel(column="weight")[0] - 3
    assert found["column"].to_numpy().tolist() == ["height", "weight", "kind", "colour"]


def test_dependence_of_normals_and_of_categories():
    """Against the formula for one normal cluster, a table of probabilities, and independence."""
    n, rng = 20_000, np.random.default_rng(0)
    rows = rng.multivariate_normal(np.zeros(3), [[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]], size=n)
    labels = (np.arange(n) % 2)[None]
    codes = (rng.random((n, 2)) < np.where(labels[0][:, None] == 0, 0.9, 0.2)).astype(float)
    observed = {"rows": rows, "codes": codes}
    with pm.Model() as model:
        base = {"rows": dp.NormalInverseWishart(0.0, 1.0, 5.0, np.eye(3)), "codes": dp.BetaBernoulli(1.0, 1.0)}
        dp.DPMixture("m", 1e-6, base, observed=observed)
    idata = results(model, {"m_labels": np.repeat(labels, 8, axis=0)}, n_chains=1)
    found = dp.dependence(idata, "m", n_rows=20_000, random_seed=1)
    assert found["mean"].shape == (5, 5)
    bits = found["mean"].to_numpy()
    assert bits[0, 1] == pytest.approx(-0.5 * np.log2(1 - np.corrcoef(rows[:, :2].T)[0, 1] ** 2), abs=0.01)
    assert abs(bits[0, 2]) < 0.005
    assert abs(bits[0, 3]) < 0.005
    ones = np.array([codes[labels[0] == k].mean(axis=0) for k in (0, 1)])
    table = 0.5 * sum(np.outer([1 - p, p], [1 - q, q]) for p, q in ones)
    wanted = np.sum(table * np.log2(table / np.outer(table.sum(axis=1), table.sum(axis=0))))
    assert bits[3, 4] == pytest.approx(wanted, abs=0.01)
    np.testing.assert_array_equal(bits, bits.T)
    some = dp.dependence(idata, "m", ["rows"], n_rows=50, random_seed=1)
    assert some["mean"].shape == (3, 3)
    with pytest.raises(ValueError, match="between two columns or more"):
        dp.dependence(fitted(CASES["nig"]), "y", [0])


def bits_of_normal(means, variances):
    """Bits that a column tells of clusters of equal weight in which it is normal, by quadrature."""
    x = np.linspace(-30.0, 30.0, 20_001)
    densities = stats.norm.pdf(x, np.array(means)[:, None], np.sqrt(variances)[:, None])
    mean = densities.mean(axis=0)
    terms = np.where(densities > 0.0, densities * np.log2(np.maximum(densities, 1e-300) / mean), 0.0)
    return float(np.trapezoid(terms.mean(axis=0), x))


def test_relevance_of_normals_and_of_bits():
    """Against quadrature and a table of probabilities, for two clusters of equal weight that are well known."""
    n, rng = 20_000, np.random.default_rng(0)
    labels = np.arange(n) % 2
    rows = rng.normal(size=(n, 3)) * np.where(labels[:, None] == 0, [1.0, 1.0, 2.0], 1.0)
    rows[:, 0] += 1.5 * labels
    bits = (rng.random((n, 1)) < np.where(labels[:, None] == 0, 0.9, 0.2)).astype(float)
    with pm.Model() as model:
        base = {"rows": dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), "bits": dp.BetaBernoulli(1.0, 1.0)}
        dp.DPMixture("m", 1e-6, base, observed={"rows": rows, "bits": bits})
    idata = results(model, {"m_labels": np.repeat(labels[None], 8, axis=0)}, n_chains=1)
    found = dp.relevance(idata, "m", n_rows=20_000, random_seed=1)
    of_groups = [rows[labels == k] for k in (0, 1)]
    means, variances = (np.array([getattr(own, key)(axis=0) for own in of_groups]) for key in ("mean", "var"))
    wanted = [bits_of_normal(means[:, j], variances[:, j]) for j in range(3)]
    ones = np.array([bits[labels == k].mean() for k in (0, 1)])
    table = 0.5 * np.array([1.0 - ones, ones])
    wanted.append(np.sum(table * np.log2(table / (table.sum(axis=1, keepdims=True) * 0.5))))
    np.testing.assert_allclose(found["mean"], wanted, atol=0.01)
    assert wanted[1] < 0.001 < 0.1 < wanted[2] < wanted[0]
    assert found["entropy"].item() == pytest.approx(1.0, abs=1e-3)
    together = found["all_columns"].item()
    assert max(wanted) < together < min(sum(wanted), 1.0)
    assert np.all(found["lower"] <= found["mean"])
    assert np.all(found["mean"] <= found["upper"])
    one = dp.relevance(idata, "m", ["bits"], n_rows=20_000, random_seed=1)
    assert one["mean"].item() == pytest.approx(one["all_columns"].item())
    figure = dp.plot_relevance(idata, "m", n_largest=3, random_seed=1)
    (axes,) = figure.axes
    assert axes.get_yticklabels()[0].get_text() == str(
        found["column"][int(found["mean"].to_numpy().argmax())].item()
    )
    assert len(axes.get_yticklabels()) == 3


def test_dependence_of_columns_that_come_with_something():
    """Counts of an exposure, times of events, and estimates with known variances, beside two clusters."""
    n, rng = 4_000, np.random.default_rng(0)
    labels = np.arange(n) % 2
    exposure, variance = rng.uniform(0.5, 2.0, size=n), rng.uniform(0.1, 0.3, size=n)
    observed = {
        "x": labels + 0.1 * rng.normal(size=n),
        "counts": rng.poisson(np.where(labels, 6.0, 1.0) * exposure),
        "times": rng.exponential(np.where(labels, 0.2, 3.0)),
        "known": 2.0 * labels + np.sqrt(variance) * rng.normal(size=n),
        "words": rng.multinomial(5, [0.2, 0.3, 0.5], size=n),
    }
    base = {
        "x": dp.NormalInverseGamma(0.0, 0.1, 2.0, 0.1),
        "counts": dp.GammaPoisson(1.0, 1.0, exposure=exposure),
        "times": dp.GammaExponential(1.0, 1.0),
        "known": dp.NormalKnownVariance(0.0, 4.0, variance=variance),
        "words": dp.DirichletMultinomial(np.ones(3)),
    }
    with pm.Model() as model:
        dp.DPMixture("m", 1e-6, base, observed=observed)
    idata = results(model, {"m_labels": np.repeat(labels[None], 4, axis=0)}, n_chains=1)
    found = dp.dependence(idata, "m", n_rows=4_000, random_seed=1)
    assert found["column"].to_numpy().tolist() == ["m_x", "m_counts", "m_times", "m_known"]
    assert "m_words" in found.attrs["left_out"]
    bits = found["mean"].sel(column="m_x").to_pandas()
    # The cluster is nearly known from x: each column tells of it what it tells of x, by sums over the clusters.
    p = 0.5 * stats.poisson.pmf(np.arange(60)[:, None, None], np.array([1.0, 6.0]) * exposure[:, None])
    wanted = 1.0 + np.sum(p * np.log2(np.maximum(p, 1e-300) / p.sum(axis=2, keepdims=True))) / n
    assert bits["m_counts"] == pytest.approx(wanted, abs=0.04)
    assert 0.2 < bits["m_times"] < bits["m_known"] < 1.02
    with pytest.raises(ValueError, match="m_words are counts of one total"):
        dp.dependence(idata, "m", ["x", "m_words"])


# Pictures.


def test_a_picture_of_numbers_and_of_categories():
    """A curve with two bands over the data, and probabilities of the levels."""
    _, idata = mixed()
    figure = dp.plot_predict(idata, "m", "height", of="weight", random_seed=1)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("height", "weight")
    (line,), (points,) = axes.lines, [own for own in axes.collections if own.get_label() == "data"]
    across = line.get_xdata()
    wanted = dp.predict(idata, "m", {"body": np.column_stack([across, np.full(len(across), np.nan)])}, of="weight")
    np.testing.assert_allclose(line.get_ydata(), wanted["mean"], rtol=1e-10)
    np.testing.assert_array_equal(points.get_offsets(), PAIRS)
    (axes,) = dp.plot_predict(idata, "m", "weight", of="kind", random_seed=1).axes
    heights = np.array([own.get_ydata() for own in axes.lines])
    np.testing.assert_allclose(heights.sum(axis=0), 1.0)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="along must be one column"):
        dp.plot_predict(idata, "m", "body", of="kind")


def test_a_picture_of_a_line():
    """Where covariates are given, rows are too."""
    new = {"x": np.sort(NEW_X)}
    given = {"y": {"covariates": NEW_DESIGN}}
    (axes,) = dp.plot_predict(fitted_lines(), "m", "x", of="y", new=new, given=given, random_seed=1).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), ask_line(fitted_lines())["mean"], rtol=1e-10)
    assert len(axes.collections) == 3


def test_covariates_alone_say_nothing_of_clusters():
    """What draws or weighs rows by covariates alone, where another view has them, says so."""
    idata = fitted_lines()
    told = r"does not know the columns of \['m_x'\].*dp.predict\(idata, 'm', {'x': ...}, of='y', given={'y': {'cov"
    with pytest.warns(UserWarning, match=r"dp.sample_new_rows " + told):
        dp.sample_new_rows(idata, "m", 3, given={"y": {"covariates": NEW_DESIGN}})
    with pytest.warns(UserWarning, match=r"dp.density " + told):
        dp.density(idata, "m_y", [0.1, 0.2, 0.3], given={"covariates": NEW_DESIGN})


@pytest.mark.slow
def test_contrasts_are_differences_of_curves_averaged_over_rows():
    """The mean and the band are those of one random measure for all rows, which another simulator draws."""
    times = 300
    idata = fitted_lines(np.tile(LABELS[1], (times, 1)), np.full(times, ALPHAS[1]))
    given = {"y": {"covariates": NEW_DESIGN}}
    arguments = {"of": "y", "random_seed": 1, "given": given, "n_draws": times}
    found = dp.contrast(idata, "m", {"x": NEW_X}, {"x": NEW_X + 0.5}, **arguments)
    rng, wanted = np.random.default_rng(2), []
    curve = {"rng": rng}
    for _ in range(times):
        state = rng.bit_generator.state
        before = simulated_lines(curve["rng"], NEW_X)
        rng.bit_generator.state = state
        wanted.append(np.mean(simulated_lines(curve["rng"], NEW_X + 0.5) - before))
    error = 4.0 * np.std(wanted) * np.sqrt(2.0 / times)
    assert found["mean"].item() == pytest.approx(np.mean(wanted), abs=error)
    for key, level in (("lower", 0.05), ("upper", 0.95)):
        assert np.mean(np.array(wanted) < found[key].item()) == pytest.approx(
            level, abs=4 * np.sqrt(2 * 0.05 / times)
        )
    # Nothing changes nothing, exactly: both are of the same measure.
    same = dp.contrast(idata, "m", {"x": NEW_X}, {"x": NEW_X}, **arguments)
    assert same["lower"].item() == same["upper"].item() == 0.0


def test_contrast_of_a_function_of_columns():
    """A product of two columns that are correlated in each of two clusters, which a third column tells apart."""
    n, rng = 8_000, np.random.default_rng(0)
    labels = np.arange(n) % 2
    covariances = np.array([[[1.0, 0.6], [0.6, 1.0]], [[1.0, -0.5], [-0.5, 2.0]]])
    means = np.array([[2.0, 3.0], [5.0, 1.0]])
    noise = np.einsum("nij,nj->ni", np.linalg.cholesky(covariances)[labels], rng.normal(size=(n, 2)))
    frame = pd.DataFrame(means[labels] + noise, columns=["price", "number"]).assign(
        x=30.0 * labels + rng.normal(size=n), kind=np.array(["a", "b"])[labels]
    )
    with pm.Model() as model:
        base = {
            "reals": (["price", "number", "x"], dp.NormalInverseWishart(0.0, 0.1, 5.0, np.eye(3))),
            "kinds": (["kind"], dp.DirichletCategorical),
        }
        dp.DPMixture("m", 1e-6, base, observed=frame)
    idata = results(model, {"m_labels": np.repeat(labels[None], 40, axis=0)}, n_chains=1)
    few = pd.DataFrame({"x": [0.0, 0.5]})
    spent = [np.mean(frame["price"][labels == k] * frame["number"][labels == k]) for k in (0, 1)]
    found = dp.contrast(
        idata, "m", few, few + 30.0, of=lambda table: table["price"] * table["number"], random_seed=1
    )
    assert found["mean"].shape == ()
    # The lines on x are almost flat within clusters.
    assert found["mean"] == pytest.approx(spent[1] - spent[0], abs=0.15)
    assert found["lower"] < found["mean"] < found["upper"]
    both = dp.contrast(
        idata,
        "m",
        few,
        few + 30.0,
        of=lambda table: np.column_stack([table["kind"] == "b", np.maximum(table["price"], 0.0)]),
        random_seed=1,
    )
    assert both["mean"][0] == pytest.approx(1.0, abs=0.01)
    with pytest.raises(ValueError, match="of must return a number for each row of the table"):
        dp.contrast(idata, "m", few, few, of=lambda table: 1.0)


def test_contrasts_do_not_depend_on_blocks(monkeypatch):
    case = CASES["niw"]
    new, shift = np.column_stack([np.linspace(-1.0, 1.0, 7), np.full(7, np.nan)]), np.array([1.0, 0.0])
    arguments = {"of": [1], "random_seed": 3}
    whole = dp.contrast(fitted(case), "y", new, new + shift, **arguments)
    monkeypatch.setattr(sys.modules["pymc_dpgmm.posterior.predict"], "_NUMBERS_OF_A_BLOCK", 20)
    parts = dp.contrast(fitted(case), "y", new, new + shift, progressbar=False, **arguments)
    for key in ("mean", "lower", "upper"):
        np.testing.assert_allclose(parts[key], whole[key], rtol=1e-12)
    assert whole["mean"].dims == ("column",)
    with pytest.raises(ValueError, match="the same number of rows, got 7 and 6"):
        dp.contrast(fitted(case), "y", new, new[:6], **arguments)
    codes = CASES["categorical"]
    with pytest.raises(ValueError, match="categories have no mean"):
        dp.contrast(fitted(codes), "y", codes.rows, codes.rows, of=1)


@functools.cache
def process_with_profile(n_draws):
    """A few draws of a process of two parameters, with a profile of two columns on its labels."""
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(7, 2)), rng.poisson(3.0, size=7)
    with pm.Model() as model:
        # A base that is known without sampling.
        base = {"rate": pm.LogNormal.dist(0.4, 1e-9), "shift": pm.Normal.dist(np.array([-2.0, 5.0]), 1e-9)}
        theta = dp.DirichletProcess("theta", 1.3, base, shape=7)
        of_columns = dp.NormalInverseGamma(0.2, 0.5, 2.0, 0.7)
        dp.CollapsedMixture("x", model["theta_labels"], of_columns, observed=pd.DataFrame(x, columns=["a", "b"]))
        pm.Poisson("y", theta["rate"], observed=y)
        pm.Normal("z", theta["shift"], 1.0, observed=np.zeros((7, 2)))
        idata = pm.sample(n_draws, tune=5, chains=1, random_seed=2, progressbar=False, quiet=True)
    # Parameters of other values than those of the base, so that clusters can be told apart.
    labels = idata["posterior"]["theta_labels"].to_numpy()
    atoms = rng.normal(size=(n_draws, 7))
    posterior = idata["posterior"].to_dataset()
    for name in ("theta_rate", "theta_shift"):
        values = np.exp(atoms) if name == "theta_rate" else np.stack([atoms, 10.0 + atoms], axis=-1)
        rows = np.array([[values[s, k] for k in labels[0, s]] for s in range(n_draws)])
        posterior[name] = posterior[name].copy(data=rows[None])
    idata["posterior"] = xr.DataTree(posterior)
    return model, idata, x


@pytest.mark.slow
def test_parameters_of_new_rows_are_those_of_clusters_that_they_may_belong_to():
    """Means, bands and draws of the parameters of new rows, by their profile, against weights of the clusters."""
    model, idata, x = process_with_profile(12)
    new = np.array([[0.5, -0.3], [np.nan, 1.2], [30.0, np.nan]])
    found = dp.predict(idata, "theta", new, of="theta", kind="mean", model=model, random_seed=1)
    assert found["column"].to_numpy().tolist() == ["theta_rate", "theta_shift[0]", "theta_shift[1]"]
    labels = idata["posterior"]["theta_labels"].to_numpy()[0]
    mean, weight = np.zeros((3, 3)), np.zeros(3)
    fresh = np.array([np.exp(0.4), -2.0, 5.0])
    for s, own in enumerate(labels):
        joint = np.array([log_t(new, x[own == k]) for k in range(own.max() + 1)] + [log_t(new, x[:0])])
        seats = np.append(np.bincount(own), 1.3) / (len(own) + 1.3)
        joint = seats[:, None] * np.exp(joint)
        atoms = [
            np.append(idata["posterior"]["theta_rate"][0, s, i], idata["posterior"]["theta_shift"][0, s, i])
            for i in [np.flatnonzero(own == k)[0] for k in range(own.max() + 1)]
        ]
        mean += joint.T @ np.vstack([*atoms, fresh])
        weight += joint.sum(axis=0)
    np.testing.assert_allclose(found["mean"], mean / weight[:, None], rtol=1e-7)
    # What is asked for is what clusters have.
    drawn = dp.predict(idata, "theta", new, of="theta_rate", kind="draws", model=model, random_seed=1)
    rates = {*np.round(idata["posterior"]["theta_rate"].to_numpy().ravel(), 6), round(fresh[0], 6)}
    assert {*np.round(drawn["theta_rate"].to_numpy().ravel(), 6)} <= rates
    # A profile that nothing is known of leaves the weights of the clusters.
    alone = dp.predict(idata, "theta", new, of="theta_rate", kind="quantiles", model=model, random_seed=1)
    assert np.all(np.diff(alone["quantiles"], axis=0) >= 0.0)


def log_t(new, rows):
    """Log density of the known entries of new rows given the rows of a cluster, by SciPy."""
    n, mean = len(rows), rows.mean(axis=0) if len(rows) else np.zeros(2)
    kappa, a = 0.5 + n, 2.0 + 0.5 * n
    location = (0.5 * 0.2 + n * mean) / kappa
    b = 0.7 + 0.5 * np.sum((rows - mean) ** 2, axis=0) + 0.5 * 0.5 * n * (mean - 0.2) ** 2 / kappa
    log_p = stats.t.logpdf(new, 2 * a, location, np.sqrt(b * (kappa + 1) / (a * kappa)))
    return np.nansum(log_p, axis=1)


def test_a_density_given_other_columns_beside_parameters():
    """Parameters, which rows never know, do not stand in the way of the profile's columns."""
    _, idata, _ = process_with_profile(12)
    points = np.array([-1.0, 0.0, 1.0])
    found = dp.density(idata, "x", points, columns="b", known={"a": [0.5]}, random_seed=1)
    expected = dp.predict(idata, "x", {"a": [0.5]}, of="b", kind="density", x=points, random_seed=1)
    np.testing.assert_allclose(found["mean"], expected["mean"].squeeze("new_row"), rtol=1e-10)


def test_questions_about_parameters_that_have_no_answer():
    model, idata, _ = process_with_profile(12)
    new = np.zeros((1, 2))
    with pytest.raises(ValueError, match="pass model="):
        dp.predict(idata, "theta", new)
    with pytest.raises(ValueError, match="theta_rate is a parameter, which has no density"):
        dp.predict(idata, "theta", new, of="theta_rate", kind="density", model=model)
    with pytest.raises(ValueError, match="is a parameter, which is never known"):
        dp.predict(idata, "theta", pd.DataFrame({"a": [0.0], "theta_rate": [1.0]}), model=model)
    with pm.Model() as alone:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
        pm.Normal("y", theta, 1.0, observed=np.zeros(3))
        idata = pm.sample(3, tune=3, chains=1, random_seed=2, progressbar=False, quiet=True)
    with pytest.raises(NotImplementedError, match=r"without a dp\.CollapsedMixture on its labels"):
        dp.predict(idata, "theta", new, model=alone)


def test_bools_with_gaps_have_probabilities():
    """As those without: their family has another name."""
    table = pd.DataFrame({"height": np.arange(9.0), "smokes": pd.array([True, False, None] * 3, dtype="boolean")})
    views = {
        "h": ("height", dp.NormalInverseGamma.from_data(table["height"])),
        "s": ("smokes", dp.BetaBernoulli(1.0, 1.0)),
    }
    with pm.Model():
        dp.DPMixture("m", 1.0, views, observed=table)
        idata = pm.sample(
            20, tune=20, chains=1, progressbar=False, compute_convergence_checks=False, random_seed=1
        )
    found = dp.predict(idata, "m", {"height": [4.0]}, of="smokes", kind="probability", random_seed=1)
    expected = dp.predict(idata, "m", {"height": [4.0]}, of="smokes", random_seed=1)["mean"]
    np.testing.assert_allclose(found["mean"].sel(category=True), expected, rtol=1e-10)
    np.testing.assert_allclose(found["mean"].sum("category"), 1.0)


def test_a_constant_column_tells_nothing():
    rows = np.column_stack([np.full(40, 7.0), np.arange(40) % 2 * 5.0 + np.linspace(-1.0, 1.0, 40)])
    with pm.Model() as model, pytest.warns(UserWarning, match="constant"):
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(rows), observed=rows)
    idata = results(model, {"y_labels": np.tile(np.arange(40) % 2, (6, 1))}, n_chains=1)
    assert abs(dp.dependence(idata, "y", random_seed=1)["mean"].to_numpy()[0, 1]) < 0.05
