"""Splits and merges of clusters whose atoms have continuous values alone (Jain and Neal 2007, with own proposals).

A pair of rows decides: their cluster is split, or their two are merged. Everything that a proposal is made from,
the *launch state*, depends on the pair, on the rows of its clusters together, and on random numbers of its own;
never on how these rows are divided now, or on their atoms. It consists of atoms from the pool that suit the two
rows, the rows divided between them, and Newton steps towards the modes of the two atoms, and of one atom for all
rows. From there atoms are drawn around the modes, and rows allocated given the atoms; the ratio of acceptance has
the densities of these draws.
"""

import math

from pymc_dpgmm.native.arithmetic import below, standard_gamma, standard_normal, uniform
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.symmetric import definite_near
from pymc_dpgmm.native.triangles import definite_factor, pack, scalar_product, solve_lower, solve_upper
from pymc_dpgmm.sampler.atoms.auxiliary import scan_at
from pymc_dpgmm.sampler.atoms.scales import FORGETS
from pymc_dpgmm.sampler.atoms.sweep_memory import (
    POOL,
    SHARE_ACCEPTED,
    count_blocks,
    evaluate,
    is_finite,
    name_clusters,
    take_labels,
    weigh_rows,
)

# Rounds in which a launch state divides rows between two atoms, and the most Newton steps to a mode after them.
N_ROUNDS = 3
N_NEWTON = 3
# Log densities that differ by less than this share of one of them differ by rounding only.
TIED = 1e-9
# Precisions have no eigenvalue below this times the base's.
LEAST_EIGENVALUE = 0.3
# Degrees of freedom of proposals around a mode.
FREEDOM = 6.0


@inlined
def _precision_near(s, hessian, precision):
    """Write a precision near a Hessian, none of whose eigenvalues is much below the base's."""
    d = s.n_free
    all_finite = True
    for q in range(d * d):
        all_finite = all_finite and is_finite(hessian[q])
    for i in range(d):
        for j in range(d):
            scale = 1.0 / math.sqrt(s.base[i] * s.base[j])
            known = 0.5 * (hessian[i * d + j] + hessian[j * d + i]) * scale
            precision[i * d + j] = known if all_finite else (1.0 if i == j else 0.0)
    if d == 1:
        precision[0] = max(abs(precision[0]), LEAST_EIGENVALUE)
    else:
        definite_near(precision, s.vectors, d, LEAST_EIGENVALUE)
    for i in range(d):
        for j in range(d):
            precision[i * d + j] *= math.sqrt(s.base[i] * s.base[j])


@inlined
def _take_step(s, mode, gradient, precision):
    """Take a Newton step towards a mode, no longer than the base is wide."""
    d = s.n_free
    for e in range(d):
        if not is_finite(gradient[e]):
            return
    pack(precision, d, s.factor)
    definite_factor(s.factor, d)
    solve_lower(s.factor, gradient, s.steps, d)
    solve_upper(s.factor, s.steps, d)
    longest = 1.0
    for e in range(d):
        longest = max(longest, abs(s.steps[e]) * math.sqrt(s.base[e]))
    for e in range(d):
        mode[e] += s.steps[e] / longest


