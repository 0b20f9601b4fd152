"""The parameters of rows under a Dirichlet process, as columns of which new rows know nothing.

With collapsed mixtures on the same labels, what is known of a new row tells which clusters it may belong to, and
so what its parameters are.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dpgmm.posterior.arrays.atoms import AtomView
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.processes import Process

# Draws from the base in each draw of the posterior, which stand for the parameters of a new cluster.
N_FRESH = 64


def _means(parameters: Mapping[str, np.ndarray], values: Any) -> np.ndarray:
    """Return the parameters of each cluster, (1, K, d), whatever rows know."""
    return parameters["parameters"][None]


class ParametersComponent(NamedTuple):
    """The part of the interface of a component that questions need."""

    mean: Any = _means
    is_circular: bool = False


class ParametersFamily(NamedTuple):
    """The part of the interface of a family that questions need."""

    component: ParametersComponent = ParametersComponent()
    name: str = "DirichletProcess"
    given: Mapping[str, str] = {}


class ParametersView:
    """Parameters of rows as a view whose columns are single numbers, with the interface of ``ViewDraws``.

    Parameters
    ----------
    draws : MixtureDraws
        With atoms.
    process : Process
    """

    family = ParametersFamily()
    is_vector = False
    levels = None
    is_density = True

    def __init__(self, draws: MixtureDraws, process: Process) -> None:
        (self._atoms,) = (view for view in draws.views if isinstance(view, AtomView))
        self.name: str = self._atoms.name
        self._process = process
        self.columns: list[str] = []
        # For each column, whether it is a direction.
        self.directions: list[bool] = []
        for key in process.keys:
            shape = self._atoms.atoms[key].shape[2:]
            name = self._atoms.named(key)
            places = ["[" + ",".join(map(str, place)) + "]" for place in np.ndindex(shape)] if shape else [""]
            self.columns += [name + place for place in places]
            self.directions += [key in self._atoms.directions] * len(places)
        self.d = len(self.columns)

    def levels_of(self, j: int) -> None:
        """Return None: parameters have no levels."""

    def as_in_data(self, j: int, values: np.ndarray) -> np.ndarray:
        """Return numbers of a column as they are."""
        return values

    def table(self, new: Any) -> "ParametersView":
        """Return the view itself, whose :meth:`at` gives the clusters of each draw: new rows have none."""
        return self

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> "ParametersOfClusters":
        """Return the clusters of draw ``s``, whose canonical labels and cluster sizes are passed."""
        clusters = self._atoms.at(s, labels, sizes)
        return ParametersOfClusters(self._process.at(s), self._process.atoms(clusters))


def _flat(atoms: list[np.ndarray]) -> np.ndarray:
    """Return atoms, arrays (K, ...), as the columns of one matrix (K, d)."""
    return np.concatenate([np.asarray(own, dtype=np.float64).reshape(len(own), -1) for own in atoms], axis=1)


class ParametersOfClusters:
    """The atoms of the clusters of one draw, and draws from the base for clusters without rows."""

    family = ParametersView.family

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


def with_parameters(idata: Any, draws: MixtureDraws, model: pm.Model | None) -> MixtureDraws:
    """Return the draws of a Dirichlet process of parameters with these as a view that can be asked for.

    Raises
    ------
    NotImplementedError
        If there are no collapsed mixtures on its labels.
    ValueError
        If there is no model, or another one.
    """
    if len(draws.views) == 1:
        name = draws.labels_name.removesuffix("_labels")
        raise NotImplementedError(
            f"nothing is known of {name}, the parameters under a dp.DirichletProcess, in new rows without a "
            "dp.CollapsedMixture on its labels: dp.sample_new_rows draws parameters of new rows, and dp.density "
            "gives the density of an observation"
        )
    process = Process(idata, draws, model, "dp.predict")
    parameters = ParametersView(draws, process)
    some = copy.copy(draws)
    # From here on a view like the others has the atoms.
    some.entries = None
    some.views = [parameters if view.name == parameters.name else view for view in draws.views]
    some.numbers = draws.numbers._replace(views=some.views)
    return some
