"""Hyperparameters of variational inference at a maximum: gradients, modes by separate code, refusals."""

import exact
import numpy as np
import pymc as pm
import pytest
from family_cases import CASES
from scipy import stats
from scipy.optimize import approx_fprime, minimize, minimize_scalar
from small_fits import ONE, rows_of, seeded

import pymc_dpgmm as dp
from pymc_dpgmm.variational.ascent import ascend
from pymc_dpgmm.variational.model.target import FitTarget
from pymc_dpgmm.variational.rows import RowsInMemory

pytestmark = pytest.mark.interpreted

X = np.concatenate([np.random.default_rng(0).normal(-4.0, 1.0, 25), np.random.default_rng(1).normal(3.0, 0.5, 20)])


@pytest.mark.parametrize("case", CASES)
def test_gradients_given_fractions_of_rows(case):
    """Central differences of the evidence, in every parameter of every family."""
    rows = rows_of(case)
    sums = rows.scaled(rows.of_labels(np.arange(rows.n) % 2, 2), np.array([0.7, 0.45]))
    view = rows.views[0]
    start = view.table.params
    found = view.gradient(sums, 0)
    for name, own in start._asdict().items():
        flat = np.ravel(np.asarray(own, dtype=np.float64))
        for place in range(len(flat)):
            h = 1e-5 * max(1.0, abs(flat[place]))
            values = []
            for sign in (1.0, -1.0):
                changed = flat.copy()
                changed[place] += sign * h
                changed = changed.reshape(np.shape(own)) if np.shape(own) else float(changed[0])
                params = start._replace(**{name: changed})
                if not view.family.supports(params):
                    # A matrix of which one entry changes is not symmetric.
                    break
                view.set_params(params)
                values.append(view.log_evidences(sums.sizes, sums.views[0]).sum())
            if len(values) == 2:
                slope = (values[0] - values[1]) / (2.0 * h)
                assert np.ravel(found[name])[place] == pytest.approx(slope, rel=1e-4, abs=1e-5), (name, place)
    view.set_params(start)


def test_the_mode_of_one_component_is_that_of_the_evidence():
    """A finite mixture of one component has the evidence for a bound: its mode by separate code."""
    with pm.Model():
        mu, kappa, b = pm.Normal("mu", 1.0, 3.0), pm.Gamma("kappa", 2.0, 1.0), pm.InverseGamma("b", 3.0, 2.0)
        dp.FiniteMixture("y", 1.0, 1, dp.NormalInverseGamma(mu, kappa, 2.0, b), observed=X)
        fit = dp.fit(maximize=["mu", "kappa", "b"], tol=1e-12, random_seed=1, progressbar=False)

    def slow(x):
        mu, kappa, b = x[0], *np.exp(x[1:])
        evidence = exact.nig_log_marginal(X[:, None], mu=mu, kappa=kappa, a=2.0, b=b)
        prior = stats.norm.logpdf(mu, 1.0, 3.0) + stats.gamma.logpdf(kappa, 2.0)
        return -float(evidence + prior + stats.invgamma.logpdf(b, 3.0, scale=2.0))

    best = minimize(
        slow, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5_000}
    )
    found = np.array([fit.point["mu"], np.log(fit.point["kappa"]), np.log(fit.point["b"])])
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert fit.elbo[-1] == pytest.approx(
        exact.nig_log_marginal(X[:, None], fit.point["mu"], fit.point["kappa"], 2.0, fit.point["b"])
    )


def test_missing_bits_and_a_vector():
    """One component: the mode of the evidence of the bits that are there, column by column."""
    rng = np.random.default_rng(5)
    bits = (rng.random((30, 2)) < [0.8, 0.3]).astype(float)
    bits[4, 0] = bits[9, 1] = bits[10, 1] = np.nan
    with pm.Model():
        a = pm.Gamma("a", 2.0, 1.0, shape=2)
        dp.FiniteMixture("y", 1.0, 1, dp.BetaBernoulli(a, 1.5), observed=bits)
        fit = dp.fit(maximize="a", tol=1e-12, random_seed=1, progressbar=False)
    for j in (0, 1):
        own = bits[~np.isnan(bits[:, j]), j][:, None]

        def slow(log_a, own=own):
            value = exact.beta_bernoulli_log_marginal(own, float(np.exp(log_a)), 1.5)
            return -float(value + stats.gamma.logpdf(np.exp(log_a), 2.0))

        assert np.log(fit.point["a"][j]) == pytest.approx(minimize_scalar(slow, bounds=(-4, 4)).x, abs=1e-3)


def several(make):
    """A model with all kinds of hyperparameters, two views, and data and a potential beside."""
    with pm.Model() as model:
        alpha, mu = pm.LogNormal("alpha", 0.0, 1.0), pm.Normal("mu", 0.0, 5.0)
        shape = pm.Gamma("shape", 2.0, 1.0)
        base = {"size": dp.NormalInverseGamma(mu, 0.1, 2.0, 1.0), "count": dp.GammaPoisson(shape, 2.0 * shape)}
        counts = np.where(X > 0.0, 9, 2) + np.arange(len(X)) % 3
        make("y", alpha, base, observed={"size": X, "count": counts})
        pm.Normal("other", mu, 1.0, observed=1.5)
        pm.Potential("known", -shape)
    return model


PRIORS_OF_MODELS = {
    "dirichlet-process": dp.DPMixture,
    "pitman-yor": lambda name, alpha, *args, **kw: dp.PYMixture(
        name, alpha, pm.Beta("discount", 2.0, 3.0), *args, **kw
    ),
    "finite": lambda name, alpha, *args, **kw: dp.FiniteMixture(name, alpha, 4, *args, **kw),
}


