"""What a conjugate family declares of itself, which is all that later folders see of it.

A family tells its parameters, the sums that it keeps of the rows of a cluster, and the log evidence of a cluster
given these sums. Everything a sampler needs follows: the predictive density of a row is the evidence with the row
over that without it. Families that know a faster way to some of it say so in further fields, and the tests hold
these to what follows from the evidence.

The functions of a family that run for every row take

``p``
    the parameters, by their names: floats where they have no axes, and otherwise something to be indexed by one
    number, in the order of memory. The lengths of axes are there by their letters, ``p.d``;
``n``
    the number of rows of the cluster, a float;
``s``
    the sums by their names, each to be indexed by one number;
``x``
    a row, to be indexed by one number: its columns, then those of what is given with it.

They are compiled, but stay functions of Python that take arrays. What they call must be marked
:func:`pymc_dpgmm.native.compiled.inlined`, and they cannot make arrays.
"""

import hashlib
import importlib
import math
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np

from pymc_dpgmm.families.contract.component import Component
from pymc_dpgmm.families.contract.expected import Expected
from pymc_dpgmm.families.contract.scale import NormalScale
from pymc_dpgmm.families.contract.supports import Parameter
from pymc_dpgmm.native.fingerprints import fingerprint


def _accept(*_: Any) -> None:
    """Accept anything."""


def _as_floats(params: Any, values: np.ndarray) -> tuple[Any, Any]:
    return np.ascontiguousarray(values, dtype=np.float64), None


def unshifted(params: Any, origin: Any) -> Any:
    """Return parameters as they are."""
    return params


def _no_scratch(params: Any) -> int:
    return 0


def _nothing_more(*_: Any) -> dict[str, Any]:
    return {}


# What the names of families begin with that stand in for those of base measures, and what these are for.
_TITLES = {"Incomplete": " with missing entries", "Wide": " of many columns"}


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is ``numbers[starts[i]:starts[i + 1]]``."""

    numbers: np.ndarray
    starts: np.ndarray


# Families by name; one of the same name takes the place of an earlier one.
KNOWN: dict[str, "Family"] = {}


def _known(module: str, name: str) -> "Family":
    """Return the family that a module defines, in this process."""
    importlib.import_module(module)
    return KNOWN[name]


def _brought(name: str, stamp: str, fields: bytes) -> "Family":
    """Return a family that was defined where no other process can import it: this one's, if it is the same."""
    known = KNOWN.get(name)
    return known if known is not None and known.stamp == stamp else Family(**pickle.loads(fields))


def _restored(family: "Family", kind: str, values: tuple[Any, ...]) -> Any:
    """Return numbers of a family that were pickled."""
    return getattr(family, kind)(*values)


def _numbers_class(family: "Family", kind: str, fields: list[str]) -> Any:
    """Return a ``namedtuple`` class, an attribute of a family, that can be pickled."""

    def reduce(self: Any) -> Any:
        return _restored, (family, kind, tuple(self))

    base: Any = namedtuple("numbers", fields)  # type: ignore[misc]
    name = f"{family.name}{kind.capitalize()}"
    return type(name, (base,), {"__slots__": (), "__reduce__": reduce, "__module__": __name__})


