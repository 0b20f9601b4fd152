r"""Translations of all latent rows, together with the mean of their base measure.

See :mod:`pymc_dpgmm.sampler.hyperparameters.translations`. The mean :math:`m` of the base moves with the rows, and
the density of rows whose clusters have their parameters integrated out stays the same, since it depends on
:math:`x_i - m` alone: what is left is the density of the rest of the model. Where :math:`m` is no variable of its
own, it stays, and what the clusters say of the rows counts too.
"""

from typing import ClassVar

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, CFunction, address_of, c_function, floats_at
from pymc_dpgmm.sampler.hyperparameters.slices import learnt_width
from pymc_dpgmm.sampler.hyperparameters.translations import Directions, Place
from pymc_dpgmm.sampler.latent_rows.following_rows import log_joint_with
from pymc_dpgmm.sampler.latent_rows.shared_numbers import SharedNumbers
from pymc_dpgmm.sampler.latent_rows.table_rows import TABLE_ROWS, filled_table_rows
from pymc_dpgmm.sampler.state.state import State

TRANSLATED = Block(
    **TABLE_ROWS,
    # The rows of the state (n, d), and those that are moved.
    present=blocks.FLOATS,
    rows=blocks.FLOATS,
    # The number that moves, what it was, and how far rows move for each unit of it: (d,).
    value=blocks.FLOATS,
    before=blocks.FLOATS,
    direction=blocks.FLOATS,
    # The address of the mean in the model, 0 if it stays, and what it was: (d,).
    mean=NUMBER,
    mean_before=blocks.FLOATS,
)
_translated_at = TRANSLATED.reader()


@c_function(FLOAT(INTS, INT))
def place_translated(block, is_first):
    """Move the rows, and the mean; return the log density of rows and labels, 0 where the mean moves too."""
    f = _translated_at(block)
    moved = f.value[0] - f.before[0]
    for i in range(f.n):
        for j in range(f.d):
            f.rows[i * f.d + j] = f.present[i * f.d + j] + moved * f.direction[j]
    if f.mean == 0:
        return log_joint_with(f)
    for j in range(f.d):
        floats_at(f.mean)[j] = f.mean_before[j] + moved * f.direction[j]
    return 0.0


KERNELS = (place_translated,)


class TranslatedRows:
    """The rows of a view, all moved with a number.

    Parameters
    ----------
    state : State
        It has the moved rows unless the mean moves, and must be given those that are drawn at the end.
    v : int
        The view.
    value : array of one number
        In place.
    direction : (d,) array
    mean : array of d numbers, or None
        The mean of the base measure in the model, if it moves too.

    Attributes
    ----------
    rows : (n, d) array
    """

    kernel: ClassVar[CFunction] = place_translated

    def __init__(
        self, state: State, v: int, value: np.ndarray, direction: np.ndarray, mean: np.ndarray | None
    ) -> None:
        table, d = state.tables[v], len(direction)
        present = np.array(table.values[:, :d], dtype=np.float64, order="C")
        self.rows = present.copy()
        before, mean_before = np.array(value), np.zeros(d) if mean is None else np.array(mean)
        # The block has their addresses.
        self._kept = state, present, before, mean_before, np.ascontiguousarray(direction), mean
        self._block = TRANSLATED.filled(
            **filled_table_rows(state, v, d),
            present=present,
            rows=self.rows,
            value=value,
            before=before,
            direction=self._kept[4],
            mean=0 if mean is None else address_of(mean),
            mean_before=mean_before,
        )
        self.address = address_of(self._block)


def translate_rows(
    rng: np.random.Generator,
    state: State,
    v: int,
    numbers: SharedNumbers,
    values: np.ndarray,
    place: Place,
    mean: np.ndarray | None,
    directions: Directions,
    tuning: bool,
) -> None:
    """Draw one shared number in place, and move all rows of a state with it.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    v : int
        The view of the rows.
    numbers : SharedNumbers
    values : array
        The shared numbers of one variable, of which one changes.
    place : Place
    mean : array or None
        The mean of the base measure, one of the arrays of ``numbers``, if it moves too.
    directions : Directions
    tuning : bool
    """
    direction, width, params = directions.of(place), directions.width(place), state.tables[v].params
    at = int(np.ravel_multi_index(place[1], values.shape)) if values.ndim else 0
    value, mean_before = values.reshape(-1)[at : at + 1], None if mean is None else mean.copy()
    translated = TranslatedRows(state, v, value, direction, mean)
    length = numbers.draw(rng, translated, values, at, width)
    if length is None:
        return
    if tuning:
        directions.widths[place] = learnt_width(width, length)
    moved = None if mean is None else params._replace(mu=params.mu + np.ravel(mean - mean_before))
    state.take_rows(v, translated.rows, params=moved)
