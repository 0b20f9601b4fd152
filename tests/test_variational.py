"""Variational inference: a lower bound that is one, as high as it can be, and answers that are read like draws."""

import math
from types import SimpleNamespace

import exact
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, digamma, gammaln, logsumexp, softmax
from test_families import CASES

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.testing import partitions
from pymc_dpgmm.threads import Threads
from pymc_dpgmm.variational.ascent import ROUNDING, ascend, begin, step
from pymc_dpgmm.variational.moves import add_components, merge_pairs
from pymc_dpgmm.variational.rows import Rows
from pymc_dpgmm.variational.search import Options, find_optimum
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks

ONE = Threads(1)
LAW = (1.5, 0.8)
# For every prior, what is fitted and the enumerated log probability of a partition.
PRIORS = {
    "dirichlet-process": (lambda: Sticks(0.7), lambda labels: exact.log_eppf(labels, 0.7)),
    "pitman-yor": (lambda: Sticks(0.7, 0.3), lambda labels: exact.log_pitman_yor(labels, 0.7, 0.3)),
    "pitman-yor-negative": (lambda: Sticks(-0.1, 0.6), lambda labels: exact.log_pitman_yor(labels, -0.1, 0.6)),
    "gamma-prior": (lambda: Sticks(1.0, 0.0, LAW), lambda labels: log_eppf_under_law(labels)),
    "finite": (lambda: DirichletWeights(1.3, 3), lambda labels: exact.log_finite_dirichlet(labels, 1.3, 3)),
}


def log_eppf_under_law(labels):
    """Average the density over the concentration, by a fine grid of quantiles."""
    grid = stats.gamma(LAW[0], scale=1.0 / LAW[1]).ppf((np.arange(4000) + 0.5) / 4000)
    return logsumexp([exact.log_eppf(labels, alpha) for alpha in grid]) - math.log(len(grid))


def rows_of(case, n=None):
    base, values, d, _ = CASES[case]
    values = values if n is None else values[:n]
    return Rows([View(base.family, base.numbers(d), values)])


def log_evidence(case, n, log_prior):
    """The log evidence of the first rows of a case: a sum over all partitions."""
    base, values, d, _ = CASES[case]
    parameters = base.numbers(d)._asdict()
    all_labels = partitions(n)
    given = exact.log_likelihoods(all_labels, values[:n], exact.LOG_MARGINALS[base.family.name], **parameters)
    return float(logsumexp(given + [log_prior(labels) for labels in all_labels]))


def seeded(rows, prior, n_components, seed):
    """A state that begins with some of the rows as components."""
    chosen = np.random.default_rng(seed).choice(rows.n, n_components, replace=False)
    return begin(rows, prior, rows.of_single(chosen), ONE)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("case", CASES)
def test_bound_is_below_the_enumerated_evidence(case, prior):
    """The best of several fits stays below, and is not far below."""
    n = 5
    make, log_prior = PRIORS[prior]
    rows, evidence = rows_of(case, n), log_evidence(case, n, log_prior)
    bounds = []
    for n_components in (1, 2, 3):
        state = seeded(rows, make(), n_components, n_components)
        assert state.bound <= evidence + 1e-9
        bounds.append(ascend(rows, make(), state, ONE, 1e-9, 500).bound)
    assert max(bounds) <= evidence + 1e-9
    assert max(bounds) > evidence - 4.0


@pytest.mark.parametrize("case", CASES)
def test_finite_mixture_of_one_component_has_the_evidence_itself(case):
    base, values, d, _ = CASES[case]
    slow = exact.LOG_MARGINALS[base.family.name](values, **base.numbers(d)._asdict())
    rows, prior = rows_of(case), DirichletWeights(1.3, 1)
    state = step(rows, prior, seeded(rows, prior, 1, 0), ONE)
    assert state.bound == pytest.approx(slow, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", ["niw", "multinomial", "regression"])
def test_process_with_one_component_leaves_the_stick_random(case):
    base, values, d, _ = CASES[case]
    slow = exact.LOG_MARGINALS[base.family.name](values, **base.numbers(d)._asdict())
    rows, alpha, n = rows_of(case), 0.7, len(values)
    state = step(rows, Sticks(alpha), seeded(rows, Sticks(alpha), 1, 0), ONE)
    assert state.bound == pytest.approx(slow + betaln(1 + n, alpha) - betaln(1, alpha), rel=1e-9)


def slow_sums(family, params, rows, weights):
    """Sums of weighted rows by the family's own update, one row after another."""
    shapes = {name: [getattr(params, c) for c in letters] for name, letters in family.sums.items()}
    sums = {name: np.zeros(shape).ravel() for name, shape in shapes.items()}
    n, s = 0.0, SimpleNamespace(**sums)
    for x, weight in zip(rows, weights, strict=True):
        family.update(params, n, s, x, weight)
        n += weight
    return n, s


@pytest.mark.parametrize("case", CASES)
def test_responsibilities_and_sums_match_slow_ones(case):
    """Sums are those of the family's own update, and expected densities derivatives of its log evidence."""
    base, values, d, _ = CASES[case]
    rows, prior = rows_of(case), Sticks(1.0)
    before = seeded(rows, prior, 3, 5)
    after, entropy = rows.respond(before.sums, before.weights.log_weights, ONE)
    densities = rows.log_densities(before.sums)
    family, table = base.family, rows.views[0].table
    numbers, fields = table.shifted, dict(table.shifted._asdict())
    lengths = family.lengths(numbers)
    fields |= lengths | family.tabulate(numbers, 0)
    p = SimpleNamespace(**{k: v.ravel() if isinstance(v, np.ndarray) else v for k, v in fields.items()})
    if table.starts is None:
        data = list(table.rows)
    else:
        data = [table.rows[a:b] for a, b in zip(table.starts[:-1], table.starts[1:], strict=True)]
    cache = {name: np.zeros([lengths[c] for c in letters]).ravel() for name, letters in family.cache.items()}

    def evidence(n, s):
        room = [SimpleNamespace(**cache)] * (family.log_evidence.__code__.co_argcount - 3)
        return family.log_evidence(p, n, s, *room)

    def flat(s):
        return np.concatenate([np.ravel(getattr(s, name)) for name in family.sums])

    r = softmax(densities + before.weights.log_weights, axis=1)
    assert entropy == pytest.approx(-np.sum(r * np.log(np.maximum(r, 1e-300))), rel=1e-9, abs=1e-9)
    for k in range(3):
        n, s = slow_sums(family, p, data, r[:, k])
        assert after.sizes[k] == pytest.approx(n, rel=1e-9)
        np.testing.assert_allclose(after.views[0][k], flat(s), rtol=1e-8, atol=1e-9)
        assert rows.log_evidences(after)[k] == pytest.approx(evidence(n, s), rel=1e-9)
    # The state before has weighted rows too: the derivative in the weight of one more.
    weights = softmax(rows.log_densities(before.source[0]) + before.source[1], axis=1)
    for i in range(3):
        for k in range(3):
            found = []
            # Weights must not become negative.
            for change in (0.0, 1e-5, 2e-5):
                changed = weights[:, k].copy()
                changed[i] += change
                found.append(evidence(*slow_sums(family, p, data, changed)))
            expected = (4.0 * found[1] - found[2] - 3.0 * found[0]) / 2e-5
            assert densities[i, k] == pytest.approx(expected, rel=1e-5, abs=1e-5)
