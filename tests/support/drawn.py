"""Results as pm.sample would return them, of draws that a test chooses."""

import numpy as np
import xarray as xr
from pymc.backends.arviz import find_constants, find_observations


def results(model, draws, n_chains=2):
    """A DataTree with given draws (S, ...) of variables, divided among chains, and all that pm.sample stores."""
    dims = model.named_vars_to_dims
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


def _dataset(values, dims, coords):
    variables = {
        name: (list(dims.get(name) or [f"{name}_dim_{i}" for i in range(np.ndim(v))]), np.asarray(v))
        for name, v in values.items()
    }
    used = {dim for names, _ in variables.values() for dim in names}
    return xr.Dataset(variables, coords={dim: coords[dim] for dim in used if dim in coords})
