"""The move of all that is continuous, in a step of labels."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.density import JointDensity, ModelPart
from pymc_dpgmm.integration.continuous.normal_clusters import CLUSTERS_OF_FAMILIES
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget
from pymc_dpgmm.native.compiled import CFunction, logger
from pymc_dpgmm.sampler.hamiltonian import no_u_turn, normal_clusters
from pymc_dpgmm.sampler.hamiltonian.adaptation import AdaptedScales, Directions, StepSize, stretched
from pymc_dpgmm.sampler.hamiltonian.no_u_turn import NoUTurn, Told
from pymc_dpgmm.sampler.hamiltonian.normal_clusters import StandardizedRows
from pymc_dpgmm.sampler.hamiltonian.without_gradient import BySlices

KERNELS: tuple[CFunction, ...] = (*no_u_turn.KERNELS, *normal_clusters.KERNELS)
TARGET_ACCEPT, MAX_TREEDEPTH, EARLY_MAX_TREEDEPTH = 0.8, 10, 8
# What PyMC's NUTS tells of a draw, by the names of its statistics.
STATISTICS = {
    "diverging": bool,
    "energy": np.float64,
    "depth": np.int64,
    "tree_size": np.float64,
    "mean_tree_accept": np.float64,
    "step_size": np.float64,
    "reached_max_treedepth": bool,
}
# Moves of tuning in which trajectories are doubled fewer times.
EARLY_MOVES = 200


def nuts_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of PyMC's NUTS that the move of continuous variables has; tell of the others."""
    options = dict(given or {})
    known: dict[str, Any] = {
        name: options.pop(name) for name in ("target_accept", "max_treedepth") if name in options
    }
    if options:
        logger.info(
            "%s: ignored, since the step of the labels, which moves the continuous variables of this model, has "
            "target_accept and max_treedepth alone of the options of pm.NUTS.",
            ", ".join(options),
        )
    return known


