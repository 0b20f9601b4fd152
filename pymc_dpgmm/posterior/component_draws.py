"""Draws of the weights and parameters of clusters, and of the parameters of rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.components import Parameters, draw_aligned, draw_of_rows, draw_ragged
from pymc_dpgmm.posterior.arrays.mixtures import spread
from pymc_dpgmm.posterior.arrays.partitions import canonical_draws, mean_purity
from pymc_dpgmm.posterior.draws import Reference
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.reading import read_draws, read_labelled
from pymc_dpgmm.tables.checks import check_count

# Mean purity from which on a cluster of a point partition is one of its own.
LEAST_PURITY = 0.5


def component_draws(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    ragged: bool = False,
    group: Any = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Draw the weights and parameters of the clusters from their posterior, given the partition of each draw.

    The number of a cluster means nothing across draws. The draws are therefore aligned to a reference partition:
    cluster r of the result is, in each draw, the cluster that holds most rows of cluster r of the reference.
    ``overlap`` is the share of the reference cluster's rows that this cluster holds; it is low where a draw
    divides the reference cluster. ``purity`` is the share of this cluster's rows that belong to the reference
    cluster; it is low where a draw merges the reference cluster with others. A cluster that is matched to two
    reference clusters counts for both. Clusters of a point partition whose mean purity is below one half,
    which are mostly single rows that belong nowhere with certainty, have NaN in place of the weight and the
    parameters of the larger clusters that they are a part of.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`, which is called by default.
    ragged : bool
        Return all clusters of all draws instead, without aligning them to a reference.
    group : str or int, optional
        For rows in groups, the name of the group whose weights are drawn. By default it is a new group without
        rows. If concentrations differ between groups, name one.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed if an offset is an expression without a name, or if a prior on the number of components has random
        parameters.

    Returns
    -------
    Dataset
        (chain, draw, cluster) ``weight``, ``overlap``, ``purity`` and the parameters of the family, such as
        ``mean`` and ``covariance``, with further dimensions for columns. With several views, the names of the
        parameters begin with that of the view. (chain, draw) ``new_weight``, the weight of all clusters without
        rows, and ``other_weight``, that of clusters which match no cluster of the reference. The coordinates
        ``size`` (of the clusters) and ``reference`` (of the rows) are the sizes and labels of the reference
        partition.

        If ragged, variables have the dimension ``component``, over all clusters of all draws, instead of
        (chain, draw, cluster). Its coordinates are ``component_chain``, ``component_draw`` and ``label``; ``size``
        is the number of rows. ``new_weight`` is (chain, draw).

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, a variable that is needed was not stored, or an argument is of the wrong kind.

    Notes
    -----
    Given a partition, the weights have a Dirichlet distribution, and the parameters have the conjugate posterior
    of their cluster: see ``pymc_dpgmm.partitions.draws.draw_weights`` and the modules of ``pymc_dpgmm.families``.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> components = dp.component_draws(idata, "y", [0, 0, 0, 1, 1, 1], random_seed=1)
    >>> components["mean"].median(["chain", "draw"]).round().to_numpy()
    array([-2.,  4.])
    """
    draws = read_draws(idata, name, model, group)
    rng = np.random.default_rng(random_seed)
    if ragged:
        if reference is not None:
            raise ValueError("ragged draws are not aligned: leave out either reference or ragged=True")
        return ragged_components(draws, rng)
    return aligned_components(draws, draws.reference(reference), rng)


def _of_their_own(components: xr.Dataset, cluster: str) -> xr.Dataset:
    """Return components without weight and parameters, NaN, where in most draws a cluster is part of a larger one.

    Its rows, one or a few that belong to no cluster with certainty, would stand there with what others have.
    """
    of_others = [
        name for name in components if cluster in components[name].dims and name not in ("overlap", "purity")
    ]
    is_own = components["purity"].mean(("chain", "draw")) >= LEAST_PURITY
    return components.assign({name: components[name].where(is_own) for name in of_others})


def are_own(draws: Draws, reference: Reference) -> np.ndarray:
    """Tell of each cluster of a reference whether it is one of its own in most draws; a user's own all are."""
    if not reference.is_found:
        return np.ones(int(reference.labels.max()) + 1, dtype=np.bool_)
    found: np.ndarray = mean_purity(reference.labels, canonical_draws(draws.drawn.rows)) >= LEAST_PURITY
    return found


