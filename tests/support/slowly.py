"""Parameters of tests of which some run in the slow suite only."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_slow(values: Iterable[Any], n_fast: int = 1) -> list[Any]:
    """Return parameters of which all but the first are marked as slow.

    Parameters
    ----------
    values : iterable of values, or of tuples of values
    n_fast : int
    """
    parameters = list(values)
    slow = [value if isinstance(value, tuple) else (value,) for value in parameters[n_fast:]]
    return parameters[:n_fast] + [pytest.param(*value, marks=pytest.mark.slow) for value in slow]


def slow_but(cases, *fast):
    """Return cases as parameters of a test, of which all but some are slow.

    ``fast`` are the cases that run by default, or a function that tells whether a case does.
    """
    is_fast = fast[0] if len(fast) == 1 and callable(fast[0]) else fast.__contains__
    return [case if is_fast(case) else pytest.param(case, marks=pytest.mark.slow) for case in cases]
