"""Sweeps over words: topics with names, and clusters of words under a hierarchical Dirichlet process."""

from typing import Any

import numpy as np

from pymc_dpgmm.partitions.grouped import Groups, can_be_scanned
from pymc_dpgmm.sampler.amounts import FEWEST_WORDS, MOST_SCANS_OF_WORDS, TOKENS_SCANNED
from pymc_dpgmm.sampler.moves.sweep import make_moves
from pymc_dpgmm.sampler.state.grouping import begin_sweep
from pymc_dpgmm.sampler.state.memory import REST
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.topics.words import Words


class TopicState:
    """Topics of words, which keep their names.

    Parameters
    ----------
    words : (n,) integer array
    groups : Groups
        The documents.
    labels : (n,) integer array
        Topics, in 0..len(alpha)-1.
    alpha : (K,) array, > 0
        Dirichlet parameters of the topics' weights in every document.
    eta : (V,) array, > 0
    """

    is_grouped = True

    def __init__(
        self, words: np.ndarray, groups: Groups, labels: np.ndarray, alpha: np.ndarray, eta: np.ndarray
    ) -> None:
        self.words = Words(words, groups, eta)
        self.words.set_labels(labels, len(alpha))
        self.groups = groups
        self.alpha = np.array(alpha, dtype=np.float64)

    def set_prior(self, alpha: np.ndarray, law: Any = None) -> None:
        """Take other parameters of the topics' weights."""
        self.alpha = np.array(alpha, dtype=np.float64)

    def set_eta(self, eta: np.ndarray) -> None:
        """Take other parameters of the words."""
        self.words.set_eta(eta)

    def labels(self) -> np.ndarray:
        """Return the topics: (n,) int64 array."""
        return self.words.topics_of_tokens()

    @property
    def cluster_sizes(self) -> np.ndarray:
        """Numbers of tokens of the topics that have some."""
        return self.words.totals[self.words.totals > 0].astype(np.int64)

    def log_joint(self) -> float:
        """Log probability of topics and words, given the parameters of both."""
        return self.words.log_prior(self.alpha) + self.words.log_likelihood()


def scans_of_words(n_tokens: int) -> int:
    """Return how many scans of so many tokens a draw has, where the user does not say."""
    return int(np.clip(TOKENS_SCANNED // max(n_tokens, 1), 1, MOST_SCANS_OF_WORDS))


def words_of(state: State) -> Words | None:
    """Return the words that a state's rows are, for scans; None where rows are anything else."""
    if state.n < FEWEST_WORDS or not state.is_grouped or len(state.tables) != 1 or np.isfinite(state.most):
        return None
    (table,) = state.tables
    is_one_column = table.family.title == "DirichletCategorical" and table.rows.shape[1] == 1
    if not is_one_column or table.unit is not None or table.absent is not None or state.groups is None:
        return None
    eta = np.asarray(table.params.a)[0]
    if not can_be_scanned(state.group_alphas, eta):
        return None
    if state.words is None:
        state.words = Words(table.rows[:, 0].astype(np.int64), state.groups, eta)
    elif not np.array_equal(eta, state.words.eta):
        state.words.set_eta(eta)
    return state.words


def sweep_words(
    rng: np.random.Generator,
    state: State,
    words: Words,
    n_sweeps: int,
    n_scans: int,
    *numbers: int,
) -> int:
    """Run sweeps (:func:`~pymc_dpgmm.sampler.moves.sweep.sweep`) whose scans are made for words."""
    n_moved = 0
    state.use(rng)
    for _ in range(n_sweeps):
        begin_sweep(state.address, 0)
        if n_scans:
            words.set_labels(state.slots, state.capacity + 1)
            shares, rest = state.shares, float(state.prior[REST])
            for _ in range(n_scans):
                n_moved += words.scan(rng, state.group_alphas, shares, rest, state.gamma)
                shares, rest = words.shares, words.rest
            state.take_slots(words.topics_of_tokens(), words.shares, words.rest)
        make_moves(rng, state, *numbers)
    state.end_draw()
    return n_moved
