"""Mixtures in one line of a model: several views, sparse counts, and every prior on partitions."""

import inspect
import re

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from drawn import value_at
from family_cases import CASES, with_further_slow
from scipy.sparse import csr_array

import pymc_dpgmm as dp
from pymc_dpgmm.testing import assert_matches, codes, log_likelihoods, normalized, partitions

RNG = np.random.default_rng(4)
N = 12
FRAME = pd.DataFrame(
    {
        "height": RNG.normal(size=N),
        "weight": RNG.normal(size=N),
        "smoker": RNG.random(N) < 0.4,
        "region": pd.Categorical(
            RNG.choice(["north", "south", "west"], size=N), ["north", "south", "west", "east"]
        ),
        "visits": RNG.poisson(3.0, size=N),
    },
    index=[f"p{i}" for i in range(N)],
)

pytestmark = pytest.mark.interpreted
VIEWS = {
    "body": (["height", "weight"], None),
    "habit": ("smoker", dp.BetaBernoulli(1.0, 2.0)),
    "place": (["region"], dp.DirichletCategorical),
    "visits": ("visits", dp.GammaPoisson(1.0, 0.5)),
}
LABELS = np.array([0, 1, 0, 2, 1, 1, 0, 0, 2, 2, 1, 0])


def test_views_of_a_table():
    with (
        pm.Model() as model,
        pytest.warns(UserWarning, match=r"levels of column 'region' of observed: \['east'\]"),
    ):
        views = dp.DPMixture("y", 0.8, VIEWS, observed=FRAME)
    assert list(views) == list(VIEWS)
    assert views["body"] is model["y_body"]
    assert model.named_vars_to_dims["y_labels"] == ("y_obs",)
    assert model.named_vars_to_dims["y_body"] == ("y_obs", "y_body_feature")
    assert model.named_vars_to_dims["y_habit"] == ("y_obs",)
    assert model.coords["y_obs"] == tuple(FRAME.index)
    assert model.coords["y_body_feature"] == ("height", "weight")
    point = model.initial_point() | {"y_labels": LABELS}
    logps = model.point_logps(point, round_vals=10)
    kappa, degrees, within = value_at(model, [f"y_body_{of}" for of in ("kappa", "degrees", "within")], point)
    rows = FRAME[["height", "weight"]].to_numpy()
    half_units = [np.diff(np.unique(column)).min() / 2 for column in rows.T]
    typical = rows.var(axis=0) * within + np.maximum(np.square(half_units), 1e-6 * rows.var(axis=0))
    nu = degrees + 1.0
    body = {"mu": rows.mean(axis=0), "kappa": kappa, "nu": nu, "psi": np.diag(nu * typical)}
    place = dp.DirichletCategorical(1.0, [4]).numbers(1)._asdict()
    expected = {
        "y_body": lambda own: exact.niw_log_marginal(FRAME[["height", "weight"]].to_numpy()[own], **body),
        "y_habit": lambda own: exact.beta_bernoulli_log_marginal(
            FRAME[["smoker"]].to_numpy(float)[own], np.ones(1), np.full(1, 2.0)
        ),
        "y_place": lambda own: exact.categorical_log_marginal(
            FRAME["region"].cat.codes.to_numpy()[own][:, None], **place
        ),
        "y_visits": lambda own: exact.gamma_poisson_log_marginal(
            np.column_stack([FRAME["visits"], np.ones(N)])[own], np.ones(1), np.full(1, 0.5)
        ),
    }
    for name, slow in expected.items():
        assert logps[name] == pytest.approx(sum(slow(k == LABELS) for k in range(3)), rel=1e-8)


def test_views_of_arrays():
    data = {"a": RNG.normal(size=(N, 2)), "b": csr_array(RNG.poisson(0.5, size=(N, 5)))}
    with pm.Model(coords={"row": range(N)}) as model:
        dp.DPMixture("y", 1.0, {"a": None, "b": dp.DirichletMultinomial(0.5)}, observed=data, dims="row")
    assert model.named_vars_to_dims["y_labels"] == ("row",)
    assert np.isfinite(model.compile_logp()(model.initial_point(0)))


