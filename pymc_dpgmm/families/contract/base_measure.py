"""What a user passes as ``base=``: a family with values, or model variables, for its parameters."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from pymc_dpgmm.families.contract.defaults import warn_of_scales
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.tables.checks import is_variable, refuse_dims, stacked, without_dims
from pymc_dpgmm.tables.kinds import as_numbers, check_finite
from pymc_dpgmm.tables.reading import columns_as_frame, names_of_axes, read_table
from pymc_dpgmm.tables.rows import RowNames, order_of_columns
from pymc_dpgmm.tables.table import Table

# The sums of squares of larger numbers are infinite.
LARGEST = 1e100

FAMILIES: dict[str, Family] = {}
BASE_MEASURES: dict[str, "type[BaseMeasure]"] = {}


class Coded(NamedTuple):
    """Data as the numbers of a family, and what codes of categories stand for.

    Parameters
    ----------
    values : (n,) or (n, d) float64 array, or sparse matrix
    levels : tuple of d tuples or None
        Of a column of codes, what these stand for; None for other columns, and for codes that stand for nothing.
    """

    values: Any
    levels: tuple[tuple[Any, ...] | None, ...]


class LinearTransform(NamedTuple):
    """A constant plus a multiple of a named variable, or a power of this."""

    variable: str
    constant: Any
    slope: Any
    power: float = 1.0


class BaseMeasure:
    """Base measure of a mixture: the prior of the parameters of every cluster.

    This is the class from which base measures are derived. Defining a subclass with a ``family`` registers that
    family.

    Parameters
    ----------
    given : dict, optional
        What comes with every row of the data, by name, if the family needs it: numbers, arrays or variables.
    **parameters
        The parameters of the family: numbers, arrays or PyMC variables. The axes of variables of ``pymc.dims`` are
        taken in the order of their dims. Series, frames and arrays of xarray are matched with the data by name.

    Raises
    ------
    TypeError
        If a parameter is neither a variable nor real numbers.
    ValueError
        If a parameter has the wrong number of dimensions, or a number is outside its support.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> issubclass(dp.NormalInverseGamma, dp.BaseMeasure)
    True
    """

    family: ClassVar[Family]
    # Whether columns of categories and of text are taken, as codes.
    takes_categories: ClassVar[bool] = False
    # Parameters that are products of linear functions of named variables, from which results can compute them.
    products: Mapping[str, Sequence[LinearTransform]] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "family" in cls.__dict__:
            for family in (cls.family, cls.family.incomplete):
                if family is not None:
                    FAMILIES[family.name] = family
                    BASE_MEASURES[family.name] = cls

    def __init__(self, *, given: dict[str, Any] | None = None, **parameters: Any) -> None:
        self._names = {name: names_of_axes(value) for name, value in parameters.items()}
        self.parameters = {name: self._checked(name, value) for name, value in parameters.items()}
        read = {name: checked_given(name, value) for name, value in (given or {}).items()}
        # What comes with the rows, and what names its own rows and columns have.
        self._tables: dict[str, Table] = {name: table for name, (_, table) in read.items() if table is not None}
        self.given = {name: value for name, (value, _) in read.items()}
        # Errors that need no data are raised here: this is where the user's values enter.
        lengths = self._implied_lengths()
        for letter in sorted(set("".join(self.family.axes.values()))):
            own = {name: values[letter] for name, values in lengths.items() if letter in values}
            if len(set(own.values())) > 1:
                raise ValueError(
                    f"the parameters of {self.family.name} must agree on the number of columns {letter}, got "
                    + ", ".join(f"{name} with {letter} = {length}" for name, length in own.items())
                )
        known = {letter: length for values in lengths.values() for letter, length in values.items()}
        if "d" in known and all(not is_variable(value) for value in self.parameters.values()):
            self.numbers(known["d"])

    @classmethod
    def restored(cls, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Make one from parameters, and what is given with every row, as another one has kept them."""
        base = cls.__new__(cls)
        base.parameters, base.given, base._tables, base._names = dict(parameters), dict(given), {}, {}
        return base

    def in_order(self, names: Mapping[str, Sequence[Any] | None], of: str = "observed") -> Self:
        """Return the base measure with the entries of parameters in the order of the data, where they have names.

        Parameters
        ----------
        names : dict
            By the letters of axes, the names along these in the data: of columns, levels or covariates.
        of : str
            The data, for messages.

        Raises
        ------
        ValueError
            If a parameter, or the data that the base measure was made from, has some of these names, but not all.
        """
        moved, named = dict(self.parameters), dict(self._names)
        for parameter, axes in self._names.items():
            kept: list[Sequence[Any] | None] = []
            for axis, (letter, own) in enumerate(zip(self.family.axes[parameter], axes, strict=False)):
                what = f"{parameter} of {type(self).__name__}"
                at = order_of_columns(what, own, names.get(letter), of)
                if own is not None and at is not None:
                    moved[parameter] = moved[parameter].take(at, axis)
                    own = [own[i] for i in at]
                kept.append(own)
            named[parameter] = tuple(kept)
        found = copy.copy(self)
        found.parameters, found._names = moved, named
        return found

    def for_rows(self, rows: RowNames, columns: Mapping[str, Sequence[Any] | None] | None = None) -> Self:
        """Return the base measure for rows with names: what is given with every row is brought into their order.

        Parameters
        ----------
        rows : RowNames
            Names of the rows.
        columns : dict, optional
            For what is given, the names of the columns whose order its own are to have, if they have names: those
            of the data or, of new rows, those that were given before.

        Raises
        ------
        ValueError
            If something that is given has the names of other rows, or of other columns.
        """
        wanted = columns or {}
        moved = {name: rows.matched(own, wanted.get(name), "the data") for name, own in self._tables.items()}
        if not moved:
            return self
        found = copy.copy(self)
        found.given = self.given | {name: table.values for name, table in moved.items()}
        found._tables = moved
        return found

    @staticmethod
    def given_for(
        given: Mapping[str, Any], rows: RowNames, columns: Mapping[str, Sequence[Any] | None]
    ) -> dict[str, Any]:
        """Return numbers that come with new rows, checked and in the order of these; see :meth:`for_rows`."""
        found = {}
        for name, value in given.items():
            found[name], table = checked_given(name, value)
            if table is not None:
                found[name] = rows.matched(table, columns.get(name), "the data").values
        return found

    def given_names(self) -> dict[str, list[Any]]:
        """Return the names of the columns of what is given, where they have names."""
        found = {name: table for name, table in self._tables.items() if not table.is_vector}
        return {name: list(table.columns) for name, table in found.items() if table.columns is not None}

    @classmethod
    def from_data(cls, data: Any, **given: Any) -> Self:
        """Make a weakly informative base measure from data; the class states which.

        Parameters
        ----------
        data : (n,) or (n, d) array_like of finite numbers
            The data. Missing entries (NaN) are ignored. Families of sparse data accept it here too.
        **given
            What comes with every row, such as ``exposure``, under its name in the class.

        Warns
        -----
        UserWarning
            If the data is real numbers whose spread gives no scale: one row, a constant column, or a column of
            whose variance a single row makes up most.

        Raises
        ------
        TypeError, ValueError
            If the data is not of this kind, or the family has no default parameters.
        """
        if cls.family.from_data is None:
            raise ValueError(f"{cls.family.name} has no default parameters; give them all")
        cls.check_given(given)
        table = read_table(data, "data")
        if table.is_sparse:
            if not cls.family.takes_sparse:
                raise TypeError(
                    f"data is sparse, which {cls.family.name} does not take; use .toarray(), or "
                    "DirichletMultinomial"
                )
            sums: dict[str, Any] = cls.family.from_data(table.values)
            return cls(**sums)
        rows = as_numbers(table, cls.__name__)
        check_finite(table.what, table.values, LARGEST)
        rows = rows[:, None] if rows.ndim == 1 else rows
        empty = np.flatnonzero(np.all(np.isnan(rows), axis=0))
        if len(empty):
            raise ValueError(f"all entries of {table.column_name(empty[0])} are missing; give the parameters")
        if not cls.family.component.is_discrete:
            names = range(rows.shape[1]) if table.columns is None else table.columns
            warn_of_scales(cls.family.name, rows, [str(name) for name in names])
        columns = dict.fromkeys(given, table.columns_of_matrix)
        own = cls.given_for(given, RowNames("the data", table.rows), columns)
        defaults: dict[str, Any] = cls.family.from_data(rows, **{name: _as_columns(own[name]) for name in own})
        base = cls(**defaults, **given)
        base.name_columns(table)
        return base

    def name_columns(self, table: Table) -> None:
        """Give parameters that have an entry for each column the names of the columns of a table."""
        columns = table.columns_of_matrix
        for parameter, value in self.parameters.items() if columns is not None else ():
            letters = self.family.axes[parameter][: np.ndim(value)]
            self._names[parameter] = tuple(columns if letter == "d" else None for letter in letters)

    @classmethod
    def check_given(cls, given: Mapping[str, Any]) -> None:
        """Raise TypeError unless this is what comes with every row in the family."""
        unknown = [name for name in given if name not in cls.family.given]
        if unknown:
            known = " and ".join(["data", *cls.family.given])
            raise TypeError(f"{cls.__name__}.from_data takes {known}, got {unknown[0]}")
        arguments, none = inspect.signature(cls).parameters, inspect.Parameter.empty
        absent = [
            name
            for name in cls.family.given
            if name not in given and name in arguments and arguments[name].default is none
        ]
        if absent:
            raise TypeError(
                f"{cls.__name__} needs {' and '.join(absent)} of every row: give "
                f"base=dp.{cls.__name__}(...) with all of its arguments, or "
                f"base=dp.{cls.__name__}.from_data(data, {', '.join(f'{name}=...' for name in absent)})"
            )

    def lengths(self, d: int) -> dict[str, int]:
        """Return the lengths of the axes that the family names by letters, for ``d`` columns of data."""
        known = {"d": d}
        for name, letter in self.family.given.items():
            if letter != "d" and name in self.given:
                value = self.given[name]
                shape = np.shape(value.get_value(borrow=True) if is_variable(value) else value)
                known[letter] = 1 if len(shape) < 2 else shape[1]
        for values in self._implied_lengths().values():
            known |= {letter: length for letter, length in values.items() if letter not in known}
        return known

    def numbers(self, d: int, values: dict[str, Any] | None = None) -> Any:
        """Return the family's parameters as checked numbers for ``d`` columns.

        Parameters
        ----------
        d : int
        values : dict, optional
            Numeric values to use in place of those given by the user.

        Raises
        ------
        ValueError
            If a value does not fit ``d`` columns or is outside the support.
        """
        values = self.parameters if values is None else values
        lengths = self.lengths(d)
        broadcast: dict[str, Any] = {}
        for name, letters in self.family.axes.items():
            value = np.asarray(values[name], dtype=np.float64)
            if not letters:
                broadcast[name] = float(value)
                continue
            wanted = tuple(lengths[letter] for letter in letters)
            if value.ndim == 1 and _is_square(letters):
                value = np.diag(value)
            if value.ndim and value.shape != wanted:
                raise ValueError(f"{name} has shape {value.shape}, but must have {wanted} for d = {d} columns")
            broadcast[name] = np.array(np.broadcast_to(value, wanted))
        params = self.family.params(**broadcast)
        for name, value in broadcast.items():
            self.family.check(name, value)
        self.family.check_together(params)
        return params

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise ValueError where the family or its numeric parameters do not fit data of this shape."""
        name = type(self).__name__
        takes = self.family.takes
        if len(shape) not in takes:
            wanted = " or ".join({1: "(n,)", 2: "(n, d)"}[ndim] for ndim in takes)
            hint = "; reshape it to (n, 1)" if len(shape) == 1 and 2 in takes else ""
            raise ValueError(f"{name} needs data of shape {wanted}, got {len(shape)} dimensions{hint}")
        d = 1 if len(shape) == 1 else shape[1]
        for parameter, values in self._implied_lengths().items():
            if values.get("d", d) != d:
                raise ValueError(f"{parameter} of {name} has d = {values['d']}, but the data has d = {d} columns")
        if not any(is_variable(value) for value in self.parameters.values()):
            self.numbers(d)

    def check_values(self, values: Any, family: Family | None = None) -> None:
        """Raise ValueError where data, with columns for what is given, is not of a family's kind."""
        family = self.family if family is None else family
        known = {name: None if is_variable(value) else value for name, value in self.parameters.items()}
        family.check_values(family.params(**known), values)

    def read(self, table: Table) -> Coded:
        """Return the rows of a table as the numbers of the family.

        Raises
        ------
        TypeError
            If the table has columns that the family does not take; the message says what to do.
        """
        return Coded(as_numbers(table, type(self).__name__), (None,) * len(table.kinds))

    def given_columns(self, shape: Sequence[int], data: Any = None) -> list[Any]:
        """Return what is given with rows of this shape: matrices, or variables, with n rows.

        ``data`` are the rows, for families that take from them what is given.

        Raises
        ------
        ValueError
            If something is not given for every row.
        """
        n, d = shape[0], 1 if len(shape) == 1 else shape[1]
        return [
            self._columns(name, self.given[name], int(n), d if letter == "d" else None, data)
            for name, letter in self.family.given.items()
        ]

    def _columns(self, name: str, value: Any, n: int, width: int | None, data: Any) -> Any:
        """Return one thing that is given as a matrix."""
        if value.ndim == 0 and is_variable(data):
            # As many rows as the data has, whatever it is set to later.
            return value + 0.0 * (data[:, None] if data.ndim == 1 else data)
        if value.ndim == 0:
            return np.broadcast_to(value, (n, width or 1))
        if not is_variable(value):
            if value.ndim == 2 and len(value) == 1:
                # One row stands for all rows.
                value = np.repeat(value, n, axis=0)
            if len(value) != n:
                raise ValueError(f"{name} has {len(value)} rows, but the data has {n}")
            if value.ndim == 2 and width is not None and value.shape[1] not in (1, width):
                raise ValueError(f"{name} has {value.shape[1]} columns, but the data has {width}")
        if value.ndim == 1:
            value = value[:, None]
        if width is None or width == 1:
            return value
        # Ones in place of broadcasting serve arrays and variables alike.
        return value * np.ones((1, width))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"

    def _checked(self, name: str, value: Any) -> Any:
        letters = self.family.axes[name]
        allowed = {
            0: "a scalar",
            1: f"a scalar or a ({letters},) vector",
            2: f"a ({', '.join(letters)}) matrix",
        }[len(letters)]
        ndims = (0, 1) if len(letters) == 1 else (len(letters),)
        if _is_square(letters):
            allowed, ndims = f"{allowed} or its diagonal ({letters[0]},)", (1, 2)
        value = without_dims(stacked(value))
        if is_variable(value):
            if value.ndim not in ndims:
                raise ValueError(f"{name} must be {allowed}, got a variable with {value.ndim} dimensions")
            return value
        if np.ma.is_masked(value):
            raise ValueError(f"{name} has masked entries: give numbers for them")
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be real numbers or a variable, got {value!r}")
        array = array.astype(np.float64)
        square = len(set(letters)) == 1 or array.ndim < 2
        if array.ndim not in ndims or array.size == 0 or (square and len(set(array.shape)) > 1):
            raise ValueError(f"{name} must be {allowed}, got shape {array.shape}")
        self.family.check(name, np.diag(array) if array.ndim == 1 and _is_square(letters) else array)
        return array

    def _implied_lengths(self) -> dict[str, dict[str, int]]:
        """Lengths of axes that the numeric parameters imply, by parameter and letter."""
        return {
            name: dict(zip(self.family.axes[name], np.shape(value), strict=False))
            for name, value in self.parameters.items()
            if not is_variable(value) and np.ndim(value) > 0
        }


