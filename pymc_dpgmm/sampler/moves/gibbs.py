"""Collapsed Gibbs scans of some rows of a state."""

import numpy as np

from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.state.state import State


def gibbs_scan(rng: np.random.Generator, state: State, rows: np.ndarray) -> int:
    """Draw the clusters of rows, one after the other, each given those of all other rows.

    Row i joins a cluster of m other rows with probability proportional to its seating weight times the
    posterior predictive density of row i given those rows, or opens a cluster with the prior's weight for a
    new one times its prior predictive density (Neal 2000, eq. 3.7).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.
    rows : (m,) integer array
        The rows in the order in which they are drawn, such as a permutation of all.

    Returns
    -------
    int
        Number of rows whose set of companions was changed by their own draw.
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    return state.run(rng, scan_rows, rows.ctypes.data, len(rows), 0)