@pytest.mark.parametrize("prior", PRIORS_OF_MODELS)
def test_slopes_vanish_at_the_maximum_and_nothing_falls(prior):
    """The sum, at points of its own, by the bound of a new fit of weights: no gradient of the package."""
    model = several(PRIORS_OF_MODELS[prior])
    names = ["alpha", "mu", "shape"] + (["discount"] if prior == "pitman-yor" else [])
    target = FitTarget(model, {}, names)
    rows = RowsInMemory(target.views)
    state = seeded(rows, target.prior, 3, 2)
    total = -np.inf
    for _ in range(60):
        state = target.maximize(rows, state)
        state = ascend(rows, target.prior, state, ONE, 1e-10, 100)
        before, total = total, state.bound + target.log_density
        assert total > before - 1e-9
    values = [model.rvs_to_values[model[name]].name for name in names]
    log_density = model.logp(vars=[model[n] for n in (*names, "other")] + model.potentials, jacobian=False)
    log_density = pm.compile([model.rvs_to_values[model[name]] for name in names], log_density)

    def slow(x):
        point = {**target.point, **{v: np.asarray(own) for v, own in zip(values, x, strict=True)}}
        natural = dict(zip(names, target.hyperparameters.natural(point).values(), strict=True))
        other = FitTarget(model, natural)
        given = RowsInMemory(other.views)
        bound = given.log_evidences(state.sums).sum() + other.prior.fit(state.sums.sizes).bound + state.entropy
        return float(bound + log_density(*(point[v] for v in values)))

    at = np.array([float(target.point[v]) for v in values])
    assert slow(at) == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(approx_fprime(at, slow, 1e-5), 0.0, atol=0.02)
    # Away from it the slopes are not small.
    assert np.max(np.abs(approx_fprime(at + 0.3, slow, 1e-5))) > 0.3


def test_an_answer_has_the_values_and_starts_from_them():
    with pm.Model() as model:
        kappa = pm.Gamma("kappa", 1.0, 1.0)
        base = dp.NormalInverseGamma(pm.Normal("mu", 0.0, 5.0), kappa, 2.0, 1.0)
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=X)
        fit = dp.fit(maximize="mu", point={"kappa": 0.1}, random_seed=1, progressbar=False)
        again = dp.fit(point=fit.point, random_seed=1, progressbar=False)
    assert set(fit.point) == {"kappa", "mu"}
    assert fit.n_components == 2
    assert fit.alpha is not None
    assert fit.elbo[-1] == pytest.approx(again.elbo[-1], abs=1e-4)
    assert np.all(np.diff(fit.elbo) > -1e-8)
    start = fit.initvals(1)[0]
    assert set(start) == {"y_labels", "alpha", "kappa", "mu"}
    assert float(fit.to_datatree(3)["posterior"]["mu"][0, 0]) == pytest.approx(fit.point["mu"])
    with model:
        pm.sample(5, tune=5, chains=1, initvals=[start], progressbar=False, compute_convergence_checks=False)


def bad_models():
    def offset():
        beta = pm.Normal("beta", 0.0, 1.0)
        dp.DPMixture(
            "y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=X, offset=beta * np.ones(len(X))
        )
        return "beta"

    def law():
        shape = pm.Gamma("shape", 2.0, 1.0)
        dp.DPMixture("y", pm.Gamma("alpha", shape, 1.0), dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=X)
        return "shape"

    def discrete():
        nu = pm.Poisson("nu", 2.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 1.0 + nu, 1.0), observed=X)
        return "nu"

    def endless():
        b = pm.HalfFlat("b", initval=0.1)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(1.0, 0.1, 2.0, b), observed=np.ones(5))
        return "b"

    def hierarchy():
        tau = pm.HalfNormal("tau", 5.0)
        mu = pm.Normal("mu", 0.0, tau)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 0.05, 2.0, 1.0), observed=X)
        return "tau"

    def unknown():
        dp.DPMixture("y", 1.0, observed=X)
        return "kapa"

    yield offset, TypeError, "the offset of y depends on"
    yield law, TypeError, "its prior depends on variables in maximize"
    yield discrete, TypeError, "cannot be maximised, being discrete"
    yield endless, ValueError, "keeps rising beyond"
    yield hierarchy, ValueError, "keeps rising beyond"
    yield unknown, ValueError, r"maximize must have names .* got \['kapa'\]"


@pytest.mark.parametrize(("make", "error", "words"), list(bad_models()))
def test_what_cannot_be_maximised_is_refused(make, error, words):
    with pm.Model():
        name = make()
        with pytest.raises(error, match=words):
            dp.fit(maximize=[name, *(["mu"] if name == "tau" else [])], random_seed=1, progressbar=False)


def test_a_name_given_twice_counts_once():
    with pm.Model():
        b = pm.InverseGamma("b", 3.0, 2.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, b), observed=X)
        assert list(dp.fit(maximize=["b", "b"], random_seed=1, progressbar=False).point) == ["b"]


def test_a_discrete_variable_is_at_a_whole_number():
    with pm.Model():
        nu = pm.Poisson("nu", 2.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 1.0 + nu, 1.0), observed=X)
        with pytest.raises(ValueError, match=r"nu in point must be an integer, .* got 1\.5"):
            dp.fit(point={"nu": 1.5}, progressbar=False)
        assert dp.fit(point={"nu": 2.0}, random_seed=1, progressbar=False).n_components == 2


def test_a_name_in_both_is_refused():
    with pm.Model():
        mu = pm.Normal("mu", 0.0, 5.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 0.1, 2.0, 1.0), observed=X)
        with pytest.raises(ValueError, match="must be in point or in maximize, not in both"):
            dp.fit(maximize="mu", point={"mu": 0.0}, progressbar=False)
