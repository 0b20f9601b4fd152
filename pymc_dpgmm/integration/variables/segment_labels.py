"""Random variables for the numbers of segments: labels of rows in order that change between some neighbours."""

import contextlib
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.integration.variables.operations import LabelsRV
from pymc_dpgmm.integration.variables.partition_arguments import checked_scalar, dtype_of_labels
from pymc_dpgmm.integration.variables.records import add_record, numbers, stored
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.partitions.segments import Sequences, sequences_of
from pymc_dpgmm.tables.checks import is_variable
from pymc_dpgmm.tables.names import as_plain
from pymc_dpgmm.tables.reading import factorized

# Steps of the order that are more times longer than the median one are told of.
LONG_STEP = 1.5


class SegmentsRV(LabelsRV):
    """Numbers of segments. Parameters: probability of a change, and rows and starts of :class:`Sequences`."""

    name = "ChangePoints"
    signature = "(),(n),(j)->(n)"
    dtype = "int64"
    are_free = False
    _print_name = ("ChangePoints", "\\operatorname{ChangePoints}")

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[1].shape[0],)

    def rng_fn(self, rng: np.random.Generator, p: Any, rows: Any, starts: Any, size: Any) -> np.ndarray:
        if not 0.0 < p < 1.0:
            raise ValueError(f"p must lie in (0, 1), got {p}")
        return Sequences(rows, starts).draw(rng, float(p))


class Segments(pm.Discrete):
    """Numbers of segments, 0, 1, ... in the order of rows, sequence by sequence.

    Between neighbours of a sequence there is a change with probability p, independently; each sequence begins
    with a segment of its own. Other labels have density zero.
    """

    rv_op = SegmentsRV()

    @classmethod
    def dist(cls, p: Any, rows: Any, starts: Any, **kwargs: Any) -> Any:
        kwargs.pop("shape", None)
        dtype = dtype_of_labels(len(rows))
        return super().dist([pt.as_tensor(p), pt.constant(rows), pt.constant(starts)], dtype=dtype, **kwargs)

    def logp(value: Any, p: Any, rows: Any, starts: Any) -> Any:  # noqa: N805
        may_change = Sequences(rows.data, starts.data).may_change[1:]
        ordered = value[rows].astype("int64")
        steps = ordered[1:] - ordered[:-1]
        n_changes = steps[may_change].sum()
        are_numbers = pt.all(pt.eq(steps, 1) | (pt.eq(steps, 0) & may_change)) & pt.eq(ordered[0], 0)
        inside = are_numbers & (p > 0.0) & (p < 1.0)
        # Outside the support, any valid number keeps the branch that is not taken finite.
        safe = pt.switch((p > 0.0) & (p < 1.0), p, 0.5)
        log_p = n_changes * pt.log(safe) + (int(may_change.sum()) - n_changes) * pt.log1p(-safe)
        return pt.switch(inside, log_p, -np.inf)


def segments_support_point(op: SegmentsRV, rv: Any, rng: Any, size: Any, p: Any, rows: Any, starts: Any) -> Any:
    """Start of labels, for PyMC: each sequence is one segment. All labels are drawn anew in the first draw."""
    one_each = Sequences(rows.data, starts.data)
    return pt.constant(one_each.labels(~one_each.may_change).astype(rv.dtype))


def is_segments(var: Any) -> bool:
    """Tell whether a variable is a vector of numbers of segments."""
    return var.owner is not None and isinstance(var.owner.op, SegmentsRV)


def sequences_in(labels: Any) -> Sequences:
    """Return the sequences of the rows that segments number."""
    _, rows, starts = labels.owner.op.dist_params(labels.owner)
    return Sequences(rows.data, starts.data)


def add_segment_labels(
    name: str,
    *,
    p: Any,
    n: Any,
    dims: Any = None,
    sequence: Any = None,
    order: Any = None,
    initval: Any = None,
    **known: Any,
) -> Any:
    """Add numbers of segments to a model; ``sequence`` and ``order`` have an entry for each row."""
    model = pm.modelcontext(None)
    for argument, value in known.items():
        if value is not None:
            raise NotImplementedError(f"{argument} is not supported for change points: leave it out")
    if initval is not None:
        raise NotImplementedError("initval is not needed for change points, of which each draw is independent")
    p = checked_scalar("p", p)
    if not is_variable(p) and not 0.0 < p < 1.0:
        raise ValueError(f"p must lie in (0, 1), the probability of a change between neighbours, got {p}")
    # Rows of pm.Data may change, but not how many there are.
    n = int(value_of(n)) if is_variable(n) else int(n)
    codes, names = np.zeros(n, dtype=np.int64), np.array([0])
    if sequence is not None:
        codes, names = factorized("sequence", _checked_entries("sequence", sequence, n))
    order = None if order is None else _checked_order(order, n)
    sequences = sequences_of(codes.astype(np.int64), order)
    if order is not None:
        _tell_of_gaps(sequences, order)
    labels = Segments(name, p, *sequences, dims=dims)
    note_lengths(labels, {"sequence": codes})
    content = {
        "prior": labels.owner.op.name,
        "parameters": {"p": stored(model, p, f"{name}_p")},
        "is_constrained": False,
        "rows": numbers(sequences.rows),
        "starts": numbers(sequences.starts),
        "sequences": [as_plain(own) for own in names],
        "order": None if order is None else numbers(order),
    }
    add_record(model, name, content)
    return labels


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


def _tell_of_gaps(sequences: Sequences, order: np.ndarray) -> None:
    """Log where neighbours are farther apart than most: a change is as probable there as elsewhere."""
    steps = np.diff(order[sequences.rows])[sequences.may_change[1:]]
    if len(steps) == 0:
        return
    n_long = int(np.sum(steps > LONG_STEP * np.median(steps)))
    if n_long:
        logger.info(
            "%d of %d steps of order are longer than %g times the median one. Neighbours in order are neighbours, "
            "however far apart: between each two a change has the same probability.",
            n_long,
            len(steps),
            LONG_STEP,
        )
