r"""Approximate posteriors of the weights of components.

Labels take finitely many components. All others have no rows and keep their prior, so the result is a lower bound
for the untruncated prior, whatever the number of components.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.native.special import digamma, digamma_rises, gammaln, log_risings

# Largest number of rounds that update sticks and concentration in turn, and relative change at which they end.
_MOST_ROUNDS, _LEAST_CHANGE = 200, 1e-13


class Weights(NamedTuple):
    """Approximate posterior of the weights of K components.

    Parameters
    ----------
    log_weights : (K,) array
        Expected logs of the weights.
    means : (K,) array
        Expected weights. They add up to less than 1 for processes: other components have the rest.
    bound : float
        Contribution of weights and concentration to the bound.
    alpha : (2,) tuple of float or None
        Shape and rate of the approximate posterior of the concentration, if it has a gamma prior.
    parameters : (K, 2) or (K,) array
        Parameters of the beta distributions of sticks, or of the Dirichlet distribution.
    """

    log_weights: np.ndarray
    means: np.ndarray
    bound: float
    alpha: tuple[float, float] | None
    parameters: np.ndarray


# Computes log of Gamma(x + m) / Gamma(x), for numbers or for PyTensor variables.
LogRising = Callable[[Any, Any], Any]


def sticks_bound(log_rising: LogRising, alpha: Any, discount: Any, sizes: Any, later: Any, steps: Any) -> Any:
    """Return the contribution of optimal sticks to the bound, for numbers or PyTensor variables.

    Parameters
    ----------
    log_rising : callable
        Matches the type of the other arguments.
    alpha, discount : scalars
    sizes, later : (K,) vectors
        Sums of responsibilities of each component, and of all components after it.
    steps : (K,) vector
        1, 2, ..., K.
    """
    a, b = 1.0 - discount, alpha + steps * discount
    return (log_rising(a, sizes) + log_rising(b, later) - log_rising(a + b, sizes + later)).sum()


def dirichlet_bound(log_rising: LogRising, alpha: Any, most: Any, sizes: Any, n: Any) -> Any:
    """Return the contribution of the weights of a finite mixture of ``most`` components; n is the sum of sizes."""
    return log_rising(alpha / most, sizes).sum() - log_rising(alpha, n)


class Sticks:
    r"""Weights :math:`v_k \prod_{j < k} (1 - v_j)`, :math:`v_k \sim \mathrm{Beta}(1 - \sigma, \alpha + k \sigma)`.

    Labels take K components, but there are infinitely many sticks. Stick K is a beta variable as the others, and
    later sticks keep their prior given alpha. Blei and Jordan (2006) fix stick K at 1 instead. That is the bound
    of another mixture, whose evidence may be larger.

    Parameters
    ----------
    alpha : float
        Concentration; ignored if there is a ``law``.
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
        """Return the optimal posterior given sums of responsibilities (K,), starting from ``before``."""
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
            # Blei and Jordan (2006), appendix on a gamma prior, with one more stick.
            rate = prior_rate - float(log_left.sum())
            if abs(shape / rate - last) <= _LEAST_CHANGE * last:
                break
        mean, log_mean = shape / rate, float(digamma(shape)) - math.log(rate)
        # E log p(v | alpha) p(z | v) - E log q(v), where q(v) may belong to the alpha of the previous round.
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
    """Weights of a finite mixture: a symmetric Dirichlet distribution.

    Parameters
    ----------
    alpha : float
        Sum of its parameters.
    n_components : int
        Number of components. Labels may take fewer.
    """

    is_ordered = False
    law = None

    def __init__(self, alpha: float, n_components: int) -> None:
        self.alpha, self.most = alpha, n_components

    def fit(self, sizes: np.ndarray, before: Weights | None = None) -> Weights:
        """Return the optimal posterior given sums of responsibilities (K,)."""
        prior_size = self.alpha / self.most
        n = float(sizes.sum())
        a, total = prior_size + sizes, self.alpha + n
        bound = float(dirichlet_bound(log_risings, self.alpha, self.most, sizes, n))
        return Weights(digamma(a) - digamma(total), a / total, bound, None, a)
