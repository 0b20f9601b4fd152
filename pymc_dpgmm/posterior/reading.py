"""Draws read from the results of ``pm.sample``, of whatever kind they are."""

from typing import Any

import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.chunked import ChunkedDraws, group_of
from pymc_dpgmm.posterior.mixtures import FamilyDraws, MixtureDraws, Recorded
from pymc_dpgmm.posterior.processes import ProcessDraws


def read_draws(
    idata: Any, name: str, model: pm.Model | None = None, group: Any = None, *, labels_alone: bool = False
) -> FamilyDraws:
    """Return the draws of a mixture, of one of its views, or of labels, whether rows are in memory or in chunks.

    Parameters
    ----------
    idata, name, model, group
        As in :func:`pymc_dpgmm.predict`.
    labels_alone : bool
        Whether labels will do on which there is no mixture.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or a variable that is needed was not stored.
    """
    if isinstance(idata, xr.DataTree) and group_of(name) in idata.children:
        if group is not None:
            raise ValueError(f"the rows of {name} are in no groups: leave out group={group!r}")
        return ChunkedDraws(idata, name, model)
    return read_labelled(idata, name, model, group, labels_alone=labels_alone)


def read_labelled(
    idata: Any, name: str, model: pm.Model | None = None, group: Any = None, *, labels_alone: bool = False
) -> MixtureDraws:
    """Return the draws of a mixture whose rows are in memory, with the labels of these.

    Parameters
    ----------
    idata, name, model, group, labels_alone
        As in :func:`read_draws`.

    Raises
    ------
    TypeError, ValueError
        As :func:`read_draws`, and if the labels of the rows were not stored.
    """
    recorded = Recorded.of(idata, name)
    if not recorded.chosen and not labels_alone:
        raise ValueError(f"no mixture depends on the labels {recorded.drawn.labels.name}")
    are_atoms = any("entries" in recorded.mixtures[view] for view in recorded.chosen)
    return (ProcessDraws if are_atoms else MixtureDraws)(idata, recorded, model, group)
