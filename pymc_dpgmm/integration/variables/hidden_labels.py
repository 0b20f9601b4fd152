"""Random variables for hidden states of rows in order; see :mod:`pymc_dpgmm.partitions.hidden_states`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply

from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, LabelsRV, NumbersOp, partition_sizes
from pymc_dpgmm.integration.variables.ordered_rows import ordered_rows
from pymc_dpgmm.integration.variables.partition_arguments import (
    checked_constraints,
    checked_integer,
    checked_positive,
    checked_scalar,
    checked_start,
    dtype_of_labels,
)
from pymc_dpgmm.integration.variables.records import add_record, stored
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.partitions.hidden_states import count_hidden, draw_hidden, draw_openers_of
from pymc_dpgmm.partitions.known import make_constraints
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.tables.checks import is_variable

# States that labels start with, at most, and runs of neighbours in the same state, for each.
MOST_AT_START, RUNS_OF_STATE = 20, 4


class HiddenCountsOp(NumbersOp):
    """Statistics of labels and openers: see :class:`pymc_dpgmm.partitions.hidden_states.HiddenCounts`.

    The inputs are the labels, the openers, and rows and starts of :class:`Sequences`.
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        outputs = [pt.lvector(), pt.lscalar(), pt.lvector(), pt.dscalar()]
        return Apply(self, list(map(pt.as_tensor, inputs)), outputs)

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        def evaluate(labels: np.ndarray, openers: np.ndarray, *sequences: np.ndarray) -> tuple[np.ndarray, ...]:
            counts = count_hidden(labels, openers, Sequences(*sequences))
            return counts.tables, np.asarray(counts.n_stays), counts.sizes, np.asarray(counts.log_joined)

        return evaluate


class HiddenLabelsRV(LabelsRV):
    """Hidden states.

    Parameters: alpha, gamma and kappa, the largest number of states, numbers of known states (-1 where they are
    not), and rows and starts of :class:`Sequences`.
    """

    name = "HDPHMM"
    signature = "(),(),(),(),(n),(n),(j)->(n)"
    dtype = "int64"
    are_free = False
    _print_name = ("HDPHMM", "\\operatorname{HDPHMM}")

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[4].shape[0],)

    def rng_fn(self, rng: np.random.Generator, *parameters: Any) -> np.ndarray:
        numbers, most, known, sequences = _read(*parameters)
        if known.max(initial=-1) >= 0:
            raise NotImplementedError(
                "draws from the prior of hidden states with known_labels are not supported; leave these out, or "
                "use pm.sample_posterior_predictive or dp.sample_new_rows"
            )
        return draw_hidden(rng, *numbers, sequences, most)[0]


class HiddenOpenersRV(LabelsMixtureRV):
    """Openers of hidden states. The parameters are the labels, then those of the labels."""

    name = "hidden_openers"
    signature = "(n),(),(),(),(),(n),(n),(j)->(n)"
    dtype = "int8"
    _print_name = ("Openers", "\\operatorname{Openers}")

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[0].shape[0],)

    def rng_fn(self, rng: np.random.Generator, labels: Any, *parameters: Any) -> np.ndarray:
        numbers, most, _, sequences = _read(*parameters)
        return draw_openers_of(rng, labels, sequences, *numbers, most).astype(self.dtype)


def _read(
    alpha: Any, gamma: Any, kappa: Any, most: Any, known: Any, rows: Any, starts: Any, size: Any
) -> tuple[tuple[float, float, float], float, np.ndarray, Sequences]:
    """Return the values of parameters of hidden states: concentrations, the most states, known ones, sequences."""
    if not (alpha > 0.0 and gamma > 0.0 and kappa >= 0.0):
        raise ValueError(f"alpha and gamma must be > 0 and kappa >= 0, got {alpha}, {gamma} and {kappa}")
    return (float(alpha), float(gamma), float(kappa)), float(most), known, Sequences(rows, starts)


class HiddenLabels(pm.Discrete):
    """Hidden states of rows in order.

    The log density of the states alone has no closed form: that of states and openers together is the one of the
    openers, and the states' own is 0 where they are possible.
    """

    rv_op = HiddenLabelsRV()

    @classmethod
    def dist(cls, alpha: Any, gamma: Any, kappa: Any, *fixed: Any, **kwargs: Any) -> Any:
        kwargs.pop("shape", None)
        parameters = [*map(pt.as_tensor, (alpha, gamma, kappa)), *map(pt.constant, fixed)]
        return super().dist(parameters, dtype=dtype_of_labels(len(fixed[-2])), **kwargs)

    def logp(value: Any, alpha: Any, gamma: Any, kappa: Any, most: Any, known: Any, *_: Any) -> Any:  # noqa: N805
        numbers = known.data
        given = [pt.constant(make_constraints(len(numbers), numbers))] if numbers.max(initial=-1) >= 0 else []
        return pt.switch(partition_sizes(value, *given).shape[0] > 0, 0.0, -np.inf)


