"""Random orders, and choices among weighted slots, in compiled code."""

from pymc_dpgmm.native.arithmetic import below, largest_of, take_exponentials, uniform
from pymc_dpgmm.native.compiled import c_function, inlined
from pymc_dpgmm.sampler.state.memory import HEAD


@inlined
def shuffle(bits, rows, start, stop):
    """Bring ``rows[start:stop]`` into random order (Fisher and Yates)."""
    for t in range(stop - 1, start, -1):
        other = start + below(bits, t - start + 1)
        rows[t], rows[other] = rows[other], rows[t]


# From so many rows on, rows are scanned in runs of neighbours in memory, and the runs in random order.
ROWS_IN_RUNS = 2_048
RUN = 32


@inlined
def shuffle_rows(s):
    """Bring all rows into an order, in ``queue``, for scans; it does not depend on the partition."""
    if s.n < ROWS_IN_RUNS:
        shuffle(s.bits, s.queue, 0, s.n)
        return
    n_runs = (s.n + RUN - 1) // RUN
    for r in range(n_runs):
        s.gathered[r] = r * RUN
    shuffle(s.bits, s.gathered, 0, n_runs)
    t = 0
    for r in range(n_runs):
        start = s.gathered[r]
        for i in range(start, min(start + RUN, s.n)):
            s.queue[t] = i
            t += 1


@c_function(HEAD.signature("accumulate"))
def accumulate_weights(log_weights, m):
    """Accumulate weights, in compiled code of its own: see :func:`accumulate`."""
    largest = largest_of(log_weights, m)
    take_exponentials(log_weights, m, largest)
    total = 0.0
    for j in range(m):
        total += log_weights[j]
        log_weights[j] = total
    return largest


@inlined
def accumulate(s, log_weights, m):
    """Replace log weights by sums of weights in units of the largest; return the largest log weight.

    The arrays have room up to the end of the lanes, which is lost.
    """
    return s.accumulate(log_weights, m)


@inlined
def pick(u, sums, m, stride):
    """Return the index below ``m`` whose part of sums of weights a share ``u`` of their total falls into.

    ``sums[j * stride]`` is the sum of the weights of all indices up to j; ``u`` is in [0, 1).
    """
    reached = u * sums[(m - 1) * stride]
    choice = 0
    while choice < m - 1 and sums[choice * stride] <= reached:
        choice += 1
    return choice


# The part of the smaller weight that :func:`pick_metropolized` leaves out of the sum.
LEFT_OUT = 0.9


@inlined
def choose(s, log_weights, m):
    """Draw an index below ``m`` with probability proportional to ``exp(log_weights)``; see :func:`accumulate`."""
    accumulate(s, log_weights, m)
    return pick(uniform(s.bits), log_weights, m, 1)


@inlined
def stays_surely(u, total, weight, rest):
    """Tell whether ``u`` is above an upper bound of the probability to leave, so that the weights need no visit.

    ``total`` is ``weight``, that of the own index, plus ``rest``, that of all others.
    """
    return u * (total - LEFT_OUT * min(weight, rest)) > rest


@inlined
def pick_metropolized(u, sums, m, own, stride):
    """Return an index below ``m``, given the index ``own``, which is left more often than by :func:`pick`.

    ``sums[j * stride]`` is the sum of the weights ``w`` of all indices up to j, and ``u`` is uniform on [0, 1).
    This is a transition that leaves probabilities proportional to the weights invariant
    (Liu 1996, "Peskun's theorem and a modified discrete-state Gibbs sampler"): another index is proposed by its
    weight, and accepted as Metropolis and Hastings have it. Index j follows with probability
    ``w[j] / (sum(w) - min(w[j], w[own]))``, which balances, since the minimum is the same both ways. So does a
    part of the minimum: with all of it, one of two indices that weigh alike would always follow the other, and two
    rows that change places in turn would go round in circles.
    """
    total = sums[(m - 1) * stride]
    weight = sums[own * stride] - (sums[(own - 1) * stride] if own > 0 else 0.0)
    rest = total - weight
    if stays_surely(u, total, weight, rest):
        # Most rows stay, and need no more than this.
        return own
    reached, before = 0.0, 0.0
    for j in range(m):
        other = sums[j * stride] - before
        before = sums[j * stride]
        if j != own:
            reached += other / (total - LEFT_OUT * min(other, weight))
            if u < reached:
                return j
    return own
