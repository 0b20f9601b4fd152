"""A number of components that is random, drawn from its conditional distribution, against enumeration."""

import copy

import arviz as az
import exact
import grouped
import numpy as np
import pymc as pm
import pytest
from sampled import sample
from scipy import stats

import pymc_dpgmm as dp
from pymc_dpgmm.integration.internals.pymc_internals import assign_step_methods
from pymc_dpgmm.integration.steps import components
from pymc_dpgmm.integration.steps.components import Conditional
from pymc_dpgmm.testing import positions

pytestmark = pytest.mark.interpreted

ROWS = np.array([-2.0, -1.4, 1.9, 2.3, 0.4])
NIG = {"mu": 0.1, "kappa": 0.2, "a": 2.0, "b": 0.7}
GROUP = np.array([0, 0, 0, 1, 1])
ALPHA = 1.7
# Number of components as a model writes it, log masses of 1, 2, ... of it, and how its variable is read as it.
NUMBERS = {
    "shifted Poisson": (
        lambda: 1 + pm.Poisson("m", 1.5),
        lambda m: stats.poisson.logpmf(m - 1, 1.5),
        lambda m: m + 1,
    ),
    "uniform": (
        lambda: pm.DiscreteUniform("m", 1, 6),
        lambda m: np.where(m < 7, -np.log(6), -np.inf),
        lambda m: m,
    ),
    "geometric": (lambda: pm.Geometric("m", 0.3), lambda m: stats.geom.logpmf(m, 0.3), lambda m: m),
    "shifted categories": (
        lambda: 1 + pm.Categorical("m", p=[0.1, 0.4, 0.3, 0.2]),
        lambda m: np.log([0.1, 0.4, 0.3, 0.2, *[1e-300] * 60])[m - 1],
        lambda m: m + 1,
    ),
    "truncated": (
        lambda: pm.Truncated("m", pm.Poisson.dist(2.0), lower=1),
        lambda m: stats.poisson.logpmf(m, 2.0),
        lambda m: m,
    ),
    "deterministic": (
        lambda: pm.Deterministic("twice", 2 * pm.Bernoulli("m", 0.4) + 2),
        lambda m: np.select([m == 2, m == 4], np.log([0.6, 0.4]), -np.inf),
        lambda m: 2 * m + 2,
    ),
}


def made(number, group=None, rows=ROWS):
    with pm.Model() as model:
        dp.FiniteMixture("y", ALPHA, number(), dp.NormalInverseGamma(**NIG), observed=rows, group=group)
    return model


def enumerated(log_mass, group=None, most=60):
    """All partitions, and the joint distribution of these and of 1, ..., most components."""
    everything, numbers = exact.partitions(len(ROWS)), np.arange(1, most + 1)
    log_rows = exact.log_likelihoods(everything, ROWS[:, None], exact.nig_log_marginal, **NIG)
    log_p = np.empty((len(everything), most))
    for i, labels in enumerate(everything):
        for j, m in enumerate(numbers):
            if group is None:
                log_p[i, j] = exact.log_finite_dirichlet(labels, ALPHA, int(m))
            else:
                log_p[i, j] = grouped.log_finite(labels, group, ALPHA, int(m))
    with np.errstate(divide="ignore"):
        log_p += log_rows[:, None] + log_mass(numbers)
    return everything, exact.normalized(log_p.ravel()).reshape(log_p.shape)


def assert_follows(p, everything, labels, m):
    """Compare pairs of a partition and a number of components, of which the largest ones are one category."""
    found = positions(exact.codes(labels).ravel(), everything).reshape(m.shape) * p.shape[1] + np.minimum(
        m, p.shape[1]
    )
    found -= 1
    series = [labels.max(axis=2), m, *(found == top for top in np.argsort(p.ravel())[-5:])]
    effective = min(float(az.ess(own.astype(float), method="mean")) for own in series)
    distance = exact.total_variation(np.bincount(found.ravel(), minlength=p.size) / m.size, p.ravel())
    assert effective > 400
    assert distance < exact.total_variation_bound(p.ravel(), effective)


def in_categories(p, top=6):
    return np.column_stack([p[:, : top - 1], p[:, top - 1 :].sum(axis=1)])