class _HiddenOpeners(pm.Discrete):
    """Openers of hidden states, with the log density of both together."""

    rv_op = HiddenOpenersRV()

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> Any:
        kwargs.pop("shape", None)
        return super().dist(list(map(pt.as_tensor, parameters)), **kwargs)

    def logp(
        value: Any,  # noqa: N805
        labels: Any,
        alpha: Any,
        gamma: Any,
        kappa: Any,
        most: Any,
        known: Any,
        rows: Any,
        starts: Any,
    ) -> Any:
        tables, n_stays, sizes, log_joined = HiddenCountsOp()(labels, value, rows, starts)
        n_tables, n_states = tables.sum(), tables.shape[0]
        may_stay = (kappa > 0.0) | pt.eq(n_stays, 0)
        inside = (alpha > 0.0) & (gamma > 0.0) & (kappa >= 0.0) & may_stay & (n_states > 0) & (n_states <= most)
        # Outside the support, any valid number keeps the branch that is not taken finite.
        alpha, gamma = pt.switch(inside, alpha, 1.0), pt.switch(inside, gamma, 1.0)
        kappa = pt.switch(inside, kappa, 1.0)
        log_p = (
            n_tables * pt.log(alpha)
            + n_stays * pt.log(pt.switch(kappa > 0.0, kappa, 1.0))
            - log_rising(alpha, (starts[1:] > starts[:-1]).sum())
            - log_rising(alpha + kappa, sizes).sum()
            + n_states * (pt.log(gamma) - pt.gammaln(1.0 + gamma / most))
            + pt.log1p(-pt.arange(pt.minimum(n_states, most)) / most).sum()
            - log_rising(gamma, n_tables)
            + pt.gammaln(tables + gamma / most).sum()
            + log_joined
        )
        return pt.switch(inside, log_p, -np.inf)


class HiddenStartRV(LabelsMixtureRV):
    """Over-dispersed starting states of runs of rows.

    The parameters are the largest number of states, numbers of known ones, and the rows in order.
    """

    name = "hidden_start"
    signature = "(),(n),(n)->(n)"
    dtype = "int64"

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[1].shape[0],)

    def rng_fn(self, rng: np.random.Generator, most: Any, known: Any, rows: Any, size: Any) -> np.ndarray:
        n, n_known = len(rows), int(known.max(initial=-1)) + 1
        n_states = max(int(rng.integers(1, min(MOST_AT_START, most, n) + 1)), n_known)
        begins = rng.integers(n, size=RUNS_OF_STATE * n_states)
        run = np.searchsorted(np.sort(begins), np.arange(n), side="right")
        labels = np.empty(n, dtype=np.int64)
        labels[rows] = rng.integers(n_states, size=run.max() + 1)[run]
        labels[known >= 0] = rng.permutation(n_states)[known[known >= 0]]
        return labels


def hidden_support_point(op: HiddenLabelsRV, rv: Any, rng: Any, size: Any, *inputs: Any) -> Any:
    """Over-dispersed start of states, for PyMC."""
    return HiddenStartRV()(*inputs[3:6], rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


def hidden_openers_support_point(op: HiddenOpenersRV, rv: Any, rng: Any, size: Any, labels: Any, *_: Any) -> Any:
    """Start of openers, for PyMC: every row opens a state, which is possible for any labels."""
    return pt.ones(labels.shape, dtype="int8")


def is_hidden(var: Any) -> bool:
    """Tell whether a variable is a vector of hidden states."""
    return var.owner is not None and isinstance(var.owner.op, HiddenLabelsRV)


def is_hidden_openers(var: Any) -> bool:
    """Tell whether a variable is a vector of openers of hidden states."""
    return var.owner is not None and isinstance(var.owner.op, HiddenOpenersRV)


def add_hidden_labels(
    name: str,
    *,
    alpha: Any,
    gamma: Any,
    kappa: Any,
    n: Any,
    dims: Any = None,
    n_states: Any = None,
    sequence: Any = None,
    order: Any = None,
    known_labels: Any = None,
    must_link: Any = None,
    initval: Any = None,
) -> Any:
    """Add hidden states and their openers; ``sequence`` and ``order`` have an entry for each row."""
    model = pm.modelcontext(None)
    if must_link is not None:
        raise NotImplementedError("must_link is not supported for hidden states: give these rows known_labels")
    most = math.inf if n_states is None else float(checked_integer("n_states", n_states))
    alpha, gamma, kappa = checked_positive("alpha", alpha), checked_positive("gamma", gamma), _checked_kappa(kappa)
    ordered = ordered_rows(n, sequence, order, "Each state depends on the one before, whenever that was.")
    n = len(ordered.codes)
    constraints = checked_constraints(n, known_labels, None)
    known = np.full(n, -1) if constraints is None else constraints[1]
    if known.max(initial=-1) >= most:
        raise ValueError(f"known_labels have {known.max() + 1} states, but n_states is {n_states}")
    if initval is not None and not isinstance(initval, str):
        initval = checked_start(initval, n, constraints).astype(dtype_of_labels(n))
        if len(np.unique(initval)) > most:
            raise ValueError(f"initval of labels has {len(np.unique(initval))} states, but n_states is {n_states}")
    parameters, fixed = (alpha, gamma, kappa), (most, known, *ordered.sequences)
    labels = HiddenLabels(name, *parameters, *fixed, dims=dims, initval=initval)
    mixture = name.removesuffix("_labels")
    _HiddenOpeners(f"{mixture}_openers", labels, *parameters, *fixed, dims=dims)
    note_lengths(labels, {"sequence": ordered.codes})
    content = {
        "prior": labels.owner.op.name,
        "parameters": {
            field: stored(model, value, f"{name}_{field}")
            for field, value in zip(("alpha", "gamma", "kappa"), parameters, strict=True)
        },
        "is_constrained": constraints is not None,
        "n_states": None if n_states is None else int(most),
        "hidden_openers": f"{mixture}_openers",
        **ordered.record,
    }
    add_record(model, name, content)
    return labels


def _checked_kappa(kappa: Any) -> Any:
    kappa = checked_scalar("kappa", kappa)
    if not is_variable(kappa) and not kappa >= 0.0:
        raise ValueError(f"kappa must be a finite number >= 0, the weight of staying, got {kappa}")
    return kappa
