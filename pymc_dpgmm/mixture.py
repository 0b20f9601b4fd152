"""What a user touches: a mixture as one line of a PyMC model."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dpgmm.distributions import (
    CRP,
    MFM,
    CollapsedMixture,
    FiniteDirichlet,
    PitmanYor,
    partition_sizes,
    spread_starts,
)
from pymc_dpgmm.distributions.observed import Observed, check_observed
from pymc_dpgmm.families import BaseMeasure, NormalInverseGamma, NormalInverseWishart
from pymc_dpgmm.families.counts import is_sparse


def DPMixture(  # noqa: N802
    name: str,
    alpha: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
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
    base : BaseMeasure or dict, optional
        Prior of every cluster's parameters. By default ``NormalInverseWishart.from_data(observed)`` for (n, d)
        data and ``NormalInverseGamma.from_data(observed)`` for (n,) data; a latent mixture needs one.

        For rows with columns of several types, a dict of views: with a DataFrame, ``{view: (columns, base)}``,
        where ``columns`` is a column or a list of them; otherwise ``{view: base}``, with ``observed`` a dict of
        the same views. The views are independent given the labels. A base may be None as above, or a class with
        ``from_data``.
    observed : (n, d) or (n,) array_like, pandas DataFrame or Series, or pm.Data, or dict of these, optional
        Finite numbers. The index and columns of a pandas object become coords of the dims ``{name}_obs`` and
        ``{name}_feature``, unless ``dims`` are given.
    shape : tuple of int, optional
        (n, d) or (n,), for a latent mixture.
    dims : str or tuple of str, optional
        Names of the dimensions of the data; the labels take the first. With views, the name of the first.
    initval : (n,) integer array_like, optional
        Start of the labels, see :class:`CRP`.

    Returns
    -------
    TensorVariable or dict
        The random variable ``name``; with views, a dict of the random variables ``{name}_{view}``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range. The model is then as it was before.
    """

    def prior(labels: str, n: Any, **kwargs: Any) -> Any:
        return CRP(labels, alpha, n, **kwargs)

    return _add_mixture(name, prior, base, observed, shape, dims, initval)


def PYMixture(  # noqa: N802
    name: str,
    alpha: Any,
    discount: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    observed: Any = None,
    shape: tuple[int, ...] | None = None,
    dims: Any = None,
    initval: Any = None,
) -> Any:
    """Add a Pitman-Yor process mixture to the current model: see :func:`DPMixture` and :class:`PitmanYor`.

    Parameters
    ----------
    name : str
    alpha : scalar or variable, > -discount
    discount : scalar or variable, in [0, 1)
    base, observed, shape, dims, initval
        As in :func:`DPMixture`.
    """

    def prior(labels: str, n: Any, **kwargs: Any) -> Any:
        return PitmanYor(labels, alpha, discount, n, **kwargs)

    return _add_mixture(name, prior, base, observed, shape, dims, initval)


def FiniteMixture(  # noqa: N802
    name: str,
    alpha: Any,
    n_components: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    observed: Any = None,
    shape: tuple[int, ...] | None = None,
    dims: Any = None,
    initval: Any = None,
) -> Any:
    """Add a mixture with a fixed number of components: see :func:`DPMixture` and :class:`FiniteDirichlet`.

    Weights are Dirichlet(alpha / n_components, ...) and integrated out; components without rows cost nothing.

    Parameters
    ----------
    name : str
    alpha : scalar or variable, > 0
    n_components : int or integer variable, >= 1
    base, observed, shape, dims, initval
        As in :func:`DPMixture`.
    """

    def prior(labels: str, n: Any, **kwargs: Any) -> Any:
        return FiniteDirichlet(labels, alpha, n_components, n, **kwargs)

    return _add_mixture(name, prior, base, observed, shape, dims, initval)


def MFMixture(  # noqa: N802
    name: str,
    gamma: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    components: Any = None,
    observed: Any = None,
    shape: tuple[int, ...] | None = None,
    dims: Any = None,
    initval: Any = None,
) -> Any:
    """Add a mixture with an unknown number of components: see :func:`DPMixture` and :class:`MFM`.

    Parameters
    ----------
    name : str
    gamma : scalar or variable, > 0
    components : variable, optional
        Prior of the number of components, made with ``.dist``. By default ``pm.Geometric.dist(0.1)``.
    base, observed, shape, dims, initval
        As in :func:`DPMixture`.
    """

    def prior(labels: str, n: Any, **kwargs: Any) -> Any:
        return MFM(labels, gamma, n, components=components, **kwargs)

    return _add_mixture(name, prior, base, observed, shape, dims, initval)


class _Part:
    """One view: its data as far as it is given, and its base measure."""

    def __init__(self, name: str, base: Any, observed: Any) -> None:
        self.name = name
        self.given = observed
        self.checked: Observed | None = None
        self.base = base
        if observed is None:
            if base is None:
                raise ValueError("a latent mixture needs a base measure, there is no data to make one from")
            return
        self.checked = check_observed(observed, base if isinstance(base, BaseMeasure) else None)
        if base is None:
            self.base = _default_base(self.checked.values)