class Learnt:
    """What tuning learns of the moves of a chain.

    Parameters
    ----------
    n : int
        Numbers of variables.
    tune : int
        Draws of tuning.
    target_accept : float

    Attributes
    ----------
    step_size : StepSize
    scales : AdaptedScales
        Of variables.
    of_rows : dict of str to AdaptedScales
        Of what the rest of a model tells of rows, by the names of parts: pseudo-observations and their scales.
    directions : Directions
        Of variables, and rows of all parts.
    bases_along : list
        For each direction and part, how the mean of the base measure differs along it, and its weight.
    of_parts : dict of str to Any
        What else parts have learnt, by their names.
    n_moves : int
        Of tuning.
    by_slices : BySlices, optional
        Where points have been met at which the density has no gradient.
    """

    def __init__(self, n: int, tune: int, target_accept: float) -> None:
        self.step_size, self.scales = StepSize(target_accept), AdaptedScales(n, tune)
        self.of_rows: dict[str, AdaptedScales] = {}
        self.directions, self.bases_along = Directions(tune), list[Any]()
        self.of_parts: dict[str, Any] = {}
        self.tune, self.n_moves = tune, 0
        self.by_slices: BySlices | None = None

    def seen(self, name: str, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pseudo-observations of rows (n, d) and their precisions; numbers are those of the first draw."""
        scales = self.of_rows.get(name)
        if scales is None:
            scales = self.of_rows[name] = AdaptedScales(numbers.size, self.tune)
            scales.observations = numbers.ravel().copy()
        assert scales.observations is not None
        return scales.observations.reshape(numbers.shape), scales.scales.reshape(numbers.shape) ** -2.0


class Along(NamedTuple):
    """How a part differs along a direction.

    Parameters
    ----------
    base_at : callable
        Mean and weight of the base measure, (d,) each, at a point.
    displaced : callable
        ``(numbers, centre, weight)``: what moves of rows and of clusters, where numbers differ by (n, d) and the
        mean of the base by ``centre``. It must not depend on what moves: ``weight`` is that at some time.
    """

    base_at: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    displaced: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, list[np.ndarray]]]


class Moving(NamedTuple):
    """What moves of a part, and what does not.

    Parameters
    ----------
    of_rows : array
    of_clusters : list of pairs
        Numbers (K, d), and how far they reach.
    fixed : list of arrays
    along : Along, optional
        Where it is known, and directions can be learnt.
    """

    of_rows: np.ndarray
    of_clusters: list[tuple[np.ndarray, Any]]
    fixed: list[np.ndarray]
    along: Along | None = None


class MovingPart(Protocol):
    """A part of a joint density, and how it is at a point.

    Attributes
    ----------
    name : str
    values : list of str
        Names of its value variables.
    n, d : int
        Shape of its numbers.
    """

    name: str
    values: list[str]
    n: int
    d: int

    def prepare(self, point: Mapping[str, np.ndarray]) -> Moving:
        """Return arrays of the types that are compiled for."""

    def begin(self, rng: np.random.Generator, point: Any, prepared: Any, learnt: Learnt, tuning: bool) -> Moving:
        """Return what moves, at the present place."""

    def end(self, point: Any, prepared: Any, values: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Write what is drawn: values of the variables, and numbers (n, d)."""


class LatentClusters:
    """The rows of a latent mixture in the state of its labels, and how their clusters move.

    Parameters
    ----------
    model : pm.Model
    mixture : variable
    target : LabelsTarget
    position, view : int
        Of the target, and of the rows in its state.
    n : int
        Rows.
    """

    def __init__(
        self, model: pm.Model, mixture: Variable, target: LabelsTarget, position: int, view: int, n: int
    ) -> None:
        value = model.rvs_to_values[mixture]
        self.name, self.values, self.n, self.d = value.name, [value.name], n, mixture.owner.op.layout.n_columns
        self._dtype, self._clusters = value.dtype, CLUSTERS_OF_FAMILIES[mixture.owner.op.layout.family.name]
        self._target, self._position, self._view = target, position, view
        self._rows: StandardizedRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_rows": None}

    def prepare(self, point: Mapping[str, np.ndarray]) -> Moving:
        """Return arrays of the types that are compiled for."""
        n, d, k = self.n, self.d, int(np.max(point[self._target.name], initial=0)) + 1
        roots = np.tile(np.eye(d), (k, 1, 1)) if self._clusters.is_full else np.ones((k, d))
        fixed = [np.zeros((n, d)), np.ones((n, d)), roots, np.zeros((k, d))]
        return Moving(np.zeros((n, d)), 2 * [(np.zeros((k, d)), 1.0)], fixed)

    def begin(self, rng: np.random.Generator, point: Any, prepared: Any, learnt: Learnt, tuning: bool) -> Moving:
        """Draw the clusters, and return what moves."""
        state, rows, clusters = prepared[self._position].state, self._rows, self._clusters
        if rows is None or not rows.is_of(rng, state):
            rows = self._rows = StandardizedRows(rng, state, self._view, self.d, clusters.is_full)
        table = state.tables[self._view]
        of_base = table.params._asdict()
        seen, precisions = learnt.seen(self.name, table.values[:, : self.d])
        shape, typical = learnt.of_parts.get(self.name, (None, None))
        # They must not depend on what moves.
        shape = clusters.shape(of_base) if tuning or shape is None else shape
        given = of_base["mu"], of_base["kappa"], clusters.log_scale(of_base, np.log), shape
        rows.begin(seen, precisions, 0.5 if typical is None else typical, given)
        if typical is None:
            typical = rows.squares.copy()
        elif tuning:
            typical = typical + min(0.5, 2.0 / (learnt.n_moves + 1)) * (rows.squares - typical)
        learnt.of_parts[self.name] = shape, typical
        along = Along(self._base_at, partial(rows.along, prepared[self._position].labels))
        return Moving(rows.moving, rows.of_clusters, rows.fixed, along)

    def _base_at(self, point: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and weight of the base measure, (d,) each, at a point."""
        params = self._target.mixtures[self._view].params_at(point)
        mean, weight = np.broadcast_to(params.mu, self.d), np.broadcast_to(params.kappa, self.d)
        return mean.copy(), weight.copy()

    def end(self, point: Any, prepared: Any, values: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Let the point and the state have other rows, and the state parameters of the point."""
        assert self._rows is not None
        v, shape = self._view, np.shape(point[self.name])
        point[self.name] = values[0].reshape(shape).astype(self._dtype)
        mixture, state = self._target.mixtures[v], prepared[self._position].state
        table, params = state.tables[v], mixture.params_at(point)
        if params is not table.params:
            table.set_params(params)
        self._rows.end(numbers)
        table.note_rows(numbers)
        prepared[self._position] = self._target.with_drawn_rows(point, prepared[self._position], v, self.name)


class ContinuousMove:
    """Draws the continuous variables of a model, given labels and everything else.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables that move, but for those of parts.
    parts : sequence of pairs
        Parts of the density, and how they are at a point.
    compile_kwargs : dict, optional
    target_accept : float
        Mean acceptance rate that step sizes are tuned to.
    max_treedepth : int
        A trajectory has 2 ** max_treedepth - 1 steps at most.

    Attributes
    ----------
    watched : list of str
        Names of the variables.
    n_impossible : int
        Evaluations in the last draw at which the log density was +inf or NaN.
    """

    def __init__(
        self,
        model: pm.Model,
        values: Sequence[Variable],
        parts: Sequence[tuple[ModelPart, MovingPart]],
        compile_kwargs: Any,
        target_accept: float = TARGET_ACCEPT,
        max_treedepth: int = MAX_TREEDEPTH,
    ) -> None:
        point = model.initial_point(random_seed=0)
        graphs, self._parts = [graph for graph, _ in parts], [part for _, part in parts]
        self._density = density = JointDensity(model, values, graphs, point, compile_kwargs)
        self._dtypes = {name: np.asarray(point[name]).dtype for name in density.pieces}
        # Of what the density returns beside its gradient.
        self._lengths = []
        for part in self._parts:
            self._lengths += [int(np.size(point[name])) for name in part.values] + 2 * [part.n * part.d]
        self._target_accept, self._max_treedepth = target_accept, max_treedepth
        self.watched, self.n_impossible = [model.values_to_rvs[value].name for value in values], 0
        # Whether a user has been told of values without a gradient.
        self._has_told = False
        self._sampler: NoUTurn | None = None

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Compile the density at a point."""
        moving = [part.prepare(point) for part in self._parts]
        n = self._density.n_fixed + sum(numbers.size for one in moving for numbers, _ in one.of_clusters)
        fixed = [array for one in moving for array in one.fixed]
        self._density.function(np.zeros(n), *fixed, *(np.array(point[a], order="C") for a in self._density.inputs))

    def learnt(self, tune: int) -> Learnt:
        """Return what is known of the moves of a chain that begins."""
        return Learnt(self._density.n_values, tune, self._target_accept)

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_sampler": None}

    def statistics(self, told: Told | None, size: float) -> dict[str, Any]:
        """Return the statistics of a draw whose last move, with steps of a size, has told this, if any was."""
        if told is None:
            values = [False, np.nan, 0, 0.0, np.nan, size, False]
        else:
            depth, rate = told.depth, told.acceptance_rate
            is_deep = depth >= self._max_treedepth
            values = [told.is_diverging, told.energy, depth, float(told.n_steps), rate, size, is_deep]
        return dict(zip(STATISTICS, values, strict=True))

    def _sampler_at(
        self, rng: np.random.Generator, point: Mapping[str, np.ndarray], fixed: list[np.ndarray], n: int
    ) -> NoUTurn:
        """Return the sampler of vectors of n numbers, with what is fixed and all else in the point."""
        others = [np.asarray(point[name]) for name in self._density.inputs]
        given = [*others, *self._density.function.shared]
        sampler = self._sampler
        if sampler is not None and sampler.rng is rng and sampler.takes(fixed, given):
            return sampler
        entry = self._density.function.entry([np.zeros(n), *fixed, *(np.array(a, order="C") for a in others)])
        self._sampler = NoUTurn(rng, entry, fixed, given, self._lengths, self._max_treedepth)
        return self._sampler

    def _learn(
        self,
        learnt: Learnt,
        point: Any,
        told: Told,
        sampler: NoUTurn,
        values: np.ndarray,
        n_clusters: int,
        along: list[Along],
    ) -> None:
        """Learn from a move of tuning: of rows, from their numbers and what the rest of the model says of them."""
        learnt.n_moves += 1
        learnt.step_size.learn(told.acceptance_rate)
        has_changed = learnt.scales.learn(values, sampler.gradient(len(values)), n_clusters)
        further, drawn, scales = iter(sampler.further), [values], [learnt.scales]
        for part in self._parts:
            of_part = [next(further) for _ in range(len(part.values) + 2)]
            numbers, gradient = of_part[-2:]
            has_changed |= learnt.of_rows[part.name].learn(numbers, gradient)
            drawn.append(numbers)
            scales.append(learnt.of_rows[part.name])
        if len(along) == len(self._parts):
            learnt.directions.learn(np.concatenate(drawn))
        if has_changed:
            narrowed = learnt.directions.update(np.concatenate([own.scales for own in scales]))
            for own in scales:
                own.scales, narrowed = narrowed[: len(own.scales)], narrowed[len(own.scales) :]
            learnt.bases_along = [
                self._bases_along(point, direction, along) for direction in learnt.directions.found
            ]
            learnt.step_size.restart()

    def _bases_along(
        self, point: Any, direction: np.ndarray, along: list[Along]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return for each part how the mean of its base differs along a direction, and its weight now."""
        other = dict(point)
        for name, piece in self._density.pieces.items():
            other[name] = point[name] + direction[piece.start : piece.stop].reshape(piece.shape)
        bases = [(one.base_at(other), one.base_at(point)) for one in along]
        return [(there - here, weight) for (there, _), (here, weight) in bases]

    def _displacements(self, learnt: Learnt, along: list[Along], scales: np.ndarray) -> np.ndarray:
        """Return how all that moves is displaced along the directions that are learnt, in units of scales."""
        found, m = learnt.directions.found, self._density.n_values
        displaced = np.empty((len(found), len(scales)))
        for own, direction, bases in zip(displaced, found, learnt.bases_along, strict=True):
            own[:m], at, moved = direction[:m], m, []
            for part, one, base in zip(self._parts, along, bases, strict=True):
                numbers, at = direction[at : at + part.n * part.d], at + part.n * part.d
                moved.append(one.displaced(numbers.reshape(part.n, part.d), *base))
            pieces = [rows for rows, _ in moved] + [one for _, of_clusters in moved for one in of_clusters]
            own[m:] = np.concatenate([piece.ravel() for piece in pieces]) if pieces else ()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(displaced / scales, posinf=0.0, neginf=0.0)

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        prepared: list[KeptState],
        learnt: Learnt,
        tuning: bool,
    ) -> Told | None:
        """Draw the variables in a point; None where the density is zero there.

        ``prepared`` are the states of the labels' targets, whose rows are those of the point, before and after.
        """
        density, m = self._density, self._density.n_values
        moving = [part.begin(rng, point, prepared, learnt, tuning) for part in self._parts]
        fixed = [array for one in moving for array in one.fixed]
        n = density.n_fixed + sum(numbers.size for one in moving for numbers, _ in one.of_clusters)
        sampler = self._sampler_at(rng, point, fixed, n)
        vector, scales = sampler.begin(n)
        for name, piece in density.pieces.items():
            vector[piece.start : piece.stop] = point[name].ravel()
        n_clusters = sum(len(one.of_clusters[0][0]) for one in moving)
        scales[:m], scales[m : density.n_fixed], at = learnt.scales.at(n_clusters), 1.0, m
        for one in moving:
            vector[at : at + one.of_rows.size] = one.of_rows.ravel()
            at += one.of_rows.size
        for numbers, reach in (pair for one in moving for pair in one.of_clusters):
            vector[at : at + numbers.size] = numbers.ravel()
            scales[at : at + numbers.size].reshape(numbers.shape)[:] = reach
            at += numbers.size
        is_early = tuning and learnt.n_moves < EARLY_MOVES
        depth = min(self._max_treedepth, EARLY_MAX_TREEDEPTH) if is_early else self._max_treedepth
        has_directions = len(learnt.directions.found) > 0
        along = [one.along for one in moving if one.along is not None]
        directions = stretched(self._displacements(learnt, along, scales)) if has_directions else ()
        told = sampler.draw(learnt.step_size.size, depth, *directions)
        if sampler.failed_at is not None:
            # What failed is in the arrays: PyTensor tells what it is.
            density.function(sampler.failed_at, *fixed, *(np.asarray(point[name]) for name in density.inputs))
            raise RuntimeError(f"the log density of {', '.join(self.watched)} could not be computed")
        self.n_impossible = 0 if told is None else told.n_impossible
        if sampler.lacks_gradient and learnt.by_slices is None:
            learnt.by_slices = BySlices(m)
            if not self._has_told:
                self._has_told = True
                logger.warning(
                    "The log density of %s has no finite gradient at some values, and slices draw them there, far "
                    "more slowly: look at R-hat. Such are infinite data or limits, a pm.math.switch of which the "
                    "other branch is infinite (bound what goes into it), a root or a log of what may be 0, and "
                    "covariances that lose their digits (Matern52 in place of ExpQuad)",
                    ", ".join(self.watched),
                )
        if told is None and learnt.by_slices is None:
            return None
        if tuning and told is not None:
            self._learn(learnt, point, told, sampler, vector[:m], n_clusters, along)
        if learnt.by_slices is not None and not learnt.by_slices.draw(sampler, tuning):
            return None
        for name, piece in density.pieces.items():
            point[name] = vector[piece.start : piece.stop].reshape(piece.shape).astype(self._dtypes[name])
        further = iter(sampler.further)
        for part in self._parts:
            values = [next(further) for _ in part.values]
            numbers, _ = next(further).reshape(part.n, part.d).copy(), next(further)
            part.end(point, prepared, values, numbers)
        return told
