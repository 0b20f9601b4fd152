r"""The densities of clusters of normal rows whose precisions stay, as graphs, by family.

The root of a precision is an upper triangle R, or its diagonal, with :math:`R^\top R` the precision: see
``sampler/hamiltonian/normal_clusters.py``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
        ``(params, roots) -> (K,)``: the graph of the log density of the roots under the base measure, and of half
        the log determinant of what the precision of the means is multiplied by, up to a constant.
    """

    is_full: bool
    log_prior: Callable[[Params, Variable], Variable]

    def whitened(self, roots: Variable, offsets: Variable) -> Variable:
        """Return roots (m, ...) times offsets (m, d)."""
        return (roots * offsets[:, None, :]).sum(axis=2) if self.is_full else roots * offsets

    def pulls(self, roots: Variable, whitened: Variable) -> Variable:
        """Return transposed roots (m, ...) times what is whitened (m, d)."""
        return (roots * whitened[:, :, None]).sum(axis=1) if self.is_full else roots * whitened


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
    "NormalInverseGamma": NormalClusters(False, _prior_of_columns),
    "NormalInverseWishart": NormalClusters(True, _prior_of_matrices),
}
