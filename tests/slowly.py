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
    return [
        value
        if i < n_fast
        else pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.slow)
        for i, value in enumerate(values)
    ]
