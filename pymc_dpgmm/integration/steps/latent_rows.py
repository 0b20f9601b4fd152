"""Latent rows of a mixture that are drawn together with their labels."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.process_density.impossible_rows import refuse_impossible_rows
from pymc_dpgmm.integration.process_density.latent_density import LatentDensity, row_terms_of
from pymc_dpgmm.integration.steps.shared_variables import SharedVariables, Widths, mean_of_base, shared_variables
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared, is_labels
from pymc_dpgmm.integration.variables import (
    CollapsedMixtureRV,
    PartitionRV,
    is_plain_mixture,
    mixture_inputs,
    of_units,
)
from pymc_dpgmm.integration.variables.atoms import has_atoms
from pymc_dpgmm.sampler.amounts import REDRAWS_OF_ROWS, STRETCHES_OF_ROWS
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections
from pymc_dpgmm.sampler.hyperparameters.translations import Directions
from pymc_dpgmm.sampler.latent_rows import (
    expansions,
    redraws,
    row_density,
    shared_numbers,
    stretches,
    translations,
)
from pymc_dpgmm.sampler.latent_rows.cluster_shifts import ClusterShifts
from pymc_dpgmm.sampler.latent_rows.expansions import LEAST_DISTANCE
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase, can_move_labels, redraw, row_of_base
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.latent_rows.standardized import StandardizedRows
from pymc_dpgmm.sampler.latent_rows.stretches import stretch
from pymc_dpgmm.sampler.latent_rows.translations import TranslatedRows
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table_functions import function_of
from pymc_dpgmm.sampler.state.templates import DRAW_NORMAL

KERNELS = (*expansions.KERNELS, *redraws.KERNELS, *row_density.KERNELS, *stretches.KERNELS)
KERNELS_OF_SHARED = (
    StandardizedRows.kernel,
    ClusterShifts.kernel,
    *shared_numbers.KERNELS,
    *shared_numbers.KERNELS_OF_DRAWN,
    *translations.KERNELS,
)
# How far the first differences of a chain reach.
FIRST_DISTANCE = 0.5
# Draws of tuning after which what is proposed to rows alone follows the base measure; then it stays.
ROWS_OF_BASE_EVERY = 20
# The share of stretches that should be accepted.
WANTED = 0.35


def latent_rows(model: pm.Model) -> list[Variable]:
    """Return the free mixtures of a model whose rows can be drawn with their labels.

    The rows of a cluster must be normal, and every term of the density of the rest must depend on one row.
    """
    return list(shared_of_latent_rows(model))


def shared_of_latent_rows(model: pm.Model) -> dict[Variable, list[Variable]]:
    """Return the variables that the latent rows of a model share, by these: see ``shared_variables.py``."""
    shared = {}
    for rv in model.free_RVs:
        terms = row_terms_of(model, rv) if _is_normal(model, rv) else None
        if terms is not None:
            shared[rv] = shared_variables(model, rv, terms)
    return shared


def _is_normal(model: pm.Model, rv: Variable) -> bool:
    if rv.owner is None or not isinstance(rv.owner.op, CollapsedMixtureRV):
        return False
    inputs, family = mixture_inputs(rv), rv.owner.op.layout.family
    labels = labels_of_rows(rv)
    if inputs.missing is not None or family.takes_missing or family.component.normal_rows is None:
        return False
    is_plain = labels in model.free_RVs and is_labels(labels) and is_plain_mixture(model, labels, rv)
    return is_plain and not has_atoms(model, labels) and isinstance(labels.owner.op, PartitionRV)


def check_latent_rows(choice: Any) -> None:
    """Raise ValueError unless a user's choice is one."""
    if choice not in (None, "labels", "nuts"):
        raise ValueError(f'latent_rows must be "labels" or "nuts", got {choice!r}')


def chosen_latent_rows(known: Sequence[Variable], given: Sequence[Variable], choice: Any) -> list[Variable]:
    """Return which of a model's :func:`latent_rows` a step of some variables draws with the labels among these.

    Raises
    ------
    ValueError
        Unless ``choice`` is None, "labels" or "nuts".
    """
    check_latent_rows(choice)
    if choice == "nuts":
        return []
    return [rv for rv in known if rv in given and labels_of_rows(rv) in given]


