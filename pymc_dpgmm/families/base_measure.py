"""What a user passes as ``base=``: a family with values, or model variables, for its parameters."""

from typing import Any, ClassVar, Self

import numpy as np

from pymc_dpgmm.families.verbs import Family


def is_variable(value: Any) -> bool:
    """Tell a model variable (any symbolic tensor) from a number or array."""
    return hasattr(value, "owner") and hasattr(value, "type")


class BaseMeasure:
    """Base measure of a mixture: the prior of every cluster's parameters.

    Parameters
    ----------
    **parameters
        The family's parameters: numbers, arrays, or PyMC variables.

    Raises
    ------
    TypeError
        If a parameter is neither a variable nor real numbers.
    ValueError
        If a parameter has the wrong number of dimensions, or a number is outside its support.
    """

    family: ClassVar[Family]

    def __init__(self, **parameters: Any) -> None:
        self.parameters = {name: self._checked(name, value) for name, value in parameters.items()}
        # Errors that need no data are raised here: this is where the user's values enter.
        lengths = self._lengths()
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"the parameters of {self.family.name} must agree on the number of columns d, got "
                + ", ".join(f"{name} with d = {length}" for name, length in lengths.items())
            )
        if lengths and all(not is_variable(value) for value in self.parameters.values()):
            self.numbers(next(iter(lengths.values())))

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Make a weakly informative base measure from data; each family says which.

        Parameters
        ----------
        data : (n,) or (n, d) array_like of finite numbers
        """
        if cls.family.from_data is None:
            raise ValueError(f"{cls.family.name} has no default parameters; give them all")
        rows = np.asarray(data, dtype=np.float64)
        rows = rows[:, None] if rows.ndim == 1 else rows
        n_bad = int(np.sum(~np.isfinite(rows)))
        if n_bad:
            raise ValueError(
                f"data has {n_bad} values that are NaN or infinite; only finite numbers are supported"
            )
        if rows.ndim != 2 or rows.size == 0:
            raise ValueError(
                f"data must be (n,) or (n, d) finite numbers with n and d at least 1, got shape {np.shape(data)}"
            )
        return cls(**cls.family.from_data(rows))

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
        broadcast: dict[str, Any] = {}
        for name, ndim in self.family.ndims.items():
            value = np.asarray(values[name], dtype=np.float64)
            if ndim == 0:
                broadcast[name] = float(value)
                continue
            if value.ndim == ndim and any(length != d for length in value.shape):
                raise ValueError(f"{name} has shape {value.shape}, but the data has d = {d} columns")
            broadcast[name] = np.array(np.broadcast_to(value, (d,) * ndim))
        params = self.family.params(**broadcast)
        for name, value in broadcast.items():
            self.family.check(name, np.asarray(value))
        self.family.check_together(params)
        return params

    def check_columns(self, d: int) -> None:
        """Raise ValueError where the numeric parameters do not fit ``d`` columns of data."""
        for name, length in self._lengths().items():
            if length != d:
                raise ValueError(
                    f"{name} of {type(self).__name__} has d = {length}, but the data has d = {d} columns"
                )
        if not any(is_variable(value) for value in self.parameters.values()):
            self.numbers(d)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"

    def _checked(self, name: str, value: Any) -> Any:
        ndim = self.family.ndims[name]
        allowed = {0: "a scalar", 1: "a scalar or a (d,) vector", 2: "a (d, d) matrix"}[ndim]
        if is_variable(value):
            if value.ndim not in ((ndim,) if ndim != 1 else (0, 1)):
                raise ValueError(f"{name} must be {allowed}, got a variable with {value.ndim} dimensions")
            return value
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be real numbers or a variable, got {value!r}")
        array = array.astype(np.float64)
        if array.ndim not in ((ndim,) if ndim != 1 else (0, 1)) or array.size == 0:
            raise ValueError(f"{name} must be {allowed}, got shape {array.shape}")
        if ndim == 2 and array.shape[0] != array.shape[1]:
            raise ValueError(f"{name} must be {allowed}, got shape {array.shape}")
        self.family.check(name, array)
        return array

    def _lengths(self) -> dict[str, int]:
        """Numbers of columns that the numeric parameters imply."""
        return {
            name: len(value)
            for name, value in self.parameters.items()
            if not is_variable(value) and np.ndim(value) > 0
        }
