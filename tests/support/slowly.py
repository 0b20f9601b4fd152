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
