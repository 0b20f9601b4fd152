"""Proposals for discrete values of atoms: windows around a value, and one value after the other."""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dpgmm as dp
from pymc_dpgmm.sampler.atoms import discrete_values
from pymc_dpgmm.sampler.atoms.discrete_values import DiscreteProposal, window
from pymc_dpgmm.sampler.atoms.free_form import FreeForm

DENSITIES = {
    "narrow": stats.poisson(3.0).logpmf,
    "wide": stats.poisson(4_000.0).logpmf,
    "far from the centre": stats.norm(900.0, 40.0).logpdf,
    "few values": stats.randint(0, 3).logpmf,
    "without an end": lambda values: -1.2 * np.log1p(np.abs(values)),
}


def probability(found, value):
    return math.exp(found.find(value)[0])


@pytest.mark.parametrize("name", DENSITIES)
def test_a_window_is_a_distribution_and_draws_from_itself(name):
    centre = 1
    found, top = window(lambda values: np.asarray(DENSITIES[name](values), dtype=float), centre)
    assert np.sum(np.exp(found.log_p)) == pytest.approx(1.0)
    # Bins follow each other, without gaps.
    order = np.argsort(found.lowest)
    np.testing.assert_array_equal(found.lowest[order][1:], (found.lowest + found.widths)[order][:-1])
    assert found.lowest.min() < centre < (found.lowest + found.widths).max()
    assert probability(found, int(found.lowest.min()) - 1) == 0.0
    rng, n = np.random.default_rng(3), 20_000
    drawn = np.array([found.draw(rng) for _ in range(n)])
    values, counts = np.unique(drawn, return_counts=True)
    p = np.array([probability(found, value) for value in values])
    assert np.all(p > 0.0)
    often = p * n > 5.0
    pooled = np.append(counts[often], n - counts[often].sum())
    expected = np.append(p[often] * n, n - p[often].sum() * n)
    kept = expected > 5.0
    assert stats.chisquare(pooled[kept], expected[kept] * pooled[kept].sum() / expected[kept].sum()).pvalue > 1e-4
    assert DENSITIES[name](top) >= max(DENSITIES[name](centre + offset) for offset in range(-8, 9))


def test_values_near_the_centre_have_the_density_itself():
    found, top = window(DENSITIES["narrow"], 5)
    p = np.array([probability(found, value) for value in range(-3, 14)])
    wanted = np.exp(DENSITIES["narrow"](np.arange(-3, 14)))
    np.testing.assert_allclose(p / p.sum(), wanted / wanted.sum(), atol=1e-12)
    assert top in (2, 3)


def test_there_is_no_window_where_the_density_is_zero():
    assert window(lambda values: np.full(len(values), -np.inf), 4) is None


def proposal_of_several(y):
    """Two counts in one vector, and a kind that indexes known means, of all rows."""
    with pm.Model() as model:
        base = {"counts": pm.Binomial.dist([3, 2], [0.4, 0.5]), "kind": pm.Categorical.dist([0.2, 0.5, 0.3])}
        c = dp.DirichletProcess("c", 1.0, base, shape=len(y))
        means = pt.constant(np.array([-1.0, 0.0, 2.0]))[c["kind"]]
        pm.Normal("y", means + c["counts"][:, 0] - 0.5 * c["counts"][:, 1], 0.9, observed=y)
        step = dp.DirichletProcessStep()
    density = step.targets[0].densities.at(model.initial_point())
    known = FreeForm(np.empty((1, 0)), [np.array([[1, 1]]), np.array([0])])
    return density, DiscreteProposal(density, known, np.ones(len(y), dtype=bool))


@pytest.mark.interpreted
def test_a_proposal_of_several_values_is_a_distribution():
    """Probabilities of all values sum to one, and are those of draws."""
    density, proposal = proposal_of_several(np.array([1.0, 2.2, 1.4]))
    support = [(i, j, k) for i in range(4) for j in range(3) for k in range(3)]
    log_p = [proposal.log_probability([np.array([[i, j]]), np.array([k])]) for i, j, k in support]
    p = dict(zip(support, np.exp(log_p), strict=True))
    assert sum(p.values()) == pytest.approx(1.0)
    assert proposal.log_probability([np.array([[4, 0]]), np.array([1])]) == -np.inf
    rng, n = np.random.default_rng(5), 1_500
    drawn = [proposal.draw(rng) for _ in range(n)]
    counts = dict.fromkeys(support, 0)
    for (vector, kind), found in drawn:
        value = (*vector[0].tolist(), int(kind[0]))
        assert math.exp(found) == pytest.approx(p[value])
        counts[value] += 1
    common = [value for value in support if p[value] * n > 5.0]
    rest = n - sum(counts[value] for value in common)
    left = n - sum(p[value] for value in common) * n
    observed, expected = [*(counts[v] for v in common), rest], [*(p[v] * n for v in common), left]
    assert stats.chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4
    # It is near the posterior given all rows, and its top is the largest value that single steps find.
    atoms = [np.array([(i, j) for i, j, _ in support]), np.array([k for *_, k in support])]
    log_joint = density.base(atoms) + density.by_row(atoms).sum(axis=1)
    posterior = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    assert 0.5 * np.abs(posterior - np.array(list(p.values()))).sum() < 0.8
    climbed = proposal.climbed().fixed
    assert proposal.log_probability(climbed) > np.log(0.1)


@pytest.mark.interpreted
def test_values_of_a_wide_bin_that_the_base_does_not_have_are_not_asked_of_the_likelihood(monkeypatch):
    """A bin of several values is looked at in its middle: others may index nothing."""
    monkeypatch.setattr(discrete_values, "NEAR", 2)
    monkeypatch.setattr(discrete_values, "BINS", 1)
    monkeypatch.setattr(discrete_values, "FIRST_BINS", discrete_values._first_bins())
    density, proposal = proposal_of_several(np.array([1.0, 2.2, 1.4]))
    # The first count may be 3, and shares a bin with 4.
    proposal = proposal._replace(form=FreeForm(np.empty((1, 0)), [np.array([[0, 1]]), np.array([0])]))
    rng = np.random.default_rng(1)
    drawn = [proposal.draw(rng) for _ in range(200)]
    for found in drawn:
        if found is not None:
            (vector, kind), log_p = found
            assert density.base([vector, kind])[0] > -np.inf
            assert proposal.log_probability([vector, kind]) == pytest.approx(log_p)
    assert any(found is None for found in drawn)
