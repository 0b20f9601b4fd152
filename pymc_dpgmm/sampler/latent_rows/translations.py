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
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows, log_joint_with, read_moving
from pymc_dpgmm.sampler.latent_rows.shared_numbers import SharedNumbers

TRANSLATED = Block(
    # The block of the rows, and the rows that are moved.
    moving=blocks.INTS,
    rows=blocks.FLOATS,
    # The number that moves, what it was, and how far rows move for each unit of it: (d,).
    value=blocks.FLOATS,
    before=blocks.FLOATS,
    direction=blocks.FLOATS,
    # The address of the mean in the model, 0 if it stays, and what it was: (d,).
    mean=NUMBER,
    mean_before=blocks.FLOATS,
)
_VALUE, _MEAN = TRANSLATED.places("value", "mean")
_translated_at = TRANSLATED.reader()


@c_function(FLOAT(INTS, INT))
def place_translated(block, is_first):
    """Move the rows, and the mean; return the log density of rows and labels, 0 where the mean moves too."""
    f = _translated_at(block)
    m = read_moving(f.moving)
    moved = f.value[0] - f.before[0]
    for i in range(m.n):
        for j in range(m.d):
            f.rows[i * m.d + j] = m.rows[i * m.d + j] + moved * f.direction[j]
    if f.mean == 0:
        return log_joint_with(m, f.rows)
    for j in range(m.d):
        floats_at(f.mean)[j] = f.mean_before[j] + moved * f.direction[j]
    return 0.0


KERNELS = (place_translated,)


class TranslatedRows:
    """The rows of a view, all moved with a number.

    Parameters
    ----------
    moving : MovingRows
        The state has the moved rows unless the mean moves, and must be given those that are drawn at the end.

    Attributes
    ----------
    rows : (n, d) array
    """

    kernel: ClassVar[CFunction] = place_translated

    def __init__(self, moving: MovingRows) -> None:
        self.moving, self.rows = moving, np.empty(moving.rows.shape)
        self._before, self._direction, self._mean_before = np.empty(1), np.empty(moving.d), np.zeros(moving.d)
        self._block = TRANSLATED.filled(
            moving=moving.address,
            rows=self.rows,
            value=0,
            before=self._before,
            direction=self._direction,
            mean=0,
            mean_before=self._mean_before,
        )
        self.address = address_of(self._block)

    def prepare(self, value: np.ndarray, direction: np.ndarray, mean: np.ndarray | None) -> None:
        """Get ready to move the rows with a number.

        Parameters
        ----------
        value : array of one number
            In place.
        direction : (d,) array
        mean : array of d numbers, or None
            The mean of the base measure in the model, if it moves too.
        """
        self._before[0], self._direction[:] = value[0], direction
        self._block[_VALUE], self._block[_MEAN] = address_of(value), 0 if mean is None else address_of(mean)
        if mean is not None:
            self._mean_before[:] = mean.ravel()


def translate_rows(
    rng: np.random.Generator,
    translated: TranslatedRows,
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
    translated : TranslatedRows
    numbers : SharedNumbers
    values : array
        The shared numbers of one variable, of which one changes.
    place : Place
    mean : array or None
        The mean of the base measure, one of the arrays of ``numbers``, if it moves too.
    directions : Directions
    tuning : bool
    """
    moving = translated.moving
    state, v, width = moving.state, moving.v, directions.width(place)
    params = state.tables[v].params
    at = int(np.ravel_multi_index(place[1], values.shape)) if values.ndim else 0
    value, mean_before = values.reshape(-1)[at : at + 1], None if mean is None else mean.copy()
    translated.prepare(value, directions.of(place), mean)
    length = numbers.draw(rng, translated, values, at, width)
    if length is None:
        return
    if tuning:
        directions.widths[place] = learnt_width(width, length)
    moved = None if mean is None else params._replace(mu=params.mu + np.ravel(mean - mean_before))
    moving.take_others(translated.rows, moved)