@pytest.mark.parametrize(
    ("kind", "is_grouped"),
    [
        ("shifted Poisson", False),
        pytest.param("shifted Poisson", True, marks=pytest.mark.slow),
        *(
            pytest.param(kind, is_grouped, marks=pytest.mark.slow)
            for kind in NUMBERS
            if kind != "shifted Poisson"
            for is_grouped in (False, True)
        ),
    ],
)
def test_partition_and_number_follow_the_enumerated_posterior(kind, is_grouped):
    """Every kind of random number of components, of plain and grouped mixtures."""
    number, log_mass, read = NUMBERS[kind]
    group = GROUP if is_grouped else None
    everything, p = enumerated(log_mass, group)
    idata = sample(made(number, group), 2_000, tune=300, chains=2, cores=1, random_seed=3)
    labels, m = (idata["posterior"][name].to_numpy() for name in ("y_labels", "m"))
    m = read(m.astype(int))
    assert np.all(m >= labels.max(axis=2) + 1)
    assert_follows(in_categories(p), everything, labels, m)


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("kind", NUMBERS)
def test_density_is_that_of_the_model(kind, is_grouped):
    """Whatever is computed from the variable, and for any number: up to a constant."""
    number, log_mass, read = NUMBERS[kind]
    group = GROUP if is_grouped else None
    model = made(number, group)
    conditional = Conditional(model, model.rvs_to_values[model["m"]])
    labels = np.array([0, 0, 1, 1, 2])
    numbers = np.arange(-5, 40)
    found = conditional.log_density(numbers, {"y_labels": labels.astype("int16"), "m": np.array(3)})
    m = read(numbers)
    wanted = np.full(len(m), -np.inf)
    for i in np.flatnonzero(m >= 3):
        if group is None:
            wanted[i] = exact.log_finite_dirichlet(labels, ALPHA, int(m[i]))
        else:
            wanted[i] = grouped.log_finite(labels, group, ALPHA, int(m[i]))
    with np.errstate(divide="ignore"):
        wanted[m >= 3] += log_mass(m[m >= 3])
    wanted[wanted < -600] = -np.inf
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    inside = np.isfinite(wanted)
    np.testing.assert_allclose(found[inside] - found[inside][0], (wanted - wanted[inside][0])[inside], atol=1e-9)


@pytest.mark.parametrize("widths", [(1, 4), (4, 256)])
def test_draws_leave_the_conditional_distribution_as_it_is(widths, monkeypatch):
    """From exact draws, one draw later: also where the window is narrower than the distribution."""
    narrow, wide = widths
    monkeypatch.setattr(components, "NARROW", narrow)
    monkeypatch.setattr(components, "WIDE", wide)
    model = made(NUMBERS["shifted Poisson"][0])
    conditional = Conditional(model, model.rvs_to_values[model["m"]])
    numbers = np.arange(100)
    point = {"y_labels": np.array([0, 0, 1, 1, 0], dtype="int16"), "m": np.array(0)}
    p = exact.normalized(conditional.log_density(numbers, point))
    # With its values at hand, a draw takes microseconds.
    known = np.concatenate([np.full(400, -np.inf), np.log(np.maximum(p, 1e-300)), np.full(400, -np.inf)])
    monkeypatch.setattr(conditional, "log_density", lambda numbers, point: known[numbers + 400])
    rng = np.random.default_rng(4)
    before = rng.choice(100, size=100_000, p=p)
    after = np.array([int(conditional.draw(rng, {"m": np.array(own)})) for own in before])
    assert 0.05 < np.mean(after != before) < 1.0
    share = np.bincount(after, minlength=100) / len(after)
    assert exact.total_variation(share, p) < exact.total_variation_bound(p, len(after))


