"""The move of a Chinese restaurant process's concentration."""

from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.partitions.concentration import draw_concentration
from pymc_dpgmm.sampler.state.memory import ALPHA, EXTRA, LAW_RATE, LAW_SHAPE, N_CLUSTERS


@inlined
def redraw(s):
    """Draw the concentration given the partition, if its law is given."""
    if s.prior[LAW_RATE] > 0.0:
        s.prior[ALPHA] = draw_concentration(
            s.bits,
            s.prior[ALPHA],
            s.head[N_CLUSTERS],
            s.n + s.prior[EXTRA],
            s.prior[LAW_SHAPE],
            s.prior[LAW_RATE],
        )
