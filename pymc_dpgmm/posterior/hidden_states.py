"""Hidden states of rows in order: a sequence that represents the posterior, probabilities, and transitions."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.seats import HiddenSeats
from pymc_dpgmm.posterior.draws import Reference
from pymc_dpgmm.posterior.mixtures import MixtureDraws, Recorded
from pymc_dpgmm.posterior.ordered_rows import DrawnOrder
from pymc_dpgmm.posterior.point_partition import reference_of


def hidden_states(idata: Any, name: str, reference: Any = None) -> xr.Dataset:
    """Return a sequence of states that represents the posterior, and how probable each state is at each row.

    The sequence is a partition with a small posterior expected loss: see :func:`point_partition`. The number of a
    state means nothing across draws: each state of a draw stands for the state of this sequence that most of its
    rows are in.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`HDPHMM`, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        Another sequence of states: labels, or the result of :func:`point_partition`.

    Returns
    -------
    Dataset
        ``labels`` (n,), numbers from 0 on or the names of a user's own, and ``probability`` (n, state) float64,
        whose rows add up to 1. The rows have the order and the names of the data. With ``order=`` in the model,
        they have the coordinate ``order``; with several sequences, ``sequence``. The coordinate ``size`` is the
        number of rows of each state.

    Raises
    ------
    TypeError, ValueError
        If there is no such model, or an argument is of the wrong kind.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     base = dp.GammaPoisson(1.0, 0.1)
    ...     y = dp.HDPHMM("y", 1.0, 1.0, base, kappa=3.0, observed=[19, 22, 18, 1, 0, 2, 1, 21, 20])
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> dp.hidden_states(idata, "y")["labels"].to_numpy()
    array([0, 0, 0, 1, 1, 1, 1, 0, 0])
    """
    found = DrawnOrder.of(idata, name, of_states=True)
    point = reference_of(found.drawn, reference)
    n_states, n = int(point.labels.max()) + 1, len(point.labels)
    counts = np.zeros((n, n_states))
    for labels in found.drawn.rows:
        counts[np.arange(n), _stands_for(labels, point)[labels]] += 1.0
    row = found.drawn.row
    return xr.Dataset(
        {"labels": (row, point.named), "probability": ((row, "state"), counts / len(found.drawn.rows))},
        coords=found.coords() | _of_states(point),
    )


def transitions(
    idata: Any, name: str, reference: Any = None, *, random_seed: Any = None, model: pm.Model | None = None
) -> xr.Dataset:
    """Draw the probabilities of transitions between states, and how long states last, from their posterior.

    States are those of a sequence that represents the posterior: see :func:`hidden_states`. Where several states
    of a draw stand for one of these, transitions from it are their mean, each weighed by its rows.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`HDPHMM`, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        Another sequence of states than the point partition.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed where a concentration is an expression without a name.

    Returns
    -------
    Dataset
        ``transition`` (chain, draw, state, next_state), ``new`` (chain, draw, state), the probability that a state
        without rows follows, ``duration`` (chain, draw, state), the expected number of rows from when a state
        begins until another one does, and ``first`` (chain, draw, next_state), the probabilities of the first
        state of a sequence. Where no state of a draw stands for a state, transitions to it are 0, and those from
        it, ``new`` and ``duration`` are NaN.

    Raises
    ------
    TypeError, ValueError
        If there is no such model, or an argument is of the wrong kind.

    Notes
    -----
    Given states and openers, shared weights are Dirichlet with the numbers of openers and gamma, and transitions
    from state j with alpha times these, plus the transitions from j, and kappa for j itself (Teh et al. 2006).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     base = dp.GammaPoisson(1.0, 0.1)
    ...     y = dp.HDPHMM("y", 1.0, 1.0, base, kappa=3.0, observed=[19, 22, 18, 1, 0, 2, 1, 21, 20])
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> dict(dp.transitions(idata, "y", random_seed=1)["transition"].sizes)
    {'chain': 1, 'draw': 200, 'state': 2, 'next_state': 2}
    """
    found = DrawnOrder.of(idata, name, of_states=True)
    point, rng = reference_of(found.drawn, reference), np.random.default_rng(random_seed)
    draws = MixtureDraws(idata, Recorded.of(idata, name), model)
    n_states, n_draws = int(point.labels.max()) + 1, draws.numbers.n_draws
    between, new = np.full((n_draws, n_states, n_states), np.nan), np.full((n_draws, n_states), np.nan)
    first = np.full((n_draws, n_states), np.nan)
    for partition in draws.numbers.partitions():
        seats, s = partition.seats, partition.draw
        assert isinstance(seats, HiddenSeats)
        stands_for = _stands_for(partition.labels, point)
        drawn = seats.draw_transitions(rng)
        # What follows, by the states that those of the draw stand for, and whatever has no rows.
        following = np.zeros((len(drawn), n_states + 1))
        np.add.at(following.T, np.append(stands_for, n_states), drawn.T)
        first[s] = following[0, :-1]
        for state in np.unique(stands_for):
            own = np.flatnonzero(stands_for == state)
            weights = np.bincount(partition.labels, minlength=len(stands_for))[own]
            mean = weights @ following[1 + own] / weights.sum()
            between[s, state], new[s, state] = mean[:-1], mean[-1]
    stays = np.diagonal(between, axis1=1, axis2=2)
    with np.errstate(divide="ignore"):
        duration = 1.0 / (between.sum(axis=2) - stays + new)
    arrays = {
        "transition": (("state", "next_state"), between),
        "new": (("state",), new),
        "duration": (("state",), duration),
        "first": (("next_state",), first),
    }
    return xr.Dataset(
        {key: (("chain", "draw", *dims), found.drawn.by_chain(values)) for key, (dims, values) in arrays.items()},
        coords=found.drawn.per_draw() | _of_states(point) | {"next_state": point.names},
    )


def _stands_for(labels: np.ndarray, point: Reference) -> np.ndarray:
    """Return for each state 0 to K - 1 of a draw the state of a sequence that most of its rows are in: (K,)."""
    shared = np.zeros((int(labels.max()) + 1, int(point.labels.max()) + 1))
    np.add.at(shared, (labels, point.labels), 1.0)
    return shared.argmax(axis=1)


def _of_states(point: Reference) -> dict[str, Any]:
    sizes = np.bincount(point.labels)
    return {"state": point.names, "size": ("state", sizes)}
