"""The arguments that all mixtures share: names, types, defaults and description, stated once."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_type_hints

# Placeholder in the docstrings of mixtures, which is replaced by the description of the shared arguments.
_PLACE = "base, **arguments\n    As for all mixtures: see :class:`MixtureArguments`."


class MixtureArguments(TypedDict, total=False):
    """Keyword arguments of all mixtures. They default to None, and flags to False.

    Parameters
    ----------
    base : BaseMeasure, class of one, or dict, optional
        Prior of the parameters of every cluster. By default it is ``NormalInverseWishart`` for (n, d) real numbers
        of up to 50 columns, ``NormalInverseGamma`` for more columns and for (n,) data, ``BetaBernoulli`` for
        bools, and ``DirichletCategorical`` for categories and text. A table whose columns have names may be of
        several kinds: each kind becomes a view, see :func:`default_views`. A latent mixture has no default. A
        class stands for its ``from_data(observed)``.

        Without a base measure, or with the class of a normal one, the scale of real numbers is learnt: kappa,
        degrees of freedom and the typical share of each column's variance within clusters are the variables
        ``{name}_kappa``, ``{name}_degrees`` and ``{name}_within`` of the model, drawn with the labels. Columns
        that are constant, or combinations of others, are left out with a warning. See :doc:`/model`.
        ``NormalInverseWishart.from_data(observed)`` has numbers for the scale, and all columns.

        For rows with columns of several types, pass a dict of views. If ``observed`` is a DataFrame, the dict is
        ``{view: (columns, base)}``, where ``columns`` is a column or a list of columns. Otherwise it is
        ``{view: base}``, and ``observed`` is a dict of the same views. The views are independent given the labels.
    observed : (n, d) or (n,) array_like, table, pm.Data or dask array, or dict of these, optional
        The data: numbers, bools, categories or text, of pandas, polars, pyarrow, xarray or NumPy; see
        :doc:`/howto/tables`. NaN and masked entries are missing at random, in families that allow missing entries.
        The index and columns of a pandas object become coordinates of the dimensions ``{name}_obs`` and
        ``{name}_feature``, unless ``dims`` is given.
    shape : tuple of int, optional
        Shape (n, d) or (n,) of a latent mixture. By default the lengths of ``dims``.
    dims : str or tuple of str, optional
        Names of the dimensions of the data, the first of which is also that of the labels. With views, the name of
        the first dimension only.
    offset : scalar, (n,) or (n, d) array_like or variable, optional
        Subtracted from the rows before they are clustered, for example ``X @ coefficients``; see
        :class:`CollapsedMixture`. With views, a dict of offsets for some of the views.
    unit : (n,) array_like or pm.Data, optional
        The unit (subject, site, ...) of each row; all rows of a unit are in one cluster. Entries are names, which
        may be integers or dates; those of ``pm.Data`` must be the numbers 0, 1, ... without gaps. Each unit then
        has one label, and the labels have the dimension ``{name}_unit``. With views, one vector for all of them,
        or a dict for the views that have several rows per unit.
    known_labels, must_link : (n,) array_like, optional
        Constraints on the partition, see :class:`CRP`. With units, one entry per unit, in the order of the numbers
        or of the sorted names of the units.
    impute : bool
        Whether to draw missing entries of Gaussian data, as the variable ``{name}_missing``, even if they could be
        integrated out; see :class:`CollapsedMixture`. With views, this applies to the Gaussian ones.
    power : dict of float, optional
        For some of the views, what their log densities are multiplied by, see :class:`CollapsedMixture`.
    initval : (n,) integer array_like, optional
        Starting labels, see :class:`CRP`.

    Returns
    -------
    TensorVariable or dict
        The random variable ``name``, or for a dask array the potential of this name. With views, a dict of the
        random variables ``{name}_{view}``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range. The model is then left as it was.
    NotImplementedError
        If arguments are not supported together, such as groups and units.
    """

    observed: Any
    shape: tuple[int, ...] | None
    dims: Any
    offset: Any
    unit: Any
    known_labels: Any
    must_link: Any
    impute: bool
    power: Mapping[str, float] | None
    initval: Any


def takes_mixture_arguments[F: Callable[..., Any]](function: F) -> F:
    """Give a function that takes ``**arguments`` the signature and the description of all mixtures.

    The function receives all of :class:`MixtureArguments`, with their defaults where the user gives none.
    """
    declared = inspect.signature(function)
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if kind is bool else None, annotation=kind
        )
        for name, kind in get_type_hints(MixtureArguments).items()
    ]
    defaults = {parameter.name: parameter.default for parameter in shared}
    named = [p for p in declared.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    signature = declared.replace(parameters=[*named, *shared])

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in signature.parameters:
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
        return function(*args, **(defaults | kwargs))

    checked.__signature__ = signature  # type: ignore[attr-defined]
    if function.__doc__ is not None and MixtureArguments.__doc__ is not None:
        _, _, described = inspect.cleandoc(MixtureArguments.__doc__).partition("----------\n")
        checked.__doc__ = inspect.cleandoc(function.__doc__).replace(_PLACE, described)
    return checked  # type: ignore[return-value]
