r"""Losses between partitions, and their posterior expectations.

Of a partition c when s is true, both losses here are

.. math:: L(c, s) = a F(s) + b F(c) - (a + b) F(c \wedge s), \qquad F(c) = \sum_k f(n_k)

with the costs a of separating what is together, and b of uniting what is separate; :math:`c \wedge s` are the
intersections of their clusters. ``"vi"``, the variation of information in bits, has
:math:`f(x) = x \log_2(x) / n` (Meila 2007; Wade and Ghahramani 2018; with unequal costs Dahl, Johnson and Mueller
2022), and ``"binder"``, the share of pairs on which both disagree, :math:`f(x) = x (x - 1) / (n (n - 1))`
(Binder 1978).
"""

from functools import partial
from typing import Any

import numpy as np

from pymc_dpgmm.dispatch import compiled
from pymc_dpgmm.kernels.block_scan import Threads

LOSSES = ("vi", "binder")


def weights_of_sizes(loss: str, n: int) -> np.ndarray:
    """Return f(0), ..., f(n) of a loss between partitions of n rows.

    Raises
    ------
    ValueError
        If nobody knows the loss.
    """
    x = np.arange(n + 1.0)
    if loss == "vi":
        return x * np.log2(np.maximum(x, 1.0)) / n
    if loss == "binder":
        return x * (x - 1.0) / max(n * (n - 1), 1)
    raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")


def check_costs(costs: Any) -> tuple[float, float]:
    """Return the costs a and b.

    Raises
    ------
    TypeError, ValueError
        If they are not two numbers, at least 0 and one of them positive.
    """
    values = np.asarray(costs)
    if values.shape != (2,) or values.dtype.kind not in "iuf":
        raise TypeError(f"costs must be two numbers, of separating and of uniting rows, got {costs!r}")
    if not np.all(np.isfinite(values)) or values.min() < 0 or values.max() == 0:
        raise ValueError(f"costs must be at least 0 and one of them > 0, got {costs!r}")
    return float(values[0]), float(values[1])


@compiled(nogil=True)
def _overlap(labels, own, f, room):
    """Sum of f over the intersections of two partitions with canonical labels; ``room`` is (K, L) of zeros."""
    for i in range(labels.shape[0]):
        room[labels[i], own[i]] += 1
    total = 0.0
    for i in range(labels.shape[0]):
        x = room[labels[i], own[i]]
        if x > 0:
            total += f[x]
            room[labels[i], own[i]] = 0
    return total


@compiled(nogil=True)
def _sum_of_sizes(labels, f, sizes):
    """Sum of f over the clusters of a partition; ``sizes`` is zeros, and left so."""
    for i in range(labels.shape[0]):
        sizes[labels[i]] += 1
    total = 0.0
    for i in range(labels.shape[0]):
        # f(0) is 0.
        total += f[sizes[labels[i]]]
        sizes[labels[i]] = 0
    return total


@compiled(nogil=True)
def _losses_between(candidates, draws, f, a, b, found, start, stop):
    """Set ``found[start:stop]`` to the losses of these candidates for every draw."""
    most_draws = 0
    for s in range(draws.shape[0]):
        for i in range(draws.shape[1]):
            most_draws = max(most_draws, draws[s, i] + 1)
    most = 0
    for c in range(start, stop):
        for i in range(candidates.shape[1]):
            most = max(most, candidates[c, i] + 1)
    room = np.zeros((most, most_draws), dtype=np.int64)
    sizes = np.zeros(max(most, most_draws), dtype=np.int64)
    own = np.empty(draws.shape[0])
    for s in range(draws.shape[0]):
        own[s] = a * _sum_of_sizes(draws[s], f, sizes)
    for c in range(start, stop):
        of_candidate = b * _sum_of_sizes(candidates[c], f, sizes)
        for s in range(draws.shape[0]):
            shared = (a + b) * _overlap(candidates[c], draws[s], f, room)
            found[c, s] = max(own[s] + of_candidate - shared, 0.0)


def losses_between(
    threads: Threads,
    candidates: np.ndarray,
    draws: np.ndarray,
    loss: str,
    costs: tuple[float, float] = (1.0, 1.0),
) -> np.ndarray:
    """Return the losses of candidates (m, n) when draws (S, n) are true: (m, S); both have canonical labels."""
    found = np.empty((len(candidates), len(draws)))
    f = weights_of_sizes(loss, draws.shape[1])
    threads.run(partial(_losses_between, candidates, draws, f, *costs, found), 0, len(candidates))
    return found
