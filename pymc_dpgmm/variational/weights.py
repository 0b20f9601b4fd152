r"""Approximate posteriors of the weights of components.

Components without rows that are not offered keep their prior, so that what is computed is a lower bound for the
prior that is meant, however many components are offered.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.native.special import digamma, digamma_rises, gammaln, log_risings

# Rounds in which sticks and concentration are updated in turn, and the relative change at which they end.
_MOST_ROUNDS, _LEAST_CHANGE = 200, 1e-13


class Weights(NamedTuple):
    """Approximate posterior of the weights of K components.

    Parameters
    ----------
    log_weights : (K,) array
        Expected logs of the weights.
    means : (K,) array
        Expected weights; the rest is that of components that are not offered.
    bound : float
        What weights and concentration add to the bound.
    alpha : (2,) tuple of float or None
        Shape and rate of the approximate posterior of the concentration, where it has a gamma prior.
    parameters : (K, 2) or (K,) array
        Parameters of the beta distributions of sticks, or of the Dirichlet distribution.
    """

    log_weights: np.ndarray
    means: np.ndarray
    bound: float
    alpha: tuple[float, float] | None
    parameters: np.ndarray


# Returns the log of Gamma(x + m) / Gamma(x), of numbers or of PyTensor's variables.
LogRising = Callable[[Any, Any], Any]


def sticks_bound(log_rising: LogRising, alpha: Any, discount: Any, sizes: Any, later: Any, steps: Any) -> Any:
    """Return what the best sticks given responsibilities add to the bound, of numbers or of PyTensor's variables.

    Parameters
    ----------
    log_rising : callable
        For what the others are.
    alpha, discount : scalars
    sizes, later : (K,) vectors
        Sums of responsibilities, and of those of all components after each.
    steps : (K,) vector
        1, 2, ..., K.
    """
    a, b = 1.0 - discount, alpha + steps * discount
    return (log_rising(a, sizes) + log_rising(b, later) - log_rising(a + b, sizes + later)).sum()


def dirichlet_bound(log_rising: LogRising, alpha: Any, most: Any, sizes: Any, n: Any) -> Any:
    """Return the same for the weights of a finite mixture with ``most`` components, n being the sum of sizes."""
    return log_rising(alpha / most, sizes).sum() - log_rising(alpha, n)


class Sticks:
    r"""Weights :math:`v_k \prod_{j < k} (1 - v_j)`, :math:`v_k \sim \mathrm{Beta}(1 - \sigma, \alpha + k \sigma)`.

    Labels are among K components; the sticks go on for ever. The last of the K sticks is a beta variable too, and
    those after it keep their prior given alpha. With it fixed at 1, as Blei and Jordan (2006) have it, the mixture
    would be another one, whose evidence may be larger.

    Parameters
    ----------
    alpha : float
        Concentration; where it has a law, this is not used.
    discount : float, in [0, 1)
    law : (2,) tuple of float, optional
        Shape and rate of a gamma prior of the concentration, for discount 0.
    """

    is_ordered = True
    most = math.inf

    def __init__(self, alpha: float, discount: float = 0.0, law: tuple[float, float] | None = None) -> None:
        self.alpha, self.discount, self.law = alpha, discount, law
        if law is not None:
            assert discount == 0.0, "a gamma prior of alpha has a closed form for discount 0 only"

    def fit(self, sizes: np.ndarray, before: Weights | None = None) -> Weights:
        """Return the best approximate posterior given sums of responsibilities (K,), from that before."""
        later = np.append(np.cumsum(sizes[:0:-1])[::-1], 0.0) if len(sizes) > 1 else np.zeros(1)
        if self.law is None:
            steps = np.arange(1, len(sizes) + 1)
            bound = float(sticks_bound(log_risings, self.alpha, self.discount, sizes, later, steps))
            b = self.alpha + steps * self.discount + later
            return self._made(1.0 - self.discount + sizes, b, bound, None)
        shape, rate = (before and before.alpha) or self.law
        prior_shape, prior_rate = self.law
        for _ in range(_MOST_ROUNDS):
            a, b = 1.0 + sizes, shape / rate + later
            log_left = -digamma_rises(b, a)
            last, shape = shape / rate, prior_shape + len(sizes)
            # Blei and Jordan (2006), appendix on a gamma prior, with one stick more.
            rate = prior_rate - float(log_left.sum())
            if abs(shape / rate - last) <= _LEAST_CHANGE * last:
                break
        mean, log_mean = shape / rate, float(digamma(shape)) - math.log(rate)
        # E log p(v | alpha) p(z | v) - E log q(v), where q(v) may be that of an alpha of the round before.
        bound = float(np.sum(log_mean + (mean + later - b) * log_left + gammaln(a) - log_risings(b, a)))
        divergence = (
            (shape - prior_shape) * float(digamma(shape))
            - float(log_risings(prior_shape, shape - prior_shape))
            + prior_shape * math.log(rate / prior_rate)
            + shape * (prior_rate - rate) / rate
        )
        return self._made(a, b, bound - divergence, (shape, rate))

    def _made(self, a: np.ndarray, b: np.ndarray, bound: float, alpha: tuple[float, float] | None) -> Weights:
        total = digamma(a + b)
        log_left, left = -digamma_rises(b, a), b / (a + b)
        before = np.concatenate([[0.0], np.cumsum(log_left)[:-1]])
        means = a / (a + b) * np.concatenate([[1.0], np.cumprod(left)[:-1]])
        return Weights(digamma(a) - total + before, means, bound, alpha, np.column_stack([a, b]))


class DirichletWeights:
    """Weights of a finite mixture: a symmetric Dirichlet distribution with a given sum of its parameters.

    Parameters
    ----------
    alpha : float
        The sum.
    n_components : int
        Number of components, of which the labels may be offered fewer.
    """

    is_ordered = False
    law = None

    def __init__(self, alpha: float, n_components: int) -> None:
        self.alpha, self.most = alpha, n_components

    def fit(self, sizes: np.ndarray, before: Weights | None = None) -> Weights:
        """Return the best approximate posterior given sums of responsibilities (K,)."""
        own = self.alpha / self.most
        n = float(sizes.sum())
        a, total = own + sizes, self.alpha + n
        bound = float(dirichlet_bound(log_risings, self.alpha, self.most, sizes, n))
        return Weights(digamma(a) - digamma(total), a / total, bound, None, a)
