"""Mixtures, each as one line of a PyMC model."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dpgmm.families import (
    BaseMeasure,
    DirichletCategorical,
)
from pymc_dpgmm.families.contract.base_measure import check_base
from pymc_dpgmm.families.default_base import default_base
from pymc_dpgmm.integration.variables import (
    CRP,
    MFM,
    CollapsedMixture,
    FiniteDirichlet,
    PitmanYor,
    partition_sizes,
)
from pymc_dpgmm.integration.variables.grouped_labels import (
    NamedGroups,
    add_finite_labels,
    add_hdp_labels,
    add_topic_labels,
    numbered_groups,
)
from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.models import unchanged_on_error
from pymc_dpgmm.integration.variables.named_rows import check_columns_of_coords, coords_of, note_rows
from pymc_dpgmm.integration.variables.observed import Observed, check_observed
from pymc_dpgmm.integration.variables.partition_priors import start_of_rows
from pymc_dpgmm.integration.variables.records import amend_record
from pymc_dpgmm.models.arguments import MixtureArguments, takes_mixture_arguments
from pymc_dpgmm.models.learnt_base import is_learnt, learnt_base
from pymc_dpgmm.tables.checks import (
    check_count,
    check_units,
    is_chunked,
    is_sparse,
    is_variable,
    listed,
    without_dims,
)
from pymc_dpgmm.tables.doubtful import warn_of_repeated
from pymc_dpgmm.tables.names import coordinates
from pymc_dpgmm.tables.reading import factorized, read_table
from pymc_dpgmm.tables.rows import Rows
from pymc_dpgmm.tables.table import Table
from pymc_dpgmm.tables.tokens import read_tokens


@takes_mixture_arguments
def DPMixture(  # noqa: N802
    name: str,
    alpha: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    """Add a Dirichlet process mixture to the current model.

    This function is a shortcut. It adds a :class:`CRP` named ``{name}_labels``, a :class:`CollapsedMixture` named
    ``name`` on these labels, and a Deterministic ``{name}_n_clusters``. Nothing is truncated: the labels may form
    any number of clusters from 1 to n.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    alpha : scalar or variable, > 0
        Concentration: a number or any PyMC variable.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     alpha = pm.Gamma("alpha", 1.0, 1.0)
    ...     y = dp.DPMixture("y", alpha, observed=dp.datasets.load_old_faithful())
    >>> [variable.name for variable in model.free_RVs]
    ['alpha', 'y_labels', 'y_kappa', 'y_degrees', 'y_within']
    """
    return _add_mixture(_Request(name, partial(CRP, alpha=alpha), base, arguments))


@takes_mixture_arguments
def PYMixture(  # noqa: N802
    name: str,
    alpha: Any,
    discount: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    """Add a Pitman-Yor process mixture to the current model: see :func:`DPMixture` and :class:`PitmanYor`.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    alpha : scalar or variable, > -discount
        Concentration.
    discount : scalar or variable, in [0, 1)
        Discount: with larger values, the sizes of the clusters have heavier tails.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     alpha = pm.Gamma("alpha", 1.0, 1.0)
    ...     discount = pm.Beta("discount", 1.0, 3.0)
    ...     y = dp.PYMixture("y", alpha, discount, observed=dp.datasets.load_galaxies())
    >>> [variable.name for variable in model.free_RVs]
    ['alpha', 'discount', 'y_labels']
    """
    return _add_mixture(_Request(name, partial(PitmanYor, alpha=alpha, discount=discount), base, arguments))


@takes_mixture_arguments
def FiniteMixture(  # noqa: N802
    name: str,
    alpha: Any,
    n_components: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    group: Any = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    """Add a mixture with a number of components: see :func:`DPMixture` and :class:`FiniteDirichlet`.

    The weights are Dirichlet(alpha / n_components, ...) and integrated out. Components without rows take no time.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    alpha : scalar or variable, > 0
        Sum of the Dirichlet parameters. With groups also one for each group, in the order of their sorted names.
    n_components : int or integer variable, >= 1
        Number of components, which is the largest number of clusters. If it is computed from a discrete random
        variable, :class:`ComponentsGibbs` draws that variable.
    group : (n,) array_like, optional
        The group of each row: names or integers. All groups then share the components, and each group has its own
        weights; see :func:`HDPMixture`.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     y = dp.FiniteMixture("y", 3.0, 3, observed=dp.datasets.load_galaxies())
    >>> [variable.name for variable in model.basic_RVs]
    ['y_labels', 'y']
    """
    kind = FiniteDirichlet if group is None else add_finite_labels
    prior = partial(kind, alpha=alpha, n_components=n_components)
    return _add_mixture(_Request(name, prior, base, arguments, group))


@takes_mixture_arguments
def HDPMixture(  # noqa: N802
    name: str,
    alpha: Any,
    gamma: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    group: Any,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    r"""Add a mixture of rows in groups, which share clusters but differ in their weights.

    The prior is the hierarchical Dirichlet process (Teh, Jordan, Beal and Blei 2006). The rows of each group come
    from a Dirichlet process with concentration ``alpha``. The base measure of these processes is itself drawn from
    a Dirichlet process, with concentration ``gamma`` and base measure ``base``, so that all groups have the same
    clusters, in other proportions. Nothing is truncated, and all weights are integrated out.

    The function adds labels ``{name}_labels``, the data ``name`` given the labels, and the Deterministics
    ``{name}_n_clusters`` and ``{name}_n_tables``. In the terms of the Chinese restaurant franchise, each group
    seats its rows at tables, and each table serves one dish, a cluster, from a menu that all groups share. The
    variable ``{name}_openers`` is 1 for rows that open a table, and 0 for the others; it is sampled together with
    the labels. :doc:`/groups` has the density.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    alpha : scalar or (J,) array_like or variable, > 0
        Concentration within groups, one for all of the J groups, or one for each in the order of their sorted
        names. The larger it is, the more alike are the groups' weights.
    gamma : scalar or variable, > 0
        Concentration over groups. The larger it is, the more clusters there are.
    group : (n,) array_like
        The group of each row: names or integers. They become the coordinates of the dimension ``{name}_group``.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`. ``unit``, ``known_labels`` and ``must_link`` are not
        supported.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> speed, field = dp.datasets.load_galaxies(), [0, 1] * 41
    >>> with pm.Model() as model:
    ...     alpha, gamma = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("gamma", 1.0, 1.0)
    ...     y = dp.HDPMixture("y", alpha, gamma, group=field, observed=speed)
    >>> [variable.name for variable in model.free_RVs]
    ['alpha', 'gamma', 'y_openers', 'y_labels']
    """
    prior = partial(add_hdp_labels, alpha=alpha, gamma=gamma)
    return _add_mixture(_Request(name, prior, base, arguments, group))


@takes_mixture_arguments
def MFMixture(  # noqa: N802
    name: str,
    gamma: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    components: Any = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    """Add a mixture with an unknown number of components: see :func:`DPMixture` and :class:`MFM`.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    gamma : scalar or variable, > 0
        Dirichlet parameter of every component.
    components : variable, optional
        Prior of the number of components, made with ``.dist``. By default ``pm.Geometric.dist(0.1)``.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     number = pm.Poisson.dist(3.0)
    ...     y = dp.MFMixture("y", 1.0, components=number, observed=dp.datasets.load_galaxies())
    >>> [variable.name for variable in model.basic_RVs]
    ['y_labels', 'y']
    """
    return _add_mixture(_Request(name, partial(MFM, gamma=gamma, components=components), base, arguments))


def LDA(  # noqa: N802
    name: str,
    n_topics: int,
    alpha: Any,
    eta: Any,
    *,
    observed: Any,
    group: Any = None,
    words: Any = None,
    dims: tuple[str, str] | None = None,
    initval: Any = None,
) -> Any:
    r"""Add a topic model, latent Dirichlet allocation (Blei, Ng and Jordan 2003), to the current model.

    Each document has weights of ``n_topics`` topics, drawn from a Dirichlet distribution with parameters
    ``alpha``. Each topic has probabilities of all words, drawn from one with parameters ``eta``. Both are
    integrated out (Griffiths and Steyvers 2004). The function adds the topic of every token, ``{name}_labels``,
    the words ``name``, and the Deterministic ``{name}_n_clusters``, the number of topics that have words.

    Unlike the labels of a mixture, the numbers of topics keep their meaning within a chain: topic 3 of one draw is
    topic 3 of the next. Two chains rarely give a topic the same number, so R-hat of quantities by topic is
    meaningless.

    Parameters
    ----------
    name : str
        Name of the words in the model.
    n_topics : int, >= 1
        Number of topics.
    alpha : scalar or (n_topics,) array_like or variable, > 0
        Dirichlet parameter of every topic, or of each. It is not divided by the number of topics.
    eta : scalar or (V,) array_like or variable, > 0
        Dirichlet parameter of every word, or of each, in the order of the columns of ``observed`` or of the sorted
        words.
    observed : (J, V) array_like, DataFrame or sparse matrix, or (n,) array_like
        Counts of each word in each document. Index and columns of a DataFrame name documents and words. Or all
        words one by one, as names or categories; ``group`` then has the document of each. Documents without words
        are allowed: the posterior of their weights is the prior. Categories that no document has are part of the
        vocabulary.
    group : (n,) array_like, optional
        The document of each word, if words are passed one by one.
    words : (V,) sequence, optional
        Names of the columns of a matrix without column names, such as ``vectorizer.get_feature_names_out()`` of a
        ``CountVectorizer`` of scikit-learn.
    dims : (str, str), optional
        Dimensions of documents and words. Their coordinates in the model name documents and words.
    initval : (n,) integer array_like, optional
        Starting topics, by default random ones.

    Returns
    -------
    TensorVariable
        The random variable ``name``: one code for each token, by documents if ``observed`` is a matrix.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range. The model is then left as it was.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> counts = [[2, 1, 0, 0], [3, 0, 1, 0], [0, 0, 2, 2]]
    >>> with pm.Model() as model:
    ...     words = dp.LDA("words", n_topics=2, alpha=0.5, eta=0.1, observed=counts)
    >>> [variable.name for variable in model.basic_RVs]
    ['words_labels', 'words']
    """
    model = pm.modelcontext(None)
    check_count("n_topics", n_topics, 1)
    with unchanged_on_error(model):
        documents, vocabulary = _names_of_words(model, dims, words)
        tokens = read_tokens(observed, group, words=vocabulary, documents=documents)
        dim = f"{name}_token"
        model.add_coord(dim, length=tokens.words.n_rows)
        arguments = MixtureArguments(
            observed=tokens.words,
            shape=None,
            dims=dim,
            offset=None,
            unit=None,
            known_labels=None,
            must_link=None,
            impute=False,
            power=None,
            initval=initval,
        )
        prior = partial(add_topic_labels, alpha=alpha, n_topics=int(n_topics))
        groups = NamedGroups(tokens.document, tokens.documents)
        base = DirichletCategorical(_one_for_each_word(eta, len(tokens.vocabulary)))
        return _add_mixture(_Request(name, prior, base, arguments, groups))


def _names_of_words(model: pm.Model, dims: Any, words: Any) -> tuple[Any, Any]:
    """Return the names of documents and words, from coordinates of the model or from the argument ``words``."""
    if dims is None:
        return None, words
    if isinstance(dims, str) or len(dims) != 2:
        raise ValueError(f"dims must name two dimensions, of documents and of words, got {dims!r}")
    absent = [dim for dim in dims if dim not in model.dim_lengths]
    if absent:
        raise ValueError(f"the model has no coords for the dimensions {listed(absent)} of dims")
    documents, named = (model.coords.get(dim) for dim in dims)
    return documents, named if words is None else words


def _one_for_each_word(eta: Any, n_words: int) -> Any:
    """Return the Dirichlet parameters of words as (V,)."""
    eta = without_dims(eta)
    shape = eta.type.shape if is_variable(eta) else np.shape(eta)
    if shape not in ((), (n_words,), (None,)):
        raise ValueError(
            f"eta must be a scalar or have one entry for each of {n_words} words, got shape {tuple(shape)}"
        )
    if is_variable(eta):
        return pt.broadcast_to(eta, (n_words,))
    return np.broadcast_to(np.asarray(eta), (n_words,))


class _Request(NamedTuple):
    """A user's call: name, prior of labels, base measure, and the arguments of all mixtures."""

    name: str
    prior: Callable[..., Any]
    base: Any
    arguments: MixtureArguments
    group: Any = None


class _View:
    """One view: its data, if observed, and its base measure.

    Parameters
    ----------
    name : str
    base : BaseMeasure, class of one, or None
    table : Table or None
        Its data.
    arguments : mapping
        ``offset``, ``unit``, ``impute`` and ``power``.
    rows : Rows
        Names of its rows. The data is put into their order.
    """

    def __init__(
        self, name: str, base: Any, table: Table | None, arguments: Mapping[str, Any], rows: Rows
    ) -> None:
        self.name, self.rows = name, rows
        self.impute, self.offset = arguments["impute"], arguments["offset"]
        self.power = 1.0 if arguments["power"] is None else arguments["power"]
        self.checked: Observed | None = None
        self.base, self._learns = base, False
        is_class = isinstance(base, type) and issubclass(base, BaseMeasure)
        if base is not None and not is_class:
            check_base(base)
        if table is None:
            if base is None or is_class:
                raise ValueError(
                    "without observed= the mixture is latent, and a latent mixture needs base= with numbers or "
                    "variables for its parameters, such as "
                    "dp.NormalInverseGamma(mu=0, kappa=0.1, a=2, b=1): there is no data to make one from"
                )
            self.unit = rows.entries("unit", arguments["unit"], _IN_UNITS)
            return
        table = rows.arrange(table)
        self.unit = rows.entries("unit", arguments["unit"], _IN_UNITS)
        warn_of_repeated(table, "unit", self.unit)
        is_made = is_class or base is None
        if is_class:
            base = self.base = base.from_data(table)
        if base is None:
            base = self.base = default_base(table)
        self.checked = check_observed(table, base)
        values = self.checked.values
        self._learns = is_made and values.ndim == 2 and is_learnt(type(base), values.shape[1])

    def learn(self, column_dim: str | None) -> None:
        """Put variables of the model in place of the scale of a base measure that was made from the data."""
        if self._learns:
            assert self.checked is not None
            self.base = learnt_base(self.name, self.base, self.checked.values, column_dim)

    def n_rows(self, shape: tuple[int, ...]) -> Any:
        """Return the number of rows: a variable if the data is pm.Data, whose length may change."""
        if self.checked is not None and isinstance(self.checked.data, SharedVariable):
            return self.checked.data.shape[0]
        return shape[0]


def _add_mixture(request: _Request) -> Any:
    """Add labels, the data given the labels, and the number of clusters."""
    model = pm.modelcontext(None)
    name, arguments = request.name, request.arguments
    with unchanged_on_error(model):
        observed = arguments["observed"]
        if any(map(is_chunked, observed.values() if isinstance(observed, Mapping) else [observed])):
            if isinstance(request.base, Mapping):
                raise NotImplementedError(
                    "several views of dask data are not supported: put the columns of one family into one array"
                )
            chunked = importlib.import_module("pymc_dpgmm.models.chunked_mixture")
            return chunked.add_chunked_mixture(
                name, request.prior, request.base, arguments | {"group": request.group}
            )
        if isinstance(request.base, Mapping):
            return _add_views(model, request)
        if arguments["power"] is not None:
            raise ValueError(
                "power is for some of several views: with one, the labels would follow no posterior of the rows"
            )
        shape, dims = arguments["shape"], arguments["dims"]
        table = None if observed is None else read_table(observed)
        dims = _own_dims(model, table, dims)
        if table is not None:
            check_columns_of_coords(model, table, dims)
        rows = Rows("observed", coords=coords_of(model, dims))
        view = _View(name, request.base, table, arguments, rows)
        if view.checked is None:
            shape = _shape_of_dims(model, dims) if shape is None else shape
            if shape is None:
                raise ValueError(
                    "a mixture without observed data needs shape=(n,) or shape=(n, d), or dims= whose lengths the "
                    "model knows"
                )
            shape = tuple(int(length) for length in np.atleast_1d(shape))
            if any(length < 1 for length in shape):
                raise ValueError(f"shape must have lengths of at least 1, got {shape}")
        else:
            if shape is not None and tuple(np.atleast_1d(shape)) != view.checked.values.shape:
                raise ValueError(f"shape is {shape}, but observed has shape {view.checked.values.shape}")
            shape = view.checked.values.shape
            dims = _named_dims(model, name, name, view.checked, dims)
        dims = (dims,) if isinstance(dims, str) else dims
        _check_dims(model, dims, shape)
        labels = _add_labels(model, request, [(view, shape)], dims and dims[:1])
        return _add_view(model, view, labels, shape, dims)


def _own_dims(model: pm.Model, table: Table | None, dims: Any) -> Any:
    """Return the dimensions of data: the user's, or else those of an xarray object if the model has them.

    Dimensions that the model does not have yet are added with the names of the rows and columns of the data.

    Raises
    ------
    ValueError
        If ``dims`` are the dimensions of an xarray object in another order.
    """
    if table is None:
        return dims
    requested = (dims,) if isinstance(dims, str) else tuple(dims or ())
    wanted = requested or table.dims or ()
    if table.dims is None or wanted == table.dims:
        for dim, names in zip(wanted, (table.rows, table.columns), strict=False):
            if names is not None and dim not in model.dim_lengths and dim not in model.named_vars:
                model.add_coord(dim, coordinates(names))
    if not requested:
        return wanted if wanted and all(dim in model.dim_lengths for dim in wanted) else None
    if table.dims is not None and set(wanted) == set(table.dims) and wanted != table.dims:
        raise ValueError(
            f"observed has the dimensions {table.dims}, and dims are {wanted}: transpose it, as by "
            f"observed.transpose{wanted}"
        )
    return dims


def _add_views(model: pm.Model, request: _Request) -> dict[str, Any]:
    name, arguments = request.name, request.arguments
    dims, impute = arguments["dims"], arguments["impute"]
    if arguments["shape"] is not None:
        raise ValueError("a mixture of several views takes its shape from observed")
    if dims is not None and not isinstance(dims, str):
        raise ValueError(f"dims of a mixture of several views name its rows only: one string, got {dims}")
    split = _split_views(request.base, arguments["observed"])
    offsets = _by_view("offset", arguments["offset"], split)
    powers = _by_view("power", arguments["power"], split)
    unit = arguments["unit"]
    units = _by_view("unit", unit if isinstance(unit, Mapping) else dict.fromkeys(split, unit), split)
    coords = coords_of(model, dims)
    # Views without units have one label per row, so that their rows must be in the same order.
    of_labels, views = Rows("observed", coords=coords), {}
    for key, (base, table) in split.items():
        with _naming(key):
            of_view = {"offset": offsets.get(key), "unit": units.get(key), "impute": impute}
            of_view["power"] = powers.get(key, 1.0)
            rows = of_labels if of_view["unit"] is None else Rows("observed", coords=coords)
            views[key] = _View(f"{name}_{key}", base, table, of_view, rows)
    if not views:
        raise ValueError("base has no views")
    if impute:
        # The other views integrate missing entries out.
        for view in views.values():
            view.impute = view.base.family.draws_missing
        if not any(view.impute for view in views.values()):
            raise ValueError(
                "impute=True needs a view of Gaussian data: missing entries of others cannot be drawn"
            )
    shapes = {key: view.checked.values.shape for key, view in views.items() if view.checked is not None}
    # If some view has units, the views have different rows, and each has its own dimension.
    in_common = name if all(view.unit is None for view in views.values()) else None
    named = {key: _view_dims(model, in_common or view.name, view, dims) for key, view in views.items()}
    for key in views:
        _check_dims(model, named[key], shapes[key])
    row_dims = (dims,) if dims else next((d[:1] for d in named.values() if d), None)
    labels = _add_labels(model, request, [(view, shapes[key]) for key, view in views.items()], row_dims)
    mixtures = {}
    for key, view in views.items():
        with _naming(key):
            mixtures[key] = _add_view(model, view, labels, shapes[key], named[key])
    return mixtures


def _by_view(what: str, argument: Any, views: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an argument that is a dict of views, empty if it is None."""
    if argument is None:
        return {}
    if not isinstance(argument, Mapping):
        raise TypeError(f"{what} of several views must be a dict of views, got {type(argument).__name__}")
    unknown = [view for view in argument if view not in views]
    if unknown:
        raise ValueError(f"{what} names the views {unknown}, but there are {list(views)}")
    return argument


def _add_labels(
    model: pm.Model, request: _Request, views: Sequence[tuple[_View, tuple[int, ...]]], row_dims: Any
) -> Any:
    """Add the labels of rows, or of units, and the number of their clusters."""
    counts: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    names = None
    for view, shape in views:
        if view.unit is None:
            counts[view.name], numbers[view.name] = view.n_rows(shape), shape[0]
            continue
        view.unit, numbers[view.name], units = _numbered_units(view.unit, shape[0])
        names = units if names is None else names
        if units is not None and not np.array_equal(names, units):
            raise ValueError("the units of all views must have the same names")
        counts[view.name] = (view.unit.max() + 1) if is_variable(view.unit) else numbers[view.name]
    if len(set(numbers.values())) > 1:
        of_what = "rows" if all(view.unit is None for view, _ in views) else "rows or units"
        listed = ", ".join(f"{view} with {n}" for view, n in numbers.items())
        raise ValueError(f"all views must have the same number of {of_what}, got {listed}")
    if any(view.unit is not None for view, _ in views):
        row_dims = None
        if names is not None:
            row_dims = (f"{request.name}_unit",)
            model.add_coord(row_dims[0], coordinates(names))
    rows = Rows("the units", None if names is None else pd.Index(names))
    for view, _ in views:
        if view.unit is None and names is None:
            rows = view.rows
        elif view.unit is None and view.checked is not None:
            view.checked = view.checked.in_row_order(rows.order(f"observed of {view.name}", view.rows.names))
            view.rows = rows
    entries = {key: rows.entries(key, request.arguments[key]) for key in ("known_labels", "must_link")}
    entries["initval"] = start_of_rows(rows, request.arguments["initval"])
    name = f"{request.name}_labels"
    if request.group is None:
        labels = request.prior(name, n=next(iter(counts.values())), dims=row_dims, **entries)
    else:
        if any(view.unit is not None for view, _ in views):
            # A unit with rows in several groups has no single vector of weights.
            raise NotImplementedError("unit is not supported together with group")
        group = request.group
        if not isinstance(group, NamedGroups):
            group = rows.entries("group", group, _IN_GROUPS)
            for view, _ in views:
                warn_of_repeated(None if view.checked is None else view.checked.table, "group", group)
            group = numbered_groups(group, next(iter(numbers.values())))
        labels = request.prior(name, groups=group, dims=row_dims, **entries)
    note_rows(labels, rows)
    if request.group is not None:
        note_lengths(labels, {"group": group.codes})
    if len(views) > 1:
        of_rows = [(view.name, view.checked) for view, _ in views if view.unit is None]
        note_lengths(
            labels,
            {f"observed of {view}": checked.in_model for view, checked in of_rows if checked is not None},
        )
    pm.Deterministic(f"{request.name}_n_clusters", partition_sizes(labels).shape[0])
    return labels


# Reasons, for messages, why no entry of unit or group may be missing.
_IN_UNITS, _IN_GROUPS = "every row belongs to a unit", "every row belongs to a group"


def _are_numbered(values: np.ndarray) -> bool:
    """Tell whether integers are the numbers 0, 1, ... of units, possibly with invalid ones < 0, and not names."""
    used = np.unique(values)
    return bool(used[0] < 0 or (used[0] == 0 and used[-1] < len(used)))


def _numbered_units(unit: Any, n_rows: int) -> tuple[Any, int, Any]:
    """Return the number of each row's unit, the number of units, and their names; no names for pm.Data."""
    if is_variable(unit):
        if not isinstance(unit, SharedVariable):
            raise TypeError("unit must be numbers, names or pm.Data, got an expression of variables")
        return unit, check_units(unit.get_value(borrow=True), n_rows), None
    values = np.asarray(unit)
    if values.dtype.kind in "iu" and _are_numbered(values):
        n_units = check_units(values, n_rows)
        return values, n_units, np.arange(n_units)
    if values.dtype.kind not in "OUSiuMmb":
        raise TypeError(
            f"unit must be integers or names, got dtype {values.dtype}: make them integers with .astype(int), or "
            "text with .astype(str)"
        )
    if values.shape != (n_rows,):
        raise ValueError(f"unit must have one entry per row, shape ({n_rows},), got {values.shape}")
    codes, names = factorized("unit", values)
    if np.any(codes < 0):
        raise ValueError(f"unit has {np.sum(codes < 0)} missing values")
    return codes, check_units(codes, n_rows), names


def _split_views(bases: Mapping[str, Any], observed: Any) -> dict[str, tuple[Any, Any]]:
    """Return base measure and data of each view."""
    if isinstance(observed, Mapping):
        if set(observed) != set(bases):
            raise ValueError(
                f"base and observed must have the same views, got {sorted(bases)} and {sorted(observed)}"
            )
        views = {view: (base, read_table(observed[view])) for view, base in bases.items()}
    else:
        table = None if observed is None else read_table(observed)
        if table is None or table.columns is None or table.is_vector:
            raise TypeError(
                "with a dict of base measures, observed must be a DataFrame or a dict of the same views"
            )
        views = {}
        for view, entry in bases.items():
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise TypeError(f"with a DataFrame, base[{view!r}] must be (columns, base), got {entry!r}")
            columns, base = entry
            with _naming(view):
                views[view] = (base, table.of_columns(columns))
    taken = [view for view in views if view in ("labels", "n_clusters")]
    if taken:
        raise ValueError(f"a view cannot be named {taken[0]!r}, which the model needs for itself")
    return views


@contextlib.contextmanager
def _naming(view: str) -> Iterator[None]:
    """Prefix errors with the name of the view."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"view {view!r}: {error}") from None


def _view_dims(model: pm.Model, named_after: str, view: _View, rows: str | None) -> Any:
    """Return the dims of one view, of its rows and columns."""
    assert view.checked is not None
    named = _named_dims(model, named_after, view.name, view.checked, None)
    if rows is None or view.checked.values.ndim == 1:
        return (rows,) if rows else named
    # PyMC cannot name only some of the dims.
    return (rows, *named[1:]) if named else None


def _add_view(model: pm.Model, view: _View, labels: Any, shape: tuple[int, ...], dims: Any) -> Any:
    named = None
    view.learn(dims[1] if dims and len(dims) > 1 else None)
    if view.checked is not None and is_sparse(view.checked.values):
        # The value is a table of the non-zeros, with other dimensions than the rows and columns.
        named, dims = dims, None
    if view.unit is not None:
        labels = labels[view.unit]
        note_rows(labels, view.rows)
    mixture = CollapsedMixture(
        view.name,
        labels,
        view.base,
        observed=view.checked,
        shape=shape,
        dims=dims,
        offset=view.offset,
        impute=view.impute,
        power=view.power,
    )
    if named is not None and named[1] in model.coords:
        names = np.asarray(model.coords[named[1]]).tolist()
        amend_record(model, view.name, {"column_dim": named[1], "columns_named": [str(name) for name in names]})
    return mixture


def _named_dims(model: pm.Model, rows: str, columns: str, checked: Observed, dims: Any) -> Any:
    """Return the dims of the data. Without ``dims``, add coords with the names of its rows and columns."""
    if dims is not None:
        return dims
    if isinstance(checked.data, SharedVariable):
        return model.named_vars_to_dims.get(checked.data.name)
    table = checked.table
    if table.is_vector:
        if table.rows is None:
            return None
        names: list[tuple[str, Any]] = [(f"{rows}_obs", table.rows)]
    else:
        if table.rows is None and table.columns is None:
            return None
        of_rows = range(table.n_rows) if table.rows is None else table.rows
        of_columns = range(table.values.shape[1]) if table.columns is None else table.columns
        names = [(f"{rows}_obs", of_rows), (f"{columns}_feature", of_columns)]
    for dim, values in names:
        model.add_coord(dim, coordinates(values))
    return tuple(dim for dim, _ in names)


def _shape_of_dims(model: pm.Model, dims: Any) -> tuple[int, ...] | None:
    """Return the lengths of dimensions, None unless the model has all of them."""
    names = (dims,) if isinstance(dims, str) else dims or ()
    if not names or any(name not in model.dim_lengths for name in names):
        return None
    return tuple(int(model.dim_lengths[name].eval()) for name in names)


def _check_dims(model: pm.Model, dims: Any, shape: tuple[int, ...]) -> None:
    if dims is None:
        return
    if len(dims) != len(shape):
        raise ValueError(f"dims must name {len(shape)} dimensions for shape {shape}, got {dims}")
    for dim, length in zip(dims, shape, strict=True):
        coord = model.coords.get(dim)
        if coord is not None and len(coord) != length:
            raise ValueError(f"dimension {dim!r} has {len(coord)} coords, but the data has {length} along it")