@inlined
def find_modes(s, modes, n_atoms, n_steps, precisions):
    """Take Newton steps towards the modes of atoms given ``s.halves``; write precisions there too."""
    d = s.n_free
    take_labels(s, s.halves)
    count_blocks(s, s.halves, n_atoms)
    for step in range(n_steps + 1):
        for q in range(n_atoms * d):
            s.gradient[q] = 0.0
        for axis in range(d):
            for sign in range(2):
                # The rows that do not matter are given the first atom.
                for e in range(d):
                    s.moved[n_atoms * d + e] = modes[e]
                for q in range(n_atoms * d):
                    s.moved[q] = modes[q]
                for k in range(n_atoms):
                    s.scale[k] = 1e-3 / math.sqrt(s.base[axis] + s.sizes[k] * s.row[axis])
                    s.moved[k * d + axis] += s.scale[k] if sign == 0 else -s.scale[k]
                evaluate(s, s.moved, n_atoms + 1)
                for k in range(n_atoms):
                    for e in range(d):
                        slope, at = s.gradients[k * d + e], (k * d + axis) * d + e
                        s.gradient[k * d + e] += slope / (2.0 * d)
                        s.hessian[at] = slope if sign == 0 else (slope - s.hessian[at]) / (2.0 * s.scale[k])
        for k in range(n_atoms):
            precision = shifted(precisions, k * d * d)
            _precision_near(s, shifted(s.hessian, k * d * d), precision)
            if step < n_steps:
                _take_step(s, shifted(modes, k * d), shifted(s.gradient, k * d), precision)


@inlined
def _draw_around(s, modes, precisions, n_atoms, drawn):
    """Draw atoms from t distributions around their modes."""
    d = s.n_free
    for k in range(n_atoms):
        s.energy[k] = math.sqrt(FREEDOM / (2.0 * standard_gamma(s.bits, 0.5 * FREEDOM)))
    for q in range(n_atoms * d):
        drawn[q] = standard_normal(s.bits)
    for k in range(n_atoms):
        pack(shifted(precisions, k * d * d), d, s.factor)
        definite_factor(s.factor, d)
        normal = shifted(drawn, k * d)
        solve_upper(s.factor, normal, d)
        for e in range(d):
            normal[e] = modes[k * d + e] + s.energy[k] * normal[e]


@inlined
def _log_density_around(s, modes, precisions, n_atoms, drawn):
    """Return the log density of atoms under such t distributions."""
    d = s.n_free
    total = 0.0
    for k in range(n_atoms):
        precision, away = shifted(precisions, k * d * d), s.steps
        pack(precision, d, s.factor)
        total += definite_factor(s.factor, d)
        for e in range(d):
            away[e] = drawn[k * d + e] - modes[k * d + e]
        distance = 0.0
        for e in range(d):
            distance += away[e] * scalar_product(shifted(precision, e * d), away, d)
        total -= 0.5 * (FREEDOM + d) * math.log1p(distance / FREEDOM)
        total += math.lgamma(0.5 * (FREEDOM + d)) - math.lgamma(0.5 * FREEDOM)
        total -= 0.5 * d * math.log(FREEDOM * math.pi)
    return total


@inlined
def _suits(s, first, i, j):
    """Return which of the pool's atoms from ``first`` on suits block i, compared with j, as ``argmax`` does."""
    best, largest = first, s.densities[first * s.n + i] - 0.5 * s.densities[first * s.n + j]
    for k in range(first + 1, first + POOL):
        fit = s.densities[k * s.n + i] - 0.5 * s.densities[k * s.n + j]
        if math.isnan(largest):
            break
        if fit > largest or math.isnan(fit):
            best, largest = k, fit
    return best


@inlined
def _weigh_beside(s, n_inside):
    """Compute the odds of blocks to be in the first of two halves by their columns in collapsed mixtures."""
    if s.has_beside:
        s.odds_beside(s.beside, s.members, n_inside, s.halves, s.odds)