def labels_of_rows(rv: Variable) -> Variable:
    """Return the labels of latent rows, or of the units that these belong to."""
    return of_units(mixture_inputs(rv).labels)[0]


class LatentRows:
    """The latent rows of a mixture on the labels of a target, and how they are drawn.

    Parameters
    ----------
    model : pm.Model
    target : LabelsTarget
    mixture : variable
    compile_kwargs : dict, optional
    drawn : collection of variables
        What no other step draws of the variables that the rows share.

    Attributes
    ----------
    name : str
        Of the rows' value variable.
    statistic : str
        Of the statistic that tells the share of accepted proposals.
    kernels : tuple of CFunction
        What draws need besides the functions of families.
    """

    def __init__(
        self,
        model: pm.Model,
        target: LabelsTarget,
        mixture: Variable,
        compile_kwargs: Any,
        drawn: Collection[Variable] = (),
    ) -> None:
        terms = row_terms_of(model, mixture)
        assert terms is not None
        self._density = LatentDensity(model, mixture, terms, compile_kwargs)
        self._terms, self._have_been_checked = terms, False
        shared, self.shared = shared_variables(model, mixture, terms), None
        if shared:
            mean = mean_of_base(model, mixture, self._density.d)
            own = [rv for rv in shared if rv in drawn]
            self.shared = SharedVariables(model, mixture, shared, mean, compile_kwargs, own)
        self.name = self._density.name
        self.statistic = f"{self.name}_accepted"
        self._view = [own.name for own in target.mixtures].index(mixture.name)
        self._mixture = target.mixtures[self._view]
        self._work, self._work_of_shifts = Work(), Work()
        self._moving: MovingRows | None = None
        self._followers: Any = None
        own = [function_of(self._mixture.family, DRAW_NORMAL)] if self._mixture.family.draw_normal else []
        self.kernels = (*KERNELS, *own, *(KERNELS_OF_SHARED if shared else ()))

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_moving": None, "_followers": None}

    def begin(self) -> None:
        """Check, at the start of a chain, that rows are still those that the terms were found with."""
        self._terms.check_data()
        self._have_been_checked = False

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        target: LabelsTarget,
        prepared: Prepared,
        anchor: "Anchor",
        tuning: bool,
    ) -> tuple[Prepared, float]:
        """Draw the rows and, where they may change, their labels; return also the share of accepted proposals."""
        state, d = prepared.state, self._density.d
        present = np.asarray(point[self.name])
        rows = present.reshape(len(present), d).astype(np.float64)
        anchor.begin(rows)
        own = point if self.shared is None else self.shared.begin(point)
        density, offset = self._density.at(own), None
        if self._mixture.offset is not None:
            offset = np.broadcast_to(self._mixture.offset(point)[0], present.shape).reshape(rows.shape)
            density.add(offset)
        added: Any = 0.0 if offset is None else offset
        state.make_own_rows(self._view)
        self._check_rows(rows - added, state, density)
        if anchor.of_base is None or (tuning and anchor.n_learnt % ROWS_OF_BASE_EVERY == 0):
            anchor.of_base = row_of_base(state.tables[self._view], d)
        moves_labels = target.moves_latent_rows and can_move_labels(state)
        distances, scale = anchor.reach()
        moving = self._moving
        if moving is None or not moving.is_of(rng, state, density):
            moving = self._moving = MovingRows(rng, state, self._view, d, density, self._work)
            self._followers = self._make_followers(moving)
        moving.begin(anchor.rows - added, distances, scale)
        n_accepted = sum(redraw(moving, moves_labels, anchor.of_base) for _ in range(REDRAWS_OF_ROWS))
        for _ in range(STRETCHES_OF_ROWS):
            accepted = stretch(moving, anchor.step)
            if tuning:
                anchor.learn_step(accepted)
        if self.shared is not None:
            standardized, shifts, translated = self._followers
            numbers = self.shared.at(own, offset)
            for following, widths in ((standardized, anchor.widths), (shifts, anchor.widths_of_shifts)):
                following.prepare(anchor.of_base)
                self.shared.move(rng, own, moving, numbers, following, widths, tuning)
            self.shared.translate(rng, own, translated, numbers, scale, anchor.directions, tuning)
            self.shared.draw(rng, own, moving, numbers, anchor, tuning)
            self.shared.end(point)
        drawn = state.tables[self._view].values[:, :d] + added
        if tuning:
            anchor.learn(drawn)
        point[self.name] = drawn.reshape(present.shape).astype(present.dtype)
        values = state.tables[self._view].values
        if offset is not None or present.dtype != np.float64:
            # What the next draw finds is rounded.
            values = self._mixture.view(point, len(point[target.name])).values
            state.take_rows(self._view, values[:, :d])
        elif d == values.shape[1]:
            # No known columns, which might be others in the next draw.
            self._mixture.note_drawn(self.name, point[self.name], values)
        views = list(prepared.views)
        views[self._view] = views[self._view]._replace(values=values, params=state.tables[self._view].params)
        return Prepared(target.labels_of(state), views, state), n_accepted / (REDRAWS_OF_ROWS * len(rows))

    def _make_followers(self, moving: MovingRows) -> tuple[StandardizedRows, ClusterShifts, TranslatedRows] | None:
        """Return how rows move with what they share, if they share anything."""
        if self.shared is None:
            return None
        return (
            StandardizedRows(moving, self._work),
            ClusterShifts(moving, self._work_of_shifts),
            TranslatedRows(moving),
        )

    def _check_rows(self, rows: np.ndarray, state: State, density: RowDensity) -> None:
        """Raise, at the first draw of a chain, if rows (n, d) have no density."""
        if self._have_been_checked:
            return
        self._have_been_checked = True
        n, d = rows.shape
        table, rng = state.tables[self._view], np.random.default_rng(0)

        def tried(m: int) -> np.ndarray:
            draws = [
                table.base_family.draw_rows(rng, table.params, np.arange(n), table.values[:, d:]) for _ in range(m)
            ]
            return density(np.array(draws))

        refuse_impossible_rows(self.name, self._terms, density(rows[None])[0], tried)


