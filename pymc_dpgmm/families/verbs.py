"""The verbs that every conjugate family implements, and what is known of a family as a whole.

A family is described by three ``NamedTuple`` classes of arrays:

``Params``
    The base measure's parameters, as numbers.
``Summary``
    Sufficient statistics of a number of clusters, one slot each. They do not depend on the parameters.
``Stats``
    What a sampler keeps of a number of clusters, one slot each, to evaluate predictives fast: it depends
    on the parameters, and changes in place when a row joins or leaves.

Slots are indices along the first axis of an array. Rows are (d,) vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import verb


@verb
def summarize(summary, k, rows, members):
    """Set slot ``k`` of a summary to the sufficient statistics of ``rows[members]``."""


@verb
def combine(summary, k, j):
    """Let slot ``k`` of a summary stand for its own rows and those of slot ``j`` together."""


@verb
def log_marginal_likelihood(params, summary):
    """Log marginal likelihood of all clusters of a summary together: a float."""


@verb
def log_marginal_gradient(params, summary):
    """Gradient of :func:`log_marginal_likelihood` in the parameters: a ``Params``."""


@verb
def data_gradient(params, summary, rows, labels):
    """Gradient of :func:`log_marginal_likelihood` in the rows: (n, d), slot ``labels[i]`` holding row i."""


@verb
def fit(stats, k, summary, j):
    """Set slot ``k`` of the statistics to the cluster in slot ``j`` of a summary."""


@verb
def resize(slots, capacity):
    """Return statistics, or a summary, with ``capacity`` slots: those of the given one first, then unused ones."""


@verb
def move(stats, source, target):
    """Copy slot ``source`` to slot ``target``."""


@verb
def add(stats, k, x):
    """Let row ``x`` join slot ``k``."""


@verb
def remove(stats, k, x):
    """Let row ``x`` leave slot ``k``, which holds at least one more row.

    Returns
    -------
    bool
        False if too many digits were lost. The slot is then undefined, and the caller fits it anew.
    """


@verb
def log_predictive(stats, k, x):
    """Log posterior predictive density of row ``x`` given the rows of slot ``k``."""


@verb
def log_predictive_without(stats, k, x):
    """Log posterior predictive density of ``x``, a row of slot ``k``, given its other rows (one or more).

    Returns
    -------
    float
        NaN if too many digits would be lost. The caller then removes the row and asks again.
    """


@verb
def log_marginal(stats, k):
    """Log marginal likelihood of the rows of slot ``k``."""


@dataclass(frozen=True)
class Family:
    """A conjugate family, as the layers above see it.

    Parameters
    ----------
    name : str
        Name of the user-facing base measure.
    params : type
        ``NamedTuple`` class of the parameters; its fields are the user's arguments.
    ndims : dict of str to int
        Number of dimensions of each parameter; each dimension has the length d.
    check : callable
        ``check(name, value)`` with one numeric parameter raises ValueError if it is outside its support.
    check_together : callable
        ``check_together(params)`` raises ValueError if the parameters do not go together. Both together
        define the support.
    allocate_summary : callable
        ``(d, capacity) -> Summary``.
    allocate_stats : callable
        ``(params, n, capacity) -> Stats``, for data with n rows.
    localize : callable
        ``(params, rows) -> (params, rows)``: moves the origin of both close to the data.
    draw_rows : callable
        ``(rng, params, labels) -> rows``: rows from the prior, one set of cluster parameters per label.
    from_data : callable or None
        ``(rows) -> dict`` of default parameters.
    takes_vector : bool
        Whether (n,) data, one column, is natural.
    """

    name: str
    params: type
    ndims: dict[str, int]
    check: Callable[[str, np.ndarray], None]
    check_together: Callable[[Any], None]
    allocate_summary: Callable[[int, int], Any]
    allocate_stats: Callable[[Any, int, int], Any]
    localize: Callable[[Any, np.ndarray], tuple[Any, np.ndarray]]
    draw_rows: Callable[[np.random.Generator, Any, np.ndarray], np.ndarray]
    from_data: Callable[[np.ndarray], dict[str, np.ndarray | float]] | None = None
    takes_vector: bool = False

    def supports(self, params: NamedTuple) -> bool:
        """Tell whether numeric parameters are inside the family's support."""
        try:
            for field, value in zip(params._fields, params, strict=True):
                self.check(field, np.asarray(value))
            self.check_together(params)
        except ValueError:
            return False
        return True
