"""Draws of whole sequences of states given transitions and densities: forwards a filter, backwards the states."""

import math

from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, c_function, inlined, shifted


@inlined
def _filter(first, transitions, densities, m, n_states, found):
    """Filter ``m`` rows: probabilities (m, K) of states given the rows so far; return whether there are any."""
    for t in range(m):
        own, density = shifted(found, t * n_states), shifted(densities, t * n_states)
        if t == 0:
            for k in range(n_states):
                own[k] = first[k]
        else:
            before = shifted(found, (t - 1) * n_states)
            for k in range(n_states):
                own[k] = 0.0
            for j in range(n_states):
                weight, row = before[j], shifted(transitions, j * n_states)
                if weight > 1e-300:
                    for k in range(n_states):
                        own[k] += weight * row[k]
        total = 0.0
        for k in range(n_states):
            own[k] *= density[k]
            total += own[k]
        if not total > 0.0:
            return False
        for k in range(n_states):
            own[k] /= total
    return True


@inlined
def _choose(bits, weights, others, stride, n_states):
    """Draw a place with probability proportional to ``weights[k] * others[k * stride]``; -1 where all are zero."""
    total = 0.0
    for k in range(n_states):
        total += weights[k] * others[k * stride]
    u, found = uniform(bits) * total, -1
    for k in range(n_states):
        weight = weights[k] * others[k * stride]
        if weight > 0.0:
            found = k
            u -= weight
            if u < 0.0:
                break
    return found


@c_function(INT(INT, INT, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, INT, INTS, INT, FLOATS, INTS, INTS, FLOATS))
def draw_paths(
    next_double,
    state,
    first,
    last,
    transitions,
    densities,
    shares,
    n_states,
    starts,
    n_sequences,
    room,
    states,
    drawn,
    occupied,
):
    """Draw the states of sequences, one after the other; return how many rows have another state than before.

    Each is a proposal, accepted with the least share of a state with rows before over that after. ``occupied``
    (K,) are the numbers of rows in the states. ``last`` (K,) weighs the last state of each sequence.
    """
    bits, n_moved = Bits(next_double, state), 0
    for q in range(n_sequences):
        start, m = starts[q], starts[q + 1] - starts[q]
        if m == 0:
            continue
        if not _filter(first, transitions, shifted(densities, start * n_states), m, n_states, room):
            continue
        following, is_possible = _choose(bits, shifted(room, (m - 1) * n_states), last, 1, n_states), True
        for t in range(m - 1, -1, -1):
            is_possible = is_possible and following >= 0
            if not is_possible:
                break
            drawn[t] = following
            if t > 0:
                column = shifted(transitions, following)
                following = _choose(bits, shifted(room, (t - 1) * n_states), column, n_states, n_states)
        if not is_possible:
            continue
        least_before, least_after = math.inf, math.inf
        for k in range(n_states):
            if occupied[k] > 0.0:
                least_before = min(least_before, shares[k])
        for t in range(m):
            occupied[states[start + t]] -= 1.0
        for t in range(m):
            occupied[drawn[t]] += 1.0
        for k in range(n_states):
            if occupied[k] > 0.0:
                least_after = min(least_after, shares[k])
        if uniform(bits) * least_after < least_before:
            for t in range(m):
                n_moved += drawn[t] != states[start + t]
                states[start + t] = drawn[t]
        else:
            for t in range(m):
                occupied[drawn[t]] -= 1.0
            for t in range(m):
                occupied[states[start + t]] += 1.0
    return n_moved


@c_function(FLOAT(INT, INT, FLOATS, INTS, FLOATS, INT, INTS, INT, FLOATS))
def draw_sides(next_double, state, weights, links, transitions, m, sides, is_given, room):
    """Draw on which of two sides each of ``m`` rows is; return the log probability of the sides.

    ``weights`` (m, 2) are those of the rows; ``links`` tells which rows follow the one before, by ``transitions``
    (2, 2). Where sides are given, they are not drawn.
    """
    bits, log_q = Bits(next_double, state), 0.0
    for t in range(m):
        left, right = 1.0, 1.0
        if links[t] == 1:
            left = room[2 * t - 2] * transitions[0] + room[2 * t - 1] * transitions[2]
            right = room[2 * t - 2] * transitions[1] + room[2 * t - 1] * transitions[3]
        left *= weights[2 * t]
        right *= weights[2 * t + 1]
        if not left + right > 0.0:
            return -math.inf
        room[2 * t] = left / (left + right)
        room[2 * t + 1] = right / (left + right)
    for t in range(m - 1, -1, -1):
        left, right = room[2 * t], room[2 * t + 1]
        if t + 1 < m and links[t + 1] == 1:
            left *= transitions[sides[t + 1]]
            right *= transitions[2 + sides[t + 1]]
        if is_given == 0:
            sides[t] = 1 if uniform(bits) * (left + right) >= left else 0
        log_q += math.log((right if sides[t] == 1 else left) / (left + right))
    return log_q
