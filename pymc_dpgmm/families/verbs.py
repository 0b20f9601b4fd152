"""The verbs that every conjugate family implements, and what is known of a family as a whole.

A family is described by three ``NamedTuple`` classes of arrays (see :mod:`pymc_dpgmm.families.slots`):

``Params``
    The base measure's parameters, as numbers.
``Summary``
    Sufficient statistics of a number of clusters, one slot each. They do not depend on the parameters.
``Stats``
    What a sampler keeps of a number of clusters, one slot each, to evaluate predictives fast: it depends
    on the parameters, and changes in place when a row joins or leaves.

Slots are indices along the first axis of an array. ``rows`` is the data as the family represents it, an (n, c)
array for most, and ``i`` the index of a row.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import array_verb, is_implemented, verb
from pymc_dpgmm.families.component import Component


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
    """Gradient of :func:`log_marginal_likelihood` in the rows: (n, d), slot ``labels[i]`` holding row i.

    Implemented where rows may be latent, or depend on other variables.
    """


@verb
def fit(stats, k, summary, j):
    """Set slot ``k`` of the statistics to the cluster in slot ``j`` of a summary."""


@verb
def add(stats, k, rows, i):
    """Let row ``i`` join slot ``k``."""


@verb
def remove(stats, k, rows, i):
    """Let row ``i`` leave slot ``k``, which holds at least one more row.

    Returns
    -------
    bool
        False if too many digits were lost. The slot is then undefined, and the caller fits it anew.
    """


@verb
def log_predictive(stats, k, rows, i):
    """Log posterior predictive density of row ``i`` given the rows of slot ``k``."""


@verb
def log_predictive_without(stats, k, rows, i):
    """Log posterior predictive density of row ``i`` of slot ``k`` given its other rows (one or more).

    Returns
    -------
    float
        NaN if too many digits would be lost. The caller then removes the row and asks again.
    """


@verb
def log_marginal(stats, k):
    """Log marginal likelihood of the rows of slot ``k``."""


@array_verb
def log_predictive_present(stats, k, rows, i, absent):
    """Log posterior predictive density of the entries of row ``i`` that are not ``absent[i]``, given slot ``k``.

    Implemented where missing entries can be drawn, with :func:`draw_absent`, and where densities of some columns
    are asked for. Entries of other families that may be missing are NaN.
    """


@array_verb
def draw_absent(stats, k, rows, i, absent, rng):
    """Set the absent entries of row ``i`` to a draw of their predictive given slot ``k`` and its other entries."""


def _accept(*_: Any) -> None:
    """Accept anything."""


def _as_floats(params: Any, values: np.ndarray) -> tuple[Any, Any]:
    return np.ascontiguousarray(values, dtype=np.float64), None


def _unshifted(params: Any, origin: Any) -> Any:
    return params


@dataclass(frozen=True)
class Family:
    """A conjugate family, as the layers above see it.

    Data are values of shape (n, c): the d columns that are modelled, then the columns of what is given with every
    row (numbers of trials, covariates, ...), if the family has any.

    Parameters
    ----------
    name : str
        Name of the user-facing base measure.
    params : type
        ``NamedTuple`` class of the parameters; its fields are the user's arguments.
    axes : dict of str to str
        A letter for each dimension of each parameter: ``"d"`` for the columns that are modelled, and letters of
        the family's own, whose lengths its base measure knows. ``""`` is a scalar.
    check : callable
        ``check(name, value)`` with one numeric parameter raises ValueError if it is outside its support.
    allocate_summary : callable
        ``(params, capacity) -> Summary``.
    allocate_stats : callable
        ``(params, n, capacity) -> Stats``, for data with n rows.
    component : Component
        The distribution of rows given the parameters of their cluster.
    check_together : callable
        ``check_together(params)`` raises ValueError if the parameters do not go together. With ``check`` it
        defines the support.
    check_values : callable
        ``check_values(params, values)`` raises ValueError, and says where, if values are not data of this kind.
        Parameters that are variables may be None.
    represent : callable
        ``(params, values) -> (rows, origin)``: the data in the form that the verbs take, which depends on no more
        of the parameters than their shapes, and whatever ``shift`` needs to know. Contiguous float64 values by
        default.
    shift : callable
        ``(params, origin) -> params``: the parameters that go with rows in that form.
    given : dict of str to str
        What comes with every row, by the name of the user's argument: a letter for its columns, as in ``axes``.
    from_data : callable or None
        ``(rows) -> dict`` of default parameters.
    takes : tuple of int
        Numbers of dimensions that data may have: 1 for (n,), 2 for (n, d).
    incomplete : Family or None
        The family of the same parameters, under another name, for data with missing entries (NaN).
    takes_missing : bool
        Whether this is such a family.
    draws_missing : bool
        Whether :func:`draw_absent` draws missing entries: always if there is no ``incomplete`` family, in which
        they integrate out, and otherwise where a user wants to see them.
    takes_sparse : bool
        Whether data may be a SciPy sparse matrix. ``represent`` and ``check_values`` are then given it alone, in
        CSR form, without columns for what is given.
    """

    name: str
    params: type
    axes: dict[str, str]
    check: Callable[[str, np.ndarray], None]
    allocate_summary: Callable[[Any, int], Any]
    allocate_stats: Callable[[Any, int, int], Any]
    component: Component
    check_together: Callable[[Any], None] = _accept
    check_values: Callable[[Any, Any], None] = _accept
    represent: Callable[[Any, Any], tuple[Any, Any]] = _as_floats
    shift: Callable[[Any, Any], Any] = _unshifted
    given: dict[str, str] = field(default_factory=dict)
    from_data: Callable[[np.ndarray], dict[str, np.ndarray | float]] | None = None
    takes: tuple[int, ...] = (1, 2)
    takes_sparse: bool = False
    incomplete: "Family | None" = None
    takes_missing: bool = False
    draws_missing: bool = False

    def draw_rows(self, rng: np.random.Generator, params: Any, labels: np.ndarray, given: Any) -> np.ndarray:
        """Draw (n, d) rows from the prior, with one set of cluster parameters per label."""
        names, own = np.unique(labels, return_inverse=True)
        drawn = self.component.draw(rng, params, self.allocate_summary(params, len(names)))
        return self.component.draw_rows(rng, drawn, own, given)

    def supports(self, params: NamedTuple) -> bool:
        """Tell whether numeric parameters are inside the family's support."""
        try:
            for name, value in zip(params._fields, params, strict=True):
                self.check(name, np.asarray(value))
            self.check_together(params)
        except ValueError:
            return False
        return True

    @property
    def has_data_gradient(self) -> bool:
        """Whether rows may be latent, or depend on other variables."""
        return is_implemented(data_gradient, self.params)