class Anchor:
    """What is learnt of rows while tuning: where expansions begin, which is the mean of the draws, and a step.

    Attributes
    ----------
    rows : (n, d) array
    step : float
        Of moves of all rows of a cluster together.
    of_base : RowOfBase or None
        What is proposed to rows alone.
    n_learnt : int
        Draws that were learnt from.
    widths, widths_of_shifts : dict
        Of slices of the numbers that rows share: where standardized rows follow, and rows that are shifted.
    directions : Directions
        Of translations of all rows.
    axes : LearntDirections or None
        Along which shared numbers are drawn given the rows.
    """

    def __init__(self) -> None:
        self.step = 1.0
        self.rows: np.ndarray = np.empty((0, 0))
        self._squares = np.empty((0, 0))
        self._reach: tuple[np.ndarray, np.ndarray] | None = None
        self.of_base: RowOfBase | None = None
        self.n_learnt = 0
        self.widths: Widths = {}
        self.widths_of_shifts: Widths = {}
        self.directions = Directions(0)
        self.axes: LearntDirections | None = None

    def begin(self, rows: np.ndarray) -> None:
        """Start from the rows of the first draw."""
        if not self.rows.size:
            self.rows, self._squares = rows.copy(), np.full(rows.shape, FIRST_DISTANCE**2)
            self.directions = Directions(rows.shape[1])
            self._reach = None

    def reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how far differences about the anchors reach (n, d), and the median of that by column.

        They reach as far as the standard deviation of the draws.
        """
        if self._reach is None:
            least = LEAST_DISTANCE * np.maximum(1.0, np.abs(self.rows))
            distances = np.maximum(np.sqrt(self._squares), least)
            self._reach = distances, np.median(distances, axis=0)
        return self._reach

    def learn_step(self, accepted: float) -> None:
        """Take the share of accepted moves of whole clusters into account."""
        if accepted == accepted:
            self.step *= np.exp((accepted - WANTED) / np.sqrt(1.0 + self.n_learnt))

    def learn(self, rows: np.ndarray) -> None:
        """Take a draw into account; later ones count more, as the first ones may be far off."""
        self.n_learnt += 1
        gain = min(0.5, 2.0 / self.n_learnt)
        moved = rows - self.rows
        self.rows = self.rows + gain * moved
        self._squares = self._squares + gain * ((1.0 - gain) * moved**2 - self._squares)
        self._reach = None
