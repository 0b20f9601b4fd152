"""Random variables for the numbers of segments: labels of rows in order that change between some neighbours."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.operations import LabelsRV
from pymc_dpgmm.integration.variables.ordered_rows import ordered_rows
from pymc_dpgmm.integration.variables.partition_arguments import checked_scalar, dtype_of_labels
from pymc_dpgmm.integration.variables.records import add_record, stored
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.tables.checks import is_variable


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
    ordered = ordered_rows(n, sequence, order, "Between each two a change has the same probability.")
    labels = Segments(name, p, *ordered.sequences, dims=dims)
    note_lengths(labels, {"sequence": ordered.codes})
    content = {
        "prior": labels.owner.op.name,
        "parameters": {"p": stored(model, p, f"{name}_p")},
        "is_constrained": False,
        **ordered.record,
    }
    add_record(model, name, content)
    return labels
