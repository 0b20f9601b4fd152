"""Draws of rows that arrive later."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.checks import check_count
from pymc_dpgmm.partitions import seat_rows, with_known_components
from pymc_dpgmm.posterior.mixtures import MixtureDraws


def sample_new_rows(
    idata: Any,
    name: str,
    n_rows: int = 1,
    *,
    given: Mapping[str, Any] | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Draw rows that arrive after the data, from their joint posterior predictive distribution.

    In every draw they join clusters one after the other, or open new ones, as the prior on partitions has it; then
    cluster parameters are drawn from their posterior given the data, and rows given these. Replicates of the rows
    that there are, in their own clusters, are what ``pm.sample_posterior_predictive`` draws.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, of one of its views, or of its labels.
    n_rows : int, >= 1
        Rows in each draw.
    given : dict, optional
        What comes with every row, see :func:`density`; with several views, a dict of such dicts.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        See :func:`component_draws`.

    Returns
    -------
    Dataset
        (chain, draw, new_row) or (chain, draw, new_row, column) rows of each view, under its name, less its
        offset; (chain, draw, new_row) ``cluster``: in order of first appearance in the draw's own labels, new
        ones last.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or an argument is of the wrong kind.
    """
    check_count("n_rows", n_rows, 1)
    draws = MixtureDraws(idata, name, model)
    rng = np.random.default_rng(random_seed)
    sole = len(draws.parts) == 1
    comes_with = [
        part.check_given(int(n_rows), given if sole else (given or {}).get(draws.view_name(part)))
        for part in draws.parts
    ]
    clusters = np.empty((draws.n_draws, n_rows), dtype=np.int64)
    rows = [np.empty((draws.n_draws, n_rows, part.d)) for part in draws.parts]
    for partition in draws.partitions():
        prior = with_known_components(rng, partition.prior, partition.sizes)
        labels = seat_rows(rng, prior.alpha, prior.discount, partition.sizes, int(n_rows))
        n_new = max(int(labels.max()) + 1 - len(partition.sizes), 0)
        for view, found, known in zip(partition.views, rows, comes_with, strict=True):
            drawn = view.draw_with_new(rng, n_new)
            own = view.family.component.draw_rows(rng, drawn, labels, known)
            if partition.draw == 0 and known.size:
                # Rows are of the family's kind if what comes with them is.
                view.family.check_values(view.part.params(0), np.concatenate([own, known], axis=1))
            found[partition.draw] = own
        clusters[partition.draw] = labels
    each = ("chain", "draw", "new_row")
    variables: dict[str, Any] = {"cluster": (each, draws.by_chain(clusters))}
    coords = draws.per_draw() | {"new_row": np.arange(n_rows)}
    for part, found in zip(draws.parts, rows, strict=True):
        values = draws.by_chain(found)
        if part.is_vector:
            variables[part.name] = (each, values[..., 0])
        else:
            dim, labels = draws.axis(part, "d", part.d)
            variables[part.name] = ((*each, dim), values)
            coords[dim] = labels
    return xr.Dataset(variables, coords=coords)
