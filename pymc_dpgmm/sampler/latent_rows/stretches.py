r"""Moves of all latent rows of a cluster together: a shift, and a stretch about their mean.

Rows that are drawn one by one follow the parameters of their cluster, and the parameters follow the rows: a
cluster as a whole hardly moves where the rest of a model says little of each row. This move changes both. For a
cluster of n rows with mean :math:`\bar x`, all rows move at once,

.. math:: x_i' = \bar x + \delta + c \, (x_i - \bar x),

where :math:`\delta` and :math:`\log c` have normal distributions about 0 that depend on nothing but the number of
rows. The map of the rows has the Jacobian :math:`c^{(n - 1) d}`, and is undone by :math:`-\delta` and
:math:`1 / c`, so that it is accepted with the probability

.. math:: \min\left(1, c^{(n - 1) d} \, \frac{m(x')}{m(x)} \prod_i \frac{e^{f_i(x_i')}}{e^{f_i(x_i)}}\right)

(Liu and Sabatti 2000), where m is the marginal likelihood of the cluster, so that its parameters need
not be drawn. The labels stay.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.sampler.latent_rows.redraws import Density
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table import places_among


class Stretched(NamedTuple):
    """What stretches have made.

    Parameters
    ----------
    rows : (n, d) array
    values : (n,) array
        The log densities that the rest of the model gives to them.
    accepted : float
        The share of accepted moves; NaN where no cluster has two rows.
    """

    rows: np.ndarray
    values: np.ndarray
    accepted: float


def stretch(
    rng: np.random.Generator,
    state: State,
    v: int,
    density: Density,
    values: np.ndarray,
    distances: np.ndarray,
    step: float,
) -> Stretched:
    """Shift and stretch the rows of each cluster that has several.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place, the rows of the view too.
    v : int
        The view.
    density : callable
        Of rows as the view has them.
    values : (n,) array
        What it is at the present rows.
    distances : (d,) array
        The scale of shifts of one row; must not depend on the present rows.
    step : float
        By what shifts and logarithms of stretches are multiplied.
    """
    table = state.tables[v]
    in_use = state.order[: state.n_clusters].copy()
    d = len(distances)
    old = table.values[:, :d]
    clusters = places_among(in_use, state.slots_of_rows(v))
    sizes = np.bincount(clusters, minlength=len(in_use))
    several = sizes > 1
    if not several.any():
        return Stretched(old, values, math.nan)
    scale = np.where(several, step / np.sqrt(sizes), 0.0)
    shifts = scale[:, None] * distances * rng.standard_normal((len(in_use), d))
    log_factors = math.sqrt(0.5) * scale * rng.standard_normal(len(in_use))
    means = np.stack([np.bincount(clusters, weights=column) for column in old.T], axis=1) / sizes[:, None]
    new = (means + shifts)[clusters] + np.exp(log_factors)[clusters, None] * (old - means[clusters])
    new_values = np.asarray(density(new[None])[0])
    log_ratios = d * (sizes - 1.0) * log_factors - table.log_evidences(in_use)
    with np.errstate(invalid="ignore"):
        log_ratios += np.bincount(clusters, weights=new_values - values, minlength=len(in_use))
    state.take_rows(v, new)
    log_ratios += table.log_evidences(in_use)
    # A comparison with what is not a number is false.
    accepted = (np.log1p(-rng.random(len(in_use))) < log_ratios) | ~several
    if not accepted.all():
        of_rows = accepted[clusters]
        new = np.where(of_rows[:, None], new, old)
        new_values = np.where(of_rows, new_values, values)
        state.take_rows(v, new)
    return Stretched(new, new_values, float(accepted[several].mean()))
