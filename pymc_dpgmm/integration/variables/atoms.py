"""Parameters of rows that are equal within clusters: one atom from a base distribution for each cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneTypeT

from pymc_dpgmm.integration.internals.pymc_internals import (
    CensoredRV,
    DiracDeltaRV,
    SymbolicRandomVariable,
    change_dist_size,
    collect_default_updates,
)
from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.integration.variables.operations import BackendsOp, LabelsMixtureRV, NumbersOp
from pymc_dpgmm.partitions.labels import first_rows


class FirstRowsOp(NumbersOp):
    """For each row, the first row with its label: an (n,) int64 vector."""

    __props__ = ()

    def make_node(self, labels: Any) -> Apply:
        return Apply(self, [pt.as_tensor(labels)], [pt.lvector()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        last, first = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

        def evaluate(labels: np.ndarray) -> tuple[np.ndarray, ...]:
            nonlocal last, first
            # Labels do not change while NUTS evaluates the density many times.
            if not np.array_equal(labels, last):
                last, first = labels.copy(), first_rows(labels)
            return (first,)

        return evaluate


first_rows_of = FirstRowsOp()


class SampledValueOp(BackendsOp):
    """Returns its input, atoms of rows, and refuses gradients: rows that share an atom cannot move separately."""

    __props__ = ()
    view_map = {0: [0]}

    def make_node(self, value: Any) -> Apply:
        value = pt.as_tensor(value)
        return Apply(self, [value], [value.type()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        output_storage[0][0] = inputs[0]

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape, which is that of the input."""
        return shapes

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        """Refuse the gradient, which a step method such as NUTS would need."""
        raise NotImplementedError(
            "parameters under a dp.DirichletProcess can only be sampled by dp.DirichletProcessStep, which "
            "pm.sample assigns automatically, not by NUTS or another generic step"
        )


sampled_value = SampledValueOp()


class Template:
    """A base distribution as a function of the variables from which its parameters are computed.

    Parameters
    ----------
    base : variable
        Made with ``.dist``.
    inputs : list of variables
        The variables from which its parameters are computed.
    by_row : list of bool
        Which inputs are atoms of other entries of the base, so that they differ between rows.
    """

    def __init__(self, base: Variable, inputs: Sequence[Variable], by_row: Sequence[bool]) -> None:
        self.inputs = [variable.type() for variable in inputs]
        self.by_row = list(by_row)
        self.base = clone_replace(base, dict(zip(inputs, self.inputs, strict=True)))

    def many(self, inputs: Sequence[Variable], n: Any) -> Variable:
        """Return n independent atoms, as a random variable.

        Parameters
        ----------
        inputs : list of variables
            Replacements of the inputs; those by row have n entries.
        n : int or variable
        """
        shared = {old: new for old, new, many in zip(self.inputs, inputs, self.by_row, strict=True) if not many}
        rows = {old: new for old, new, many in zip(self.inputs, inputs, self.by_row, strict=True) if many}
        base = clone_replace(self.base, shared, rebuild_strict=False) if shared else self.base
        if not rows:
            return change_dist_size(base, (n,), expand=True)
        return _by_row(base, rows, n)


