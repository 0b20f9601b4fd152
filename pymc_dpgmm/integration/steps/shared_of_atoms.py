r"""Variables that the density of all rows shares, moved together with the atoms of a Dirichlet process.

A coefficient or a dispersion in the likelihood is drawn by another step given the atoms, which have adapted to it
and hold it where it is. So it is also moved with them: an atom is written as

.. math:: \theta_k = m_k(u) + L_k(u)^{-\mathsf T} z_k, \qquad L_k L_k^{\mathsf T} = P_k(u)

with a mode and a precision of the density of cluster k, which depend on the labels and on the shared numbers u,
and on nothing else that moves. A number is drawn by a slice given the labels and z, from the joint density times
the Jacobian :math:`\prod_k |L_k(u)|^{-1}`, and the atoms follow.

Early in tuning, before there are clusters, shared numbers that follow at once would explain what clusters should.
So these moves begin in the second half of tuning.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.process_density import ProcessModel
from pymc_dpgmm.integration.steps.shared_variables import Widths, draw_some, shared_variables
from pymc_dpgmm.integration.variables import dependents
from pymc_dpgmm.integration.variables.atoms import is_atoms
from pymc_dpgmm.sampler.atoms.compiled_sweeps import CompiledSweeps

# Draws from the base whose mean is where modes are looked for first.
N_CENTRE = 64
# Steps to the modes where the shared numbers are those of the anchor, and from there.
FIRST_STEPS, STEPS = 8, 2


class AtomsAnchor:
    """What is learnt while tuning: the shared numbers from which modes are looked for, and widths of slices.

    Attributes
    ----------
    centre : (D,) array or None
        Of the base, in free form, at the first draw.
    numbers : dict of arrays
        Means of the shared variables' values.
    n_before : int
        Draws of tuning that are left before the first move.
    n_learnt : int
        Draws that were learnt from.
    widths : dict
        By the names of variables and places in them.
    """

    def __init__(self, n_before: int) -> None:
        self.n_before = n_before
        self.centre: np.ndarray | None = None
        self.numbers: dict[str, np.ndarray] = {}
        self.n_learnt = 0
        self.widths: Widths = {}

    def learn(self, current: Mapping[str, np.ndarray]) -> None:
        """Take the shared numbers of a draw into account."""
        self.n_learnt += 1
        for name, values in current.items():
            self.numbers[name] = self.numbers[name] + (values - self.numbers[name]) / (1.0 + self.n_learnt)


class SharedOfAtoms:
    """The variables that rows with atoms share, and how they are moved with the atoms.

    Parameters
    ----------
    model : pm.Model
    process : ProcessModel
    """

    def __init__(self, model: pm.Model, process: ProcessModel) -> None:
        parameters = process.parameters
        shared = [] if process.densities.discrete else shared_variables(model, parameters[0], process.terms)
        self._densities = process.densities
        self.names = [model.rvs_to_values[rv].name for rv in shared]
        # Rows move too, so that whatever depends on them counts, whether it depends on the variables or not.
        depending = [other for rv in (*parameters, *shared) for other in dependents(model, rv)]
        counted = [rv for rv in dict.fromkeys([*shared, *depending]) if not is_atoms(rv)]
        self._joint: Any = process.densities.joint(model, parameters, counted) if shared else None

    def move(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        native: CompiledSweeps,
        labels: Sequence[np.ndarray],
        free: np.ndarray,
        anchor: AtomsAnchor,
        n_moved: int,
        tuning: bool,
    ) -> np.ndarray:
        """Move some numbers in the point, and return the atoms that go with them: (K, D), in free form.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : dict of arrays
        native : CompiledSweeps
        labels : two arrays
            Those of blocks of rows, and of rows.
        free : (K, D) float64 array
        anchor : AtomsAnchor
        n_moved : int
            How many numbers move, chosen at random.
        tuning : bool
        """
        current = {name: np.array(point[name]) for name in self.names}
        point.update(current)
        densities = self._densities.at(point)
        centre = self._begin(anchor, current)
        native.begin(rng, labels[0], free, densities.native_values)
        present = {name: values.copy() for name, values in current.items()}
        _set(current, anchor.numbers)
        native.find_modes(centre, FIRST_STEPS)
        _set(current, present)

        def log_density(log_jacobian: float) -> float:
            log_p = float(self._joint(native.free, labels[1], point)) + log_jacobian
            return log_p if log_p > -np.inf else -np.inf

        log_p = log_density(native.standardize(STEPS))
        if not log_p > -np.inf:
            return free

        def placed() -> float:
            return log_density(native.place(STEPS))

        draw_some(rng, current, placed, log_p, anchor.widths, n_moved, tuning)
        if tuning:
            anchor.learn(current)
        return native.free

    def _begin(self, anchor: AtomsAnchor, current: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the centre of the anchor, which the first draw sets."""
        if anchor.centre is None:
            base = self._densities.to_free(self._densities.draws(0, N_CENTRE))
            anchor.centre = np.mean(base, axis=0)
            anchor.numbers = {name: values.copy() for name, values in current.items()}
        return anchor.centre


def _set(values: Mapping[str, np.ndarray], numbers: Mapping[str, np.ndarray]) -> None:
    """Write numbers into arrays, whose addresses compiled code has."""
    for name, array in values.items():
        array[...] = numbers[name]