@inlined
def _launch(s, i, j, one, other):
    """Find modes for two halves and the whole of some clusters.

    Return the share of the first half, 0 where there are no such modes.
    """
    d, first = s.n_free, scan_at(s.scan).next
    left, right = _suits(s, first, i, j), _suits(s, first, j, i)
    for e in range(d):
        s.modes[e] = s.pool[left * d + e]
        s.modes[d + e] = s.pool[right * d + e]
    n_inside, n_left = 0, 0
    for q in range(s.n):
        s.halves[q] = 2
        if s.labels[q] == one or s.labels[q] == other:
            s.members[n_inside] = q
            n_inside += 1
    s.halves[i], s.halves[j] = 0, 1
    for _ in range(N_ROUNDS):
        _weigh_beside(s, n_inside)
        for q in range(2 * d):
            s.drawn[q] = s.modes[q]
        weigh_rows(s, s.drawn, 2, s.two_rows)
        n_left = 0
        for t in range(n_inside):
            q = s.members[t]
            fit = s.two_rows[q]
            is_left = (fit + s.odds[q] > s.two_rows[s.n + q] + TIED * abs(fit) or q == i) and q != j
            s.halves[q] = 0 if is_left else 1
            n_left += is_left
        find_modes(s, s.modes, 2, 1, s.precisions)
    _weigh_beside(s, n_inside)
    share = (n_left + 1.0) / (n_inside + 2.0)
    for e in range(d):
        s.modes[2 * d + e] = share * s.modes[e] + (1.0 - share) * s.modes[d + e]
    for q in range(s.n):
        s.halves[q] = 0 if s.halves[q] < 2 else 1
    find_modes(s, shifted(s.modes, 2 * d), 1, N_NEWTON, shifted(s.precisions, 2 * d * d))
    for q in range(3 * d):
        if not is_finite(s.modes[q]):
            return 0.0
    for q in range(3 * d * d):
        if not is_finite(s.precisions[q]):
            return 0.0
    return share


@inlined
def _allocate(s, i, j, one, other, share, is_split):
    """Divide blocks between two drawn atoms, in ``s.halves``: at random to split, as they are to merge.

    Return the log probability of this division, NaN where it is none.
    """
    weigh_rows(s, s.drawn, 2, s.two_rows)
    for q in range(s.n):
        if q != i and q != j and (s.labels[q] == one or s.labels[q] == other):
            away = math.exp(s.two_rows[s.n + q] - s.two_rows[q] - s.odds[q])
            s.two_rows[q] = 1.0 / (1.0 + away * (1.0 - share) / share)
    log_p = 0.0
    for q in range(s.n):
        s.halves[q] = 2
        if q in (i, j):
            s.halves[q] = 0 if q == i else 1
        elif s.labels[q] == one or s.labels[q] == other:
            odds = s.two_rows[q]
            is_left = uniform(s.bits) < odds if is_split else s.labels[q] == one
            s.halves[q] = 0 if is_left else 1
            log_p += math.log(odds if is_left else 1.0 - odds)
    return log_p


@inlined
def _log_evidence_beside(s, first, last):
    """Return the log evidence that collapsed mixtures have of the blocks in halves ``first`` to ``last``."""
    n_members = 0
    for q in range(s.n):
        if first <= s.halves[q] <= last:
            s.members[n_members] = q
            n_members += 1
    s.evidence_beside(s.beside, s.members, n_members, s.evidence)
    return s.evidence[0]


@inlined
def _log_ratio(s, is_split, log_allocated, discount):
    """Return the log ratio of acceptance of the split, NaN where there is none.

    ``s.drawn`` has the atoms of the halves and of the whole, ``s.halves`` the division.
    """
    d, n_merged = s.n_free, s.n_clusters - (0 if is_split else 1)
    left, right = 0.0, 0.0
    for q in range(s.n):
        left += s.weights[q] if s.halves[q] == 0 else 0.0
        right += s.weights[q] if s.halves[q] == 1 else 0.0
    for q in range(2 * d):
        s.moved[q] = s.drawn[q]
    for e in range(d):
        s.moved[2 * d + e] = s.drawn[e]
    take_labels(s, s.halves)
    evaluate(s, s.moved, 3)
    first, second = s.values[0], s.values[1]
    for e in range(d):
        s.moved[e] = s.moved[d + e] = s.drawn[2 * d + e]
    for row in range(s.n_rows):
        s.row_labels[row] = 0 if s.row_labels[row] < 2 else 1
    evaluate(s, s.moved, 2)
    single = s.values[0]
    is_possible = is_finite(first) and is_finite(second) if is_split else is_finite(single)
    if not is_possible:
        return math.nan
    ratio = s.log_new[n_merged] + log_rising(1.0 - discount, right - 1.0) - log_rising(left - discount, right)
    ratio += first + second - single - log_allocated
    if s.has_beside:
        ratio += _log_evidence_beside(s, 0, 0) + _log_evidence_beside(s, 1, 1) - _log_evidence_beside(s, 0, 1)
    ratio -= _log_density_around(s, s.modes, s.precisions, 2, s.drawn)
    whole = shifted(s.drawn, 2 * d)
    ratio += _log_density_around(s, shifted(s.modes, 2 * d), shifted(s.precisions, 2 * d * d), 1, whole)
    return ratio


