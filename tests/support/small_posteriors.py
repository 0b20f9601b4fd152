"""Priors on partitions, and posteriors of few rows whose partitions are all enumerated."""

import exact
import numpy as np
from exact import log_finite_dirichlet, log_mfm, log_pitman_yor
from scipy.special import gammaln
from small_states import FIVE, NIG, NIW

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import (
    chinese_restaurant,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    n_terms,
    pitman_yor,
)
from pymc_dpgmm.sampler.state.state import State

# Priors of eight rows: as kernels have them, and their log probabilities by separate code.
N = 8
LOG_COMPONENTS = np.array([m * np.log(2.0) - 2 - gammaln(m + 1) for m in range(1, n_terms(N) + 1)])
LOG_COMPONENTS -= np.log1p(-np.exp(-2))
PRIORS_OF_EIGHT = {
    "crp": (chinese_restaurant(0.8), lambda p: exact.log_eppf(p, 0.8)),
    "pitman-yor": (pitman_yor(0.3, 0.45), lambda p: log_pitman_yor(p, 0.3, 0.45)),
    "finite": (finite_dirichlet(1.5, 3), lambda p: log_finite_dirichlet(p, 1.5, 3)),
    "mfm": (
        mixture_of_finite_mixtures(0.7, LOG_COMPONENTS, N),
        lambda p: log_mfm(p, 0.7, LOG_COMPONENTS[:60]),
    ),
}
# The weights of a mixture of finite mixtures depend on the number of rows.
OF_FIVE = mixture_of_finite_mixtures(0.7, LOG_COMPONENTS, 5)
PRIORS = PRIORS_OF_EIGHT | {"mfm": (OF_FIVE, PRIORS_OF_EIGHT["mfm"][1])}
COUNTS = np.array([[0.0, 1.0], [3.0, 1.0], [4.0, 1.0], [9.0, 1.0], [1.0, 2.0]])
CODES = np.array([[0.0], [1.0], [1.0], [2.0], [0.0]])
# Families, their parameters, and rows: some whose densities compiled code computes, and some that NumPy does.
CASES = {
    "niw": ("NormalInverseWishart", NIW, FIVE),
    "nig": ("NormalInverseGamma", NIG, FIVE),
    "poisson": ("GammaPoisson", {"a": 1.2, "b": 0.3}, COUNTS),
    "categorical": ("DirichletCategorical", {"a": np.array([[0.7, 1.1, 0.4]]), "levels": [3]}, CODES),
}


def view_of(case):
    family, base, rows = CASES[case]
    measure = getattr(dp, family)(**base)
    return View(measure.family, measure.numbers(1 if case in ("poisson", "categorical") else 2), rows)


def posterior(cases, prior):
    """All partitions of five rows, and their posterior probabilities under several views."""
    partitions = exact.partitions(5)
    total = np.array([PRIORS[prior][1](labels) for labels in partitions])
    for case in cases:
        family, base, rows = CASES[case]
        total = total + exact.log_likelihoods(partitions, rows, exact.LOG_MARGINALS[family], **base)
    return partitions, exact.normalized(total)


def after_sweeps(cases, prior, n_draws, move, seed=1):
    """Start at partitions drawn from the posterior, and return the codes of what they have become."""
    partitions, p = posterior(cases, prior)
    rng, found = np.random.default_rng(seed), np.empty((n_draws, 5), dtype=np.int64)
    begun = State([view_of(case) for case in cases], partitions[0])
    begun.set_prior(PRIORS[prior][0])
    begun.use(rng)
    # A copy of a state is made in a tenth of the time in which one is given other labels.
    starts = []
    for labels in partitions:
        begun.relabel(labels)
        starts.append(begun.copy())
    states = [start.copy() for start in starts]
    for t, start in enumerate(rng.choice(len(p), size=n_draws, p=p)):
        states[start] = state = starts[start].copied_to(states[start])
        found[t] = move(rng, state)
    return exact.codes(found), partitions, p


SETS = [(("niw",), "crp"), (("poisson",), "crp"), (("nig",), "pitman-yor"), (("nig", "categorical"), "finite")]
