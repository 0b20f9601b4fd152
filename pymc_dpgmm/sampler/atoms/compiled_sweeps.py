"""Sweeps over labels and atoms without Python: densities are functions at addresses.

A sweep is a scan over the labels (``auxiliary.py``), Hamiltonian moves of all atoms, and splits and merges. The
moves are those of ``atom_moves.py``, number for number, on atoms in their free form; there is no place here for
discrete values, nor for collapsed mixtures on the same labels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import below, standard_gamma, standard_normal, uniform
from pymc_dpgmm.native.array_calls import NativeCall
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    INT,
    INTS,
    bits_of_generator,
    c_function,
    called_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.symmetric import definite_near
from pymc_dpgmm.native.triangles import definite_factor, pack, scalar_product, solve_lower, solve_upper
from pymc_dpgmm.partitions.priors import GibbsType, log_seats_new
from pymc_dpgmm.sampler.atoms.atom_moves import (
    FORGETS,
    FREEDOM,
    GAMMA,
    KAPPA,
    LEAST_EIGENVALUE,
    MOST_LEAPFROGS,
    N_BASE,
    N_NEWTON,
    N_ROUNDS,
    POOL,
    T0,
    TARGET,
    TIED,
    Scales,
)
from pymc_dpgmm.sampler.atoms.auxiliary import HEAD as SCAN
from pymc_dpgmm.sampler.atoms.auxiliary import N_ACTIVE, N_MOVED, NEXT, ROW, STOP, Rows, let_rows_join, scan_at

# What a sweep does next, and how a call of it ends.
SCAN_BEGINS, SCAN_GOES_ON, MOVES, SPLITS = range(4)
DONE, NEEDS_ATOMS, FAILED = range(3)

SWEEP = Block(
    next_double=NUMBER,
    bit_state=NUMBER,
    # Labels are those of n blocks of rows, of which there are n_rows; atoms have n_free numbers.
    n=NUMBER,
    n_rows=NUMBER,
    n_free=NUMBER,
    has_blocks=NUMBER,
    # What is to be done.
    phase=NUMBER,
    has_moves=NUMBER,
    n_hamiltonian=NUMBER,
    n_splits=NUMBER,
    is_tuning=NUMBER,
    # Clusters, and what has been counted.
    n_clusters=NUMBER,
    n_moved=NUMBER,
    splits_tried=NUMBER,
    splits=NUMBER,
    merges_tried=NUMBER,
    merges=NUMBER,
    # The block of the scan, and where atoms of the pool begin that rows have no densities under yet.
    scan=blocks.INTS,
    weighed=NUMBER,
    # Of rows: the block of each.
    of_row=blocks.INTS,
    row_labels=blocks.INTS,
    # Of blocks of rows.
    labels=blocks.INTS,
    weights=blocks.FLOATS,
    known=blocks.INTS,
    halves=blocks.INTS,
    # Of atoms of the pool: their numbers, names of clusters, and densities of blocks and of rows.
    pool=blocks.FLOATS,
    names=blocks.INTS,
    densities=blocks.FLOATS,
    row_densities=blocks.FLOATS,
    # Of clusters: their atoms, and their sizes in blocks.
    atoms=blocks.FLOATS,
    sizes=blocks.FLOATS,
    # Of Hamiltonian moves.
    moved=blocks.FLOATS,
    momentum=blocks.FLOATS,
    scale=blocks.FLOATS,
    start=blocks.FLOATS,
    energy=blocks.FLOATS,
    # Of splits and merges: two atoms and one, precisions around them, and what is computed on the way.
    modes=blocks.FLOATS,
    precisions=blocks.FLOATS,
    drawn=blocks.FLOATS,
    factor=blocks.FLOATS,
    steps=blocks.FLOATS,
    gradient=blocks.FLOATS,
    hessian=blocks.FLOATS,
    vectors=blocks.FLOATS,
    two_rows=blocks.FLOATS,
    log_new=blocks.FLOATS,
    # Numbers that are learnt, by their places below, and draws from the base.
    learnt=blocks.FLOATS,
    base=blocks.FLOATS,
    row=blocks.FLOATS,
    base_draws=blocks.FLOATS,
    # The densities of atoms and their rows, and of each row under each atom: see NativeCall.
    density_entry=NUMBER,
    density_code=NUMBER,
    density_inputs=blocks.INTS,
    density_outputs=blocks.INTS,
    rows_entry=NUMBER,
    rows_code=NUMBER,
    rows_inputs=blocks.INTS,
    rows_outputs=blocks.INTS,
    points=blocks.FLOATS,
    values=blocks.FLOATS,
    gradients=blocks.FLOATS,
    # 1 where a density has failed; what is drawn then means nothing.
    failed=blocks.INTS,
)
PHASE, HAS_MOVES, N_SPLITS, N_CLUSTERS, WEIGHED = SWEEP.places(
    "phase", "has_moves", "n_splits", "n_clusters", "weighed"
)
TALLY = ("splits_tried", "splits", "merges_tried", "merges")
SPLITS_TRIED, N_SPLIT, MERGES_TRIED, N_MERGED = SWEEP.places(*TALLY)
ALL_MOVED, POOL_AT, DENSITIES_AT, ROW_DENSITIES_AT, DRAWN_AT, TWO_ROWS_AT = SWEEP.places(
    "n_moved", "pool", "densities", "row_densities", "drawn", "two_rows"
)
# Numbers that are learnt, and the sum of the acceptances of Hamiltonian moves.
STEP, N_LEARNT, MEAN_ERROR, LOG_STEP_MEAN, LAST, SHARE_ACCEPTED, ACCEPTED = range(7)


class Sweep(NamedTuple):
    """Numbers and pointers of a sweep."""

    bits: Any
    n: Any
    n_rows: Any
    n_free: Any
    has_blocks: Any
    n_hamiltonian: Any
    is_tuning: Any
    scan: Any
    of_row: Any
    row_labels: Any
    labels: Any
    weights: Any
    known: Any
    halves: Any
    pool: Any
    names: Any
    densities: Any
    row_densities: Any
    atoms: Any
    sizes: Any
    moved: Any
    momentum: Any
    scale: Any
    start: Any
    energy: Any
    modes: Any
    precisions: Any
    drawn: Any
    factor: Any
    steps: Any
    gradient: Any
    hessian: Any
    vectors: Any
    two_rows: Any
    log_new: Any
    learnt: Any
    base: Any
    row: Any
    base_draws: Any
    density_entry: Any
    density_code: Any
    density_inputs: Any
    density_outputs: Any
    rows_entry: Any
    rows_code: Any
    rows_inputs: Any
    rows_outputs: Any
    points: Any
    values: Any
    gradients: Any
    failed: Any


_sweep_at = SWEEP.reader(Sweep, bits=f"Bits(head[{SWEEP.place('next_double')}], head[{SWEEP.place('bit_state')}])")


@intrinsic
def _call_entry(typing_context, address, code, inputs, outputs):
    return called_at(INT(INT, INTS, INTS))


@inlined
def _is_finite(x):
    return -math.inf < x < math.inf


@inlined
def _take_labels(s, labels):
    """Let the densities have these labels of blocks."""
    for row in range(s.n_rows):
        s.row_labels[row] = labels[s.of_row[row]] if s.has_blocks != 0 else labels[row]


@inlined
def _evaluate(s, atoms, n_atoms):
    """Compute the log density of atoms and their rows, ``s.values``, and its gradients."""
    for q in range(n_atoms * s.n_free):
        s.points[q] = atoms[q]
    s.density_inputs[1] = n_atoms
    if _call_entry(s.density_entry, s.density_code, s.density_inputs, s.density_outputs) != 0:
        s.failed[0] = 1


@inlined
def _weigh_rows(s, head, atoms_at, n_atoms, found_at, found):
    """Compute the log densities (n_atoms, n) of blocks under the atoms at an address."""
    if n_atoms == 0:
        return
    s.rows_inputs[0] = atoms_at
    s.rows_inputs[1] = n_atoms
    s.rows_outputs[0] = head[ROW_DENSITIES_AT] if s.has_blocks != 0 else found_at
    if _call_entry(s.rows_entry, s.rows_code, s.rows_inputs, s.rows_outputs) != 0:
        s.failed[0] = 1
    if s.has_blocks != 0:
        for k in range(n_atoms):
            for block in range(s.n):
                found[k * s.n + block] = 0.0
            for row in range(s.n_rows):
                found[k * s.n + s.of_row[row]] += s.row_densities[k * s.n_rows + row]


@inlined
def _weigh_pool(s, head):
    """Compute the densities of rows under atoms of the pool that have none yet."""
    first, stop = head[WEIGHED], s.scan[STOP]
    head[WEIGHED] = stop
    atoms_at = head[POOL_AT] + 8 * first * s.n_free
    found_at = head[DENSITIES_AT] + 8 * first * s.n
    _weigh_rows(s, head, atoms_at, stop - first, found_at, shifted(s.densities, first * s.n))


@inlined
def _count(s, labels, n_clusters):
    """Count the blocks of each cluster; labels beyond are of rows that do not matter."""
    for k in range(n_clusters):
        s.sizes[k] = 0.0
    for i in range(s.n):
        if labels[i] < n_clusters:
            s.sizes[labels[i]] += 1.0


@inlined
def _name(s, head, n_names, atoms):
    """Name clusters by the first appearance of their labels, which are places among ``atoms``."""
    for k in range(n_names):
        s.names[k] = -1
    n_clusters = 0
    for i in range(s.n):
        place = s.labels[i]
        if s.names[place] < 0:
            s.names[place] = n_clusters
            for d in range(s.n_free):
                s.atoms[n_clusters * s.n_free + d] = atoms[place * s.n_free + d]
            n_clusters += 1
        s.labels[i] = s.names[place]
    head[N_CLUSTERS] = n_clusters


@inlined
def _begin_scan(s, head):
    """Put the atoms of clusters before the fresh ones of the pool."""
    n_clusters, of = head[N_CLUSTERS], scan_at(s.scan)
    for q in range(n_clusters * s.n_free):
        s.pool[q] = s.atoms[q]
    for k in range(s.scan[STOP]):
        of.sizes[k] = 0.0
        of.known_slots[k] = 0
        of.active[k] = k
        of.places[k] = k
    for i in range(s.n):
        of.sizes[s.labels[i]] += s.weights[i]
        if s.known[i] != 0:
            of.known_slots[s.labels[i]] = 1
    for q in range(of.n_auxiliary):
        of.auxiliary[q] = n_clusters + q
    s.scan[ROW], s.scan[N_MOVED], s.scan[N_ACTIVE] = 0, 0, n_clusters
    s.scan[NEXT] = n_clusters + of.n_auxiliary
    head[WEIGHED] = 0


@inlined
def _move_atoms(s, head):
    """Move all atoms: see ``atom_moves.move_atoms``. Return the mean acceptance."""
    n_clusters, d = head[N_CLUSTERS], s.n_free
    _evaluate(s, s.atoms, n_clusters)
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
        _evaluate(s, s.moved, n_clusters)
        for q in range(n_clusters * d):
            s.momentum[q] += 0.5 * step * s.scale[q] * s.gradients[q]
    total = 0.0
    for k in range(n_clusters):
        change = s.values[k] - s.start[k] + s.energy[k]
        for e in range(d):
            change -= 0.5 * s.momentum[k * d + e] * s.momentum[k * d + e]
        # No comparison holds with a NaN.
        ratio = 1.0 if change > 0.0 else math.exp(change)
        if not _is_finite(s.values[k]) or not ratio >= 0.0:
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
        is_finite = True
        for e in range(s.n_free):
            is_finite = is_finite and _is_finite(draws[q * s.n_free + e])
        if is_finite:
            for e in range(s.n_free):
                draws[n_drawn * s.n_free + e] = draws[q * s.n_free + e]
            n_drawn += 1
    if n_drawn < 2:
        return
    for e in range(s.n_free):
        mean, square = 0.0, 0.0
        for q in range(n_drawn):
            mean += draws[q * s.n_free + e] / n_drawn
        for q in range(n_drawn):
            square += (draws[q * s.n_free + e] - mean) ** 2 / n_drawn
        s.base[e] += forgets * (1.0 / max(square, 1e-12) - s.base[e])


@inlined
def _learn_scales(s, head, draws):
    """Learn from draws of the base and the curvature in one direction: see ``Scales.learn_scales``."""
    n_clusters, d = head[N_CLUSTERS], s.n_free
    forgets = max(FORGETS, 1.0 / (1.0 + s.learnt[N_LEARNT]))
    s.learnt[N_LEARNT] += 1.0
    _learn_base(s, draws, forgets)
    e = int(s.learnt[LAST] + 1.0) % d
    s.learnt[LAST] = e
    for sign in range(2):
        for q in range(n_clusters * d):
            s.moved[q] = s.atoms[q]
        for k in range(n_clusters):
            s.scale[k] = 0.1 / math.sqrt(s.base[e] + s.sizes[k] * s.row[e])
            s.moved[k * d + e] += s.scale[k] if sign == 0 else -s.scale[k]
        _evaluate(s, s.moved, n_clusters)
        for k in range(n_clusters):
            slope = s.gradients[k * d + e]
            s.energy[k] = slope if sign == 0 else (slope - s.energy[k]) / (2.0 * s.scale[k])
    curvature, n_good = 0.0, 0.0
    for k in range(n_clusters):
        if _is_finite(s.energy[k]):
            curvature += max(s.energy[k] - s.base[e], 0.0)
            n_good += s.sizes[k]
    if n_good > 0.0:
        rate = max(FORGETS, 1.0 / (1.0 + s.learnt[N_LEARNT] / d))
        s.row[e] += rate * (max(curvature / n_good, 1e-12) - s.row[e])


@inlined
def _learn_step(s, accepted):
    """Learn from the mean acceptance of a move: see ``Scales.learn_step``."""
    t = s.learnt[N_LEARNT]
    rate = 1.0 / (t + T0)
    s.learnt[MEAN_ERROR] = (1.0 - rate) * s.learnt[MEAN_ERROR] + rate * (TARGET - accepted)
    log_step = math.log(2.0) - math.sqrt(t) / GAMMA * s.learnt[MEAN_ERROR]
    log_step = min(max(log_step, -10.0), 1.0)
    weight = t**-KAPPA if t > 0.0 else 1.0
    s.learnt[LOG_STEP_MEAN] = weight * log_step + (1.0 - weight) * s.learnt[LOG_STEP_MEAN]
    s.learnt[STEP] = math.exp(log_step)


@inlined
def _move_and_learn(s, head):
    """Make all Hamiltonian moves, and learn from them while tuning."""
    _take_labels(s, s.labels)
    _count(s, s.labels, head[N_CLUSTERS])
    for move in range(s.n_hamiltonian):
        accepted = _move_atoms(s, head)
        s.learnt[ACCEPTED] += accepted
        if s.is_tuning != 0:
            _learn_scales(s, head, shifted(s.base_draws, move * N_BASE * s.n_free))
            _learn_step(s, accepted)


@inlined
def _precision_near(s, hessian, precision):
    """Write a precision near a Hessian: see ``atom_moves._positive``."""
    d = s.n_free
    is_finite = True
    for q in range(d * d):
        is_finite = is_finite and _is_finite(hessian[q])
    for i in range(d):
        for j in range(d):
            scale = 1.0 / math.sqrt(s.base[i] * s.base[j])
            known = 0.5 * (hessian[i * d + j] + hessian[j * d + i]) * scale
            precision[i * d + j] = known if is_finite else (1.0 if i == j else 0.0)
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
        if not _is_finite(gradient[e]):
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
def _find_modes(s, modes, n_atoms, n_steps, precisions):
    """Take Newton steps towards the modes of atoms given ``s.halves``: see ``atom_moves._newton``."""
    d = s.n_free
    _take_labels(s, s.halves)
    _count(s, s.halves, n_atoms)
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
                _evaluate(s, s.moved, n_atoms + 1)
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
    """Draw atoms from t distributions: see ``atom_moves.Launch.draw``."""
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
def _launch(s, head, i, j, one, other):
    """Find modes for two halves and the whole of some clusters: see ``atom_moves._launch``.

    Return the share of the first half, 0 where there are no such modes.
    """
    d, first = s.n_free, s.scan[NEXT]
    left, right = _suits(s, first, i, j), _suits(s, first, j, i)
    for e in range(d):
        s.modes[e] = s.pool[left * d + e]
        s.modes[d + e] = s.pool[right * d + e]
    n_inside, n_left = 0, 0
    for _ in range(N_ROUNDS):
        for q in range(2 * d):
            s.drawn[q] = s.modes[q]
        _weigh_rows(s, head, head[DRAWN_AT], 2, head[TWO_ROWS_AT], s.two_rows)
        n_inside, n_left = 0, 0
        for q in range(s.n):
            s.halves[q] = 2
            if s.labels[q] == one or s.labels[q] == other:
                fit = s.two_rows[q]
                is_left = (fit > s.two_rows[s.n + q] + TIED * abs(fit) or q == i) and q != j
                s.halves[q] = 0 if is_left else 1
                n_inside += 1
                n_left += is_left
        _find_modes(s, s.modes, 2, 1, s.precisions)
    share = (n_left + 1.0) / (n_inside + 2.0)
    for e in range(d):
        s.modes[2 * d + e] = share * s.modes[e] + (1.0 - share) * s.modes[d + e]
    for q in range(s.n):
        s.halves[q] = 0 if s.halves[q] < 2 else 1
    _find_modes(s, shifted(s.modes, 2 * d), 1, N_NEWTON, shifted(s.precisions, 2 * d * d))
    for q in range(3 * d):
        if not _is_finite(s.modes[q]):
            return 0.0
    for q in range(3 * d * d):
        if not _is_finite(s.precisions[q]):
            return 0.0
    return share


@inlined
def _allocate(s, head, i, j, one, other, share, is_split):
    """Divide blocks between two drawn atoms, in ``s.halves``: at random to split, as they are to merge.

    Return the log probability of this division, NaN where it is none.
    """
    _weigh_rows(s, head, head[DRAWN_AT], 2, head[TWO_ROWS_AT], s.two_rows)
    for q in range(s.n):
        if q != i and q != j and (s.labels[q] == one or s.labels[q] == other):
            odds = 1.0 / (1.0 + math.exp(s.two_rows[s.n + q] - s.two_rows[q]) * (1.0 - share) / share)
            s.two_rows[q] = odds
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
def _log_ratio(s, head, is_split, log_allocated, discount):
    """Return the log ratio of acceptance of the split, NaN where there is none.

    ``s.drawn`` has the atoms of the halves and of the whole, ``s.halves`` the division.
    """
    d, n_merged = s.n_free, head[N_CLUSTERS] - (0 if is_split else 1)
    left, right = 0.0, 0.0
    for q in range(s.n):
        left += s.weights[q] if s.halves[q] == 0 else 0.0
        right += s.weights[q] if s.halves[q] == 1 else 0.0
    for q in range(2 * d):
        s.moved[q] = s.drawn[q]
    for e in range(d):
        s.moved[2 * d + e] = s.drawn[e]
    _take_labels(s, s.halves)
    _evaluate(s, s.moved, 3)
    first, second = s.values[0], s.values[1]
    for e in range(d):
        s.moved[e] = s.moved[d + e] = s.drawn[2 * d + e]
    for row in range(s.n_rows):
        s.row_labels[row] = 0 if s.row_labels[row] < 2 else 1
    _evaluate(s, s.moved, 2)
    single = s.values[0]
    is_possible = _is_finite(first) and _is_finite(second) if is_split else _is_finite(single)
    if not is_possible:
        return math.nan
    ratio = s.log_new[n_merged] + log_rising(1.0 - discount, right - 1.0) - log_rising(left - discount, right)
    ratio += first + second - single - log_allocated
    ratio -= _log_density_around(s, s.modes, s.precisions, 2, s.drawn)
    whole = shifted(s.drawn, 2 * d)
    ratio += _log_density_around(s, shifted(s.modes, 2 * d), shifted(s.precisions, 2 * d * d), 1, whole)
    return ratio


@inlined
def _apply(s, head, one, other, is_split):
    """Divide a cluster, or put two together, by ``s.halves``; name all clusters anew."""
    n_clusters, d = head[N_CLUSTERS], s.n_free
    for q in range(n_clusters * d):
        s.moved[q] = s.atoms[q]
    for e in range(d):
        s.moved[one * d + e] = s.drawn[e] if is_split else s.drawn[2 * d + e]
        if is_split:
            s.moved[n_clusters * d + e] = s.drawn[d + e]
    for q in range(s.n):
        if is_split:
            s.labels[q] = n_clusters if s.halves[q] == 1 else s.labels[q]
        elif s.labels[q] == other:
            s.labels[q] = one
    _name(s, head, n_clusters + 1, s.moved)


@inlined
def _accepts(s, head, i, j, one, other, discount):
    """Propose a split of two blocks' cluster, or a merge of their two; tell whether it is accepted."""
    d, is_split = s.n_free, one == other
    share = _launch(s, head, i, j, one, other)
    if share == 0.0:
        return False
    if is_split:
        _draw_around(s, s.modes, s.precisions, 2, s.drawn)
    else:
        for e in range(d):
            s.drawn[e] = s.atoms[one * d + e]
            s.drawn[d + e] = s.atoms[other * d + e]
    log_allocated = _allocate(s, head, i, j, one, other, share, is_split)
    if math.isnan(log_allocated):
        return False
    whole = shifted(s.drawn, 2 * d)
    if is_split:
        for e in range(d):
            whole[e] = s.atoms[one * d + e]
    else:
        _draw_around(s, shifted(s.modes, 2 * d), shifted(s.precisions, 2 * d * d), 1, whole)
    ratio = _log_ratio(s, head, is_split, log_allocated, discount)
    if math.isnan(ratio):
        return False
    return math.log(1.0 - uniform(s.bits)) < (ratio if is_split else -ratio)


