r"""Losses between partitions, and their posterior expectations.

Both losses of a partition c, if s is the true one, have the form

.. math:: L(c, s) = a F(s) + b F(c) - (a + b) F(c \wedge s), \qquad F(c) = \sum_k f(n_k)

where a is the cost of separating rows that belong together, b that of joining rows that do not, and
:math:`c \wedge s` has the intersections of their clusters. ``"vi"``, the variation of information in bits, has
:math:`f(x) = x \log_2(x) / n` (Meila 2007; Wade and Ghahramani 2018; with unequal costs Dahl, Johnson and Mueller
2022), and ``"binder"``, the share of pairs on which both disagree, :math:`f(x) = x (x - 1) / (n (n - 1))`
(Binder 1978).
"""

from typing import Any

import numpy as np

from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.native.threads import Threads

LOSSES = ("vi", "binder")


def weights_of_sizes(loss: str, n: int) -> np.ndarray:
    """Return f(0), ..., f(n) of a loss for partitions of n rows.

    Raises
    ------
    ValueError
        If there is no loss of this name.
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
        raise TypeError(f"costs must be two numbers, of separating and of joining rows, got {costs!r}")
    if not np.all(np.isfinite(values)) or values.min() < 0 or values.max() == 0:
        raise ValueError(f"costs must be at least 0 and one of them > 0, got {costs!r}")
    return float(values[0]), float(values[1])


@inlined
def _overlap(labels, others, counts, n, f, room, width):
    """Sum of f over the intersections of two partitions; ``room`` is (K, width) of zeros, and is left so."""
    for i in range(n):
        room[labels[i] * width + others[i]] += counts[i]
    total = 0.0
    for i in range(n):
        at = labels[i] * width + others[i]
        if room[at] > 0:
            total += f[room[at]]
            room[at] = 0
    return total


@inlined
def _sum_of_sizes(labels, counts, n, f, sizes):
    """Sum of f over the clusters of a partition; ``sizes`` is all zeros, and is left so."""
    for i in range(n):
        sizes[labels[i]] += counts[i]
    total = 0.0
    for i in range(n):
        # The other rows of the cluster then add f(0) = 0.
        total += f[sizes[labels[i]]]
        sizes[labels[i]] = 0
    return total


@c_function(NOTHING(INTS, INTS, INTS, INT, INT, FLOATS, FLOAT, FLOAT, FLOATS, INTS, INT, FLOATS, INT, INT))
def _fill_losses(candidates, draws, counts, n_draws, n, f, a, b, losses, room, width, of_draws, start, stop):
    """Set ``losses[start:stop]`` to the losses of these candidates for every draw.

    ``room`` is scratch space of zeros: (K, width) for K clusters of a candidate and ``width`` of a draw.
    """
    for s in range(n_draws):
        of_draws[s] = a * _sum_of_sizes(shifted(draws, s * n), counts, n, f, room)
    for c in range(start, stop):
        labels = shifted(candidates, c * n)
        of_candidate = b * _sum_of_sizes(labels, counts, n, f, room)
        for s in range(n_draws):
            shared = (a + b) * _overlap(labels, shifted(draws, s * n), counts, n, f, room, width)
            losses[c * n_draws + s] = max(of_draws[s] + of_candidate - shared, 0.0)


def losses_between(
    threads: Threads,
    candidates: np.ndarray,
    draws: np.ndarray,
    loss: str,
    costs: tuple[float, float] = (1.0, 1.0),
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Return the losses of candidates (m, n) if each of the draws (S, n) is true: (m, S).

    Labels of both are canonical. ``counts`` (n,) int64 is how many rows each stands for, one by default.
    """
    counts = np.ones(draws.shape[1], dtype=np.int64) if counts is None else counts
    losses = np.empty((len(candidates), len(draws)))
    f = weights_of_sizes(loss, int(counts.sum()))
    proposed, drawn = (np.ascontiguousarray(labels, dtype=np.int64) for labels in (candidates, draws))
    n_draws, n = drawn.shape
    width = int(drawn.max(initial=0)) + 1
    length = int(proposed.max(initial=0)) + 1

    def fill(start: int, stop: int) -> None:
        room = np.zeros(max(length * width, length, width), dtype=np.int64)
        of_draws = np.empty(n_draws)
        arrays = proposed.ctypes.data, drawn.ctypes.data, counts.ctypes.data
        weights, results = f.ctypes.data, losses.ctypes.data
        scratch = room.ctypes.data, width, of_draws.ctypes.data
        _fill_losses(*arrays, n_draws, n, weights, *costs, results, *scratch, start, stop)

    threads.run(fill, 0, len(proposed))
    return losses
