"""Parameters of tests of which some run in the slow suite only."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_slow(values: Iterable[Any], n_fast: int = 1) -> list[Any]:
    """Return parameters of which all but the first are marked as slow.

    Parameters
    ----------
    values : iterable of values, of tuples of values, or of ``pytest.param``
    n_fast : int
    """
    parameters = list(values)
    return parameters[:n_fast] + [_slow(value) for value in parameters[n_fast:]]


def _slow(value: Any) -> Any:
    if hasattr(value, "marks"):
        return pytest.param(*value.values, id=value.id, marks=(*value.marks, pytest.mark.slow))
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)


def slow_but(cases, *fast):
    """Return cases as parameters of a test, of which all but some are slow.

    ``fast`` are the cases that run by default, or a function that tells whether a case does.
    """
    is_fast = fast[0] if len(fast) == 1 and callable(fast[0]) else fast.__contains__
    return [case if is_fast(case) else pytest.param(case, marks=pytest.mark.slow) for case in cases]
