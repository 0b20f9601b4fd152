"""Results as pm.sample would return them, of draws that a test chooses."""

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends.arviz import find_constants, find_observations
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.steps.hyperparameters import learnt_scales


def results(model, draws, n_chains=2):
    """A DataTree with given draws (S, ...) of variables, divided among chains, and all that pm.sample stores.

    Scales that base measures learn, of which no draws are given, stay where chains would begin.
    """
    dims = model.named_vars_to_dims
    draws = _with_scales(model, draws)
    posterior = {}
    for name, values in draws.items():
        values = np.asarray(values)
        own = list(dims.get(name) or [f"{name}_dim_{i}" for i in range(values.ndim - 1)])
        posterior[name] = (["chain", "draw", *own], values.reshape(n_chains, -1, *values.shape[1:]))
    coords = {dim: np.asarray(values) for dim, values in model.coords.items() if values is not None}
    used = {dim for names, _ in posterior.values() for dim in names}
    lengths = {"chain": n_chains, "draw": len(next(iter(draws.values()))) // n_chains}
    of_draws = {dim: coords[dim] for dim in used if dim in coords}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(posterior, coords=of_draws | {d: np.arange(n) for d, n in lengths.items()}),
            "observed_data": _dataset(find_observations(model), dims, coords),
            "constant_data": _dataset(find_constants(model), dims, coords),
        }
    )


def value_at(model, names, point):
    """The values of variables at a point of a model's value variables."""
    outputs = model.replace_rvs_by_values([model[name] for name in names])
    mode = Mode(linker="py", optimizer="fast_compile")
    function = pm.compile(
        model.value_vars, outputs, mode=mode, on_unused_input="ignore", allow_input_downcast=True
    )
    return function(**point)


def _with_scales(model, draws):
    scales = [rv for scale in learnt_scales(model).values() for rv in scale.variables if rv.name not in draws]
    others = set(model.free_RVs) - set(scales)
    names = [
        var.name
        for var in [*scales, *model.deterministics]
        if set(ancestors([var])) & set(scales) and not set(ancestors([var])) & others and var.name not in draws
    ]
    if not names:
        return draws
    n_draws, values = len(next(iter(draws.values()))), value_at(model, names, model.initial_point())
    return draws | {n: np.broadcast_to(v, (n_draws, *np.shape(v))) for n, v in zip(names, values, strict=True)}


def _dataset(values, dims, coords):
    variables = {
        name: (list(dims.get(name) or [f"{name}_dim_{i}" for i in range(np.ndim(v))]), np.asarray(v))
        for name, v in values.items()
    }
    used = {dim for names, _ in variables.values() for dim in names}
    return xr.Dataset(variables, coords={dim: coords[dim] for dim in used if dim in coords})
