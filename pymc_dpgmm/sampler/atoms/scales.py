"""What tuning learns of the moves of atoms."""

import math

import numpy as np

# How fast estimates of the scale forget, while tuning, and the draws from the base that each is made with.
FORGETS = 0.05
N_BASE = 32
# Splits and merges are tried in so many times the share of draws in which one was accepted while tuning, and in
# this share at the least: where none is accepted, they cost time that other moves use better.
SHARE_TRIED, LEAST_TRIED = 2.0, 0.03


class AtomScales:
    """Step size and scales of Hamiltonian moves, pooled over clusters, and what else is learnt while tuning.

    The precision of a cluster's posterior is taken to be that of the base plus n_k times that of a row, each
    estimated while tuning and fixed from then on.

    Parameters
    ----------
    n_continuous, n_discrete : int
        Numbers of continuous and of discrete values of an atom. Discrete ones have infinite precision: they stay.
    """

    def __init__(self, n_continuous: int, n_discrete: int = 0) -> None:
        self.base = np.append(np.ones(n_continuous), np.full(n_discrete, np.inf))
        self.row = np.ones(n_continuous + n_discrete)
        self.step = 1.0
        self.n_learnt = 0
        self.tried = 1.0
        self._accepted = 1.0
        self._mean_error, self._log_step_mean = 0.0, 0.0
        self._last = 0

    def numbers(self) -> np.ndarray:
        """Return the numbers that are learnt beside ``base`` and ``row``."""
        return np.array(
            [self.step, self.n_learnt, self._mean_error, self._log_step_mean, self._last, self._accepted]
        )

    def take(self, numbers: np.ndarray, base: np.ndarray, row: np.ndarray) -> None:
        """Take what was learnt elsewhere."""
        self.step, n_learnt, self._mean_error, self._log_step_mean, last, self._accepted = numbers.tolist()
        self.n_learnt, self._last = int(n_learnt), int(last)
        self.base, self.row = base, row

    def settle(self) -> None:
        """Fix the step size, and how often splits and merges are tried, at the end of tuning."""
        self.tried = min(max(SHARE_TRIED * self._accepted, LEAST_TRIED), 1.0)
        if self.n_learnt:
            self.step = math.exp(self._log_step_mean)
