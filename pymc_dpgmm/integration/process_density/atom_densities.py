"""Densities for moves of atoms, compiled from a model."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.internals.pymc_internals import default_transform
from pymc_dpgmm.integration.process_density.row_terms import RowTerms, or_impossible, without_checks
from pymc_dpgmm.integration.variables.atoms import atoms_inputs
from pymc_dpgmm.integration.variables.models import is_circular
from pymc_dpgmm.native.array_calls import Call

Atoms = list[np.ndarray]

# Free values that replace infinite ones, which come from atoms rounded to a bound: for lower bounds, and for a
# bound such as 1 of a probability.
_FARTHEST, _NEXT_TO_ONE = 700.0, 36.0


class _Entry:
    """One entry of the base: its atoms (K, ...), their density, and their free form."""

    def __init__(
        self, model: pm.Model, rv: Variable, atoms: Mapping[Variable, Variable], n_atoms: Variable
    ) -> None:
        _, inputs = atoms_inputs(rv)
        values = model.replace_rvs_by_values(inputs)
        base_inputs = [atoms.get(variable, value) for variable, value in zip(inputs, values, strict=True)]
        self.atoms = atoms[rv]
        self.is_discrete = rv.type.dtype.startswith(("int", "uint", "bool"))
        template = rv.owner.op.template
        self.drawn = template.many(base_inputs, n_atoms)
        transform = default_transform(self.drawn.owner.op, self.drawn)
        # Of an angle, many numbers are the same: their density is none, so that proposals would have no balance.
        # Without it the density is zero beyond -pi and pi.
        transform = None if is_circular(transform) else transform
        density = without_checks(pm.logp(self.drawn, self.atoms), [self.atoms, *atoms.values()])
        self.log_density = _by_atom(density)
        self.transform = transform

    def to_free(self) -> Variable:
        """Return the atoms as vectors of unbounded numbers: (K, D)."""
        value = self.atoms
        if self.transform is not None:
            value = self.transform.forward(value, *self.drawn.owner.inputs)
        return value.reshape((value.shape[0], -1), ndim=2)

    def from_free(self, free: Variable, shape: tuple[int, ...]) -> tuple[Variable, Variable]:
        """Return atoms, and the log of the Jacobian of each, from vectors of unbounded numbers."""
        value = free.reshape((free.shape[0], *shape), ndim=1 + len(shape))
        if self.transform is None:
            return value, pt.zeros((free.shape[0],))
        inputs = self.drawn.owner.inputs
        return self.transform.backward(value, *inputs), _by_atom(self.transform.log_jac_det(value, *inputs))


class AtomDensities:
    """Densities of atoms and rows at a point of a model; compiled when they are first called.

    An atom has one value for each entry of the base. Its *free* form is the vector of its continuous values,
    transformed to unbounded numbers, and then of its discrete ones.

    Parameters
    ----------
    model : pm.Model
    parameters : sequence of variables
        The rows' parameters, in the order in which the model has them.
    terms : RowTerms
        The terms of the density that depend on them.
    compile_kwargs : dict, optional
        Options of ``pm.compile``.
    """

    def __init__(
        self, model: pm.Model, parameters: Sequence[Variable], terms: RowTerms, compile_kwargs: Any = None
    ) -> None:
        self._terms, self._options = terms, dict(compile_kwargs or {})
        self.atoms = [pt.tensor(dtype=rv.dtype, shape=(None, *rv.type.shape[1:])) for rv in parameters]
        self._n_atoms = self.atoms[0].shape[0]
        atoms = dict(zip(parameters, self.atoms, strict=True))
        self._entries = [_Entry(model, rv, atoms, self._n_atoms) for rv in parameters]
        self._continuous = [entry for entry in self._entries if not entry.is_discrete]
        self.discrete = [position for position, entry in enumerate(self._entries) if entry.is_discrete]
        self.dtypes = [rv.dtype for rv in parameters]
        self._point: list[np.ndarray] = []
        self._bases_of: dict[int, _Function] = {}
        needed = {*ancestors([entry.drawn for entry in self._entries]), *terms.inputs}
        self._inputs = [value for value in model.value_vars if value in needed]
        self.names = [value.name for value in self._inputs]

    def at(self, point: Mapping[str, np.ndarray]) -> "AtomDensities":
        """Set the point at which the following calls are evaluated."""
        self._point = [point[name] for name in self.names]
        return self

    @property
    def point(self) -> list[np.ndarray]:
        """Values of the variables that the densities depend on."""
        return self._point

    def draws(self, seed: int, n: int) -> Atoms:
        """Return n atoms drawn from the base."""
        function, generators = self._draws
        for position, generator in enumerate(generators):
            generator.set_value(np.random.Generator(np.random.PCG64([seed, position])), borrow=True)
        atoms = function.drawn(np.array(n, dtype=np.int64), *self._point)
        return self.inside(atoms)

    def inside(self, atoms: Atoms) -> Atoms:
        """Move atoms that were rounded to a bound of their support to a number next to it, inside the support."""
        if not self._continuous:
            return atoms
        free = self.to_free(atoms)
        bad = ~np.isfinite(free)
        if not np.any(bad):
            return atoms
        # Positive numbers can be as small as exp(-_FARTHEST). Next to a bound such as 1, spacing is 1e-16.
        for lowest in (-_FARTHEST, -_NEXT_TO_ONE):
            nearest = np.where(bad, np.where(free > 0.0, _NEXT_TO_ONE, lowest), free)
            moved = self._from_free(nearest, *self._point)
            if np.all(np.isfinite(self.to_free(moved))):
                break
        return moved

    def by_row(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of each row under each atom: (K, n)."""
        return self._by_row(*atoms, *self._point)

    def by_free_row(self, free: np.ndarray) -> np.ndarray:
        """Return the log density of each row under each atom in free form: (K, n)."""
        (found,) = self._by_free_row(free, *self._point)
        return found

    def calls(self, free: np.ndarray, labels: np.ndarray) -> list[Call]:
        """Return :meth:`gradient`, :meth:`by_free_row` and :meth:`base_of` discrete values for compiled code.

        They are called with some atoms (K, D), and the first one with labels (n,).
        """
        point = [np.asarray(array, order="C") for array in self._point]
        functions = [self._gradient, self._by_free_row, *map(self._base_of, self.discrete)]
        first = [[free, labels], *([free] for _ in functions[1:])]
        entries = [function.entry([*own, *point]) for function, own in zip(functions, first, strict=True)]
        return [
            Call(entry, [*point, *function.shared]) for entry, function in zip(entries, functions, strict=True)
        ]

    def gradient(self, free: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log density of each free atom and of its rows, (K,), and the gradient, (K, D).

        The gradient by discrete values is 0.
        """
        values, gradients, _ = self._gradient(free, labels, *self._point)
        return values, gradients

    def base_and_rows(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log densities of rows that each have their own atoms, and of these atoms in free form.

        Parameters
        ----------
        free : (m, n, D) float64 array
            Several atoms for each of the n rows. There are no discrete values.

        Returns
        -------
        log_base, log_rows : (m, n) float64 arrays
        """
        m, n, d = free.shape
        of_base, of_rows = self._base_and_rows(free.reshape(m * n, d), *self._point)
        return of_base.reshape(m, n), of_rows

    def base_and_rows_with_gradients(self, free: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return both log densities for one atom of each row (n, D): two (n,) arrays, and gradients (n, D)."""
        outputs: tuple[np.ndarray, ...] = tuple(self._base_and_rows_with_gradients(free, *self._point))
        return outputs

    def base(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of the base at atoms: (K,)."""
        return self._base(*atoms, *self._point)

    def base_of(self, position: int, free: np.ndarray) -> np.ndarray:
        """Return the part of one parameter in it, given those that it depends on, at atoms in free form: (K,)."""
        (found,) = self._base_of(position)(free, *self._point)
        return found

    def log_density(self, atoms: Atoms, labels: np.ndarray) -> np.ndarray:
        """Return the log density of each atom and of the rows in its cluster: (K,)."""
        values, _, jacobians = self._gradient(self.to_free(atoms), labels, *self._point)
        return values - jacobians

    def to_free(self, atoms: Atoms) -> np.ndarray:
        """Return the free form of atoms: (K, D)."""
        return self._to_free(*atoms, *self._point)

    def from_free(self, free: np.ndarray) -> Atoms:
        """Return atoms of a free form."""
        return self.inside(self._from_free(free, *self._point))

    def by_observation(self, model: pm.Model, observed: Variable) -> Callable[[Atoms, np.ndarray], np.ndarray]:
        """Return a function of atoms and data with the log density of each observation under each atom.

        The data replaces that of an observed variable, and has the same shape.
        """
        data = model.rvs_to_values[observed].type("data")
        output = self._terms.by_observation(model, observed, data, self.atoms, self._n_atoms)
        function = self._compiled([*self.atoms, data], output)
        return lambda atoms, new: function(*atoms, new, *self._point)

    @cached_property
    def _draws(self) -> tuple["_Function", list[SharedVariable]]:
        n = pt.lscalar("n")
        replaced: dict[Variable, Variable] = {self._n_atoms: n}
        outputs: list[Variable] = []
        for entry in self._entries:
            (drawn,) = clone_replace([entry.drawn], replaced, rebuild_strict=False)
            outputs.append(drawn)
            replaced[entry.atoms] = drawn
        generators = [v for v in ancestors(outputs) if isinstance(v.type, RandomType) and v.owner is None]
        return self._compiled([n], outputs), list(dict.fromkeys(generators))

    @cached_property
    def _by_row(self) -> Callable[..., np.ndarray]:
        # Compiled code reads double precision.
        return self._compiled(self.atoms, self._terms.by_atom(self.atoms, self._n_atoms).astype("float64"))

    @cached_property
    def _by_free_row(self) -> "_Function":
        free = pt.dmatrix("free")
        atoms, _ = self.unfolded(free)
        return self._compiled([free], [self._terms.by_atom(atoms, free.shape[0]).astype("float64")])

    @cached_property
    def _gradient(self) -> "_Function":
        labels, free = pt.lvector("labels"), pt.dmatrix("free")
        # Gradients are those by continuous values.
        continuous = free[:, : self.n_continuous]
        numbers = pt.concatenate([continuous, free[:, self.n_continuous :]], axis=1) if self.discrete else free
        atoms, jacobians = self.unfolded(numbers)
        jacobian = sum(jacobians, start=pt.zeros((free.shape[0],)))
        value = self._density(atoms, labels) + jacobian
        by = continuous if self.discrete else free
        gradient = pytensor.grad(value.sum(), by, disconnected_inputs="ignore") if self._continuous else by
        rest = pt.zeros_like(free[:, self.n_continuous :])
        gradient = pt.concatenate([gradient, rest], axis=1) if self.discrete else gradient
        outputs = [output.astype("float64") for output in (value, gradient, jacobian)]
        return self._compiled([free, labels], outputs)

    def _base_of(self, position: int) -> "_Function":
        if position not in self._bases_of:
            free = pt.dmatrix("free")
            replaced = dict(zip(self.atoms, self.unfolded(free)[0], strict=True))
            (part,) = clone_replace([self._entries[position].log_density], replaced, rebuild_strict=False)
            self._bases_of[position] = self._compiled([free], [or_impossible(part).astype("float64")])
        return self._bases_of[position]

    @cached_property
    def _base_and_rows(self) -> Callable[..., Any]:
        free = pt.dmatrix("free")
        of_base, of_rows = self._of_own_atoms(free)
        return self._compiled([free], [of_base, of_rows])

    @cached_property
    def _base_and_rows_with_gradients(self) -> Callable[..., Any]:
        free = pt.dmatrix("free")
        of_base, of_rows = self._of_own_atoms(free)
        outputs = [of_base, of_rows[0]]
        # The likelihood may not depend on the parameters.
        gradients = [pytensor.grad(density.sum(), free, disconnected_inputs="ignore") for density in outputs]
        return self._compiled([free], [*outputs, *gradients])

    def _of_own_atoms(self, free: Variable) -> tuple[Variable, Variable]:
        """Return the log densities of free atoms (m n, D), and of rows that each have m of them, (m, n)."""
        atoms, jacobians = self.unfolded(free)
        of_base = sum(jacobians[1:], start=jacobians[0]) + self.base_density(atoms)
        n = self._terms.n
        m = free.shape[0] // n
        folded = [
            values.reshape((m, n, *(values.shape[i] for i in range(1, values.type.ndim)))) for values in atoms
        ]
        return of_base, self._terms.by_row_of_atoms(folded, m)

    @cached_property
    def _base(self) -> Callable[..., np.ndarray]:
        return self._compiled(self.atoms, self.base_density(self.atoms))

    @cached_property
    def _to_free(self) -> Callable[..., np.ndarray]:
        discrete = [self._entries[position].atoms for position in self.discrete]
        free = [entry.to_free() for entry in self._continuous]
        free += [values.reshape((values.shape[0], -1), ndim=2) for values in discrete]
        return self._compiled(self.atoms, pt.concatenate(free, axis=1).astype("float64"))

    @cached_property
    def _from_free(self) -> Callable[..., Any]:
        free = pt.dmatrix("free")
        return self._compiled([free], self.unfolded(free)[0])

    @cached_property
    def _lengths(self) -> list[tuple[int, ...]]:
        """Shapes of the values of one atom in free form: those of continuous entries first."""
        lengths = []
        for entry in [*self._continuous, *(self._entries[position] for position in self.discrete)]:
            value = entry.atoms
            if entry.transform is not None:
                value = entry.transform.forward(value, *entry.drawn.owner.inputs)
            static = value.type.shape[1:]
            if None in static:
                free = self._compiled(self.atoms, value)(*self.draws(0, 1), *self._point)
                static = free.shape[1:]
            lengths.append(tuple(static))
        return lengths

    @property
    def continuous(self) -> list[tuple["_Entry", tuple[int, ...], slice]]:
        """Continuous entries of the base, with shape and columns of each in the free form."""
        return list(zip(self._continuous, self._lengths, self.columns.values(), strict=False))

    @property
    def columns(self) -> dict[int, slice]:
        """Columns of the free form, by the positions of parameters."""
        stops = np.cumsum([0, *(int(np.prod(shape)) for shape in self._lengths)]).tolist()
        continuous = [position for position in range(len(self._entries)) if position not in self.discrete]
        return dict(zip([*continuous, *self.discrete], map(slice, stops[:-1], stops[1:]), strict=True))

    @property
    def n_free(self) -> int:
        """Number of values in the free form."""
        return sum(int(np.prod(shape)) for shape in self._lengths)

    @property
    def n_continuous(self) -> int:
        """How many of them are continuous."""
        return sum(int(np.prod(shape)) for shape in self._lengths[: len(self._continuous)])

    def unfolded(self, free: Variable) -> tuple[list[Variable], list[Variable]]:
        """Return all atoms, and the Jacobians, as functions of the free form."""
        replaced: dict[Variable, Variable] = {}
        for position, shape in zip(self.discrete, self._lengths[len(self._continuous) :], strict=True):
            entry, of_entry = self._entries[position], free[:, self.columns[position]]
            values = of_entry.reshape((free.shape[0], *shape), ndim=1 + len(shape)).astype(entry.atoms.dtype)
            replaced[entry.atoms] = pt.specify_shape(values, (None, *entry.atoms.type.shape[1:]))
        jacobians = []
        for entry, shape, columns in self.continuous:
            values, jacobian = entry.from_free(free[:, columns], shape)
            # The bounds of an entry depend on earlier entries only, which have been unfolded.
            if replaced:
                values, jacobian = clone_replace([values, jacobian], replaced, rebuild_strict=False)
            values = pt.specify_shape(values, (None, *entry.atoms.type.shape[1:]))
            replaced[entry.atoms] = values
            jacobians.append(jacobian)
        return [replaced[atoms] for atoms in self.atoms], jacobians

    def _density(self, atoms: Sequence[Variable], labels: Variable) -> Variable:
        """Return the log density of each atom and of the rows in its cluster."""
        rows = [new[labels] for new in atoms]
        return self._terms.by_cluster(rows, labels, atoms[0].shape[0]) + self.base_density(atoms)

    def base_density(self, atoms: Sequence[Variable]) -> Variable:
        """Return the log density of the base at each atom."""
        replaced = dict(zip(self.atoms, atoms, strict=True))
        parts = [entry.log_density for entry in self._entries]
        if any(new is not old for old, new in replaced.items()):
            parts = clone_replace(parts, replaced, rebuild_strict=False)
        checked = [or_impossible(part) for part in parts]
        return sum(checked[1:], start=checked[0])

    def _compiled(self, inputs: Sequence[Variable], outputs: Variable | Sequence[Variable]) -> "_Function":
        return _Function([*inputs, *self._inputs], outputs, **self._options)


class _Function(DirectFunction):
    """A function that takes arrays in any order of memory."""

    def __call__(self, *arrays: Any) -> Any:
        """Return the output, or a sequence of outputs."""
        return super().__call__(*(np.asarray(array, order="C") for array in arrays))

    def drawn(self, *arrays: Any) -> Any:
        """Return the outputs of a function of random variables."""
        return super().drawn(*(np.asarray(array, order="C") for array in arrays))


def _by_atom(density: Variable) -> Variable:
    """Return the sum of a density over all axes but the first."""
    beyond = tuple(range(1, density.type.ndim))
    return density.sum(axis=beyond) if beyond else density