def _add_mixture(
    name: str, prior: Callable[..., Any], base: Any, observed: Any, shape: Any, dims: Any, initval: Any
) -> Any:
    """Add labels, data on them, and the number of clusters."""
    model = pm.modelcontext(None)
    with unchanged_on_error(model):
        if isinstance(base, Mapping):
            return _add_views(model, name, prior, base, observed, shape, dims, initval)
        part = _Part(name, base, observed)
        if part.checked is None:
            if shape is None:
                raise ValueError("a mixture without observed data needs shape=(n,) or shape=(n, d)")
            shape = tuple(int(length) for length in np.atleast_1d(shape))
            if any(length < 1 for length in shape):
                raise ValueError(f"shape must have lengths of at least 1, got {shape}")
        else:
            if shape is not None and tuple(np.atleast_1d(shape)) != part.checked.values.shape:
                raise ValueError(f"shape is {shape}, but observed has shape {part.checked.values.shape}")
            shape = part.checked.values.shape
            dims = _named_dims(model, name, name, part, dims)
        dims = (dims,) if isinstance(dims, str) else dims
        _check_dims(model, dims, shape)
        labels = prior(f"{name}_labels", _n_rows(part, shape), dims=dims and dims[:1], initval=initval)
        mixture = _add_part(model, part, labels, shape, dims)
        _count_clusters(name, labels)
    return mixture


def _add_views(
    model: pm.Model,
    name: str,
    prior: Callable[..., Any],
    bases: Mapping[str, Any],
    observed: Any,
    shape: Any,
    dims: Any,
    initval: Any,
) -> dict[str, Any]:
    if shape is not None:
        raise ValueError("a mixture of several views takes its shape from observed")
    if dims is not None and not isinstance(dims, str):
        raise ValueError(f"dims of a mixture of several views name its rows only: one string, got {dims}")
    parts = {
        view: _Part(f"{name}_{view}", base, data) for view, (base, data) in _split_views(bases, observed).items()
    }
    if not parts:
        raise ValueError("base has no views")
    numbers = {view: part.checked.values.shape[0] for view, part in parts.items() if part.checked is not None}
    if len(set(numbers.values())) != 1:
        listed = ", ".join(f"{view} with {n} rows" for view, n in numbers.items())
        raise ValueError(f"all views must have the same number of rows, got {listed}")
    first, shapes = next(iter(parts.values())), {v: p.checked.values.shape for v, p in parts.items() if p.checked}
    named = {view: _view_dims(model, name, part, dims) for view, part in parts.items()}
    for view in parts:
        _check_dims(model, named[view], shapes[view])
    row_dims = (dims,) if dims else next((d[:1] for d in named.values() if d), None)
    labels = prior(
        f"{name}_labels", _n_rows(first, (next(iter(numbers.values())),)), dims=row_dims, initval=initval
    )
    mixtures = {view: _add_part(model, part, labels, shapes[view], named[view]) for view, part in parts.items()}
    _count_clusters(name, labels)
    return mixtures


def _split_views(bases: Mapping[str, Any], observed: Any) -> dict[str, tuple[Any, Any]]:
    """Return base measure and data of each view."""
    if isinstance(observed, pd.DataFrame):
        views = {}
        for view, entry in bases.items():
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise TypeError(f"with a DataFrame, base[{view!r}] must be (columns, base), got {entry!r}")
            columns, base = entry
            wanted = list(columns) if isinstance(columns, Sequence) and not isinstance(columns, str) else columns
            missing = [c for c in np.atleast_1d(np.asarray(wanted, dtype=object)) if c not in observed.columns]
            if missing:
                raise ValueError(f"observed has no columns {missing}, which the view {view!r} names")
            views[view] = (base, observed[wanted])
    elif isinstance(observed, Mapping):
        if set(observed) != set(bases):
            raise ValueError(
                f"base and observed must have the same views, got {sorted(bases)} and {sorted(observed)}"
            )
        views = {view: (base, observed[view]) for view, base in bases.items()}
    else:
        raise TypeError("with a dict of base measures, observed must be a DataFrame or a dict of the same views")
    return {
        view: (base.from_data(data) if isinstance(base, type) and issubclass(base, BaseMeasure) else base, data)
        for view, (base, data) in views.items()
    }


def _view_dims(model: pm.Model, name: str, part: _Part, rows: str | None) -> Any:
    """Dims of one view: the rows', and its columns'."""
    assert part.checked is not None
    named = _named_dims(model, name, part.name, part, None)
    if rows is None or part.checked.values.ndim == 1:
        return (rows,) if rows else named
    # PyMC has no dims of which only some are named.
    return (rows, *named[1:]) if named else None


def _n_rows(part: _Part, shape: tuple[int, ...]) -> Any:
    """Return the number of rows, which may change where the data is pm.Data."""
    if part.checked is not None and isinstance(part.checked.data, SharedVariable):
        return part.checked.data.shape[0]
    return shape[0]


def _add_part(model: pm.Model, part: _Part, labels: Any, shape: tuple[int, ...], dims: Any) -> Any:
    spread_starts(model, list(getattr(part.base, "parameters", {}).values()))
    data = None if part.checked is None else part.given
    if part.checked is not None and is_sparse(part.checked.values):
        # The value is a table of the non-zeros, with other dimensions than the rows and columns.
        dims = None
    return CollapsedMixture(part.name, labels, part.base, observed=data, shape=shape, dims=dims)


def _count_clusters(name: str, labels: Any) -> None:
    pm.Deterministic(f"{name}_n_clusters", partition_sizes(labels).shape[0])


def _default_base(values: np.ndarray) -> BaseMeasure:
    kind = NormalInverseGamma if values.ndim == 1 else NormalInverseWishart
    return kind.from_data(values)


def _named_dims(model: pm.Model, rows: str, columns: str, part: _Part, dims: Any) -> Any:
    """Return the dims of the data, adding coords from a pandas object where none are given."""
    if dims is not None or part.checked is None:
        return dims
    if isinstance(part.given, SharedVariable):
        return model.named_vars_to_dims.get(part.given.name)
    if part.checked.index is None:
        return None
    named = [(f"{rows}_obs", part.checked.index)]
    if part.checked.columns is not None:
        named.append((f"{columns}_feature", part.checked.columns))
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
