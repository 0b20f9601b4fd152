r"""Variables that the density of all rows shares, moved together with the atoms of a Dirichlet process.

A coefficient or a dispersion in the likelihood is drawn by another step given the atoms, which have adapted to it
and hold it where it is. So it is also moved with them: an atom is written as

.. math:: \theta_k = m_k(u) + L_k(u)^{-\mathsf T} z_k, \qquad L_k L_k^{\mathsf T} = P_k(u)

with a mode and a precision of the density of cluster k, which depend on the labels and on the shared numbers u,
and on nothing else that moves. A number is drawn by a slice given the labels and z, from the joint density times
the Jacobian :math:`\prod_k |L_k(u)|^{-1}`, and the atoms follow.

Where a variable is the mean of the base, an intercept among the numbers can take its place: that changes all atoms
by the same vector, against which their modes, drawn to the mean, hold. So the mean, all atoms and one of the
numbers are translated too (:mod:`pymc_dpgmm.sampler.hyperparameters.translations`), in free form.

Early in tuning, before there are clusters, shared numbers that follow at once would explain what clusters should.
So these moves begin in the second half of tuning.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.process_density import ProcessModel
from pymc_dpgmm.integration.steps.shared_variables import (
    Widths,
    draw_some,
    is_unbounded,
    places_in,
    shared_variables,
)
from pymc_dpgmm.integration.variables import dependents
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms, is_of_mixtures
from pymc_dpgmm.sampler.atoms.compiled_sweeps import CompiledSweeps
from pymc_dpgmm.sampler.hyperparameters.translations import STEP, Directions, second_differences, translate

# Draws from the base whose mean is where modes are looked for first.
N_CENTRE = 64
# Log densities that differ by less, beside 1 or one of them, differ by rounding.
SAME = 1e-9
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
    means : list of pairs
        The variables that are means of the base, and the columns of atoms in free form that they are the means of.
    reach : (D,) array
        How far the base reaches, in free form.
    directions : Directions
        Of translations of all atoms.
    """

    def __init__(self, n_before: int) -> None:
        self.n_before = n_before
        self.centre: np.ndarray | None = None
        self.numbers: dict[str, np.ndarray] = {}
        self.n_learnt = 0
        self.widths: Widths = {}
        self.means: list[tuple[str, slice]] = []
        self.reach = np.empty(0)
        self.directions = Directions(0)

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

    Attributes
    ----------
    watched : list of str
        Names of the variables.
    n_impossible : int
        Evaluations in the last draw at which the log density was +inf or NaN.
    """

    def __init__(self, model: pm.Model, process: ProcessModel) -> None:
        parameters = process.parameters
        shared = [] if process.densities.discrete else shared_variables(model, parameters[0], process.terms)
        may_be_means = _may_be_means(model, parameters, shared) if shared else []
        self._densities = process.densities
        self.names, self.watched = [model.rvs_to_values[rv].name for rv in shared], [rv.name for rv in shared]
        self.n_impossible = 0
        self._may_be_means = [(position, model.rvs_to_values[rv].name) for position, rv in may_be_means]
        # Rows move too, so that whatever depends on them counts, whether it depends on the variables or not.
        moving = [*shared, *(rv for _, rv in may_be_means)]
        depending = [other for rv in (*parameters, *moving) for other in dependents(model, rv)]
        counted = [rv for rv in dict.fromkeys([*moving, *depending]) if not is_atoms(rv)]
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
        means = {name: np.array(point[name]) for _, name in self._may_be_means}
        point.update(current | means)
        densities = self._densities.at(point)
        centre = self._begin(anchor, current, means)
        native.begin(rng, labels[0], free, densities.native_values)
        present = {name: values.copy() for name, values in current.items()}
        _set(current, anchor.numbers)
        native.find_modes(centre, FIRST_STEPS)
        _set(current, present)

        def log_density(log_jacobian: float) -> float:
            return self._log_density(native.free, labels[1], point) + log_jacobian

        log_p = log_density(native.standardize(STEPS))
        self.n_impossible = int(not log_p < np.inf)
        if not -np.inf < log_p < np.inf:
            return free

        def placed() -> float:
            return log_density(native.place(STEPS))

        self.n_impossible += draw_some(rng, current, placed, log_p, anchor.widths, n_moved, tuning)
        free = native.free
        if anchor.means:
            free = free + self._translate(rng, point, current, labels[1], free, anchor, tuning)
        if tuning:
            anchor.learn(current)
        return free

    def _log_density(self, free: np.ndarray, labels: np.ndarray, point: Mapping[str, np.ndarray]) -> float:
        """Return the log density of atoms, and of all that moves with them."""
        return float(self._joint(free, labels, point))

    def _translate(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        current: Mapping[str, np.ndarray],
        labels: np.ndarray,
        free: np.ndarray,
        anchor: AtomsAnchor,
        tuning: bool,
    ) -> np.ndarray:
        """Move one of the current numbers, and the means of the base, and return how far the atoms move: (D,)."""
        before = [(point[name], point[name].copy(), columns) for name, columns in anchor.means]
        places = places_in(current)
        place = places[rng.integers(len(places))]
        values = current[place[0]]

        def log_density(shift: np.ndarray) -> float:
            for mean, present, columns in before:
                mean[...] = present + shift[columns].reshape(present.shape)
            return self._log_density(free + shift, labels, point)

        if tuning:
            steps = STEP * anchor.reach, STEP * anchor.directions.width(place)
            differences = second_differences(
                lambda shifts: np.array([log_density(shift) for shift in shifts]), values, place[1], *steps
            )
            anchor.directions.learn(place, *differences)
        shift, n_impossible = translate(rng, values, place, log_density, anchor.directions, tuning)
        self.n_impossible += n_impossible
        return shift

    def _begin(
        self, anchor: AtomsAnchor, current: Mapping[str, np.ndarray], means: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return the centre of the anchor, which the first draw sets.

        A variable may be the mean of some columns of the atoms. It is if the density of atoms is the same where it
        moves with them.
        """
        if anchor.centre is not None:
            return anchor.centre
        free = self._densities.to_free(self._densities.draws(0, N_CENTRE))
        anchor.centre, anchor.reach = np.mean(free, axis=0), np.std(free, axis=0)
        anchor.directions = Directions(len(anchor.reach))
        anchor.numbers = {name: values.copy() for name, values in current.items()}
        log_p = self._densities.base_of_free(free)
        for position, name in self._may_be_means:
            mean, present, shift = means[name], means[name].copy(), np.zeros_like(anchor.reach)
            columns = self._densities.columns[position]
            if mean.size != columns.stop - columns.start:
                continue
            shift[columns] = anchor.reach[columns] / (1.0 + np.arange(mean.size))
            mean[...] = present + shift[columns].reshape(present.shape)
            if np.allclose(self._densities.base_of_free(free + shift), log_p, rtol=SAME, atol=SAME):
                anchor.means.append((name, columns))
            mean[...] = present
        return anchor.centre


def _may_be_means(
    model: pm.Model, parameters: Sequence[Variable], shared: Sequence[Variable]
) -> list[tuple[int, Variable]]:
    """Return unbounded variables behind the base of atoms, and the position of the parameter they are behind.

    Each is behind one parameter alone, and behind no other labels, mixtures and processes: their density is not
    counted where the variable moves, and their labels are those of the draw before.
    """
    behind = [set(ancestors(atoms_inputs(rv)[1], blockers=model.basic_RVs)) for rv in parameters]
    found = []
    for mean in model.free_RVs:
        positions = [position for position, variables in enumerate(behind) if mean in variables]
        others = [rv for rv in (mean, *dependents(model, mean)) if rv not in parameters]
        is_free = is_unbounded(model, mean) and mean not in shared
        if is_free and len(positions) == 1 and not any(map(is_of_mixtures, others)):
            found.append((positions[0], mean))
    return found


def _set(values: Mapping[str, np.ndarray], numbers: Mapping[str, np.ndarray]) -> None:
    """Write numbers into arrays, whose addresses compiled code has."""
    for name, array in values.items():
        array[...] = numbers[name]