def test_sparse_counts_have_the_density_of_dense_ones():
    counts = RNG.poisson(0.4, size=(N, 30))
    counts[3] = 0
    models = []
    for observed in (counts, csr_array(counts), pd.DataFrame(counts)):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, dp.DirichletMultinomial(pm.Gamma("a", 2, 2)), observed=observed)
        point = model.initial_point(1) | {"y_labels": LABELS}
        models.append((model.compile_logp()(point), model.compile_dlogp([model["a"]])(point)))
        with model:
            drawn = pm.sample_prior_predictive(2, random_seed=1).prior_predictive["y"].to_numpy()
        np.testing.assert_array_equal(drawn.sum(axis=-1)[0, 0], counts.sum(axis=1))
    for logp, gradient in models[1:]:
        assert logp == pytest.approx(models[0][0], rel=1e-12)
        np.testing.assert_allclose(gradient, models[0][1], rtol=1e-12)


@pytest.mark.parametrize("case", with_further_slow(name for name in CASES if name != "niw-tight"))
def test_every_family_in_a_model(case):
    """The density of a model is the slow one, and its gradient that of finite differences."""
    base, values, d, _ = CASES[case]
    is_vector = d == 1 and 1 in base.family.takes
    observed = values[:, 0] if is_vector else values[:, :d]
    with pm.Model() as model:
        variables = {}
        for name, value in base.parameters.items():
            if np.ndim(value) == 0 and name != "levels":
                variables[name] = pm.Uniform(name, 0.5 * value, 2.0 * value) if value > 0 else value
        arguments = base.parameters | variables
        if case.startswith("categorical"):
            arguments |= {"levels": base.parameters["levels"].astype(int)}
        made = type(base)(**arguments, **base.given)
        dp.DPMixture("y", 1.0, made, observed=observed)
    labels = np.array([0, 1, 0, 2, 1, 1, 0, 0, 2])
    point = model.initial_point(2) | {"y_labels": labels}
    numbers = {
        name: float(
            model.rvs_to_transforms[rv].backward(point[model.rvs_to_values[rv].name], *rv.owner.inputs).eval()
        )
        for name, rv in variables.items()
        if rv in model.free_RVs
    }
    params = made.numbers(d, base.parameters | numbers)._asdict()
    slow = exact.LOG_MARGINALS[base.family.name]
    expected = sum(slow(values[labels == k], **params) for k in range(3))
    assert model.compile_logp([model["y"]])(point) == pytest.approx(expected, rel=1e-8)
    free = [rv for rv in model.free_RVs if rv.name != "y_labels"]
    if free:
        logp, gradient = model.compile_logp(), model.compile_dlogp(free)(point)
        for i, rv in enumerate(free):
            name = model.rvs_to_values[rv].name
            up, down = (logp(point | {name: point[name] + step}) for step in (1e-5, -1e-5))
            assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)
    with model:
        drawn = pm.sample_prior_predictive(3, random_seed=1).prior_predictive["y"].to_numpy()
    assert drawn.shape == (1, 3, *observed.shape)
    assert np.all(np.isfinite(drawn))


def test_given_data_may_be_pm_data_that_changes():
    counts, exposure = RNG.poisson(2.0, size=N).astype(float), RNG.gamma(2.0, size=N)
    with pm.Model() as model:
        y, e = pm.Data("y_data", counts), pm.Data("exposure", exposure)
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 1.0, e), observed=y)
        logp = model.compile_logp([model["y"]])
        first = logp({"y_labels": LABELS})
        pm.set_data({"y_data": counts[:8], "exposure": 2.0 * exposure[:8]})
        second = logp({"y_labels": LABELS[:8]})
    for got, n, factor in ((first, N, 1.0), (second, 8, 2.0)):
        values = np.column_stack([counts[:n], factor * exposure[:n]])
        slow = sum(
            exact.gamma_poisson_log_marginal(values[LABELS[:n] == k], np.ones(1), np.ones(1)) for k in range(3)
        )
        assert got == pytest.approx(slow, rel=1e-9)


def test_a_scalar_exposure_follows_the_data():
    counts = RNG.poisson(2.0, size=N).astype(float)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 1.0, 2.5), observed=pm.Data("counts", counts))
        pm.set_data({"counts": counts[:8]})
        got = model.compile_logp([model["y"]])({"y_labels": LABELS[:8]})
    values = np.column_stack([counts[:8], np.full(8, 2.5)])
    slow = sum(exact.gamma_poisson_log_marginal(values[LABELS[:8] == k], np.ones(1), np.ones(1)) for k in range(3))
    assert got == pytest.approx(slow, rel=1e-9)


