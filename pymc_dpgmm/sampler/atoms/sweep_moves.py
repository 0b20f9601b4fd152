"""Moves of the atoms of all clusters, and what is learnt of their scales while tuning.

Atoms are independent given the labels, so that those of all clusters move at once and each is accepted by itself:
continuous values by Hamiltonian dynamics (Neal 2011), discrete ones by Metropolis steps.
"""

import math

from pymc_dpgmm.native.arithmetic import below, standard_normal, uniform
from pymc_dpgmm.native.array_calls import call_entry
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.sampler.atoms.scales import FORGETS, N_BASE
from pymc_dpgmm.sampler.atoms.sweep_memory import (
    ACCEPTED,
    DISCRETE,
    LAST,
    LOG_STEP_MEAN,
    MEAN_ERROR,
    N_LEARNT,
    STEP,
    count_blocks,
    discrete_at,
    evaluate,
    is_finite,
    take_labels,
)

# Target of the acceptance of Hamiltonian moves, and constants of its adaptation (Hoffman and Gelman 2014, 3.2).
TARGET = 0.8
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
MOST_LEAPFROGS = 3
# Metropolis steps of a sweep for each parameter with discrete values, and the longest one.
N_STEPS, LONGEST_STEP = 2, 1e6
N_DISCRETE = len(DISCRETE)


@inlined
def _move_atoms(s):
    """Move the continuous values of all atoms; return the mean acceptance."""
    n_clusters, d = s.n_clusters, s.n_free
    evaluate(s, s.atoms, n_clusters)
    for k in range(n_clusters):
        s.start[k] = s.values[k]
        s.energy[k] = 0.0
        for e in range(d):
            q = k * d + e
            s.scale[q] = 1.0 / math.sqrt(s.base[e] + s.sizes[k] * s.row[e])
            s.moved[q] = s.atoms[q]
            s.momentum[q] = standard_normal(s.bits)
            s.energy[k] += 0.5 * s.momentum[q] * s.momentum[q]
    step = s.learnt[STEP] * (0.7 + 0.6 * uniform(s.bits))
    n_leapfrogs = 1 + int(MOST_LEAPFROGS * uniform(s.bits))
    for _ in range(n_leapfrogs):
        for q in range(n_clusters * d):
            s.momentum[q] += 0.5 * step * s.scale[q] * s.gradients[q]
            s.moved[q] += step * s.scale[q] * s.momentum[q]
        evaluate(s, s.moved, n_clusters)
        for q in range(n_clusters * d):
            s.momentum[q] += 0.5 * step * s.scale[q] * s.gradients[q]
    total = 0.0
    for k in range(n_clusters):
        change = s.values[k] - s.start[k] + s.energy[k]
        for e in range(d):
            change -= 0.5 * s.momentum[k * d + e] * s.momentum[k * d + e]
        # No comparison holds with a NaN.
        ratio = 1.0 if change > 0.0 else math.exp(change)
        if not is_finite(s.values[k]) or not ratio >= 0.0:
            ratio = 0.0
        if uniform(s.bits) < ratio:
            for e in range(d):
                s.atoms[k * d + e] = s.moved[k * d + e]
        total += ratio
    return total / n_clusters


@inlined
def _learn_base(s, draws, forgets):
    """Learn the precision of the base from draws of it."""
    n_drawn = 0
    for q in range(N_BASE):
        all_finite = True
        for e in range(s.n_free):
            all_finite = all_finite and is_finite(draws[q * s.n_free + e])
        if all_finite:
            for e in range(s.n_free):
                draws[n_drawn * s.n_free + e] = draws[q * s.n_free + e]
            n_drawn += 1
    if n_drawn < 2:
        return
    for e in range(s.n_continuous):
        mean, square = 0.0, 0.0
        for q in range(n_drawn):
            mean += draws[q * s.n_free + e] / n_drawn
        for q in range(n_drawn):
            square += (draws[q * s.n_free + e] - mean) ** 2 / n_drawn
        s.base[e] += forgets * (1.0 / max(square, 1e-12) - s.base[e])


