r"""Translations of all latent rows, together with the mean of their base measure.

See :mod:`pymc_dpgmm.sampler.hyperparameters.translations`. The mean :math:`m` of the base moves with the rows, and
the density of rows whose clusters have their parameters integrated out stays the same, since it depends on
:math:`x_i - m` alone: what is left is the density of the rest of the model. Where :math:`m` is no variable of its
own, it stays, and what the clusters say of the rows counts too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dpgmm.sampler.hyperparameters.translations import Directions, Place, translate
from pymc_dpgmm.sampler.state.state import State


def translate_rows(
    rng: np.random.Generator,
    state: State,
    v: int,
    values: np.ndarray,
    place: Place,
    place_rows: Callable[[np.ndarray, np.ndarray | None], float],
    moves_mean: bool,
    directions: Directions,
    tuning: bool,
) -> None:
    """Draw one shared number, and move all rows of a state with it.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    v : int
        The view of the rows.
    values : array
        The shared numbers of one variable, of which one changes.
    place : Place
    place_rows : callable
        Of rows (n, d) and the mean (d,) of the base measure, None if that stays: sets them in the model's point,
        and returns the log density of the model without the mixture.
    moves_mean : bool
        Whether the mean of the base measure moves too.
    directions : Directions
    tuning : bool
    """
    table, d = state.tables[v], len(directions.of(place))
    params = table.params
    rows = np.array(table.values[:, :d], dtype=np.float64)

    def moved(shift: np.ndarray) -> tuple[np.ndarray, Any]:
        return rows + shift, params._replace(mu=params.mu + shift) if moves_mean else None

    def log_density(shift: np.ndarray) -> float:
        shifted, others = moved(shift)
        if others is not None:
            return place_rows(shifted, others.mu)
        state.take_rows(v, shifted)
        return state.log_joint() + place_rows(shifted, None)

    shifted, others = moved(translate(rng, values, place, log_density, directions, tuning))
    state.take_rows(v, shifted, params=others)
