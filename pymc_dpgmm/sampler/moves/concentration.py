"""The move of a Chinese restaurant process's concentration."""

import math

from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.partitions.concentration import draw_concentration
from pymc_dpgmm.sampler.state.memory import ALPHA, EXTRA, LAW_RATE, LAW_SHAPE


@inlined
def log_law(s):
    """Log density of the concentration's law, up to a constant; 0 if it has none."""
    if s.prior[LAW_RATE] > 0.0:
        return (s.prior[LAW_SHAPE] - 1.0) * math.log(s.prior[ALPHA]) - s.prior[LAW_RATE] * s.prior[ALPHA]
    return 0.0


@inlined
def redraw(s):
    """Draw the concentration given the partition, if its law is given."""
    if s.prior[LAW_RATE] > 0.0:
        s.prior[ALPHA] = draw_concentration(
            s.bits,
            s.prior[ALPHA],
            s.n_clusters,
            s.n + s.prior[EXTRA],
            s.prior[LAW_SHAPE],
            s.prior[LAW_RATE],
        )
