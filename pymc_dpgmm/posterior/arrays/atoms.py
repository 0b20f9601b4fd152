"""Atoms of the clusters of a DirichletProcess: parameters that were sampled, not integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.partitions.labels import named_by_appearance

# Letters for the dimensions of an atom.
_LETTERS = "defgh"


class AtomComponent(NamedTuple):
    """Names of the values of an atom, letters for the dimensions of each, and which of them are directions."""

    axes: dict[str, str]
    directions: tuple[str, ...] = ()


class AtomFamily(NamedTuple):
    """The part of the interface of a family that atoms need."""

    component: AtomComponent
    name: str = "DirichletProcess"


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

    def __post_init__(self) -> None:
        axes = {key: _LETTERS[: values.ndim - 2] for key, values in self.atoms.items()}
        self.family = AtomFamily(AtomComponent(axes, self.directions))

    def named(self, parameter: str) -> str:
        """Return the name of a parameter beside those of other views: that of its variable in the model."""
        name = self.name.removesuffix("_atoms")
        return name if parameter == name else f"{name}_{parameter}"

    def category_names(self, length: int) -> None:
        """Return None: an atom has no categories."""

    def table(self, new: Any) -> "AtomView":
        """Return the view itself, whose :meth:`at` gives the clusters of each draw; new rows have no data."""
        return self

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> "AtomClusters":
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
