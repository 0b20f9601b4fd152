"""Latent rows of a mixture that are drawn together with their labels."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.rows import can_move
from pymc_dpgmm.integration.process_density.impossible_rows import refuse_impossible_rows
from pymc_dpgmm.integration.process_density.latent_density import LatentDensity, row_terms_of
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget, is_labels
from pymc_dpgmm.integration.variables import (
    CollapsedMixtureRV,
    PartitionRV,
    is_plain_mixture,
    mixture_inputs,
    of_units,
)
from pymc_dpgmm.integration.variables.atoms import has_atoms
from pymc_dpgmm.integration.variables.models import with_densities
from pymc_dpgmm.sampler.amounts import FEW_NUMBERS, REDRAWS_OF_FEW_ROWS, REDRAWS_OF_ROWS
from pymc_dpgmm.sampler.latent_rows import redraws, row_density
from pymc_dpgmm.sampler.latent_rows.information import RowInformation
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase, can_move_labels, redraw, row_of_base
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table_functions import function_of

KERNELS = (*redraws.KERNELS, *row_density.KERNELS)
# Draws of tuning after which what is proposed to rows alone follows the base measure; then it stays.
ROWS_OF_BASE_EVERY = 20


def latent_rows(model: pm.Model) -> list[Variable]:
    """Return the free mixtures of a model whose rows are drawn by the step of their labels.

    The rows of a cluster must be normal. They move with all that is continuous (:func:`can_move`), or every term
    of the density of the rest depends on one row. What is asked of a model again is known.
    """
    made_of = [*with_densities(model), *model.value_vars]
    known = _known.get(model)
    if (
        known is None
        or len(known[0]) != len(made_of)
        or any(a is not b for a, b in zip(known[0], made_of, strict=True))
    ):
        known = _known[model] = made_of, _found_in(model)
    return list(known[1])


# The variables of models, and what was found among them.
_known: WeakKeyDictionary[pm.Model, tuple[list[Variable], list[Variable]]] = WeakKeyDictionary()


def _found_in(model: pm.Model) -> list[Variable]:
    normal = [rv for rv in model.free_RVs if _is_normal(model, rv)]
    return [rv for rv in normal if can_move(model, rv) or row_terms_of(model, rv) is not None]


def _is_normal(model: pm.Model, rv: Variable) -> bool:
    if rv.owner is None or not isinstance(rv.owner.op, CollapsedMixtureRV):
        return False
    inputs, family = mixture_inputs(rv), rv.owner.op.layout.family
    labels = labels_of_rows(rv)
    if inputs.missing is not None or family.takes_missing or family.component.normal_rows is None:
        return False
    is_plain = labels in model.free_RVs and is_labels(labels) and is_plain_mixture(model, labels, rv)
    return is_plain and not has_atoms(model, labels) and isinstance(labels.owner.op, PartitionRV)


def chosen_latent_rows(known: Sequence[Variable], given: Sequence[Variable]) -> list[Variable]:
    """Return which of a model's :func:`latent_rows` a step of some variables draws with the labels among these."""
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
    ) -> None:
        terms = row_terms_of(model, mixture)
        assert terms is not None
        self._density = LatentDensity(model, mixture, terms, compile_kwargs)
        self._terms, self._have_been_checked = terms, False
        self.name = self._density.name
        self.statistic = f"{self.name}_accepted"
        self._view = [own.name for own in target.mixtures].index(mixture.name)
        self._mixture = target.mixtures[self._view]
        self._work = Work()
        self._moving: MovingRows | None = None
        own = [function_of(self._mixture.family, "draw_normal")] if self._mixture.family.draw_normal else []
        self.kernels = (*KERNELS, *own)

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_moving": None}

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Compile the density of the rows."""
        self._density.at(point)

    def begin(self) -> None:
        """Check, at the start of a chain, that rows are still those that the terms were found with."""
        self._terms.check_data()
        self._have_been_checked = False

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        target: LabelsTarget,
        prepared: KeptState,
        known: "KnownOfRows",
        tuning: bool,
    ) -> tuple[KeptState, float]:
        """Draw the rows and, where they may change, their labels; return also the share of accepted proposals."""
        state, d = prepared.state, self._density.d
        present = np.asarray(point[self.name])
        rows = present.reshape(len(present), d).astype(np.float64)
        density, offset = self._density.at(point), None
        if self._mixture.offset is not None:
            offset = np.broadcast_to(self._mixture.offset(point)[0], present.shape).reshape(rows.shape)
            density.add(offset)
        added: Any = 0.0 if offset is None else offset
        state.make_own_rows(self._view)
        self._check_rows(rows - added, state, density)
        information = known.information
        if tuning or not information.n_learnt:
            information.learn(rows, lambda places: density(places - added))
        if known.of_base is None or (tuning and information.n_learnt % ROWS_OF_BASE_EVERY == 0):
            known.of_base = row_of_base(state.tables[self._view], d)
        moves_labels = target.moves_latent_rows and can_move_labels(state)
        moving = self._moving
        if moving is None or not moving.is_of(rng, state, density):
            moving = self._moving = MovingRows(rng, state, self._view, d, density, self._work)
        moving.begin(information.seen - added, information.known)
        passes = REDRAWS_OF_FEW_ROWS if rows.size in FEW_NUMBERS else REDRAWS_OF_ROWS
        n_accepted = sum(redraw(moving, moves_labels, known.of_base) for _ in range(passes))
        drawn = state.tables[self._view].values[:, :d] + added
        point[self.name] = drawn.reshape(present.shape).astype(present.dtype)
        noted = target.with_drawn_rows(point, prepared, self._view, self.name)
        return noted._replace(labels=target.labels_of(state)), n_accepted / (passes * len(rows))

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


class KnownOfRows:
    """What proposals to rows are made from, and tuning learns.

    Attributes
    ----------
    information : RowInformation
        What the rest of the model says of each row.
    of_base : RowOfBase or None
        What is proposed to rows alone.
    """

    def __init__(self) -> None:
        self.information = RowInformation()
        self.of_base: RowOfBase | None = None
