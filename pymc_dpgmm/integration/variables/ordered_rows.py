"""Which rows come one after the other: sequences and places of rows, as users give them."""

import contextlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.integration.variables.records import numbers
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.partitions.segments import Sequences, sequences_of
from pymc_dpgmm.tables.checks import is_variable
from pymc_dpgmm.tables.names import as_plain
from pymc_dpgmm.tables.reading import factorized

# Steps of the order that are more times longer than the median one are told of.
LONG_STEP = 1.5


class OrderedRows(NamedTuple):
    """Rows in order.

    Parameters
    ----------
    sequences : Sequences
    codes : (n,) int64 array
        Number of each row's sequence.
    names : (J,) array
        Of the sequences.
    order : (n,) array or None
        Places of the rows, if they are given.
    """

    sequences: Sequences
    codes: np.ndarray
    names: np.ndarray
    order: np.ndarray | None

    @property
    def record(self) -> dict[str, Any]:
        """What results are read with."""
        return {
            "rows": numbers(self.sequences.rows),
            "starts": numbers(self.sequences.starts),
            "sequences": [as_plain(own) for own in self.names],
            "order": None if self.order is None else numbers(self.order),
        }

    def tell_of_gaps(self, consequence: str) -> None:
        """Log where neighbours are farther apart than most, and what follows from it that they are neighbours."""
        assert self.order is not None
        steps = np.diff(self.order[self.sequences.rows])[self.sequences.may_change[1:]]
        n_long = int(np.sum(steps > LONG_STEP * np.median(steps))) if len(steps) else 0
        if n_long:
            logger.info(
                "%d of %d steps of order are longer than %g times the median one. Neighbours in order are "
                "neighbours, however far apart. %s",
                n_long,
                len(steps),
                LONG_STEP,
                consequence,
            )


def ordered_rows(n: Any, sequence: Any, order: Any, of_gaps: str) -> OrderedRows:
    """Return the sequences and the order of n rows, given an entry for each, or None.

    Rows of pm.Data may change, but not how many there are. Where the order has gaps, ``of_gaps`` is logged too.

    Raises
    ------
    TypeError, ValueError
        If there is not one entry for each row, places are no numbers or dates, or two of a sequence are equal.
    """
    n = int(value_of(n)) if is_variable(n) else int(n)
    codes, names = np.zeros(n, dtype=np.int64), np.array([0])
    if sequence is not None:
        codes, names = factorized("sequence", _checked_entries("sequence", sequence, n))
    order = None if order is None else _checked_order(order, n)
    codes = codes.astype(np.int64)
    found = OrderedRows(sequences_of(codes, order), codes, names, order)
    if order is not None:
        found.tell_of_gaps(of_gaps)
    return found


def _checked_entries(what: str, values: Any, n: int) -> np.ndarray:
    if is_variable(values):
        raise TypeError(f"{what} must be an array, not a variable or pm.Data")
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{what} must have one entry for each row, shape ({n},), got {values.shape}")
    return values


def _checked_order(order: Any, n: int) -> np.ndarray:
    """Return the places of rows: numbers or dates."""
    values = _checked_entries("order", order, n)
    if values.dtype.kind in "OU":
        with contextlib.suppress(TypeError, ValueError):
            # Times of several zones are compared as they are in one of them.
            values = pd.to_datetime(pd.Series(values), format="ISO8601", utc=True).dt.tz_localize(None).to_numpy()
    if values.dtype.kind not in "iufMm":
        raise TypeError(
            "order must be numbers or dates, by which rows come one after the other, got entries such as "
            f"{values[0]!r}: text becomes dates by pd.to_datetime, periods by .start_time, and other categories "
            "numbers by their codes"
        )
    return values
