"""Atoms as standard numbers around the modes of their clusters, for moves of what all rows share."""

from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, c_function, shifted
from pymc_dpgmm.native.triangles import definite_factor, pack, solve_upper, upper_entry
from pymc_dpgmm.sampler.atoms.sweep_memory import N_CLUSTERS, sweep_at
from pymc_dpgmm.sampler.atoms.sweep_splits import find_modes


@c_function(FLOAT(INTS, INT, INT))
def standardize_atoms(head, n_steps, is_placing):
    """Find the modes of all clusters given their labels, from ``starts``; return the log of a Jacobian.

    Write atoms as standard numbers around the modes, or, if ``is_placing``, place atoms that have such numbers.
    The Jacobian is that of the atoms by the numbers; it is NaN where precisions are not positive definite.
    """
    s = sweep_at(head)
    n_clusters, d = head[N_CLUSTERS], s.n_free
    for q in range(n_clusters * d):
        s.all_modes[q] = s.starts[q]
    for q in range(s.n):
        s.halves[q] = s.labels[q]
    find_modes(s, s.all_modes, n_clusters, n_steps, s.all_precisions)
    half_log_det = 0.0
    for k in range(n_clusters):
        pack(shifted(s.all_precisions, k * d * d), d, s.factor)
        half_log_det += definite_factor(s.factor, d)
        mode, atom, standard = (
            shifted(s.all_modes, k * d),
            shifted(s.atoms, k * d),
            shifted(s.standard, k * d),
        )
        for e in range(d):
            s.steps[e] = standard[e] if is_placing != 0 else atom[e] - mode[e]
        if is_placing != 0:
            solve_upper(s.factor, s.steps, d)
            for e in range(d):
                atom[e] = mode[e] + s.steps[e]
        else:
            for e in range(d):
                standard[e] = upper_entry(s.factor, s.steps, e, d)
    return -half_log_det
