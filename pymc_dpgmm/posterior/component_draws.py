"""Draws of the weights and parameters of clusters."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.partitions import draw_weights, with_known_components
from pymc_dpgmm.posterior.mixtures import MixtureDraws, Partition
from pymc_dpgmm.posterior.point_partition import reference_labels


def component_draws(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    ragged: bool = False,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Draw weights and parameters of the clusters from their posterior given each kept partition.

    Names of clusters mean nothing across draws. The draws are therefore aligned: cluster r of a draw is the one in
    which most of the rows of cluster r of a reference partition are. Where a draw divides a cluster of the
    reference, ``overlap`` is the share of its rows in the largest piece. Where a draw unites two, both are one and
    count twice: ``purity`` is the share of that cluster's rows that are of cluster r.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or what :func:`point_partition` returns. By default that is called.
    ragged : bool
        Whether to return all clusters of all draws, without a reference.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed where an offset, or the prior on the number of components, is an expression without a name.

    Returns
    -------
    Dataset
        (chain, draw, cluster) ``weight``, ``overlap``, ``purity`` and the parameters of the family, such as
        ``mean`` and ``covariance``, with further dimensions for columns; with several views, their names begin
        with that of the view. (chain, draw) ``new_weight`` of all clusters without rows, and ``other_weight`` of
        clusters that are none of the reference. The coordinates ``size`` of the clusters and ``reference`` of the
        rows are sizes and labels of the reference partition.

        If ragged, the dimension ``component`` of all clusters of all draws, with coordinates ``component_chain``,
        ``component_draw`` and ``label``, in place of (chain, draw, cluster), and their ``size``; and (chain, draw)
        ``new_weight``.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, something is not stored, or an argument is of the wrong kind.

    Notes
    -----
    Given a partition, weights are Dirichlet and parameters have the conjugate posterior of their cluster: see
    :func:`pymc_dpgmm.partitions.draw_weights` and the modules of :mod:`pymc_dpgmm.families`.
    """
    draws = MixtureDraws(idata, name, model)
    rng = np.random.default_rng(random_seed)
    if ragged:
        if reference is not None:
            raise ValueError("ragged draws are not aligned: leave out either reference or ragged=True")
        return _ragged(draws, rng)
    labels = reference_labels(idata, name, reference, draws.drawn, rng)
    sizes = np.bincount(labels)
    n_draws, n_clusters = draws.n_draws, len(sizes)
    weight, overlap, purity = (np.empty((n_draws, n_clusters)) for _ in range(3))
    new_weight, other_weight = np.empty(n_draws), np.empty(n_draws)
    found: dict[tuple[str, str], np.ndarray] = {}
    for partition in draws.partitions():
        s, n_own = partition.draw, len(partition.sizes)
        pairs = np.bincount(labels * n_own + partition.labels, minlength=n_clusters * n_own)
        shared = pairs.reshape(n_clusters, n_own)
        largest = shared.argmax(axis=1)
        weights = _draw_weights(rng, partition)
        weight[s], overlap[s] = weights[largest], shared.max(axis=1) / sizes
        purity[s] = shared.max(axis=1) / partition.sizes[largest]
        new_weight[s] = weights[-1]
        other_weight[s] = np.delete(weights[:-1], np.unique(largest)).sum()
        for view in partition.views:
            drawn = view.draw(rng)
            for parameter in view.family.component.axes:
                key = (view.part.name, parameter)
                if key not in found:
                    found[key] = np.empty((n_draws, n_clusters, *drawn[parameter].shape[1:]))
                found[key][s] = drawn[parameter][largest]
    each = ("chain", "draw")
    dim = draws.cluster_dim()
    variables: dict[str, Any] = {
        "weight": ((*each, dim), draws.by_chain(weight)),
        "overlap": ((*each, dim), draws.by_chain(overlap)),
        "purity": ((*each, dim), draws.by_chain(purity)),
        "new_weight": (each, draws.by_chain(new_weight)),
        "other_weight": (each, draws.by_chain(other_weight)),
    }
    coords = draws.per_draw() | draws.drawn.coords()
    coords |= {dim: np.arange(n_clusters), "size": (dim, sizes), "reference": (draws.row, labels)}
    aligned = {key: draws.by_chain(values) for key, values in found.items()}
    return _with_parameters(draws, (*each, dim), aligned, variables, coords)


def _ragged(draws: MixtureDraws, rng: np.random.Generator) -> xr.Dataset:
    sizes, weights, new_weight, of_draw = [], [], np.empty(draws.n_draws), []
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for partition in draws.partitions():
        *own, new_weight[partition.draw] = _draw_weights(rng, partition)
        weights += own
        sizes += partition.sizes.tolist()
        of_draw += [(partition.draw, k) for k in range(len(own))]
        for view in partition.views:
            drawn = view.draw(rng)
            for parameter in view.family.component.axes:
                found.setdefault((view.part.name, parameter), []).append(drawn[parameter])
    index, label = np.array(of_draw).T
    chains, positions = np.divmod(index, draws.shape[1])
    per_draw = draws.per_draw()
    coords: dict[str, Any] = {
        "component": np.arange(len(index)),
        "label": ("component", label),
        "component_chain": ("component", per_draw["chain"][chains]),
        "component_draw": ("component", per_draw["draw"][positions]),
    } | per_draw
    variables: dict[str, Any] = {
        "weight": ("component", np.array(weights)),
        "size": ("component", np.array(sizes)),
        "new_weight": (("chain", "draw"), draws.by_chain(new_weight)),
    }
    joined = {key: np.concatenate(values) for key, values in found.items()}
    return _with_parameters(draws, ("component",), joined, variables, coords)


def _draw_weights(rng: np.random.Generator, partition: Partition) -> np.ndarray:
    """Draw the weights of all clusters of a partition, and of those without rows together."""
    prior = with_known_components(rng, partition.prior, partition.sizes)
    return draw_weights(rng, prior, partition.sizes)


def _with_parameters(
    draws: MixtureDraws,
    dims: tuple[str, ...],
    found: dict[tuple[str, str], np.ndarray],
    variables: dict[str, Any],
    coords: dict[str, Any],
) -> xr.Dataset:
    """Add parameters, whose arrays begin with some dimensions, to other variables."""
    variables, coords = dict(variables), dict(coords)
    for part in draws.parts:
        for parameter, letters in part.family.component.axes.items():
            values, own = found[part.name, parameter], list(dims)
            for letter in letters:
                if letter == "d" and part.is_vector:
                    values = np.take(values, 0, axis=len(own))
                    continue
                dim, labels = draws.axis(part, letter, values.shape[len(own)])
                dim = f"{dim}_2" if dim in own else dim
                own.append(dim)
                coords[dim] = labels
            names = part.category_names(values.shape[-1])
            if names is not None and names.ndim > 1:
                # Columns have other categories each.
                coords[f"{own[-1]}_name"] = (own[-2:], names)
            name = parameter if len(draws.parts) == 1 else f"{part.name}_{parameter}"
            variables[name] = (own, values)
    return xr.Dataset(variables, coords=coords, attrs={"family": [part.family.name for part in draws.parts]})
