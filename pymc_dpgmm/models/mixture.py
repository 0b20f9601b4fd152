"""Mixtures, each as one line of a PyMC model."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dpgmm.families import BaseMeasure, DirichletCategorical
from pymc_dpgmm.integration.variables import CRP, MFM, FiniteDirichlet, PitmanYor
from pymc_dpgmm.integration.variables.grouped_labels import (
    NamedGroups,
    add_finite_labels,
    add_hdp_labels,
    add_topic_labels,
)
from pymc_dpgmm.integration.variables.models import unchanged_on_error
from pymc_dpgmm.models.added_mixture import Request, add_mixture
from pymc_dpgmm.models.arguments import MixtureArguments, takes_mixture_arguments
from pymc_dpgmm.partitions.grouped import LARGEST, LEAST_OF_DOCUMENT, LEAST_OF_WORD, can_be_scanned
from pymc_dpgmm.tables.checks import check_count, is_variable, listed, without_dims
from pymc_dpgmm.tables.reading import names_of_axes
from pymc_dpgmm.tables.rows import order_of_columns
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
    return add_mixture(Request(name, partial(CRP, alpha=alpha), base, arguments))


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
    ['alpha', 'discount', 'y_labels', 'y_kappa', 'y_degrees', 'y_within']
    """
    return add_mixture(Request(name, partial(PitmanYor, alpha=alpha, discount=discount), base, arguments))


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
    ['y_labels', 'y_kappa', 'y_degrees', 'y_within', 'y']
    """
    kind = FiniteDirichlet if group is None else add_finite_labels
    prior = partial(kind, alpha=alpha, n_components=n_components)
    return add_mixture(Request(name, prior, base, arguments, group))


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
    ['alpha', 'gamma', 'y_openers', 'y_labels', 'y_kappa', 'y_degrees', 'y_within']
    """
    prior = partial(add_hdp_labels, alpha=alpha, gamma=gamma)
    return add_mixture(Request(name, prior, base, arguments, group))


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
    ['y_labels', 'y_kappa', 'y_degrees', 'y_within', 'y']
    """
    return add_mixture(Request(name, partial(MFM, gamma=gamma, components=components), base, arguments))


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
    topic 3 of the next. Two chains rarely give a topic the same number, unless one has begun anew at the topics of
    the other in tuning, so R-hat of quantities by topic is meaningless.

    Parameters
    ----------
    name : str
        Name of the words in the model.
    n_topics : int, >= 1
        Number of topics.
    alpha : scalar or (n_topics,) array_like or variable, > 0
        Dirichlet parameter of every topic, or of each. It is not divided by the number of topics.
    eta : scalar or (V,) array_like or variable, > 0
        Dirichlet parameter of every word, or of each, in the order of the columns of ``observed``, of the
        categories, or of the sorted words. A Series is matched with the words by its index.
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
        Starting topics, by default random ones. Tuning begins with a search that forgets them, unless
        ``pm.sample`` is told ``dpmixture={"split_merge": {"search": False}}``: see :doc:`/groups`.

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
        of_words = _one_for_each_word(eta, tokens.vocabulary)
        _check_topics(alpha, n_topics, of_words)
        base = DirichletCategorical(of_words)
        return add_mixture(Request(name, prior, base, arguments, groups))


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


def _check_topics(alpha: Any, n_topics: int, eta: Any) -> None:
    """Raise ValueError for parameters with which topics cannot be drawn.

    What is no number, or not positive, is refused where the prior and the base measure are made.
    """
    try:
        by_topic = np.asarray(1.0 if is_variable(alpha) else alpha, dtype=np.float64)
        of_words = np.asarray(1.0 if is_variable(eta) else eta, dtype=np.float64)
        of_documents = np.broadcast_to(by_topic, n_topics).sum()
    except (TypeError, ValueError):
        return
    if of_documents > 0.0 and not LEAST_OF_DOCUMENT <= of_documents <= LARGEST:
        raise ValueError(
            f"the sum of alpha over topics must be within {LEAST_OF_DOCUMENT:g} and {LARGEST:g}, got "
            f"{of_documents:g}"
        )
    if np.all(of_words > 0.0) and not can_be_scanned(1.0, of_words):
        raise ValueError(
            f"eta must be within {LEAST_OF_WORD:g} and {LARGEST:g}, got {of_words.min():g} to {of_words.max():g}"
        )


def _one_for_each_word(eta: Any, words: Sequence[Any]) -> Any:
    """Return the Dirichlet parameters of words as (V,), in their order."""
    n_words, (own, *_) = len(words), (*names_of_axes(eta), None)
    eta = without_dims(eta)
    shape = eta.type.shape if is_variable(eta) else np.shape(eta)
    if shape not in ((), (n_words,), (None,)):
        raise ValueError(
            f"eta must be a scalar or have one entry for each of {n_words} words, got shape {tuple(shape)}"
        )
    if is_variable(eta):
        return pt.broadcast_to(eta, (n_words,))
    at = order_of_columns("eta", own, list(words), "the words")
    return np.broadcast_to(np.asarray(eta), (n_words,)) if at is None else np.asarray(eta)[at]