def _as_columns(value: Any) -> Any:
    """Return what is given with every row as a number or a matrix."""
    value = value.get_value() if is_variable(value) else value
    return value[:, None] if np.ndim(value) == 1 else value


def _is_square(letters: str) -> bool:
    """Tell whether a parameter is a square matrix, which may be given by its diagonal."""
    return len(letters) == 2 and letters[0] == letters[1]


def checked_given(name: str, value: Any) -> tuple[Any, Table | None]:
    """Return what comes with every row as numbers or a variable, and its table if it has names."""
    refuse_dims(name, value)
    if is_variable(value):
        if not hasattr(value, "get_value"):
            raise TypeError(f"{name} must be numbers or pm.Data, got an expression of variables")
        if value.ndim not in (1, 2):
            raise ValueError(f"{name} must have one or two dimensions, got a variable with {value.ndim}")
        return value, None
    # A dict of columns goes by position, unless its columns have an index.
    by_position = isinstance(value, dict) and not any(hasattr(column, "iloc") for column in value.values())
    value, table = columns_as_frame(value), None
    if isinstance(value, Real | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be real numbers or a variable, got {value!r}")
        array = array.astype(np.float64)
    else:
        table = read_table(value, name)
        table = replace(table, rows=None) if by_position else table
        array = as_numbers(table)
    RowNames("the data", None if table is None else table.rows).check_finite(name, np.atleast_1d(array))
    return array, table if table is not None and (table.rows is not None or table.columns is not None) else None


def named_kinds(chosen: Callable[[Family], bool] = lambda family: True) -> str:
    """Return the names of this package's base measures, or of those whose families are chosen, for a message."""
    kinds = {kind for kind in BASE_MEASURES.values() if kind.__module__.startswith("pymc_dpgmm.")}
    return ", ".join(sorted(f"dp.{kind.__name__}" for kind in kinds if chosen(kind.family)))


def check_base(base: Any) -> None:
    """Raise TypeError unless ``base`` is a base measure; say what there is, and what else may have been meant."""
    if isinstance(base, BaseMeasure):
        return
    got = type(base).__name__
    if isinstance(base, type):
        got = base.__name__
        if issubclass(base, BaseMeasure):
            raise TypeError(f"base must have its parameters given here: {got}(...) or {got}.from_data(...)")
    hint = ""
    if is_variable(base) or getattr(base, "__module__", "").startswith("pymc."):
        hint = (
            ". A distribution of PyMC has no parameters that could be integrated out: for other likelihoods give "
            'each row a parameter, theta = dp.DirichletProcess("theta", alpha, base, shape=n)'
        )
        got = "a distribution of PyMC"
    raise TypeError(
        f"base must be a base measure, one of {named_kinds()} or a family of your own, got {got}{hint}"
    )
