"""Slices of numbers whose log density has a value but no gradient, as beside an infinite branch of a switch.

Such points are impossible for trajectories, which leave the density invariant among all others. Slices, which come
after every trajectory where there may be such points, reach all of them.
"""

import numpy as np

from pymc_dpgmm.native.array_calls import call_entry
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, c_function
from pymc_dpgmm.sampler.hamiltonian.no_u_turn import RESULTS, TRANSITION, NoUTurn
from pymc_dpgmm.sampler.hyperparameters.slices import call_density, draw_number, is_possible, learnt

_LOG_P = RESULTS.index("log_p")
_at = TRANSITION.reader()


@c_function(FLOAT(INTS))
def log_density(block):
    """Return the log density of the numbers ``at`` of a block."""
    t = _at(block)
    if call_entry(t.entry, t.code, t.inputs, t.outputs) != 0:
        t.failures[0] = 1
    return t.log_p[0]


@c_function(INT(INTS, INT, INT, INT))
def draw_by_slices(block, density, m, learns):
    """Draw the first ``m`` numbers of a block in turn; return 1, or 0 where there is no log density.

    Parameters
    ----------
    block : pointer
        See :data:`~.no_u_turn.TRANSITION`. The numbers are ``drawn``, before and afterwards; ``widths`` are those
        of slices.
    density : address
        Of :func:`log_density`.
    m, learns : int
        ``learns`` is 1 where widths follow the slices.
    """
    t = _at(block)
    n = t.n
    for i in range(n):
        t.at[i] = t.drawn[i]
    t.failures[0], t.failures[1] = 0, 0
    log_p = call_density(density, block)
    if t.failures[0] != 0 or not is_possible(log_p, t.failures):
        return 0
    for place in range(m):
        log_p, length = draw_number(density, block, t.failures, t.at, place, t.widths[place], log_p, t.bits)
        if t.failures[0] != 0:
            return 0
        if learns != 0:
            t.widths[place] = learnt(t.widths[place], length)
    for i in range(n):
        t.drawn[i], t.drawn[n + i] = t.at[i], t.gradient[i]
    for i in range(t.n_further):
        t.further_drawn[i] = t.further[i]
    t.results[_LOG_P] = log_p
    return 1


class BySlices:
    """Slices of the first numbers of a sampler.

    Parameters
    ----------
    m : int
        How many numbers are drawn.
    """

    def __init__(self, m: int) -> None:
        self._widths = np.ones(m)

    def draw(self, sampler: NoUTurn, learns: bool) -> bool:
        """Draw the numbers from where they are, and further results there; tell whether these have a density.

        Widths learn while ``learns``.
        """
        return sampler.draw_with(draw_by_slices, log_density.address, self._widths, int(learns))
