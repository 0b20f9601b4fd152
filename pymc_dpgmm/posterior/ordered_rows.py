"""Draws of rows in order: change points and hidden states."""

from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.integration.variables.records import parse_numbers
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.posterior.draws import DrawnLabels
from pymc_dpgmm.posterior.mixtures import Recorded
from pymc_dpgmm.posterior.stored import position_of
from pymc_dpgmm.tables.checks import listed


class DrawnOrder(NamedTuple):
    """Draws of labels, and the order of their rows.

    Parameters
    ----------
    drawn : DrawnLabels
    sequences : Sequences
    order : (n,) array or None
        The places of rows that a user has given.
    names : list
        Of the sequences.
    """

    drawn: DrawnLabels
    sequences: Sequences
    order: np.ndarray | None
    names: list[Any]

    @classmethod
    def of(cls, idata: Any, name: str, of_states: bool = False) -> "DrawnOrder":
        """Read the draws of a model of change points, or of hidden states.

        Raises
        ------
        TypeError, ValueError
            If there is none of this name.
        """
        recorded = Recorded.of(idata, name)
        record, labels = recorded.labels, recorded.drawn.labels.name
        if "sequences" not in record:
            raise ValueError(
                f"{labels} are clusters of rows in any order; {'states' if of_states else 'change points'} are "
                f"those of a {'dp.HDPHMM' if of_states else 'dp.ChangePoints'}"
            )
        if of_states != ("hidden_openers" in record):
            instead = "dp.change_points" if of_states else "dp.hidden_states"
            raise ValueError(f"{labels} are {'segments' if of_states else 'hidden states'}: use {instead}")
        sequences = Sequences(parse_numbers(record["rows"]), parse_numbers(record["starts"]))
        order = None if record["order"] is None else parse_numbers(record["order"])
        return cls(recorded.drawn, sequences, order, list(record["sequences"]))

    def rows_of(self, sequence: Any) -> np.ndarray:
        """Return the rows of a sequence, in order; by default of the only one.

        Raises
        ------
        ValueError
            If there is none of this name, or none is named and there are several.
        """
        if sequence is None and len(self.names) > 1:
            raise ValueError(f"name one of the sequences with sequence=: {listed(self.names)}")
        j = 0 if sequence is None else position_of(self.names, sequence, "sequence")
        return self.sequences.rows[self.sequences.starts[j] : self.sequences.starts[j + 1]]

    def coords(self) -> dict[str, Any]:
        """Return the coordinates of rows: their names, and ``order`` and ``sequence`` where there are such."""
        coords, row = self.drawn.coords(), self.drawn.row
        if self.order is not None:
            coords["order"] = (row, self.order)
        if len(self.names) > 1:
            of_row = np.empty(len(self.sequences.rows), dtype=np.int64)
            of_row[self.sequences.rows] = np.repeat(np.arange(len(self.names)), np.diff(self.sequences.starts))
            coords["sequence"] = (row, np.asarray(self.names)[of_row])
        return coords

    def along(self, rows: np.ndarray) -> tuple[np.ndarray, str]:
        """Return where rows, in order, are drawn along an axis, and its name."""
        if self.order is None:
            return np.arange(len(rows)), "row, in order"
        x = self.order[rows]
        return (x / np.timedelta64(1, "D"), "order, in days") if x.dtype.kind == "m" else (x, "order")