def test_other_densities_that_depend_on_the_number_count():
    with pm.Model() as model:
        m = pm.Geometric("m", 0.2)
        dp.FiniteMixture("y", ALPHA, m, dp.NormalInverseGamma(**NIG), observed=ROWS)
        pm.Normal("size", m, 1.5, observed=4.2)
        sd = pm.HalfNormal("sd", pm.math.sqrt(m))
        pm.Potential("bound", -0.1 * sd * m)
    conditional = Conditional(model, model.rvs_to_values[model["m"]])
    point = model.initial_point() | {"y_labels": np.array([0, 0, 1, 1, 0], dtype="int16")}
    numbers = np.arange(-3, 40)
    found = conditional.log_density(numbers, point)
    assert np.all(found[numbers < 2] == -np.inf)
    logp = model.compile_logp()
    wanted = np.array([float(logp(point | {"m": np.array(m)})) for m in numbers[numbers >= 2]])
    found = found[numbers >= 2]
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], atol=1e-9)
    idata = sample(model, 200, tune=200, chains=1, random_seed=1)
    assert bool((idata["posterior"]["m"] >= idata["posterior"]["y_n_clusters"]).all())


def steps_of(model):
    with model:
        made, given = assign_step_methods(model, None, methods=pm.step_methods.STEP_METHODS)
        return {kind.__name__: [v.name for v in own] for kind, own in given.items()} if given else made


def test_the_step_is_assigned_where_it_belongs():
    with pm.Model() as model:
        first, second = pm.Poisson("first", 2.0), pm.Poisson("second", 1.0)
        pm.Poisson("other", 3.0)
        dp.FiniteMixture("y", ALPHA, 1 + first + second, dp.NormalInverseGamma(**NIG), observed=ROWS)
    assert steps_of(model)["ComponentsGibbs"] == ["first", "second"]
    assert steps_of(model)["Metropolis"] == ["other"]
    idata = sample(model, 100, tune=100, chains=1, random_seed=1)
    posterior = idata["posterior"]
    assert bool((1 + posterior["first"] + posterior["second"] >= posterior["y_n_clusters"]).all())
    with pm.Model() as vector:
        counts = pm.Poisson("counts", 2.0, shape=2)
        dp.FiniteMixture("y", ALPHA, 1 + counts[0], dp.NormalInverseGamma(**NIG), observed=ROWS)
    assert "ComponentsGibbs" not in steps_of(vector)
    with vector, pytest.raises(TypeError, match="counts must be a discrete scalar"):
        dp.ComponentsGibbs([counts])


def test_restored_state_repeats_the_draws():
    model = made(NUMBERS["geometric"][0])
    with model:
        step = dp.ComponentsGibbs([model["m"]])
    step.setup_chain(np.random.default_rng(1), 10, 10)
    start = model.initial_point(random_seed=1) | {"y_labels": np.zeros(5, dtype="int16")}
    step.step(start)
    saved = copy.deepcopy(step.sampling_state)

    def run():
        point, seen = start, []
        for _ in range(15):
            point, _ = step.step(point)
            seen.append(int(point["m"]))
        return seen

    first = run()
    step.sampling_state = saved
    assert run() == first
    assert len(set(first)) > 1


def test_rare_numbers_are_reached():
    """Where the rows need more components than the prior expects, from a start far beyond."""
    with pm.Model() as model:
        dp.FiniteMixture(
            "y", 2.0, 1 + pm.Poisson("m", 0.05), dp.NormalInverseGamma(**NIG), observed=np.arange(20.0)
        )
    conditional = Conditional(model, model.rvs_to_values[model["m"]])
    labels, rng = np.repeat(np.arange(5), 4), np.random.default_rng(1)
    point, drawn = {"y_labels": labels.astype("int16"), "m": np.array(2_000)}, []
    for _ in range(2_000):
        point["m"] = conditional.draw(rng, point)
        drawn.append(int(point["m"]) + 1)
    assert min(drawn) == 5
    wanted = [stats.poisson.logpmf(k - 1, 0.05) + exact.log_finite_dirichlet(labels, 2.0, k) for k in range(5, 40)]
    p = exact.normalized(np.array(wanted))
    later = np.array(drawn[400:])
    assert max(later) < 40
    assert exact.total_variation(np.bincount(later - 5, minlength=35) / len(later), p) < (
        exact.total_variation_bound(p, len(later) / 2)
    )


@pytest.mark.parametrize("shift", [0, 1])
def test_a_distribution_without_a_name_is_refused(shift):
    with (
        pm.Model() as model,
        pytest.raises(ValueError, match="n_components is a distribution, and no"),
    ):
        dp.FiniteMixture("y", 1.0, shift + pm.Poisson.dist(3.0), observed=[1.0, 2.0])
    assert not model.named_vars
