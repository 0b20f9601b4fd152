"""Posteriors of few rows in groups, and of topics, that are enumerated."""

import itertools

import exact
import grouped
import numpy as np
from arviz_stats.base import array_stats
from scipy.special import gammaln

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.partitions.grouped import Groups
from pymc_dpgmm.partitions.priors import chinese_restaurant, finite_dirichlet
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.testing import assert_matches

GROUP = np.array([0, 0, 0, 1, 1, 2])
CATEGORICAL = {"a": np.array([[0.5, 0.7, 0.4]]), "levels": np.array([3])}


class Case:
    """Rows in groups under a prior, and the posterior of all partitions."""

    def __init__(self, family, rows, base, *, alpha, gamma=None, n_components=None, use_stirling=True):
        self.rows = np.asarray(rows, dtype=float).reshape(len(GROUP), -1)
        self.alpha, self.gamma, self.n_components = np.broadcast_to(alpha, 3).astype(float), gamma, n_components
        self.view = View(FAMILIES[family], getattr(dp, family)(**base).numbers(self.rows.shape[1]), self.rows)
        self.labels = exact.partitions(len(GROUP))
        log_p = exact.log_likelihoods(self.labels, self.rows, exact.LOG_MARGINALS[family], **base)
        tables = np.zeros(len(self.labels))
        for i, own in enumerate(self.labels):
            if gamma is None:
                log_p[i] += grouped.log_finite(own, GROUP, alpha, n_components)
            else:
                prior, tables[i] = grouped.log_hdp(own, GROUP, alpha, gamma, use_stirling)
                log_p[i] += prior
        self.log_evidence = np.logaddexp.reduce(log_p)
        self.p = np.exp(log_p - self.log_evidence)
        self.mean_tables = float(self.p @ tables)

    def draw(self, moves, n_draws, seed=20060101, alpha_factor=1.0):
        """Codes of the partitions drawn, and the numbers of tables."""
        rng = np.random.default_rng(seed)
        state = State([self.view], np.zeros(len(GROUP), dtype=int))
        state.set_groups(Groups(GROUP))
        group_alphas = self.alpha * alpha_factor
        openers = None if self.gamma is None else np.ones(len(GROUP), dtype=int)
        prior = finite_dirichlet(float(group_alphas.mean()), self.n_components) if self.gamma is None else None
        state.set_prior(prior or chinese_restaurant(self.gamma))
        drawn, tables = np.empty((n_draws, len(GROUP)), dtype=np.int64), np.empty(n_draws)
        state.set_grouping(rng, group_alphas, openers, self.gamma or 1.0)
        for s in range(n_draws):
            sweep(rng, state, 1, *moves)
            drawn[s], tables[s] = state.labels(), state.openers.sum()
            if s % 5 == 0 and openers is not None:
                # As between two draws of a step: the shares are forgotten, and drawn given the openers.
                state.set_grouping(rng, group_alphas, state.openers.copy(), self.gamma)
        return exact.codes(drawn)[None], tables


def check(case, codes, tables):
    assert_matches(codes, case.labels, case.p)
    error = tables.std() / np.sqrt(float(array_stats.ess(tables[None])))
    assert abs(tables.mean() - case.mean_tables) < 4 * error


def log_topics(labels, words, group, alpha, eta):
    """Log joint density of topics, of one labelling or of each of several (..., n), and words."""
    in_topic = (np.asarray(labels)[..., None, :] == np.arange(len(alpha))[:, None]).astype(float)
    n_dk = np.swapaxes(in_topic @ (group[:, None] == np.arange(group.max() + 1)), -1, -2)
    n_kw = in_topic @ (words[:, None] == np.arange(len(eta)))
    return sum(
        np.sum(gammaln(own + n) - gammaln(own), axis=(-1, -2))
        + np.sum(gammaln(own.sum()) - gammaln(own.sum() + n.sum(axis=-1)), axis=-1)
        for own, n in ((alpha, n_dk), (eta, n_kw))
    )


def posterior_of_names(words, group, alpha, eta):
    """All labellings, and their probabilities."""
    labels = np.array(list(itertools.product(range(len(alpha)), repeat=len(words))))
    log_p = log_topics(labels, words, group, alpha, eta)
    return labels, np.exp(log_p - np.logaddexp.reduce(log_p)), np.logaddexp.reduce(log_p)
