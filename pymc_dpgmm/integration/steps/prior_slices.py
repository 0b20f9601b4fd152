"""Slices of variables that govern nothing but a few numbers of a prior."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.variables.models import values_behind
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import CoordinateSlices


class PriorSlices:
    """Draws of continuous variables on which nothing depends but some numbers of a prior, by slices.

    Parameters
    ----------
    model : pm.Model
    numbers : sequence of variables
        The numbers, as expressions of the model.
    values : sequence of variables
        Value variables of what is drawn.
    compile_kwargs : dict, optional
    """

    def __init__(
        self, model: pm.Model, numbers: Sequence[Variable], values: Sequence[Variable], compile_kwargs: Any
    ) -> None:
        self.names = [value.name for value in values]
        rvs = [model.values_to_rvs[value] for value in values]
        expressions = [model.logp(vars=rvs), *model.replace_rvs_by_values(list(numbers))]
        inputs = values_behind(model, expressions)
        self._inputs = [value.name for value in inputs]
        self._function = DirectFunction(inputs, expressions, **(compile_kwargs or {}))
        self._dtypes = [value.dtype for value in inputs]
        start = model.initial_point(random_seed=0)
        self._arguments = [np.array(start[name], dtype=np.float64, order="C") for name in self._inputs]
        self._slices: CoordinateSlices | None = None
        self._log_density: Callable[..., float] = lambda *numbers: 0.0

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_slices": None, "_log_density": None}

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        widths: dict[str, np.ndarray],
        tuning: bool,
        log_density: Callable[..., float],
    ) -> None:
        """Draw the variables in a point, one coordinate after the other, given a log density of the numbers."""
        self._log_density = log_density
        for own, name in zip(self._arguments, self._inputs, strict=True):
            own[...] = point[name]
        if self._slices is None:
            kinds = [(array.dtype, array.ndim) for array in self._arguments]
            self._slices = CoordinateSlices(PythonCall(self._evaluate, kinds), [np.empty(1)], 0)
        drawn = [self._arguments[self._inputs.index(name)] for name in self.names]
        own_widths = [widths.setdefault(name, np.ones(np.shape(point[name]))) for name in self.names]
        if self._slices.draw(rng, self._arguments, drawn, own_widths, tuning) is None:
            raise RuntimeError(f"the log density of {', '.join(self.names)} could not be computed")
        for name, array in zip(self.names, drawn, strict=True):
            point[name] = array.astype(np.asarray(point[name]).dtype)

    def _evaluate(self, *arrays: np.ndarray) -> list[np.ndarray]:
        typed = [array.astype(t, copy=False) for array, t in zip(arrays, self._dtypes, strict=True)]
        prior, *numbers = (float(value) for value in self._function(*typed))
        value = prior + self._log_density(*numbers) if -math.inf < prior < math.inf else -math.inf
        return [np.array(value if value < math.inf else -math.inf)]