@dataclass(frozen=True, eq=False)
class Family:
    """Definition of a conjugate family.

    The data of a family are values of shape (n, c): the d columns that are modelled, followed by the columns of
    what is given with every row (numbers of trials, covariates, ...), if the family needs any. The
    gamma-exponential example in the documentation shows a complete definition.

    The fields come in groups: the model, from ``name`` to ``component``, which is all that a family needs; what
    users pass, to ``shift``; what else is asked, to ``scale``; missing entries, to ``scratch``; what saves time
    for each row, to ``gather``; for each value of the parameters, to ``tabulated_by``; and for many columns of few
    rows.

    Parameters
    ----------
    name : str
        Name of the user-facing base measure.
    parameters : dict of str to Parameter
        The parameters by name. Each is declared by its support and a letter for each of its dimensions, as in
        ``real("d")`` or ``positive()``: see ``pymc_dpgmm.families.contract.supports``.
    sums : dict of str to str
        The statistics that are kept of the rows of a cluster, with a letter for each dimension. A capital letter
        stands for the lower triangle of a symmetric matrix, packed row after row: ``"D"`` is d (d + 1) / 2
        numbers. The statistics do not depend on the parameters, and are 0 for a cluster without rows.
    update : callable
        ``update(p, n, s, x, sign) -> share``: changes the sums of a cluster of ``n`` rows when a row joins (sign
        1.0) or leaves (-1.0). ``share`` is the smallest fraction of a statistic that is left of it, because
        subtraction loses digits; it is 1.0 if nothing can be lost.
    log_evidence : callable
        ``log_evidence(p, n, s) -> float``: log marginal likelihood of the rows of a cluster. If it has a fourth
        argument ``c``, it may use the memory of the cache (see below) for its computations.
    gradient : callable
        ``gradient(params, s) -> dict``: gradient of the log evidence in each parameter, summed over clusters, in
        plain NumPy. ``s`` has the arrays ``s.n`` (K, 1) and the sums (K, ...).
    component : Component
        The distribution of rows given the parameters of their cluster.
    check_together : callable
        ``check_together(params)`` raises ValueError if parameters, each in its support, do not fit together.
    from_data : callable or None
        ``(rows, **given) -> dict`` of default parameters. What is given with every row is passed where the user
        has passed it: a number, or a matrix of n rows.
    given : dict of str to str
        What comes with every row, under the name of the user's argument, with a letter for its columns.
    takes : tuple of int
        Numbers of dimensions that the data may have: 1 for (n,), 2 for (n, d).
    takes_sparse : bool
        Whether the data may be a SciPy sparse matrix. ``represent`` and ``check_values`` then get the matrix
        alone, in CSR form, without columns for what is given.
    check_values : callable
        ``check_values(params, values)`` raises ValueError, and says where, if values are not data of this kind.
        Parameters that are variables may be None.
    represent : callable
        ``(params, values) -> (rows, origin)``: the data in the form that the functions take, an (n, c) array or a
        ``Ragged``, and whatever ``shift`` needs to know. The rows may depend on the shapes of the parameters only.
        Parts of the data, such as chunks of a dask array, are represented one by one, by
        ``(params, values, origin)`` with the origin of all of them, if there is one.
    shift : callable
        ``(params, origin) -> params``: the parameters that go with rows in that form.
    predictive : callable or None
        ``predictive(params, s) -> dict``: parameters of the component, (K, ...) arrays by name, at which its
        ``mean`` is that of the posterior predictive of each cluster, in plain NumPy. Where columns tell of each
        other, they are the parameters of the predictive itself, for ``draw_unknown`` of the component. Needed for
        the means of some columns given others.
    expected : callable or None
        ``expected(params, s) -> Quadratic or Linear``: expected log density of a row under the posterior of the
        parameters of K clusters, given the sums of weighted rows, in plain NumPy; see
        ``pymc_dpgmm.families.contract.expected``. With it the family takes part in variational inference: it must
        be an exponential family with its conjugate prior, and ``log_evidence`` must hold for fractions of rows.
    data_gradient : callable or None
        ``data_gradient(params, s, rows, labels) -> (n, c) array``: gradient in the rows, where row i is in cluster
        ``labels[i]``. With it, rows may be latent or depend on other variables.
    draw_normal : callable or None
        ``draw_normal(p, n, s, c, mean, precision, scratch, bits) -> half_log_det``: draws the parameters of a
        cluster of normal rows in the form that ``represent`` makes: the mean (d,) and the packed lower triangle of
        the precision. It returns half the log of the determinant of this. ``scratch`` has room for 2 d^2 + 4 d
        numbers. Where latent rows are drawn, it takes the place of ``draw`` of the component.
    scale : NormalScale or None
        How the parameters make a scale that can be learnt, in families of normal clusters.
    incomplete : Family or None
        The family with the same parameters, under another name, for data with missing entries (NaN).
    takes_missing : bool
        Whether this is such a family.
    draws_missing : bool
        Whether missing entries can be drawn. They always are if there is no ``incomplete`` family, which
        integrates over them; otherwise only if a user asks for it.
    log_predictive_present : callable or None
        ``log_predictive_present(p, n, s, c, x, absent, scratch) -> float``: log density of the entries of a row
        that are not ``absent`` (d,). Needed for densities of some of the columns and for drawing missing entries.
        In families that integrate over missing entries, these are NaN.
    draw_absent : callable or None
        ``draw_absent(p, n, s, c, x, absent, scratch, bits)``: sets the absent entries of a row to a draw given the
        others, with random numbers of ``pymc_dpgmm.native.arithmetic``.
    scratch : callable
        ``scratch(params) -> int``: how many numbers the ``scratch`` of these functions must hold.
    cache : dict of str to str
        What a sampler keeps of a cluster beside its sums (``c`` below), declared like the sums. By default this is
        the evidence; with ``{}`` it is nothing.
    refresh : callable or None
        ``refresh(p, n, s, c)``: derives the cache from the sums. Needed unless the cache is one of these two.
    change : callable or None
        ``change(p, n, s, c, x, sign) -> share``: changes the sums and the cache at once.
    kept_evidence : callable or None
        ``kept_evidence(p, n, s, c)``: the log evidence, computed from the cache.
    log_predictive : callable or None
        ``log_predictive(p, n, s, c, x) -> (constant, exponent, argument)``: the log density of a row given the
        rows of a cluster, ``constant - exponent log(argument)``.
    log_predictive_without : callable or None
        The same for a row that is one of the n >= 2 rows of the cluster, given the others. If ``argument`` is
        below 1e-8, or below what rounding has made of the sums, digits count as lost, and the row is first taken
        out of the cluster. By default, the row leaves a copy of the cluster.
    quadratic : callable or None
        ``quadratic(p, c) -> (factor, shift)``: where the density of a row x of d columns depends on
        ``|factor @ x - shift|**2`` alone, with a packed lower triangle. This number is computed for several rows
        at once, and the next two functions take the place of ``log_predictive`` and ``log_predictive_without``.
    quadratic_predictive : callable or None
        ``quadratic_predictive(p, n, s, c, square) -> (constant, exponent, argument)`` of a row of this squared
        distance, given the rows of a cluster. Needed with ``quadratic``.
    quadratic_predictive_without : callable or None
        The same for a row that is one of the n >= 2 rows of the cluster, given the others. Needed with
        ``quadratic``.
    merge : callable or None
        ``merge(p, n, s, m, t)``: adds the sums ``t`` of m rows to ``s``. By default the sums are added.
    gather : callable or None
        ``gather(p, n, s, data, stride, members, m, scratch) -> done``: adds to the sums of n rows those of the
        first of the rows ``members[:m]``, and tells how many these are; the others are added one by one. Row i
        begins at ``data[i * stride]``.
    tables : dict of str to str
        Numbers that the compiled functions find in ``p`` beside the parameters: ``""`` for a float, anything else
        for an array.
    tabulate : callable
        ``tabulate(params, n) -> dict`` of these numbers, for clusters of up to ``n`` rows. ``log_evidence`` may
        use only those that do not depend on ``n``.
    constants : callable or None
        ``constants(params) -> dict`` of the numbers that ``log_evidence`` uses, which come first in ``tables``. It
        saves time where only parameters change. By default they are made by ``tabulate`` for no rows.
    derive : callable or None
        ``derive(p, t, scratch) -> bool``: the same, compiled: writes these numbers to ``t``, pointers by their
        names, and tells whether parameters, each in its support, fit together. With it, hyperparameters are drawn
        without Python. Not needed where there are no such numbers and no ``check_together``.
    tabulated_by : tuple of str or None
        Names of the parameters on which all other numbers of ``tabulate`` depend; it is not called while these
        stay the same. Needs ``constants``. By default they may depend on any.
    wide : callable or None
        ``wide(n, d) -> Family or None``: the family with the same parameters, under another name, that samplers
        use for n complete rows of d columns if clusters have so few rows that working with pairs of rows is
        cheaper than working with columns.
    pairs : callable or None
        ``pairs(params, rows) -> (n, n) array``, for such a family: a number for every pair of rows, or an array of
        none where they would lose digits. In ``p`` these are ``pairs``, ``n_pairs`` is n or 0, and ``data`` is
        the rows.

    Examples
    --------
    The family of a base measure:

    >>> import pymc_dpgmm as dp
    >>> dp.NormalInverseGamma.family.sums
    {'mean': 'd', 'squares': 'd'}
    """

    # The model. Nothing else is needed.
    name: str
    parameters: dict[str, Parameter]
    sums: dict[str, str]
    update: Callable[..., Any]
    log_evidence: Callable[..., Any]
    gradient: Callable[[Any, Any], dict[str, Any]]
    component: Component
    # What users pass: parameters, data, and what is given with every row.
    check_together: Callable[[Any], None] = _accept
    from_data: Callable[..., dict[str, np.ndarray | float]] | None = None
    given: dict[str, str] = field(default_factory=dict)
    takes: tuple[int, ...] = (1, 2)
    takes_sparse: bool = False
    check_values: Callable[[Any, Any], None] = _accept
    represent: Callable[[Any, Any], tuple[Any, Any]] = _as_floats
    shift: Callable[[Any, Any], Any] = unshifted
    # What else is asked: means given columns, variational inference, latent rows, learnt scales.
    predictive: Callable[[Any, Any], dict[str, np.ndarray]] | None = None
    expected: Callable[[Any, Any], Expected] | None = None
    data_gradient: Callable[[Any, Any, np.ndarray, np.ndarray], np.ndarray] | None = None
    draw_normal: Callable[..., Any] | None = None
    scale: NormalScale | None = None
    # Missing entries.
    incomplete: "Family | None" = None
    takes_missing: bool = False
    draws_missing: bool = False
    log_predictive_present: Callable[..., Any] | None = None
    draw_absent: Callable[..., Any] | None = None
    scratch: Callable[[Any], int] = _no_scratch
    # What saves time for each row: a cache, and densities without ratios of evidences.
    cache: dict[str, str] = field(default_factory=lambda: {"evidence": ""})
    refresh: Callable[..., Any] | None = None
    change: Callable[..., Any] | None = None
    kept_evidence: Callable[..., Any] | None = None
    log_predictive: Callable[..., Any] | None = None
    log_predictive_without: Callable[..., Any] | None = None
    quadratic: Callable[..., Any] | None = None
    quadratic_predictive: Callable[..., Any] | None = None
    quadratic_predictive_without: Callable[..., Any] | None = None
    merge: Callable[..., Any] | None = None
    gather: Callable[..., Any] | None = None
    # What saves time for each value of the parameters: numbers that follow from them.
    tables: dict[str, str] = field(default_factory=dict)
    tabulate: Callable[[Any, int], dict[str, Any]] = _nothing_more
    constants: Callable[[Any], dict[str, Any]] | None = None
    derive: Callable[..., Any] | None = None
    tabulated_by: tuple[str, ...] | None = None
    # What saves time for many columns of few rows.
    wide: Callable[[int, int], "Family | None"] | None = None
    pairs: Callable[[Any, np.ndarray], np.ndarray] | None = None

    def __post_init__(self) -> None:
        for name in ("update", "log_evidence", "gradient"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} of {self.name} must be a function, got {getattr(self, name)!r}")
        KNOWN[self.name] = self

    def check_with_gaps(self, params: Any, values: Any) -> None:
        """Raise ValueError if values, of which some may be missing (NaN), are not data of this kind."""
        if self.incomplete is not None:
            self.incomplete.check_values(params, values)
        elif self.takes_missing or not isinstance(values, np.ndarray):
            self.check_values(params, values)
        else:
            self.check_values(params, np.nan_to_num(values, nan=0.0))

    def __deepcopy__(self, memo: Any) -> "Family":
        return self

    def __reduce__(self) -> Any:
        if self.update.__module__ == "__main__":
            return _brought, (self.name, self.stamp, self._pickled)
        return _known, (self.update.__module__, self.name)

    @cached_property
    def stamp(self) -> str:
        """A digest of the family's functions: another family of the same name has another one."""
        own = [*self._fields.values(), *vars(self.component).values()]
        text = "".join(fingerprint(function) for function in own if callable(function))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _pickled(self) -> bytes:
        found: bytes = cloudpickle.dumps(self._fields)
        return found

    @property
    def _fields(self) -> dict[str, Any]:
        return {own.name: getattr(self, own.name) for own in fields(self)}

    @property
    def title(self) -> str:
        """The name in words for a user, who knows only the families of base measures."""
        for prefix, words in _TITLES.items():
            if self.name.startswith(prefix):
                return f"{self.name.removeprefix(prefix)}{words}"
        return self.name

    @cached_property
    def axes(self) -> dict[str, str]:
        """The letters of each parameter's dimensions."""
        return {name: parameter.axes for name, parameter in self.parameters.items()}

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError if the numeric value of one parameter is outside its support."""
        self.parameters[name].check(name, np.asarray(value))

    @cached_property
    def params(self) -> Any:
        """The ``namedtuple`` class of the parameters, as numbers."""
        return _numbers_class(self, "params", list(self.parameters))

    @cached_property
    def kept_sums(self) -> Any:
        """The ``namedtuple`` class of the sums of several clusters: ``n``, and the sums by their names."""
        return _numbers_class(self, "kept_sums", ["n", *self.sums])

    def lengths(self, params: Any) -> dict[str, int]:
        """Return the lengths of the axes of parameters, sums and cache, by letter; of triangles by capitals."""
        found: dict[str, int] = {}
        for name, letters in self.axes.items():
            shape = np.shape(getattr(params, name))
            # A scalar serves all columns.
            found |= dict(zip(letters, shape, strict=True)) if shape else {}
        return {letter.upper(): length * (length + 1) // 2 for letter, length in found.items()} | found

    def no_sums(self, params: Any, n_clusters: int) -> Any:
        """Return the sums of clusters without rows."""
        lengths = self.lengths(params)
        shapes = [tuple(lengths[letter] for letter in letters) for letters in self.sums.values()]
        return self.kept_sums(np.zeros((n_clusters, 1)), *(np.zeros((n_clusters, *shape)) for shape in shapes))

    def draw_rows(self, rng: np.random.Generator, params: Any, labels: np.ndarray, given: Any) -> np.ndarray:
        """Draw (n, d) rows from the prior, with one set of cluster parameters per label."""
        names, own = np.unique(labels, return_inverse=True)
        drawn = self.component.draw(rng, params, self.no_sums(params, len(names)))
        return self.component.draw_rows(rng, drawn, own, given)

    def supports(self, params: Any, names: Iterable[str] | None = None) -> bool:
        """Tell whether numeric parameters are inside the family's support; if only some have changed, these."""
        try:
            for name in params._fields if names is None else names:
                self.parameters[name].check(name, getattr(params, name))
            self.check_together(params)
        except ValueError:
            return False
        return True

    def is_native(self, params: Any) -> bool:
        """Tell whether compiled code can check parameters, and find the log evidence at others."""
        numbers = self.tables if self.constants is None else self.constants(params)
        is_enough = self.derive is not None or (not numbers and self.check_together is _accept)
        return is_enough and all(parameter.support is not None for parameter in self.parameters.values())

    @property
    def has_data_gradient(self) -> bool:
        """Whether rows may be latent, or depend on other variables."""
        return self.data_gradient is not None


def volume(letters: str, lengths: Mapping[str, int]) -> int:
    """Return how many numbers something with these axes holds."""
    return math.prod(lengths[letter] for letter in letters)
