"""When the statistics of a cluster may be used to tell what they would be without one of its rows, or updated."""

import math

from pymc_dpgmm.dispatch import compiled

# Relative error of a statistic at which it is computed anew from the rows, and of one change of it.
WORST_ERROR = 1e-10
ROUNDING = 2.3e-16
# Below this share of a scale left without a row, cancellation has cost too many digits.
_SMALLEST_SHARE = 1e-4


@compiled()
def log_share(share: float) -> float:
    """Return ``log(share)``, or NaN where too few digits of ``share`` are left: below 1e-4.

    The branch is in a function of its own because one in a verb that holds arrays keeps numba from removing
    their reference counts, at ten times the cost of the arithmetic.
    """
    if share < _SMALLEST_SHARE:
        return math.nan
    return math.log(share)