MIXTURES = {
    "PYMixture": (lambda base, **k: dp.PYMixture("y", 0.5, 0.3, base, **k), exact.log_pitman_yor, (0.5, 0.3)),
    "FiniteMixture": (
        lambda base, **k: dp.FiniteMixture("y", 1.5, 3, base, **k),
        exact.log_finite_dirichlet,
        (1.5, 3),
    ),
    "MFMixture": (
        lambda base, **k: dp.MFMixture("y", 0.8, base, components=pm.Geometric.dist(0.3), **k),
        exact.log_mfm,
        (0.8, np.log(0.3) + np.arange(150) * np.log(0.7)),
    ),
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_other_priors_through_pm_sample(mixture):
    add, log_prior, parameters = MIXTURES[mixture]
    base, values, d, _ = CASES["nig-columns"]
    rows = values[:6]
    with pm.Model():
        add(base, observed=rows)
        idata = pm.sample(
            5_000, tune=200, chains=2, cores=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    all_labels = partitions(6)
    log_joint = log_likelihoods(
        all_labels, lambda own: exact.nig_log_marginal(rows[own], **base.numbers(d)._asdict())
    )
    p = normalized(log_joint + np.array([log_prior(labels, *parameters) for labels in all_labels]))
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    assert_matches(codes(drawn), all_labels, p)
    counts = idata.posterior["y_n_clusters"].to_numpy()
    assert np.array_equal(counts, drawn.max(axis=-1) + 1)
    assert mixture != "FiniteMixture" or counts.max() == 3


@pytest.mark.slow
@pytest.mark.interpreted(False)
def test_random_parameters_of_a_pitman_yor_process():
    """NUTS on alpha and discount, our step on the labels: against quadrature over both."""
    base, values, d, _ = CASES["nig-columns"]
    rows = values[:5]
    with pm.Model():
        alpha, discount = pm.Gamma("alpha", 2.0, 2.0), pm.Beta("discount", 2.0, 3.0)
        dp.PYMixture("y", alpha, discount, base, observed=rows)
        idata = pm.sample(
            20_000,
            tune=1_000,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    all_labels = partitions(5)
    log_joint = log_likelihoods(
        all_labels, lambda own: exact.nig_log_marginal(rows[own], **base.numbers(d)._asdict())
    )
    total = np.zeros(len(all_labels))
    means = np.zeros(2)
    # The prior depends on the sizes of the clusters alone.
    sizes = np.sort([np.bincount(p, minlength=5) for p in all_labels], axis=1)
    _, first, same = np.unique(sizes, axis=0, return_index=True, return_inverse=True)
    for a in (np.arange(120) + 0.5) * 0.06:
        for s in (np.arange(60) + 0.5) / 60:
            weight = a * np.exp(-2.0 * a) * s * (1 - s) ** 2
            log_prior = np.array([exact.log_pitman_yor(p, a, s) for p in all_labels[first]])
            joint = weight * np.exp(log_joint + log_prior[same])
            total += joint
            means += joint.sum() * np.array([a, s])
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    assert_matches(codes(drawn), all_labels, total / total.sum())
    means /= total.sum()
    assert float(idata.posterior["alpha"].mean()) == pytest.approx(means[0], abs=0.03)
    assert float(idata.posterior["discount"].mean()) == pytest.approx(means[1], abs=0.01)


SHARED = ["observed", "shape", "dims", "offset", "unit", "known_labels", "must_link", "impute", "power", "initval"]


@pytest.mark.parametrize(
    ("mixture", "own"),
    [
        (dp.DPMixture, "name alpha base"),
        (dp.PYMixture, "name alpha discount base"),
        (dp.FiniteMixture, "name alpha n_components base"),
        (dp.MFMixture, "name gamma base"),
        (dp.HDPMixture, "name alpha gamma base"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_users_see_all_arguments(mixture, own):
    parameters = inspect.signature(mixture).parameters
    own_keywords = {dp.MFMixture: ["components"], dp.FiniteMixture: ["group"], dp.HDPMixture: ["group"]}
    keywords = [*own_keywords.get(mixture, []), *SHARED]
    assert list(parameters) == [*own.split(), *keywords]
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in keywords)
    assert [parameters[name].default for name in SHARED] == [None] * 7 + [False, None, None]
    described = inspect.getdoc(mixture)
    assert all(re.search(rf"^(\w+, )*{name}\b.*( : |$)", described, re.MULTILINE) for name in parameters)
    assert "**arguments" not in described
    with pytest.raises(TypeError, match=rf"{mixture.__name__}\(\) got an unexpected keyword argument 'observe'"):
        mixture("y", 1.0, observe=[1.0])
    with pytest.raises(TypeError, match=rf"{mixture.__name__}\(\) missing \d required positional argument"):
        mixture("y")


CODES = np.array([[0, 1], [2, 0], [2, 1], [0, 0]])
# A variable for the concentrations of 3 and 2 levels: its shape, and what it is for each column and level.
VARIABLE_A = {
    "scalar": ((), lambda a: np.full((2, 3), a)),
    "columns": ((2,), lambda a: np.repeat(a[:, None], 3, axis=1)),
    "levels": ((2, 3), lambda a: a),
    "one column": ((1,), lambda a: np.full((1, 3), a)),
}


@pytest.mark.parametrize("kind", VARIABLE_A)
def test_categories_under_a_variable(kind):
    shape, expand = VARIABLE_A[kind]
    rows, levels = (CODES[:, :1], 3) if kind == "one column" else (CODES, [3, 2])
    with pm.Model() as model:
        a = pm.Exponential("a", 1.0, shape=shape, default_transform=None)
        dp.DPMixture("y", 1.0, dp.DirichletCategorical(a, levels), observed=rows)
    value = np.random.default_rng(1).gamma(2.0, size=shape)
    logp, gradient = model.compile_logp(), model.compile_dlogp([model["a"]])
    used = np.arange(3) < np.atleast_1d(levels)[:, None]
    for labels in partitions(4):
        expected = (
            exact.log_eppf(labels, 1.0)
            - value.sum()
            + sum(
                exact.categorical_log_marginal(rows[labels == k], expand(value) * used, np.atleast_1d(levels))
                for k in np.unique(labels)
            )
        )
        assert logp({"a": value, "y_labels": labels}) == pytest.approx(expected)
        step = np.eye(value.size).reshape(-1, *shape) * 1e-5
        numeric = [
            (logp({"a": value + s, "y_labels": labels}) - logp({"a": value - s, "y_labels": labels})) / 2e-5
            for s in step
        ]
        np.testing.assert_allclose(gradient({"a": value, "y_labels": labels}), numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_partitions_of_categories_under_a_variable():
    """Sampled partitions, a moved by NUTS, against a sum over partitions and an integral over a."""
    with pm.Model():
        a = pm.Gamma("a", 2.0, 2.0)
        dp.DPMixture("y", 1.0, dp.DirichletCategorical(a, [3, 2]), observed=CODES)
        idata = pm.sample(10_000, tune=1_000, chains=4, cores=1, random_seed=3, progressbar=False, quiet=True)
    everything = partitions(4)
    points, weights = np.polynomial.laguerre.laggauss(60)
    used = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])

    def log_density(labels):
        each = [
            np.log(weight * value)
            + sum(
                exact.categorical_log_marginal(CODES[labels == k], value / 2.0 * used, np.array([3, 2]))
                for k in np.unique(labels)
            )
            for value, weight in zip(points, weights, strict=True)
        ]
        return exact.log_eppf(labels, 1.0) + np.logaddexp.reduce(each)

    p = normalized(np.array([log_density(labels) for labels in everything]))
    drawn = codes(idata.posterior["y_labels"].to_numpy().reshape(-1, 4))
    assert_matches(drawn, everything, p)


def test_pandas_objects_go_by_their_index():
    """What comes with the rows may be in another order than they; other rows are refused."""
    rng = np.random.default_rng(3)
    index = [f"r{i}" for i in range(8)]
    frame = pd.DataFrame(rng.normal(size=(8, 2)), index=index, columns=["a", "b"])
    order = rng.permutation(8)
    known = pd.Series(["A", "B", "A", *[None] * 5], index=index, dtype=object)
    offset = pd.DataFrame(rng.normal(size=(8, 2)), index=index)
    covariates = pd.DataFrame({"one": 1.0, "x": rng.normal(size=8)}, index=index)
    unit = pd.Series([0, 0, 1, 1, 2, 2, 3, 3], index=index)
    point = {"alpha_log__": np.array(0.1)}

    def densities(shuffled):
        def given(value):
            return value.iloc[order] if shuffled else value

        with pm.Model() as rows:
            alpha = pm.Gamma("alpha", 1.0, 1.0)
            base = dp.NormalInverseWishart.from_data(frame)
            dp.DPMixture("y", alpha, base, observed=frame, known_labels=given(known), offset=given(offset))
        labels = np.array([0, 1, 0, 2, 1, 0, 2, 2])
        found = [rows.compile_logp()(point | {"y_labels": labels})]
        found.append(rows.compile_logp()(point | {"y_labels": labels[order]}))
        with pm.Model() as lines:
            alpha = pm.Gamma("alpha", 1.0, 1.0)
            base = dp.LinearRegression(0.0, 1.0, 2.0, 1.0, covariates=given(covariates))
            dp.DPMixture("y", alpha, base, observed=frame["a"], unit=given(unit))
        return [*found, lines.compile_logp()(point | {"y_labels": np.array([0, 1, 0, 2])})]

    expected = densities(False)
    assert expected[1] == -np.inf
    np.testing.assert_allclose(densities(True), expected)
    for argument in ("known_labels", "offset", "unit"):
        other = pd.Series(np.zeros(8, dtype=int), index=[f"s{i}" for i in range(8)])
        with pm.Model(), pytest.raises(ValueError, match=f"{argument} has the index of other rows than observed"):
            dp.DPMixture("y", 1.0, observed=frame["a"], **{argument: other})
    with pm.Model():
        # What has no index goes by position.
        dp.DPMixture("y", 1.0, observed=frame["a"], offset=np.arange(8.0))


def test_columns_of_sparse_counts_have_the_names_of_their_dimension():
    counts = csr_array(np.random.default_rng(0).poisson(1.0, (30, 3)))
    with pm.Model(coords={"document": range(30), "word": ["a", "b", "c"]}):
        base = dp.DirichletMultinomial(np.ones(3))
        dp.DPMixture("y", 1.0, base, observed=counts, dims=("document", "word"))
        idata = pm.sample(5, tune=5, chains=1, random_seed=1, progressbar=False)
    found = dp.component_draws(idata, "y", np.zeros(30, dtype=int), random_seed=1)["probability"]
    assert found.dims[-1] == "word"
    assert found["word"].to_numpy().tolist() == ["a", "b", "c"]


def test_a_column_of_two_views_is_told_of():
    """It would count twice."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["height", "weight"])
    views = {
        "body": (["height", "weight"], dp.NormalInverseWishart.from_data(table)),
        "more": ("height", dp.NormalInverseGamma.from_data(table["height"])),
    }
    with pm.Model(), pytest.warns(UserWarning, match="'height' is in the views 'body' and 'more', and counts in"):
        dp.DPMixture("p", 1.0, views, observed=table)


def test_what_comes_with_every_row_is_asked_for():
    words = r"BetaBinomial needs trials of every row: .*from_data\(data, trials"
    with pm.Model(), pytest.raises(TypeError, match=words):
        dp.DPMixture("y", 1.0, dp.BetaBinomial, observed=[1, 2, 3])


def test_latent_columns_have_the_names_of_their_dimension():
    with pm.Model(coords={"subject": range(6), "effect": ["level", "slope"]}):
        base = dp.NormalInverseWishart([0.0, 0.0], 0.1, 5.0, [0.3, 0.3])
        u = dp.DPMixture("u", 1.0, base, dims=("subject", "effect"))
        pm.Normal("y", u.sum(axis=1), 0.3, observed=np.zeros(6))
        idata = pm.sample(20, tune=20, chains=1, progressbar=False, compute_convergence_checks=False)
    assert {"mean[level]", "mean[slope]"} <= set(dp.summary(idata, "u").clusters.columns)
    assert dp.sample_new_rows(idata, "u", 2)["u"].dims[-1] == "effect"
    found = dp.predict(idata, "u", {"level": [0.5]}, of="slope")
    assert found["mean"].dims == ("new_row",)