@inlined
def _split_or_merge(s, head, discount):
    """Try a split or a merge: see ``atom_moves.split_or_merge``."""
    i, j = below(s.bits, s.n), below(s.bits, s.n - 1)
    j += j >= i
    one, other = s.labels[i], s.labels[j]
    is_split = one == other
    head[SPLITS_TRIED if is_split else MERGES_TRIED] += 1
    known_one, known_other = 0, 0
    for q in range(s.n):
        known_one += s.known[q] if s.labels[q] == one else 0
        known_other += s.known[q] if s.labels[q] == other else 0
    may_be = is_split or known_one == 0 or known_other == 0
    accepted = may_be and _accepts(s, head, i, j, one, other, discount)
    if s.is_tuning != 0:
        s.learnt[SHARE_ACCEPTED] += FORGETS * ((1.0 if accepted else 0.0) - s.learnt[SHARE_ACCEPTED])
    if accepted:
        head[N_SPLIT if is_split else N_MERGED] += 1
        _apply(s, head, one, other, is_split)


@c_function(INT(INTS, FLOAT))
def sweep(head, discount):
    """Go on with a sweep, from its phase on; return how it ended: ``DONE``, ``NEEDS_ATOMS`` or ``FAILED``."""
    s = _sweep_at(head)
    if head[PHASE] == SCAN_BEGINS:
        _begin_scan(s, head)
        head[PHASE] = SCAN_GOES_ON
    if head[PHASE] == SCAN_GOES_ON:
        _weigh_pool(s, head)
        let_rows_join(s.scan, discount)
        if s.failed[0] != 0:
            return FAILED
        if s.scan[ROW] < s.n:
            return NEEDS_ATOMS
        head[ALL_MOVED] += s.scan[N_MOVED]
        _name(s, head, s.scan[STOP], s.pool)
        head[PHASE] = MOVES
    if head[PHASE] == MOVES and head[HAS_MOVES] != 0:
        _move_and_learn(s, head)
        head[PHASE] = SPLITS
    while head[PHASE] == SPLITS and head[N_SPLITS] > 0 and s.failed[0] == 0:
        if s.scan[STOP] - s.scan[NEXT] < POOL:
            return NEEDS_ATOMS
        _weigh_pool(s, head)
        _split_or_merge(s, head, discount)
        head[N_SPLITS] -= 1
        # No two of these moves choose among the same atoms.
        s.scan[NEXT] = s.scan[STOP]
    return DONE if s.failed[0] == 0 else FAILED


