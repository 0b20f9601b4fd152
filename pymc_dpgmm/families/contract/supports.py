"""What a family's parameters may be, and refusals of what is not."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Deviations from symmetry, relative to the largest entry, that rounding explains.
_ROUNDING = 1e-10


# Supports that compiled code knows.
REAL, POSITIVE, DEFINITE = range(3)


class Parameter(NamedTuple):
    """A parameter of a family.

    Parameters
    ----------
    axes : str
        A letter for each dimension: ``"d"`` for the columns that are modelled, and letters of the family's own,
        whose lengths its base measure knows. ``""`` is a scalar.
    check : callable
        ``check(name, value)`` with a numeric value raises ValueError if it is outside the support.

    Examples
    --------
    >>> from pymc_dpgmm.families import Parameter
    >>> def check(name, value):
    ...     if not 0 < value < 1:
    ...         raise ValueError(f"{name} must lie in (0, 1), got {value}")
    >>> probability = Parameter("", check)
    """

    axes: str
    check: Callable[[str, np.ndarray], None]

    @property
    def support(self) -> int | None:
        """``REAL``, ``POSITIVE`` or ``DEFINITE``; None for another one, which compiled code does not know."""
        known: dict[Any, int] = {
            _check_finite: REAL,
            _check_positive: POSITIVE,
            _check_positive_definite: DEFINITE,
        }
        return known.get(self.check)


def real(axes: str = "") -> Parameter:
    """Declare a parameter whose entries are finite numbers.

    Examples
    --------
    >>> from pymc_dpgmm.families import real
    >>> real("d").axes
    'd'
    """
    return Parameter(axes, _check_finite)


def positive(axes: str = "") -> Parameter:
    """Declare a parameter whose entries are finite numbers > 0.

    Examples
    --------
    >>> from pymc_dpgmm.families import positive
    >>> positive("d").check("kappa", 2.0)
    """
    return Parameter(axes, _check_positive)


def positive_definite(axes: str) -> Parameter:
    """Declare a symmetric positive definite matrix; ``axes`` is the same letter twice.

    Examples
    --------
    >>> from pymc_dpgmm.families import positive_definite
    >>> positive_definite("dd").axes
    'dd'
    """
    return Parameter(axes, _check_positive_definite)


def _check_finite(name: str, value: Any) -> None:
    # Samplers look at numbers many thousand times in a second.
    if not (math.isfinite(value) if isinstance(value, float) else np.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, got {value}")


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, float) and 0.0 < value < math.inf:
        return
    if isinstance(value, np.ndarray):
        if value.size == 1:
            if 0.0 < value.item() < math.inf:
                return
        elif value.size and value.min() > 0 and value.max() < math.inf:
            return
    _check_finite(name, value)
    if not (value > 0.0 if isinstance(value, float) else (np.asarray(value) > 0).all()):
        raise ValueError(f"{name} must be > 0, got {value}")


def _check_positive_definite(name: str, value: np.ndarray) -> None:
    _check_finite(name, value)
    scaled = with_unit_diagonal(value)
    if np.abs(scaled - scaled.T).max() > _ROUNDING * np.abs(scaled).max():
        raise ValueError(f"{name} must be symmetric, got {value.tolist()}")
    if not np.all(np.diag(value) > 0) or not _is_positive_definite(scaled):
        raise ValueError(f"{name} must be positive definite, got {value.tolist()}")


def with_unit_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix whose columns are scaled to unit diagonal, as far as that is positive.

    That leaves definiteness, and makes checks fair to columns in different units.
    """
    diagonal = np.abs(np.diag(matrix))
    scale = np.where(diagonal > 0.0, np.sqrt(diagonal), 1.0)
    return matrix / scale[:, None] / scale


def _is_positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def refuse_where(bad: np.ndarray, rule: str, *values: Any) -> None:
    """Raise ValueError if any entry is ``bad``; the message names the first such row and its values.

    Parameters
    ----------
    bad : (n, d) bool array
        Which entries break the rule.
    rule : str
        The rule, for the message.
    *values : (n, d) arrays
        The values that break the rule.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dpgmm.families import refuse_where
    >>> times = np.array([[1.0], [-2.0]])
    >>> refuse_where(times < 0, "times must be >= 0", times)
    Traceback (most recent call last):
    ...
    ValueError: times must be >= 0, got -2.0 in row 1
    """
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        found = " of ".join(str(value[row, column]) for value in values)
        raise ValueError(f"{rule}, got {found} in {place_of(row, column, np.shape(bad)[1])}")


def place_of(row: int, column: int, n_columns: int) -> str:
    """Return in words where a value of a table stands; of a single column, the row tells it."""
    return f"row {row}" + (f", column {column}" if n_columns > 1 else "")
