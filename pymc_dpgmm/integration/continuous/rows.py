"""Rows of a latent mixture with normal clusters, as a part of a joint density."""

from collections.abc import Mapping

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.density import has_gradient
from pymc_dpgmm.integration.continuous.normal_clusters import CLUSTERS_OF_FAMILIES
from pymc_dpgmm.integration.variables import mixture_inputs


class RowsPart:
    """The graphs of the rows of a latent mixture: see ``sampler/hamiltonian/normal_clusters.py``.

    Parameters
    ----------
    model : pm.Model
    mixture : variable
    point : dict
        Of the model, for the shape of the rows.
    """

    def __init__(self, model: pm.Model, mixture: Variable, point: Mapping[str, np.ndarray]) -> None:
        layout, inputs = mixture.owner.op.layout, mixture_inputs(mixture)
        inputs = layout.split(model.replace_rvs_by_values(inputs.in_order()))
        clusters, d = CLUSTERS_OF_FAMILIES[layout.family.name], layout.n_columns
        value, labels = model.rvs_to_values[mixture], inputs.labels
        shape = np.shape(point[value.name])
        self.variables = [mixture]
        # Without the offset of the mixture.
        self.numbers = pt.tensor(dtype="float64", shape=(shape[0], d))
        rows = self.numbers.reshape(shape)
        self.values = {value: rows if inputs.offset is None else rows + inputs.offset}
        moving, seen, precisions = (pt.tensor(dtype="float64", shape=(shape[0], d)) for _ in range(3))
        moving_means, moving_scales, lags = (pt.tensor(dtype="float64", shape=(None, d)) for _ in range(3))
        own_roots = pt.tensor(dtype="float64", shape=(None, d, d) if clusters.is_full else (None, d))
        self.fixed = [seen, precisions, own_roots, lags]
        self.of_rows, self.of_clusters = [moving], [moving_means, moving_scales]
        self.shape_of_clusters = lags.shape[0], d
        params = {
            name: _in_full(param, layout.family.parameters[name].axes, d)
            for name, param in zip(layout.family.parameters, inputs.params, strict=True)
        }
        roots = clusters.scaled(own_roots, moving_scales + lags * clusters.log_scale(params, pt.log))
        diagonals = clusters.diagonal(roots)
        of_clusters = diagonals**2
        of_rows = of_clusters[labels]
        totals = precisions + of_rows
        shares = precisions / totals
        heard, nothing = shares * of_rows, pt.zeros_like(of_clusters)
        known = pt.inc_subtensor(nothing[labels], heard) + params["kappa"] * of_clusters
        said = pt.inc_subtensor(nothing[labels], heard * (seen - params["mu"]))
        from_centre = said / known + moving_means / pt.sqrt(known)
        means = (params["mu"] + from_centre)[labels]
        from_means = shares * (seen - means) + moving / pt.sqrt(totals)
        self.expression = means + from_means
        log_dets = pt.log(diagonals).sum(axis=1)
        self.log_density = (
            clusters.log_prior(params, roots).sum()
            + log_dets.sum()
            - 0.5 * (params["kappa"] * clusters.whitened(roots, from_centre) ** 2).sum()
            + log_dets[labels].sum()
            - 0.5 * (clusters.whitened(roots[labels], from_means) ** 2).sum()
            # The Jacobian of what moves.
            - 0.5 * pt.log(known).sum()
            - 0.5 * pt.log(totals).sum()
        )


def can_move(model: pm.Model, mixture: Variable) -> bool:
    """Tell whether rows of a latent mixture can move with all else: their family, and a gradient, are known."""
    if mixture.owner.op.layout.family.name not in CLUSTERS_OF_FAMILIES or mixture not in model.free_RVs:
        return False
    return has_gradient(model, [model.rvs_to_values[mixture]], [mixture])


def _in_full(param: Variable, axes: str, d: int) -> Variable:
    """Return a parameter whose axes have the lengths that the graph shows."""
    if set(axes) <= {"d"} and axes:
        return pt.specify_shape(pt.broadcast_to(param, (d,) * len(axes)), (d,) * len(axes))
    return param
