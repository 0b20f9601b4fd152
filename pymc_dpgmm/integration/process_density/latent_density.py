"""What the rest of a model says of each latent row of a mixture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.process_density.row_terms import RowTerms, SharedTermError
from pymc_dpgmm.integration.variables import fixed_rows, mixture_inputs, of_units
from pymc_dpgmm.integration.variables.models import with_densities
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity


def row_terms_of(model: pm.Model, mixture: Variable) -> RowTerms | None:
    """Return the terms of a model's density that depend on latent rows; None if any depends on several rows."""
    value = model.rvs_to_values[mixture]
    others = [other for other in with_densities(model) if other is not mixture]
    densities = model.logp(vars=others, sum=False)
    depending = {
        str(other.name): density
        for other, density in zip(others, densities, strict=True)
        if value in set(ancestors([density]))
    }
    n = _n_rows(mixture)
    if n is None:
        return None
    try:
        return RowTerms(model, [mixture], n, depending)
    except SharedTermError:
        return None


def _n_rows(mixture: Variable) -> int | None:
    static: int | None = mixture.type.shape[0]
    if static is not None:
        return static
    labels, unit = of_units(mixture_inputs(mixture).labels)
    return fixed_rows(labels) if unit is None else None


class LatentDensity:
    """Log density that the rest of a model gives to latent rows.

    Parameters
    ----------
    model : pm.Model
    mixture : variable
        A free mixture.
    terms : RowTerms
        The terms that depend on its rows.
    compile_kwargs : dict, optional
        Options of ``pm.compile``.
    """

    def __init__(
        self, model: pm.Model, mixture: Variable, terms: RowTerms, compile_kwargs: Mapping[str, Any] | None
    ) -> None:
        self._terms = terms
        self._beyond = tuple(mixture.type.shape[1:])
        self.name = model.rvs_to_values[mixture].name
        self.dtype = mixture.dtype
        self.d = int(np.prod(self._beyond, dtype=np.int64))
        self.names = [value.name for value in terms.inputs]
        self._is_confirmed = False
        # The arrays at which the density was last asked for, and the density there.
        self._last: tuple[list[np.ndarray], RowDensity] | None = None
        rows = pt.tensor("rows", dtype="float64", shape=(None, terms.n, *self._beyond))
        value = terms.by_row_of_atoms([rows], rows.shape[0]).astype("float64")
        self._function = DirectFunction([rows, *terms.inputs], value, **(compile_kwargs or {}))

    def at(self, point: Mapping[str, np.ndarray]) -> RowDensity:
        """Return the density at a point of the model; the first time, check that rows are independent."""
        if not self._is_confirmed:
            self._confirm(point)
            self._is_confirmed = True
        given = [*(np.asarray(point[name]) for name in self.names), *self._function.shared]
        kept = self._last
        if kept is None or not all(own.shape == array.shape for own, array in zip(kept[0], given, strict=True)):
            arrays = [np.array(array, order="C") for array in given]
            kept = self._last = arrays, self._made(point, arrays)
        else:
            # Their places stay, so that the density does.
            for own, array in zip(kept[0], given, strict=True):
                own[...] = array
        kept[1].add(None)
        return kept[1]

    def _made(self, point: Mapping[str, np.ndarray], arrays: Sequence[np.ndarray]) -> RowDensity:
        present, others = np.array(point[self.name], dtype=np.float64)[None], arrays[: len(self.names)]
        entry = self._function.entry([present, *others])

        def function(rows: np.ndarray) -> np.ndarray:
            values: np.ndarray = self._function(rows, *others)
            return values

        return RowDensity(entry, function, present.shape[1:], arrays)

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_last": None}

    def _confirm(self, point: Mapping[str, np.ndarray]) -> None:
        rng = np.random.default_rng(0)
        present = np.asarray(point[self.name], dtype=np.float64)

        def moved(n: int) -> list[np.ndarray]:
            return [(present + rng.standard_normal(present.shape)).astype(self.dtype)]

        try:
            self._terms.confirm(moved, point)
        except SharedTermError:
            raise NotImplementedError(
                f"the density of the model has a term that depends on several rows of {self.name}, so that they "
                'cannot be drawn one by one: sample with dpmixture={"continuous": "nuts"}'
            ) from None
