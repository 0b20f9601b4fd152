"""What a user touches: a Dirichlet process mixture as one line of a PyMC model."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dpgmm.distributions import CRP, CollapsedMixture, partition_sizes, spread_starts
from pymc_dpgmm.families import BaseMeasure, NormalInverseGamma, NormalInverseWishart
from pymc_dpgmm.families.base_measure import is_variable


class Observed(NamedTuple):
    """Checked observed data: what PyMC registers, its current values, and the labels of its axes."""

    data: Any
    values: np.ndarray
    index: Any
    columns: Any


def DPMixture(  # noqa: N802
    name: str,
    alpha: Any,
    base: BaseMeasure | None = None,
    *,
    observed: Any = None,
    shape: tuple[int, ...] | None = None,
    dims: Any = None,
    initval: Any = None,
) -> Any:
    """Add a Dirichlet process mixture to the current model.

    It is short for a :class:`CRP` named ``{name}_labels``, a :class:`CollapsedMixture` named ``name`` on those
    labels, and a Deterministic ``{name}_n_clusters``. Nothing is truncated: the number of clusters is
    whatever the labels say, from 1 to n.

    Parameters
    ----------
    name : str
    alpha : scalar or variable, > 0
        Concentration: a number or any PyMC variable.
    base : BaseMeasure, optional
        Prior of every cluster's parameters. By default ``NormalInverseWishart.from_data(observed)`` for (n, d)
        data and ``NormalInverseGamma.from_data(observed)`` for (n,) data; a latent mixture needs one.
    observed : (n, d) or (n,) array_like, pandas DataFrame or Series, or pm.Data, optional
        Finite numbers. The index and columns of a pandas object become coords of the dims ``{name}_obs`` and
        ``{name}_feature``, unless ``dims`` are given.
    shape : tuple of int, optional
        (n, d) or (n,), for a latent mixture.
    dims : str or tuple of str, optional
        Names of the dimensions of the data; the labels take the first.
    initval : (n,) integer array_like, optional
        Start of the labels, see :class:`CRP`.

    Returns
    -------
    TensorVariable
        The random variable ``name``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range. The model is then as it was before.
    """
    model = pm.modelcontext(None)
    with unchanged_on_error(model):
        if observed is None:
            if shape is None:
                raise ValueError("a mixture without observed data needs shape=(n,) or shape=(n, d)")
            if base is None:
                raise ValueError("a latent mixture needs a base measure, there is no data to make one from")
            shape = tuple(int(length) for length in np.atleast_1d(shape))
            if any(length < 1 for length in shape):
                raise ValueError(f"shape must have lengths of at least 1, got {shape}")
            n, data = shape[0], None
        else:
            checked = check_observed(observed)
            if shape is not None and tuple(np.atleast_1d(shape)) != checked.values.shape:
                raise ValueError(f"shape is {shape}, but observed has shape {checked.values.shape}")
            shape, data = checked.values.shape, checked.data
            n = data.shape[0] if isinstance(data, SharedVariable) else shape[0]
            if base is None:
                base = _default_base(checked.values)
            dims = _named_dims(model, name, checked, dims, observed)
        dims = (dims,) if isinstance(dims, str) else dims
        _check_dims(model, dims, shape)
        labels = CRP(f"{name}_labels", alpha, n, dims=dims and dims[:1], initval=initval)
        spread_starts(model, list(getattr(base, "parameters", {}).values()))
        mixture = CollapsedMixture(name, labels, base, observed=data, shape=shape, dims=dims)
        pm.Deterministic(f"{name}_n_clusters", partition_sizes(labels).shape[0])
    return mixture


def check_observed(observed: Any) -> Observed:
    """Check data before PyMC sees it, which would silently impute what is missing.

    Raises
    ------
    TypeError
        If the data is not made of real numbers.
    ValueError
        If it is empty, has missing or infinite values, or has the wrong number of dimensions.
    """
    data, index, columns = observed, None, None
    if is_variable(observed):
        if not isinstance(observed, SharedVariable):
            raise TypeError(
                "observed must be numbers or pm.Data, got an expression of variables, which PyMC does not "
                "allow as observed data"
            )
        values = observed.get_value(borrow=True)
    elif isinstance(observed, pd.DataFrame | pd.Series):
        index = observed.index
        columns = getattr(observed, "columns", None)
        values = observed.to_numpy()
    else:
        values = observed if isinstance(observed, np.ma.MaskedArray) else np.asarray(observed)
    check_values(values)
    if not is_variable(observed):
        data = np.array(values, dtype=np.float64)
        values = data
    return Observed(data, np.asarray(values, dtype=np.float64), index, columns)


def check_values(values: np.ndarray) -> None:
    """Raise where an array cannot be the observed data of a mixture; see :func:`check_observed`."""
    if np.ma.is_masked(values):
        raise ValueError("observed has masked entries; missing values are not supported yet")
    if values.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"observed must be real numbers, got dtype {values.dtype}")
    if values.ndim not in (1, 2):
        raise ValueError(f"observed must have shape (n,) or (n, d), got {values.shape}")
    if values.size == 0:
        raise ValueError(f"observed must have at least one row and one column, got shape {values.shape}")
    n_missing = int(np.isnan(values.astype(np.float64)).sum())
    if n_missing:
        raise ValueError(f"observed has {n_missing} NaN; missing values are not supported yet")
    if not np.all(np.isfinite(values.astype(np.float64))):
        raise ValueError("observed must be finite, got infinite values")


def _default_base(values: np.ndarray) -> BaseMeasure:
    kind = NormalInverseGamma if values.ndim == 1 else NormalInverseWishart
    return kind.from_data(values)


def _named_dims(model: pm.Model, name: str, checked: Observed, dims: Any, observed: Any) -> Any:
    """Return the dims of the data, adding coords from a pandas object where none are given."""
    if dims is not None:
        return dims
    if isinstance(observed, SharedVariable):
        return model.named_vars_to_dims.get(observed.name)
    if checked.index is None:
        return None
    named = [(f"{name}_obs", checked.index)]
    if checked.columns is not None:
        named.append((f"{name}_feature", checked.columns))
    for dim, values in named:
        model.add_coord(dim, np.asarray(values))
    return tuple(dim for dim, _ in named)


def _check_dims(model: pm.Model, dims: Any, shape: tuple[int, ...]) -> None:
    if dims is None:
        return
    if len(dims) != len(shape):
        raise ValueError(f"dims must name {len(shape)} dimensions for shape {shape}, got {dims}")
    for dim, length in zip(dims, shape, strict=True):
        coord = model.coords.get(dim)
        if coord is not None and len(coord) != length:
            raise ValueError(f"dimension {dim!r} has {len(coord)} coords, but the data has {length} along it")


_REGISTRIES = (
    "named_vars",
    "free_RVs",
    "observed_RVs",
    "deterministics",
    "potentials",
    "data_vars",
    "values_to_rvs",
    "rvs_to_values",
    "rvs_to_transforms",
    "rvs_to_initial_values",
    "named_vars_to_dims",
    "_coords",
    "_dim_lengths",
)


@contextlib.contextmanager
def unchanged_on_error(model: pm.Model) -> Iterator[None]:
    """Put back what a model has registered if the body raises."""
    models = [model]
    while models[-1].parent is not None:
        models.append(models[-1].parent)
    containers = [getattr(m, key) for m in models for key in _REGISTRIES]
    before = [list(c) if isinstance(c, list) else dict(c) for c in containers]
    try:
        yield
    except BaseException:
        # The containers of a nested model pass changes on to its parent's, which are put back themselves.
        for container, content in zip(containers, before, strict=True):
            if isinstance(container, list):
                list.__setitem__(container, slice(None), content)
            else:
                dict.clear(container)
                dict.update(container, content)
        raise
