r"""Constraints on a partition as a family: blocks of rows that are certainly in one cluster are its data.

The kernels move blocks, and the prior counts blocks. The marginal likelihood of this family corrects that: if
cluster k has :math:`J_k` blocks with :math:`N_k` rows, and the prior has the discount :math:`\sigma`, it is

.. math:: \prod_k \frac{\Gamma(N_k - \sigma)}{\Gamma(J_k - \sigma)},

which turns the product over clusters of a Gibbs-type prior on blocks into the one on rows. The marginal likelihood
is zero if a cluster has two blocks with different known clusters. The sums of the numbers of these known clusters,
and of their squares, show whether all are equal.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.component import Component
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import real
from pymc_dpgmm.native.special import log_rising

# Columns of the data, whose rows are blocks: number of rows of the block, and its known cluster, < 0 if there is
# none.
_ROWS, _KNOWN = range(2)


def _update(p, n, s, x, sign):
    s.rows[0] += sign * x[_ROWS]
    known = x[_KNOWN]
    if known >= 0.0:
        s.known[0] += sign
        s.known_sum[0] += sign * known
        s.known_squares[0] += sign * known * known
    return 1.0


def _log_evidence(p, n, s):
    if n == 0.0:
        return 0.0
    if s.known[0] * s.known_squares[0] != s.known_sum[0] * s.known_sum[0]:
        return -math.inf
    return log_rising(n - p.discount, s.rows[0] - n)


def _log_predictive(p, n, s, c, x):
    known, size = x[_KNOWN], x[_ROWS]
    if known >= 0.0 and s.known_sum[0] != known * s.known[0]:
        return -math.inf, 0.0, 1.0
    if n == 0.0:
        return log_rising(1.0 - p.discount, size - 1.0), 0.0, 1.0
    if size == 1.0:
        return math.log((s.rows[0] - p.discount) / (n - p.discount)), 0.0, 1.0
    return log_rising(s.rows[0] - p.discount, size) - math.log(n - p.discount), 0.0, 1.0


def _nothing_drawn(*_: Any) -> Any:
    # Every family must have draws. This one is never asked for any, since the prior refuses to draw before.
    raise NotImplementedError("constraints are not drawn")


FAMILY = Family(
    name="KnownLabels",
    parameters={"discount": real()},
    sums={"rows": "", "known": "", "known_sum": "", "known_squares": ""},
    update=_update,
    log_evidence=_log_evidence,
    gradient=lambda params, s: {"discount": np.nan},
    log_predictive=_log_predictive,
    component=Component({}, _nothing_drawn, _nothing_drawn, _nothing_drawn),
)