@inlined
def _learn_scales(s, draws):
    """Learn from draws of the base, and from the curvature at the atoms in one direction."""
    n_clusters, d = s.n_clusters, s.n_free
    forgets = max(FORGETS, 1.0 / (1.0 + s.learnt[N_LEARNT]))
    s.learnt[N_LEARNT] += 1.0
    _learn_base(s, draws, forgets)
    e = int(s.learnt[LAST] + 1.0) % s.n_continuous
    s.learnt[LAST] = e
    for sign in range(2):
        for q in range(n_clusters * d):
            s.moved[q] = s.atoms[q]
        for k in range(n_clusters):
            s.scale[k] = 0.1 / math.sqrt(s.base[e] + s.sizes[k] * s.row[e])
            s.moved[k * d + e] += s.scale[k] if sign == 0 else -s.scale[k]
        evaluate(s, s.moved, n_clusters)
        for k in range(n_clusters):
            slope = s.gradients[k * d + e]
            s.energy[k] = slope if sign == 0 else (slope - s.energy[k]) / (2.0 * s.scale[k])
    curvature, n_good = 0.0, 0.0
    for k in range(n_clusters):
        if is_finite(s.energy[k]):
            curvature += max(s.energy[k] - s.base[e], 0.0)
            n_good += s.sizes[k]
    if n_good > 0.0:
        rate = max(FORGETS, 1.0 / (1.0 + s.learnt[N_LEARNT] / s.n_continuous))
        s.row[e] += rate * (max(curvature / n_good, 1e-12) - s.row[e])


@inlined
def _learn_step(s, accepted):
    """Learn from the mean acceptance of a move, by dual averaging."""
    t = s.learnt[N_LEARNT]
    rate = 1.0 / (t + T0)
    s.learnt[MEAN_ERROR] = (1.0 - rate) * s.learnt[MEAN_ERROR] + rate * (TARGET - accepted)
    log_step = math.log(2.0) - math.sqrt(t) / GAMMA * s.learnt[MEAN_ERROR]
    log_step = min(max(log_step, -10.0), 1.0)
    weight = t**-KAPPA if t > 0.0 else 1.0
    s.learnt[LOG_STEP_MEAN] = weight * log_step + (1.0 - weight) * s.learnt[LOG_STEP_MEAN]
    s.learnt[STEP] = math.exp(log_step)


@inlined
def _move_discrete(s, of):
    """Move the discrete values of a parameter by a Metropolis step, after ``s.start`` was computed.

    One entry of each atom goes up or down by at least k with probability 1 / k, which reaches near and far values.
    """
    n_clusters, d = s.n_clusters, s.n_free
    for q in range(n_clusters * d):
        s.moved[q] = s.atoms[q]
    for k in range(n_clusters):
        at = k * d + of.start + below(s.bits, of.stop - of.start)
        length = math.floor(min(1.0 / (1.0 - uniform(s.bits)), LONGEST_STEP))
        value = s.atoms[at] + (length if uniform(s.bits) < 0.5 else -length)
        if of.bounds[0] <= value <= of.bounds[1]:
            s.moved[at] = value
    for q in range(n_clusters * d):
        s.points[q] = s.moved[q]
    of.inputs[1] = n_clusters
    if call_entry(of.entry, of.code, of.inputs, of.outputs) != 0:
        s.failed[0] = 1
        return
    for k in range(n_clusters):
        # Other parameters and the likelihood may index something by values that the base has, and by no others.
        if not s.values[k] > -math.inf:
            for e in range(of.start, of.stop):
                s.moved[k * d + e] = s.atoms[k * d + e]
    evaluate(s, s.moved, n_clusters)
    if s.failed[0] != 0:
        return
    for k in range(n_clusters):
        change = s.values[k] - s.start[k]
        # A comparison with what is not a number is false.
        if math.log(1.0 - uniform(s.bits)) < change and is_finite(s.values[k]):
            s.start[k] = s.values[k]
            for e in range(of.start, of.stop):
                s.atoms[k * d + e] = s.moved[k * d + e]


@inlined
def move_and_learn(s):
    """Make all moves of atoms, and learn from them while tuning."""
    take_labels(s, s.labels)
    count_blocks(s, s.labels, s.n_clusters)
    for move in range(s.n_hamiltonian):
        accepted = _move_atoms(s)
        s.learnt[ACCEPTED] += accepted
        if s.is_tuning != 0:
            _learn_scales(s, shifted(s.fresh, (s.first_learnt + move * N_BASE) * s.n_free))
            _learn_step(s, accepted)
    if s.n_discrete > 0 and s.failed[0] == 0:
        evaluate(s, s.atoms, s.n_clusters)
        for k in range(s.n_clusters):
            s.start[k] = s.values[k]
        for which in range(s.n_discrete):
            for _ in range(N_STEPS):
                _move_discrete(s, discrete_at(shifted(s.discrete, which * N_DISCRETE)))
