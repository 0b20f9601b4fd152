"""The move of all that is continuous, in a step of labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.density import JointDensity
from pymc_dpgmm.integration.continuous.normal_clusters import NormalClusters
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.sampler.hamiltonian import no_u_turn, normal_clusters
from pymc_dpgmm.sampler.hamiltonian.adaptation import Scales, StepSize
from pymc_dpgmm.sampler.hamiltonian.no_u_turn import NoUTurn, Told
from pymc_dpgmm.sampler.hamiltonian.normal_clusters import CentredRows
from pymc_dpgmm.sampler.state.state import State

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


class Learnt:
    """What tuning learns of the moves of a chain.

    Parameters
    ----------
    n : int
        Numbers that move in every draw.
    tune : int
        Draws of tuning.
    target_accept : float

    Attributes
    ----------
    step_size : StepSize
    scales : Scales
    weights : dict
        What base measures tell of the means of clusters, as numbers of rows, by the names of rows.
    n_moves : int
        Of tuning.
    """

    def __init__(self, n: int, tune: int, target_accept: float) -> None:
        self.step_size, self.scales = StepSize(target_accept), Scales(n, tune)
        self.weights: dict[str, Any] = {}
        self.n_moves = 0


class LatentClusters:
    """The rows of a latent mixture in the state of its labels, and how their clusters move.

    Parameters
    ----------
    name : str
        Of the rows' value variable.
    clusters : NormalClusters
    target : LabelsTarget
    position, view : int
        Of the target, and of the rows in its state.
    """

    def __init__(
        self, name: str, clusters: NormalClusters, target: LabelsTarget, position: int, view: int, d: int
    ) -> None:
        self.name, self.position = name, position
        self._clusters, self._target, self._view, self.d = clusters, target, view, d
        self._rows: CentredRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_rows": None}

    def n_labels(self, point: Mapping[str, np.ndarray]) -> int:
        """Return how many clusters there may be with the labels of a point."""
        return int(np.max(point[self._target.name], initial=0)) + 1

    def begin(
        self, rng: np.random.Generator, state: State, reach: np.ndarray, learnt: Learnt, tuning: bool
    ) -> CentredRows:
        """Draw the clusters, and compute what moves, for rows (n, d) of which the model tells as far as this."""
        rows = self._rows
        if rows is None or not rows.is_of(rng, state):
            rows = self._rows = CentredRows(rng, state, self._view, self.d, self._clusters.is_full)
        params = state.tables[self._view].params
        if tuning or self.name not in learnt.weights:
            # It must not depend on what moves.
            learnt.weights[self.name] = params.kappa
        rows.begin(reach, params.mu, learnt.weights[self.name])
        return rows

    def end(self, point: dict[str, np.ndarray], prepared: Prepared, rows: np.ndarray) -> Prepared:
        """Let the state have other rows (n, d) and parameters, those of the point; return it with its inputs."""
        assert self._rows is not None
        mixture, state, v = self._target.mixtures[self._view], prepared.state, self._view
        table, params = state.tables[v], mixture.params_at(point)
        if params is not table.params:
            table.set_params(params)
            state._point_to(())
        self._rows.end(rows)
        table.note_rows(rows)
        return self._target.with_drawn_rows(point, prepared, v, self.name)


class ContinuousMove:
    """Draws the continuous variables of a model, with latent rows, given labels and everything else.

    Parameters of clusters of normal rows are drawn, and move with the rest; they are forgotten afterwards.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables that move, but for those of rows.
    latent : dict of variable to pairs of int
        Latent mixtures whose rows move: the positions of their targets, and their views there.
    targets : sequence of LabelsTarget
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
        latent: Mapping[Variable, tuple[int, int]],
        targets: Sequence[LabelsTarget],
        compile_kwargs: Any,
        target_accept: float = TARGET_ACCEPT,
        max_treedepth: int = MAX_TREEDEPTH,
    ) -> None:
        point = model.initial_point(random_seed=0)
        self._density = density = JointDensity(model, values, list(latent), point, compile_kwargs)
        self._names = [value.name for value in values]
        self._dtypes = {name: np.asarray(point[name]).dtype for name in density.pieces}
        self.latent = [
            LatentClusters(
                model.rvs_to_values[mixture].name,
                clusters,
                targets[place[0]],
                *place,
                mixture.owner.op.layout.n_columns,
            )
            for (mixture, place), clusters in zip(latent.items(), density.clusters, strict=True)
        ]
        pieces = [density.pieces[rows.name] for rows in self.latent]
        # Of what the density returns beside its gradient.
        self._lengths = 3 * [piece.stop - piece.start for piece in pieces]
        self._target_accept, self._max_treedepth = target_accept, max_treedepth
        self.watched, self.n_impossible = [model.values_to_rvs[value].name for value in values], 0
        self._sampler: NoUTurn | None = None

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Compile the density at a point."""
        density = self._density
        fixed: list[np.ndarray] = []
        for rows, clusters in zip(self.latent, density.clusters, strict=True):
            n, d, k = density.pieces[rows.name].shape[0], rows.d, rows.n_labels(point)
            roots = np.tile(np.eye(d), (k, 1, 1)) if clusters.is_full else np.ones((k, d))
            fixed += [np.zeros((n, d)), roots, np.zeros((k, d))]
        vector = np.zeros(density.n_fixed + sum(array.size for array in fixed[2::3]))
        density.function(vector, *fixed, *(np.array(point[name], order="C") for name in density.inputs))

    def learnt(self, tune: int) -> Learnt:
        """Return what is known of the moves of a chain that begins."""
        return Learnt(self._density.n_fixed, tune, self._target_accept)

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

    def _seen(self, sampler: NoUTurn, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers and gradient; of rows, these themselves, and what the rest of the model says of them."""
        gradient, m = sampler.gradient(len(numbers)), len(self.latent)
        seen, slopes = numbers.copy(), gradient.copy()
        for k, rows in enumerate(self.latent):
            piece = self._density.pieces[rows.name]
            seen[piece.start : piece.stop] = sampler.further[m + k]
            slopes[piece.start : piece.stop] += sampler.further[2 * m + k]
        return seen, slopes

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        prepared: list[Prepared],
        learnt: Learnt,
        tuning: bool,
    ) -> Told | None:
        """Draw the variables in a point; None where the density is zero there.

        ``prepared`` are the states of the labels' targets, whose rows are those of the point, before and after.
        """
        density, scales, m = self._density, learnt.scales.scales, self._density.n_fixed
        centred = []
        for rows in self.latent:
            piece, state = density.pieces[rows.name], prepared[rows.position].state
            reach = scales[piece.start : piece.stop].reshape(piece.shape[0], -1)
            centred.append(rows.begin(rng, state, reach, learnt, tuning))
        n = m + sum(own.moving_means.size for own in centred)
        sampler = self._sampler_at(rng, point, [array for own in centred for array in own.fixed], n)
        numbers, own_scales = sampler.begin(n)
        for name in self._names:
            piece = density.pieces[name]
            numbers[piece.start : piece.stop] = point[name].ravel()
        own_scales[:m], at = scales, m
        for rows, own in zip(self.latent, centred, strict=True):
            piece, stop = density.pieces[rows.name], at + own.moving_means.size
            numbers[piece.start : piece.stop] = own.moving.ravel()
            own_scales[piece.start : piece.stop] = own.spreads.ravel()
            numbers[at:stop] = own.moving_means.ravel()
            own_scales[at:stop] = own.spreads_of_means.ravel()
            at = stop
        is_early = tuning and learnt.n_moves < EARLY_MOVES
        depth = min(self._max_treedepth, EARLY_MAX_TREEDEPTH) if is_early else self._max_treedepth
        told = sampler.draw(learnt.step_size.size, depth)
        if sampler.failed_at is not None:
            # What failed is in the arrays: PyTensor tells what it is.
            fixed = [array for own in centred for array in own.fixed]
            density.function(sampler.failed_at, *fixed, *(np.asarray(point[name]) for name in density.inputs))
            raise RuntimeError(f"the log density of {', '.join(density.pieces)} could not be computed")
        self.n_impossible = 0 if told is None else told.n_impossible
        if told is None:
            return None
        if tuning:
            learnt.n_moves += 1
            learnt.step_size.learn(told.acceptance_rate)
            if learnt.scales.learn(*self._seen(sampler, numbers[:m])):
                learnt.step_size.restart()
        for name in self._names:
            piece = density.pieces[name]
            point[name] = numbers[piece.start : piece.stop].reshape(piece.shape).astype(self._dtypes[name])
        for k, rows in enumerate(self.latent):
            shape = density.pieces[rows.name].shape
            point[rows.name] = sampler.further[k].reshape(shape).astype(self._dtypes[rows.name])
            residuals = sampler.further[len(self.latent) + k].reshape(shape[0], -1).copy()
            prepared[rows.position] = rows.end(point, prepared[rows.position], residuals)
        return told