def _by_row(base: Variable, rows: Mapping[Variable, Variable], n: Any) -> Variable:
    """Return a random variable for each row, for parameters with one entry per row."""
    op = base.owner.op
    if not isinstance(op, RandomVariable):
        raise NotImplementedError(
            f"the base {op} depends on another entry of base: only plain distributions such as pm.Normal.dist can"
        )
    params, size = op.dist_params(base.owner), op.size_param(base.owner)
    n_batch = base.type.ndim - op.ndim_supp
    by_row = []
    for param, n_core in zip(params, op.ndims_params, strict=True):
        new = vectorize_graph(param, rows)
        if new.type.ndim > param.type.ndim:
            # Axes along which the parameter is broadcast go between the axis of rows and its own axes.
            new = pt.expand_dims(new, tuple(range(1, 1 + n_batch - (param.type.ndim - n_core))))
        by_row.append(new)
    length = pt.as_tensor(n, dtype="int64")[None]
    # Without size=, the shape of an atom follows from its parameters, which have been replaced: use that of the
    # base.
    known = base.type.shape[:n_batch]
    batch = known if None not in known else base.shape[:n_batch] if isinstance(size.type, NoneTypeT) else size
    shape = pt.concatenate([length, pt.as_tensor(batch, ndim=1, dtype="int64")]) if n_batch else length
    return op(*by_row, size=shape, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


class AtomsRV(SymbolicRandomVariable):
    """Atoms of rows given labels. The inputs are labels, inputs of the base, and random generators.

    Parameters
    ----------
    template : Template
        The base.
    """

    _print_name = ("Atoms", "\\operatorname{Atoms}")
    template: Template

    def n_inputs(self) -> int:
        """Return the number of inputs of the base."""
        return len(self.template.inputs)


def draw_atoms(template: Template, labels: Variable, inputs: Sequence[Variable]) -> Variable:
    """Return the random variable of the rows' atoms given labels."""
    inner_labels, *inner_inputs = (variable.type() for variable in (labels, *inputs))
    drawn = template.many(inner_inputs, inner_labels.shape[0])[first_rows_of(inner_labels)]
    updates = collect_default_updates(inputs=[inner_labels, *inner_inputs], outputs=[drawn])
    rngs = list(updates)
    op = AtomsRV(
        inputs=[inner_labels, *inner_inputs, *rngs],
        outputs=[drawn, *updates.values()],
        ndim_supp=drawn.type.ndim,
    )
    op.template = template
    return op(labels, *inputs, *rngs)[0]


def atoms_inputs(rv: Any) -> tuple[Variable, list[Variable]]:
    """Return the labels of atoms, and the inputs of their base."""
    node = rv.owner
    return node.inputs[0], node.inputs[1 : 1 + node.op.n_inputs()]


def is_atoms(var: Any) -> bool:
    """Tell whether a variable is atoms of rows."""
    return var.owner is not None and isinstance(var.owner.op, AtomsRV)


def is_of_mixtures(rv: Variable) -> bool:
    """Tell whether a step of the package draws a variable, and knows its parameters from earlier draws."""
    return (rv.owner is not None and isinstance(rv.owner.op, LabelsMixtureRV)) or is_atoms(rv)


def has_atoms(model: pm.Model, labels: Variable) -> bool:
    """Tell whether labels are those of a Dirichlet process of parameters."""
    return any(is_atoms(rv) and atoms_inputs(rv)[0] is labels for rv in model.free_RVs)


def atoms_logp(op: AtomsRV, values: Any, labels: Variable, *inputs: Variable, **_: Any) -> Variable:
    """Log density of the atoms of the clusters; minus infinity where rows of a cluster differ."""
    value = sampled_value(values[0])
    base_inputs = inputs[: op.n_inputs()]
    first = first_rows_of(labels)
    leaders = pt.nonzero(pt.eq(first, pt.arange(first.shape[0])))[0]
    of_clusters = [
        new[leaders] if many else new for new, many in zip(base_inputs, op.template.by_row, strict=True)
    ]
    atoms = op.template.many(of_clusters, leaders.shape[0])
    density = pm.logp(atoms, value[leaders]).sum()
    return pt.switch(pt.all(pt.eq(value, value[first])), density, -np.inf)


def atoms_support_point(op: AtomsRV, rv: Any, *inputs: Any) -> Any:
    """Over-dispersed start: atoms drawn from the base."""
    return op(*inputs)[0]


def read_bases(model: pm.Model, bases: Mapping[str, Any]) -> dict[str, tuple[Variable, list[Variable]]]:
    """Return the base of each entry and its inputs, ordered so that entries follow those that they depend on.

    Raises
    ------
    TypeError, ValueError
        If a base is no distribution of this kind.
    """
    entries = {key: _checked_base(model, key, base) for key, base in bases.items()}
    ordered: dict[str, tuple[Variable, list[Variable]]] = {}
    waiting = dict(entries)
    while waiting:
        for key, base in waiting.items():
            inputs = _inputs_of(model, base, entries)
            if all(entry in ordered for entry, other in entries.items() if other in inputs):
                ordered[key] = base, inputs
                del waiting[key]
                break
        else:  # pragma: no cover - graphs have no circles
            raise ValueError("the entries of base depend on each other in a circle")
    return ordered


def _what(key: str) -> str:
    return f"base[{key!r}]" if key else "base"


def _checked_base(model: pm.Model, key: str, base: Any) -> Variable:
    what = _what(key)
    if not isinstance(base, Variable) or base.owner is None:
        raise TypeError(
            f"{what} must be a distribution made with .dist, such as pm.Normal.dist(0, 1), got {base!r}"
        )
    if base in model.basic_RVs:
        raise ValueError(
            f"{what} is {base.name}, a variable of the model already; a base is a distribution that is in no "
            "model: make it with .dist"
        )
    if not isinstance(base.owner.op, RandomVariable | SymbolicRandomVariable):
        raise TypeError(f"{what} must be a distribution made with .dist, got an expression of other variables")
    if not any(isinstance(a.type, RandomType) for a in ancestors([base])):
        raise TypeError(f"{what} must be a distribution made with .dist")
    if base.type.dtype.startswith("float") and any(map(_has_single_values, _operations(base))):
        raise NotImplementedError(
            f"{what} has single values of positive probability beside a density, as those of pm.Censored, of "
            "pm.DiracDelta in a mixture, and of hurdles: moves of continuous parameters would not reach them. "
            'Give two parameters, as base={"is_there": pm.Bernoulli.dist(0.5), "size": pm.Normal.dist(0, 1)}, and '
            "use theta['is_there'] * theta['size']"
        )
    return base


def _operations(variable: Variable) -> Iterator[Any]:
    """Yield the operations that a variable is made by, and those inside of them."""
    for node in toposort([variable]):
        yield node.op
        inner = getattr(node.op, "fgraph", None)
        if inner is not None:
            for own in inner.apply_nodes:
                yield from _operations(own.outputs[0])


def _has_single_values(op: Any) -> bool:
    return isinstance(op, CensoredRV | DiracDeltaRV)


def atom_shape(key: str, base: Variable) -> tuple[int, ...]:
    """Return the shape of one atom.

    Raises
    ------
    ValueError
        If the shape is not known while the model is built.
    """
    shape = base.type.shape
    if None in shape:
        lengths = [length.owner and _constant(length) for length in base.shape]
        shape = tuple(
            static if static is not None else length for static, length in zip(shape, lengths, strict=True)
        )
    if None in shape:
        raise ValueError(
            f"the shape of {_what(key)} is not known before sampling: give the distribution shape=, as in "
            "pm.MvNormal.dist(mu, cov, shape=3)"
        )
    return tuple(int(length) for length in shape)


def _constant(length: Variable) -> int | None:
    """Return a length as a number, None if it depends on data that may change."""
    behind = list(ancestors([length]))
    if any(isinstance(a, SharedVariable) and not isinstance(a.type, RandomType) for a in behind):
        return None
    try:
        return int(value_of(length))
    except Exception:
        return None


def _inputs_of(model: pm.Model, base: Variable, entries: Mapping[str, Variable]) -> list[Variable]:
    """Return the inputs of a base: variables of the model, data that may change, and other entries."""
    random = {*model.basic_RVs, *(entry for entry in entries.values() if entry is not base)}
    behind = ancestors([base], blockers=random)
    inputs = []
    for variable in behind:
        is_data = (
            variable.owner is None
            and not isinstance(variable, Constant)
            and not isinstance(variable.type, RandomType)
        )
        if variable is not base and (variable in random or is_data):
            inputs.append(variable)
    return list(dict.fromkeys(inputs))