Shape = int | tuple[int, ...]


class Counts(NamedTuple):
    """How often a sweep makes each move, and how many draws from the base it takes for each scan."""

    n_scans: int
    n_fresh: int
    n_hamiltonian: int
    n_splits: int


class CompiledSweeps:
    """The memory of sweeps over the labels and atoms of a model.

    Parameters
    ----------
    rows : Rows
        Blocks of rows.
    of_row : (n_rows,) int64 array
        The block of each row.
    n_free : int
        Number D of continuous values of an atom, which has no others.
    density, by_row : NativeCall
        ``AtomDensities.gradient`` and ``AtomDensities.by_free_row``.
    n_auxiliary : int
        Auxiliary atoms of a scan.
    """

    def __init__(
        self,
        rows: Rows,
        of_row: np.ndarray,
        n_free: int,
        density: NativeCall,
        by_row: NativeCall,
        n_auxiliary: int,
    ) -> None:
        self._rows, self._of_row, self._d, self._m = rows, of_row, n_free, n_auxiliary
        # They own the code whose addresses are in the block.
        self._calls = density, by_row
        self._n, self._capacity, self._n_draws = len(rows.weights), 0, 0
        self._head = SWEEP.filled(**dict.fromkeys(SWEEP.fields, 0))
        self._scan = SCAN.filled(**dict.fromkeys(SCAN.fields, 0))
        self._set(
            n=self._n,
            n_rows=len(of_row),
            n_free=n_free,
            has_blocks=int(self._n < len(of_row)),
            density_entry=density.address,
            density_code=density.code,
            rows_entry=by_row.address,
            rows_code=by_row.code,
        )
        self._scan[SCAN.places("n", "n_auxiliary")] = self._n, n_auxiliary
        self._of_sweep: dict[str, np.ndarray] = {}
        self._of_scan: dict[str, np.ndarray] = {}
        self._log_new = np.zeros(0)
        self._prior: GibbsType | None = None
        self._grow(2 * n_auxiliary + 2 * POOL)

    def begin(
        self,
        rng: np.random.Generator,
        labels: np.ndarray,
        free: np.ndarray,
        values: Sequence[Sequence[np.ndarray]],
    ) -> None:
        """Begin a draw.

        Parameters
        ----------
        rng : numpy.random.Generator
        labels : (n,) int64 array
            0..K-1.
        free : (K, D) float64 array
            The atoms in free form, finite.
        values : two sequences of C-contiguous arrays
            What follows atoms and labels among the arguments of each density.
        """
        self._reach(len(free) + self._m)
        memory = self._of_sweep
        memory["labels"][:], memory["atoms"][: len(free)] = labels, free
        self._head[N_CLUSTERS] = len(free)
        bits = bits_of_generator(rng)
        self._set(next_double=bits[0], bit_state=bits[1])
        self._scan[SCAN.places("next_double", "bit_state")] = bits
        of_atoms = [memory["points"][:1], memory["row_labels"]], [memory["pool"][:1]]
        # They are kept, since the blocks have their addresses.
        self._values = [*values]
        self._inputs = [NativeCall.inputs([*own, *more]) for own, more in zip(of_atoms, values, strict=True)]
        self._set(density_inputs=self._inputs[0].ctypes.data, rows_inputs=self._inputs[1].ctypes.data)

    def sweep(
        self,
        prior: GibbsType,
        take: Callable[[int], np.ndarray],
        counts: Counts,
        scales: Scales,
        is_tuning: bool,
    ) -> float:
        """Make a sweep; return the mean acceptance of Hamiltonian moves, NaN if there are none.

        Parameters
        ----------
        prior : GibbsType
        take : callable
            Draws so many atoms from the base: (m, D), in free form.
        counts : Counts
        scales : Scales
            What is learnt while tuning.
        is_tuning : bool

        Raises
        ------
        FloatingPointError
            If a density could not be computed: it is at :attr:`arguments`.
        """
        self._reach(int(self._head[N_CLUSTERS]) + counts.n_splits + 1)
        memory = self._of_sweep
        if is_tuning:
            self._keep(base_draws=np.array([take(N_BASE) for _ in range(counts.n_hamiltonian)]))
        learnt = scales.numbers()
        self._keep(learnt=np.append(learnt, 0.0), base=scales.base, row=scales.row)
        self._set(n_hamiltonian=counts.n_hamiltonian, n_splits=counts.n_splits, is_tuning=int(is_tuning))
        self._scan[[NEXT, STOP]] = 0
        for scan in range(max(counts.n_scans, 1)):
            self._head[[PHASE, HAS_MOVES]] = MOVES, scan >= counts.n_scans - 1
            if counts.n_scans:
                self._head[PHASE] = SCAN_BEGINS
                self._scan[STOP] = self._head[N_CLUSTERS]
                self._add(take(counts.n_fresh))
            self._know_prior(prior)
            while (ended := sweep(self._head.ctypes.data, prior.discount)) == NEEDS_ATOMS:
                if self._head[PHASE] == SPLITS:
                    # What is left of the scan are too few, and are not looked at.
                    self._scan[NEXT] = self._head[WEIGHED] = self._scan[STOP]
                    self._add(take(POOL))
                else:
                    self._add(take(counts.n_fresh))
                self._know_prior(prior)
            if ended == FAILED:
                raise FloatingPointError("a density of atoms could not be computed")
        scales.take(memory["learnt"][:-1], memory["base"], memory["row"])
        return float(memory["learnt"][-1] / counts.n_hamiltonian) if counts.n_hamiltonian else math.nan

    @property
    def labels(self) -> np.ndarray:
        """The labels now, 0..K-1 in order of first appearance: (n,)."""
        return self._of_sweep["labels"].copy()

    @property
    def free(self) -> np.ndarray:
        """The atoms now: (K, D)."""
        return self._of_sweep["atoms"][: self._head[N_CLUSTERS]].copy()

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms, and labels of rows, that the densities were last computed at."""
        memory = self._of_sweep
        return memory["points"][: self._inputs[0][1]], memory["row_labels"]

    def take_counts(self) -> dict[str, int]:
        """Return what has been counted since the last call: rows that moved, splits and merges."""
        names = ("n_moved", *TALLY)
        counts = dict(zip(names, self._head[SWEEP.places(*names)].tolist(), strict=True))
        self._set(**dict.fromkeys(names, 0))
        return counts

    def _set(self, **fields: int) -> None:
        for name, value in fields.items():
            self._head[SWEEP.place(name)] = value

    def _keep(self, **arrays: np.ndarray) -> None:
        """Take arrays as memory of the sweep."""
        for name, array in arrays.items():
            kept = self._of_sweep[name] = np.ascontiguousarray(array)
            self._head[SWEEP.place(name)] = kept.ctypes.data

    def _add(self, free: np.ndarray) -> None:
        """Add fresh atoms to the pool."""
        stop = int(self._scan[STOP])
        self._reach(stop + len(free))
        self._of_sweep["pool"][stop : stop + len(free)] = free
        self._scan[STOP] = stop + len(free)

    def _know_prior(self, prior: GibbsType) -> None:
        length = min(self._capacity, self._n) + 1
        if len(self._log_new) != length or self._prior is not prior:
            self._prior, self._log_new = prior, log_seats_new(prior, length)
            self._head[SWEEP.place("log_new")] = self._scan[SCAN.place("log_new")] = self._log_new.ctypes.data

    def _reach(self, n_atoms: int) -> None:
        """Have room for some number of atoms."""
        if n_atoms > self._capacity:
            self._grow(max(n_atoms, 2 * self._capacity))

    def _grow(self, capacity: int) -> None:
        """Get memory for more atoms, with what was in the smaller one."""
        before = self._of_sweep, self._of_scan
        n, d, c, n_rows = self._n, self._d, capacity, len(self._of_row)
        whole, real = np.int64, np.float64
        blocks_of_rows = c if n < n_rows else 0
        ints: dict[str, Shape] = {"row_labels": n_rows, "labels": n, "halves": n, "names": c + 2}
        floats: dict[str, Shape] = {
            "pool": (c, d),
            "densities": (c, n),
            "row_densities": (blocks_of_rows, n_rows),
            "atoms": (c + 2, d),
            "sizes": c + 2,
            "moved": (c + 2, d),
            "momentum": (c + 2, d),
            "scale": (c + 2, d),
            "start": c + 2,
            "energy": c + 2,
            "modes": (3, d),
            "precisions": (3, d, d),
            "drawn": (3, d),
            "factor": (d, d),
            "steps": d,
            "gradient": (2, d),
            "hessian": (2, d, d),
            "vectors": (2, d, d),
            "two_rows": (2, n),
            "points": (c + 2, d),
            "values": c + 2,
            "gradients": (c + 2, d),
            "jacobians": c + 2,
        }
        self._of_sweep = {name: np.zeros(shape, dtype=whole) for name, shape in ints.items()}
        self._of_sweep |= {name: np.zeros(shape, dtype=real) for name, shape in floats.items()}
        of_scan_ints: dict[str, Shape] = {
            "known_slots": c,
            "places": c,
            "active": c,
            "auxiliary": self._m,
            "slots_beside": c,
        }
        self._of_scan = {name: np.zeros(shape, dtype=whole) for name, shape in of_scan_ints.items()}
        floats = {"sizes": c, "log_weights": c + self._m, "weights_beside": 0}
        self._of_scan |= {name: np.zeros(shape) for name, shape in floats.items()}
        for old, new in zip(before, (self._of_sweep, self._of_scan), strict=True):
            for name, array in old.items():
                if name in new:
                    new[name][: len(array)] = array
                else:
                    new[name] = array
        self._capacity = capacity
        self._connect()

    def _connect(self) -> None:
        """Write the addresses of the memory into the blocks."""
        memory, rows = self._of_sweep, self._rows
        self._failed = np.zeros(1, dtype=np.int64)
        self._outputs = [
            np.array([memory[name].ctypes.data for name in names], dtype=np.int64)
            for names in (("values", "gradients", "jacobians"), ("two_rows",))
        ]
        others = {"weights": rows.weights, "known": rows.known, "of_row": self._of_row, "scan": self._scan}
        others |= {"failed": self._failed, "density_outputs": self._outputs[0], "rows_outputs": self._outputs[1]}
        arrays = {name: array for name, array in memory.items() if name != "jacobians"} | others
        self._set(**{name: array.ctypes.data for name, array in arrays.items()})
        of_scan = self._of_scan | {name: memory[name] for name in ("labels", "densities")}
        of_scan |= {"weights": rows.weights, "known": rows.known}
        for name, array in of_scan.items():
            self._scan[SCAN.place(name)] = array.ctypes.data
        if hasattr(self, "_inputs"):
            self._inputs[0][0] = memory["points"].ctypes.data
            self._inputs[0][3] = memory["row_labels"].ctypes.data
