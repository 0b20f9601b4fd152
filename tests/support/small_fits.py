"""Rows, starts and options of small variational fits."""

import numpy as np
from family_cases import CASES

from pymc_dpgmm.families import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.ascent import begin
from pymc_dpgmm.variational.rows import RowsInMemory

ONE = Threads(1)


def rows_of(case, n=None):
    base, values, d, _ = CASES[case]
    values = values if n is None else values[:n]
    return RowsInMemory([View(base.family, base.numbers(d), values)])


def seeded(rows, prior, n_components, seed):
    """A state that begins with some of the rows as components."""
    chosen = np.random.default_rng(seed).choice(rows.n, n_components, replace=False)
    return begin(rows, prior, rows.of_single(chosen), ONE)
