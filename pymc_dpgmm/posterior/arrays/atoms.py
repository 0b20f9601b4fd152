"""Atoms of the clusters of a DirichletProcess: parameters that were sampled, not integrated out.

Where collapsed mixtures are on the same labels, what is known of a new row tells which clusters it may belong to,
and so what its parameters are: these are then columns, of which new rows know nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.partitions.labels import named_by_appearance

# Draws from the base in each draw of the posterior, which stand for the parameters of a new cluster.
N_FRESH = 64
# Letters for the dimensions of an atom.
_LETTERS = "defgh"


def _means(parameters: Mapping[str, np.ndarray], values: Any) -> np.ndarray:
    """Return the parameters of each cluster, (1, K, d), whatever rows know."""
    return parameters["parameters"][None]


class AtomComponent(NamedTuple):
    """Names of the values of an atom, letters for the dimensions of each, and which of them are directions."""

    axes: dict[str, str]
    directions: tuple[str, ...] = ()
    # Directions among parameters are told of by their views.
    is_circular: bool = False
    mean: Any = _means


class AtomFamily(NamedTuple):
    """The part of the interface of a family that atoms need."""

    component: AtomComponent
    name: str = "DirichletProcess"
    title: str = "DirichletProcess"
    given: Mapping[str, str] = {}


@dataclass(kw_only=True, eq=False)
class AtomView:
    """Atoms of all draws, with the interface of :class:`~pymc_dpgmm.posterior.arrays.mixtures.ViewDraws`.

    Parameters
    ----------
    name : str
    atoms : mapping of (n_draws, n, ...) arrays
        The value of each row in each draw, by the name of the parameter.
    columns : tuple of str and list, optional
        Name of the dimension of vector-valued atoms, and the names of their entries.
    directions : tuple of str
        Names of the parameters that are angles.
    """

    name: str
    atoms: Mapping[str, np.ndarray]
    columns: tuple[str, list[Any]] | None = None
    is_vector: bool = False
    directions: tuple[str, ...] = ()

    # Rows know nothing of atoms.
    has_data = False

    def __post_init__(self) -> None:
        axes = {key: _LETTERS[: values.ndim - 2] for key, values in self.atoms.items()}
        self.family = AtomFamily(AtomComponent(axes, self.directions))

    def named(self, parameter: str) -> str:
        """Return the name of a parameter beside those of other views: that of its variable in the model."""
        name = self.name.removesuffix("_atoms")
        return name if parameter == name else f"{name}_{parameter}"

    def axis(self, letter: str, length: int) -> tuple[str, np.ndarray]:
        """Return name and coordinates of a dimension of atoms."""
        if letter == "d" and self.columns is not None:
            return self.columns[0], np.asarray(self.columns[1])
        return f"{self.name}_{'column' if letter == 'd' else letter}", np.arange(length)

    def category_names(self, length: int) -> None:
        """Return None: an atom has no categories."""

    def table(self, new: Any) -> "AtomView":
        """Return the view itself, whose :meth:`at` gives the clusters of each draw; new rows have no data."""
        return self

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> Any:
        """Return the clusters of draw ``s``, whose canonical labels and cluster sizes are passed."""
        _, leaders = named_by_appearance(labels)
        return AtomClusters(self, {key: values[s][leaders] for key, values in self.atoms.items()})


class AtomClusters:
    """The atoms of the clusters of one draw: arrays (K, ...), by name."""

    def __init__(self, view: AtomView, atoms: dict[str, np.ndarray]) -> None:
        self.view, self.family, self.atoms = view, view.family, atoms

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the atoms: they were sampled with the labels, so nothing is drawn here."""
        return self.atoms


class ParametersView(AtomView):
    """Atoms as columns that are single numbers, which can be asked for in new rows.

    Parameters
    ----------
    view : AtomView
    process : Process
        Has ``keys``, the names of the parameters in order, and evaluates the base at draws.
    """

    # What mixtures' views may have, and parameters do not.
    levels = offset = None
    is_density = True

    def __init__(self, view: AtomView, process: Any) -> None:
        super().__init__(name=view.name, atoms=view.atoms, directions=view.directions)
        self._process = process
        self.column_names: list[str] = []
        # For each column, whether it is a direction.
        self.are_directions: list[bool] = []
        for key in process.keys:
            shape = self.atoms[key].shape[2:]
            places = ["[" + ",".join(map(str, place)) + "]" for place in np.ndindex(shape)] if shape else [""]
            self.column_names += [self.named(key) + place for place in places]
            self.are_directions += [key in self.directions] * len(places)
        self.columns_as_text, self.d = self.column_names, len(self.column_names)

    def names_in(self, mixture: str) -> tuple[str, ...]:
        """Return the names by which a user may call the parameters: that of their process."""
        return (mixture,)

    def levels_of(self, j: int) -> None:
        """Return None: parameters have no levels."""

    def is_line(self, field: str, value: Any) -> bool:
        """Return False: parameters have no covariates."""
        return False

    def as_in_data(self, j: int, values: np.ndarray) -> np.ndarray:
        """Return numbers of a column as they are."""
        return values

    def complete(self, values: Any, given: Any, rows: Any, *, is_asked: bool) -> Any:
        """Return new rows as they are: nothing is given with parameters."""
        return values

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> "ParametersOfClusters":
        """Return the clusters of draw ``s``, whose canonical labels and cluster sizes are passed."""
        return ParametersOfClusters(self._process.at(s), self._process.atoms(super().at(s, labels, sizes)))


def _flat(atoms: list[np.ndarray]) -> np.ndarray:
    """Return atoms, arrays (K, ...), as the columns of one matrix (K, d)."""
    return np.concatenate([np.asarray(own, dtype=np.float64).reshape(len(own), -1) for own in atoms], axis=1)


class ParametersOfClusters:
    """The atoms of the clusters of one draw, and draws from the base for clusters without rows."""

    family = AtomFamily(AtomComponent({}))

    def __init__(self, density: Any, atoms: list[np.ndarray]) -> None:
        self._density, self._atoms = density, _flat(atoms)

    def _fresh(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return _flat(self._density.draws(int(rng.integers(2**63)), max(n, 1)))[:n]

    def draw_with_new(self, rng: np.random.Generator, n_new: int) -> dict[str, np.ndarray]:
        """Return the atoms of all clusters, and draws of some from the base: an array (K + n_new, d)."""
        return {"parameters": np.concatenate([self._atoms, self._fresh(rng, n_new)])}

    def predictive(self) -> dict[str, np.ndarray]:
        """Return the atoms of all clusters, and the mean of the base: an array (K + 1, d)."""
        fresh = _flat(self._density.draws(0, N_FRESH))
        return {"parameters": np.concatenate([self._atoms, fresh.mean(axis=0, keepdims=True)])}

    def draw_unknown(self, rng: np.random.Generator, labels: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the parameters of new rows from clusters of these labels, of which K is a new one: (m, d)."""
        is_new = labels == len(self._atoms)
        found = self._atoms[np.where(is_new, 0, labels)]
        found[is_new] = self._fresh(rng, int(is_new.sum()))
        return found