@inlined
def _apply(s, one, other, is_split):
    """Divide a cluster, or put two together, by ``s.halves``; name all clusters anew."""
    n_clusters, d = s.n_clusters, s.n_free
    for q in range(n_clusters * d):
        s.moved[q] = s.atoms[q]
    for e in range(d):
        s.moved[one * d + e] = s.drawn[e] if is_split else s.drawn[2 * d + e]
        if is_split:
            s.moved[n_clusters * d + e] = s.drawn[d + e]
    slot = 0
    for q in range(s.n):
        if s.labels[q] == one and not is_split:
            slot = s.slots_beside[q] if s.has_beside else 0
    for q in range(s.n):
        if s.halves[q] == 1 if is_split else s.labels[q] == other:
            s.labels[q] = n_clusters if is_split else one
            if s.has_beside:
                s.leave_beside(s.beside, q)
                slot = s.join_beside(s.beside, q, slot)
    name_clusters(s, n_clusters + 1, s.moved)


@inlined
def _accepts(s, i, j, one, other, discount):
    """Propose a split of two blocks' cluster, or a merge of their two; tell whether it is accepted."""
    d, is_split = s.n_free, one == other
    share = _launch(s, i, j, one, other)
    if share == 0.0:
        return False
    if is_split:
        _draw_around(s, s.modes, s.precisions, 2, s.drawn)
    else:
        for e in range(d):
            s.drawn[e] = s.atoms[one * d + e]
            s.drawn[d + e] = s.atoms[other * d + e]
    log_allocated = _allocate(s, i, j, one, other, share, is_split)
    if math.isnan(log_allocated):
        return False
    whole = shifted(s.drawn, 2 * d)
    if is_split:
        for e in range(d):
            whole[e] = s.atoms[one * d + e]
    else:
        _draw_around(s, shifted(s.modes, 2 * d), shifted(s.precisions, 2 * d * d), 1, whole)
    ratio = _log_ratio(s, is_split, log_allocated, discount)
    if math.isnan(ratio):
        return False
    return math.log(1.0 - uniform(s.bits)) < (ratio if is_split else -ratio)


@inlined
def try_split_or_merge(s, discount):
    """Try a split or a merge of the clusters of two rows that are drawn."""
    i, j = below(s.bits, s.n), below(s.bits, s.n - 1)
    j += j >= i
    one, other = s.labels[i], s.labels[j]
    is_split = one == other
    s.splits_tried += is_split
    s.merges_tried += not is_split
    known_one, known_other = 0, 0
    for q in range(s.n):
        known_one += s.known[q] if s.labels[q] == one else 0
        known_other += s.known[q] if s.labels[q] == other else 0
    may_be = is_split or known_one == 0 or known_other == 0
    accepted = may_be and _accepts(s, i, j, one, other, discount)
    if s.is_tuning != 0:
        s.learnt[SHARE_ACCEPTED] += FORGETS * ((1.0 if accepted else 0.0) - s.learnt[SHARE_ACCEPTED])
    if accepted:
        s.splits += is_split
        s.merges += not is_split
        _apply(s, one, other, is_split)
