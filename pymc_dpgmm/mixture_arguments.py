"""The arguments that all mixtures have, stated once: their names, types, defaults and description."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypedDict, get_type_hints

# What the functions' docstrings have in place of the description of the shared arguments.
_PLACE = "base, **arguments\n    As for all mixtures: see :class:`MixtureArguments`."


class MixtureArguments(TypedDict, total=False):
    """Keyword arguments of all mixtures. What is not given is None, and flags are False.

    Parameters
    ----------
    base : BaseMeasure, class of one, or dict, optional
        Prior of every cluster's parameters; of a class, its ``from_data``. By default
        ``NormalInverseWishart.from_data(observed)`` for (n, d) data and ``NormalInverseGamma.from_data(observed)``
        for (n,) data; a latent mixture needs one.

        For rows with columns of several types, a dict of views: with a DataFrame, ``{view: (columns, base)}``,
        where ``columns`` is a column or a list of them; otherwise ``{view: base}``, with ``observed`` a dict of
        the same views. The views are independent given the labels.
    observed : (n, d) or (n,) array_like, pandas DataFrame or Series, or pm.Data, or dict of these, optional
        Numbers; NaN or masked where an entry is missing at random, for families that take that. The index and
        columns of a pandas object become coords of the dims ``{name}_obs`` and ``{name}_feature``, unless ``dims``
        are given.
    shape : tuple of int, optional
        (n, d) or (n,), for a latent mixture. By default the lengths of ``dims``.
    dims : str or tuple of str, optional
        Names of the dimensions of the data; the labels take the first. With views, the name of the first.
    offset : scalar, (n,) or (n, d) array_like or variable, optional
        What is subtracted from the rows before they are clustered, such as ``X @ coefficients``: see
        :class:`CollapsedMixture`. With views, a dict of these for some of the views.
    unit : (n,) array_like or pm.Data, optional
        Which unit (subject, site, ...) each row belongs to, if all rows of a unit are in one cluster: numbers
        0, 1, ... without gaps, or names. The labels are then those of the units, with the dimension
        ``{name}_unit``. With views, for all of them, or a dict for those with several rows per unit.
    known_labels, must_link : (n,) array_like, optional
        What is known of the partition, see :class:`CRP`. With units, one entry per unit, in the order of their
        numbers or of their sorted names.
    impute : bool
        Whether missing entries of Gaussian data are drawn, as the variable ``{name}_missing``, also where they
        integrate out: see :class:`CollapsedMixture`. With views, of those that can.
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

    observed: Any
    shape: tuple[int, ...] | None
    dims: Any
    offset: Any
    unit: Any
    known_labels: Any
    must_link: Any
    impute: bool
    initval: Any


def takes_mixture_arguments[F: Callable[..., Any]](function: F) -> F:
    """Give the decorated function, which takes ``**arguments``, the signature and description of all mixtures.

    It receives all of :class:`MixtureArguments`, also those that the user has left out.
    """
    own = inspect.signature(function)
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if kind is bool else None, annotation=kind
        )
        for name, kind in get_type_hints(MixtureArguments).items()
    ]
    defaults = {parameter.name: parameter.default for parameter in shared}
    named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    signature = own.replace(parameters=[*named, *shared])

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
