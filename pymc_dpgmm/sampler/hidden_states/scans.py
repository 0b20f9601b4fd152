r"""Collapsed Gibbs for hidden states, one row after the other, given the shared weights of the states.

Transitions and parameters of states are integrated out. A row between others in the states j and l is in state k,
which has other rows, with weight

.. math:: (\alpha \beta_k + n_{jk} + \kappa [j = k]) \,
    \frac{\alpha \beta_l + n_{kl} + \kappa [k = l] + [j = k = l]}{\alpha + \kappa + n_k + [j = k]} \,
    \pi(x_i \mid x_{\text{rows of } k})

(Teh et al. 2006, section 7; Fox et al. 2011, supplement), the counts :math:`n` being those without the two
transitions of the row, and in a new state with weight :math:`\alpha \beta_* \cdot \alpha \beta_l / (\alpha +
\kappa) \cdot \pi(x_i)`. It then draws its state's share, as in :mod:`pymc_dpgmm.sampler.state.grouping`.
"""

import math

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import SMALLEST, minus_log_beta
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, c_function, inlined
from pymc_dpgmm.sampler.state.choices import choose
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, NOT_A_NUMBER, memory_at
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.views import weigh

HIDDEN = Block(
    # The head of a state whose clusters are hidden states.
    state=blocks.INTS,
    # The rows before and after each row in its sequence, -1 where there is none.
    before=blocks.INTS,
    after=blocks.INTS,
    # How often each slot follows each, and how many rows follow one in each; slot 0 is the beginning of sequences.
    counts=blocks.INTS,
    totals=blocks.INTS,
    # Shared weights of the slots, and alpha, gamma, kappa, the weight of all states without rows, and the largest
    # number of states.
    shares=blocks.FLOATS,
    numbers=blocks.FLOATS,
    # Where a scan goes on.
    position=NUMBER,
)
ALPHA, GAMMA, KAPPA, REST, MOST = range(5)
hidden_at = HIDDEN.reader()


@inlined
def _slot_of(s, i, otherwise):
    """Return the slot of a row, or what there is instead of it where there is no row."""
    return s.slots[i] if i >= 0 else otherwise


@inlined
def _count_row(h, s, i, k, by):
    """Count the transitions to and from row ``i`` in slot ``k``."""
    width = s.capacity + 1
    j, m = _slot_of(s, h.before[i], 0), _slot_of(s, h.after[i], -1)
    h.counts[j * width + k] += by
    h.totals[j] += by
    if m >= 0:
        h.counts[k * width + m] += by
        h.totals[k] += by


@c_function(NOTHING(INTS))
def count_all(block):
    """Count all transitions anew."""
    h = hidden_at(block)
    s = memory_at(h.state)
    width = s.capacity + 1
    for place in range(width * width):
        h.counts[place] = 0
    for k in range(width):
        h.totals[k] = 0
    for i in range(s.n):
        j = _slot_of(s, h.before[i], 0)
        h.counts[j * width + s.slots[i]] += 1
        h.totals[j] += 1


@inlined
def _weigh_transitions(h, s, i, weights, n_states):
    """Add to log weights of slots, in their order, those of the transitions to and from row ``i``."""
    width = s.capacity + 1
    alpha, kappa = h.numbers[ALPHA], h.numbers[KAPPA]
    j, m = _slot_of(s, h.before[i], 0), _slot_of(s, h.after[i], -1)
    for place in range(n_states):
        k = s.order[place]
        stays = 1.0 if j == k else 0.0
        weight = alpha * h.shares[k] + h.counts[j * width + k] + kappa * stays
        if m >= 0:
            there = alpha * h.shares[m] + h.counts[k * width + m]
            if k == m:
                there += kappa + stays
            weight *= there / (alpha + kappa + h.totals[k] + stays)
        weights[place] += math.log(weight)
    new = math.log(alpha * h.numbers[REST])
    if m >= 0:
        new += math.log(alpha * h.shares[m] / (alpha + kappa))
    weights[n_states] = new + s.prior_predictive[i]


@inlined
def _open_share(h, s, k, n_states):
    """Give a share to slot ``k``, which has no rows yet, as ``n_states`` others have: a part of the rest.

    See :func:`~pymc_dpgmm.partitions.hidden_states.draw_part_of_rest`.
    """
    rest, gamma, most, left = h.numbers[REST], h.numbers[GAMMA], h.numbers[MOST], 0.0
    others = gamma * (1.0 - (n_states + 1) / most)
    if others > 0.0:
        left = rest * math.exp(-minus_log_beta(s.bits, others, 1.0 + gamma / most))
    h.shares[k], h.numbers[REST] = max(rest - left, SMALLEST), max(left, SMALLEST)


@c_function(INT(INTS, INTS, INT))
def scan_states(block, queue, n_rows):
    """Draw the states of ``queue[:n_rows]``, from ``position`` on, each given those of all other rows."""
    h = hidden_at(block)
    s = memory_at(h.state)
    weights = s.log_weights
    for t in range(h.position, n_rows):
        n_states = s.n_clusters
        if n_states == s.capacity:
            h.position = t
            return NEEDS_ROOM
        i = queue[t]
        current = s.slots[i]
        own, alone, has_left = s.place[current], s.sizes[current] == 1, False
        _count_row(h, s, i, current, -1)
        if alone:
            # Its share is given back. To stay is to open a state anew.
            h.numbers[REST] += h.shares[current]
            h.shares[current] = SMALLEST
        for place in range(n_states):
            weights[place] = 0.0
        weigh(s, i, s.order, n_states, current, weights)
        if not alone and math.isnan(weights[own]):
            leave(s, i)
            has_left = True
            for place in range(n_states):
                weights[place] = 0.0
            weigh(s, i, s.order, n_states, -1, weights)
            if math.isnan(weights[own]):
                join(s, i, current)
                _count_row(h, s, i, current, 1)
                return NOT_A_NUMBER
        _weigh_transitions(h, s, i, weights, n_states)
        n_others = n_states
        if alone:
            weights[own] = -math.inf
            n_others -= 1
        if n_others >= h.numbers[MOST]:
            weights[n_states] = -math.inf
        choice = choose(s, weights, n_states + 1)
        opens = choice == n_states
        target = s.order[choice]
        if opens and alone:
            target = current
        elif opens:
            take_slot(s)
        if target != current or has_left:
            if target != current:
                s.n_moved += 1
            if not has_left:
                leave(s, i)
            join(s, i, target)
        if opens:
            _open_share(h, s, target, n_others)
        elif alone:
            free_slot(s, current)
            h.shares[current] = 0.0
        _count_row(h, s, i, target, 1)
    return DONE
