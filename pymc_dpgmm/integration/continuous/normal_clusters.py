r"""The densities of clusters of normal rows whose scales move, as graphs, by family.

The root of a precision is an upper triangle R, or its diagonal, with :math:`R^\top R` the precision: see
``sampler/hamiltonian/normal_clusters.py``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

Params = dict[str, Variable]


@dataclass(frozen=True)
class NormalClusters:
    """How clusters of a family are moved.

    Parameters
    ----------
    is_full : bool
        Whether columns of a cluster depend on each other, so that roots are (K, d, d); otherwise they are (K, d).
    log_prior : callable
        ``(params, roots) -> (K,)``: the graph of the log density of the roots under the base measure, with
        respect to the measure that scales of columns do not change, and of half the log determinant of what the
        precision of the means is multiplied by, up to a constant.
    log_scale : callable
        ``(params, log) -> (d,)``: logarithms of standard deviations under the base measure, but for its shape; of
        graphs, or of numbers, with their logarithm.
    shape : callable
        ``(params) -> (d,)`` or a number: half the number of rows that the base measure's scales count as.
    """

    is_full: bool
    log_prior: Callable[[Params, Variable], Variable]
    log_scale: Callable[[Any, Any], Any]
    shape: Callable[[Any], Any]

    def whitened(self, roots: Variable, offsets: Variable) -> Variable:
        """Return roots (m, ...) times offsets (m, d)."""
        return (roots * offsets[:, None, :]).sum(axis=2) if self.is_full else roots * offsets

    def scaled(self, roots: Variable, scales: Variable) -> Variable:
        """Return the roots of clusters whose columns are multiplied by the exponentials of scales (K, d)."""
        return roots * pt.exp(-scales[:, None, :] if self.is_full else -scales)

    def diagonal(self, roots: Variable) -> Variable:
        """Return the diagonals (K, d) of roots."""
        return pt.diagonal(roots, axis1=1, axis2=2) if self.is_full else roots


def _prior_of_columns(params: Params, roots: Variable) -> Variable:
    a, b, log_precisions = params["a"], params["b"], 2.0 * pt.log(roots)
    of_precisions = a * (pt.log(b) + log_precisions) - pt.gammaln(a) - b * roots**2
    return (of_precisions + 0.5 * pt.log(params["kappa"])).sum(axis=1)


def _prior_of_matrices(params: Params, roots: Variable) -> Variable:
    d, nu, psi = params["mu"].type.shape[0], params["nu"], params["psi"]
    half_log_det_psi = pt.log(pt.diagonal(pt.linalg.cholesky(psi))).sum()
    log_norm = nu * half_log_det_psi - 0.5 * nu * d * math.log(2.0)
    log_norm -= pt.gammaln(0.5 * (nu - np.arange(d))).sum()
    log_det = pt.log(pt.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    trace = ((roots[:, :, :, None] * psi).sum(axis=2) * roots).sum(axis=(1, 2))
    return log_norm + nu * log_det - 0.5 * trace + 0.5 * d * pt.log(params["kappa"])


CLUSTERS_OF_FAMILIES: dict[str, NormalClusters] = {
    "NormalInverseGamma": NormalClusters(
        is_full=False,
        log_prior=_prior_of_columns,
        log_scale=lambda params, log: 0.5 * log(params["b"]),
        shape=lambda params: params["a"],
    ),
    "NormalInverseWishart": NormalClusters(
        is_full=True,
        log_prior=_prior_of_matrices,
        log_scale=lambda params, log: 0.5 * log(params["psi"].diagonal()),
        shape=lambda params: 0.5 * params["nu"],
    ),
}