def aligned_components(
    draws: Draws, reference: Reference, rng: np.random.Generator, *, mean_weights: bool = False
) -> xr.Dataset:
    """Return draws of the clusters aligned to a reference, with drawn weights or their conditional means.

    Clusters of a point partition that are none of their own are NaN, and those that a user wrote are kept as they
    are.
    """
    found, drawn = draw_aligned(draws.numbers, reference.labels, rng, mean_weights=mean_weights)
    by_chain = draws.drawn.by_chain
    each, dim, sizes = ("chain", "draw"), draws.cluster_dim(), np.bincount(reference.labels)
    variables = {
        key: ((*each, dim) if values.ndim == 2 else each, by_chain(values)) for key, values in found.items()
    }
    coords = draws.drawn.per_draw() | draws.drawn.coords()
    coords |= {dim: reference.names, "size": (dim, sizes), "reference": (draws.row, reference.named)}
    parameters = {key: by_chain(values) for key, values in drawn.items()}
    aligned = with_parameters(draws, (*each, dim), parameters, variables, coords)
    return _of_their_own(aligned, dim) if reference.is_found else aligned


def row_parameters(
    idata: Any, name: str, *, n_draws: int = 1000, random_seed: Any = None, model: pm.Model | None = None
) -> xr.Dataset:
    """Draw for every row the parameters of its cluster, which shrink the rows towards each other.

    In each draw of the partition, the parameters of the clusters are drawn from their posterior, and each row, or
    unit, has those of its cluster. Nothing needs to be aligned across draws, since rows keep their names. The
    effect of a latent row (``shape=``) is none of these: it is the variable itself, ``idata.posterior[name]``.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture, of one of its views, or of its labels.
    n_draws : int, >= 1
        Draws of the posterior that are used, as many of each chain, spread over all of them.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        (chain, draw, row, ...) the parameters of the family, such as ``mean`` and ``variance``, under the names of
        :func:`component_draws`; the rows have the dimension and the names of the labels.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or a variable that is needed was not stored.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> dp.row_parameters(idata, "y", random_seed=1)["mean"].median(("chain", "draw")).round().to_numpy()
    array([-2., -2., -2.,  4.,  4.,  4.])
    """
    check_count("n_draws", n_draws, 1)
    draws = read_labelled(idata, name, model)
    n_chains, n_of_chain, _ = draws.drawn.shape
    # The same draws of every chain.
    taken = np.asarray(spread(n_of_chain, max(n_draws // n_chains, 1)))
    used = replace(draws.numbers, used=(np.arange(n_chains)[:, None] * n_of_chain + taken).ravel().tolist())
    drawn = draw_of_rows(used, np.random.default_rng(random_seed))
    parameters = {key: values.reshape(n_chains, len(taken), *values.shape[1:]) for key, values in drawn.items()}
    per_draw = draws.drawn.per_draw()
    coords = draws.drawn.coords() | per_draw | {"draw": per_draw["draw"][taken]}
    return with_parameters(draws, ("chain", "draw", draws.row), parameters, {}, coords)


def ragged_components(draws: Draws, rng: np.random.Generator) -> xr.Dataset:
    """Return draws of all clusters of all draws."""
    (found, new_weight, parameters), per_draw = draw_ragged(draws.numbers, rng), draws.drawn.per_draw()
    chains, positions = np.divmod(found["draw"], draws.drawn.shape[1])
    coords: dict[str, Any] = {
        "component": np.arange(len(chains)),
        "label": ("component", found["label"]),
        "component_chain": ("component", per_draw["chain"][chains]),
        "component_draw": ("component", per_draw["draw"][positions]),
    } | per_draw
    variables: dict[str, Any] = {
        "weight": ("component", found["weight"]),
        "size": ("component", found["size"]),
        "new_weight": (("chain", "draw"), draws.drawn.by_chain(new_weight)),
    }
    return with_parameters(draws, ("component",), parameters, variables, coords)


def with_parameters(
    draws: Draws,
    dims: tuple[str, ...],
    parameters: Parameters,
    variables: dict[str, Any],
    coords: dict[str, Any],
) -> xr.Dataset:
    """Add parameters to other variables. The arrays of parameters begin with the dimensions ``dims``."""
    for view in draws.views:
        for parameter, letters in view.family.component.axes.items():
            values, dims_of_parameter = parameters[view.name, parameter], list(dims)
            for letter in letters:
                if letter == "d" and view.is_vector:
                    values = np.take(values, 0, axis=len(dims_of_parameter))
                    continue
                dim, labels = view.axis(letter, values.shape[len(dims_of_parameter)])
                dim = f"{dim}_2" if dim in dims_of_parameter else dim
                dims_of_parameter.append(dim)
                coords[dim] = labels
            names = view.category_names(values.shape[-1])
            if names is not None and names.ndim > 1:
                # Categories differ between columns.
                coords[f"{dims_of_parameter[-1]}_name"] = (dims_of_parameter[-2:], names)
            name = draws.name_of(view, parameter)
            variables[name] = (dims_of_parameter, values)
    return xr.Dataset(variables, coords=coords, attrs={"family": [view.family.title for view in draws.views]})
