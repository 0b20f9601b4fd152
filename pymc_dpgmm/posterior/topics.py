"""Weights of clusters in groups, words of topics, and held-out documents."""

from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from scipy import sparse

from pymc_dpgmm.posterior.arrays.topics import group_weights_of, held_out, sums_by, topic_words_of
from pymc_dpgmm.posterior.draws import Reference, checked_level, checked_partition
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import check_count, listed
from pymc_dpgmm.tables.names import as_text, coordinates
from pymc_dpgmm.tables.table import Table
from pymc_dpgmm.tables.tokens import read_documents, read_tokens


def group_weights(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    probability: float | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return the weights of clusters, or topics, in every group.

    The clusters of each draw are matched one to one to those of a reference, so that matching clusters have as
    many common rows as possible. ``overlap`` measures the match: it is the share of a reference cluster's rows
    that are in the matching cluster, averaged over the draws. Where it is low, draws do not agree.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture of rows in groups, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`. By default the draw with the largest log
        joint density.
    probability : float, in (0, 1), optional
        Probability of the intervals, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of weights behind the intervals.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``weight``, its standard deviation ``sd``, and ``lower`` and ``upper``, (group, cluster); ``other``
        (group,), the mean weight of all clusters that match none; ``overlap`` and ``size`` (cluster,), of the
        reference.

    Raises
    ------
    TypeError, ValueError
        If rows have no groups, ``probability`` is outside its range, or a variable that is needed was not stored.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    ...     rows, site = [-2.1, -1.9, -2.0, 3.9, 4.1, -2.2], ["a", "a", "a", "b", "b", "b"]
    ...     y = dp.HDPMixture("y", 1.0, 1.0, base, group=site, observed=rows)
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> weights = dp.group_weights(idata, "y", [0, 0, 0, 1, 1, 0])
    >>> bool(weights["weight"].sel(y_group="a", cluster=0) > weights["weight"].sel(y_group="b", cluster=0))
    True
    """
    draws = _grouped(read_labelled(idata, name, model))
    clusters = _reference(draws, reference)
    probability = checked_level(probability)
    found = group_weights_of(draws.numbers, clusters.labels, probability, np.random.default_rng(random_seed))
    assert draws.groups is not None
    group, dim = f"{draws.name}_group", draws.cluster_dim()
    of_both, dims = (group, dim), {"other": (group,), "overlap": (dim,), "size": (dim,)}
    return xr.Dataset(
        {key: (dims.get(key, of_both), values) for key, values in found.items()},
        coords={group: coordinates(draws.groups.names), dim: clusters.names},
    )


def topics(
    idata: Any,
    name: str,
    *,
    n_words: int = 10,
    relevance: float = 1.0,
    reference: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    r"""Return the words of topics, or of clusters of documents, with their uncertainty.

    The topics of each draw are matched to those of a reference, see :func:`group_weights`. Words are ranked by

    .. math:: \lambda \log \phi_{kw} + (1 - \lambda) \log (\phi_{kw} / p_w),

    the relevance of Sievert and Shirley (2014), where :math:`\phi_{kw}` is the probability of a word in a topic,
    :math:`p_w` its share of all tokens, and :math:`\lambda` the argument ``relevance``.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the words: of an :func:`LDA`, of a :func:`HDPMixture` of one column of categories, or of a mixture
        of documents with the base measure :class:`DirichletMultinomial`, whose clusters are the topics.
    n_words : int, >= 1
        Number of words to list for each topic.
    relevance : float, in [0, 1]
        With 1, words are ranked by their probability in the topic. Smaller values favour words that are rare in
        other topics. Sievert and Shirley recommend 0.6.
    reference : (n,) array_like, optional
        Topics of all tokens, or clusters of all documents, by default those of the draw with the largest log joint
        density.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``probability`` and ``sd`` (topic, word): posterior mean and standard deviation of the probability of every
        word in every topic. ``top_word``, ``top_probability`` and ``top_sd`` (topic, rank). ``share`` (topic,), of
        all tokens or documents, and ``overlap`` (topic,). Topics have the names of the reference, in order of
        their share.

    Raises
    ------
    TypeError, ValueError
        If the data are not words, or an argument is out of range.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> import pandas as pd
    >>> counts = pd.DataFrame({"cat": [4, 5, 0], "dog": [5, 4, 1], "tax": [0, 0, 6], "law": [0, 1, 5]})
    >>> with pm.Model():
    ...     words = dp.LDA("words", n_topics=2, alpha=0.1, eta=0.1, observed=counts)
    ...     idata = pm.sample(200, tune=200, chains=1, random_seed=1, progressbar=False)
    >>> found = dp.topics(idata, "words", n_words=2)
    >>> sorted(found["top_word"].isel(topic=0).to_numpy().tolist())
    ['cat', 'dog']
    """
    check_count("n_words", n_words, 1)
    if not 0.0 <= relevance <= 1.0:
        raise ValueError(f"relevance must lie in [0, 1], got {relevance}")
    draws = read_labelled(idata, name, model)
    view = draws.sole()
    if view.family.name == "DirichletMultinomial":
        vocabulary = np.asarray([str(word) for word in view.column_names], dtype=object)
        words = sparse.csr_array(view.data(0))
        if view.unit is not None:
            words = sums_by(view.unit, view.n_labels, words)
    else:
        view, vocabulary = _words_of(_grouped(draws))
        codes = np.asarray(view.data(0))[:, 0].astype(np.int64)
        ones, tokens = np.ones(len(codes)), np.arange(len(codes))
        words = sparse.csr_array((ones, (tokens, codes)), (len(codes), len(vocabulary)))
    clusters = _reference(draws, reference)
    mean, sd, share, overlap = topic_words_of(draws.numbers, words, clusters.labels)
    n_all = words.sum()
    with np.errstate(divide="ignore"):
        log_p, log_share = np.log(mean), np.log(np.maximum(words.sum(axis=0), 0.5) / n_all)
    rank = np.argsort(-(log_p - (1.0 - relevance) * log_share), axis=1, kind="stable")[:, :n_words]
    order = np.argsort(-share, kind="stable")
    top = rank[order]
    by_topic = order[:, None]
    return xr.Dataset(
        {
            "probability": (("topic", "word"), mean[order]),
            "sd": (("topic", "word"), sd[order]),
            "top_word": (("topic", "rank"), vocabulary[top]),
            "top_probability": (("topic", "rank"), mean[by_topic, top]),
            "top_sd": (("topic", "rank"), sd[by_topic, top]),
            "share": ("topic", share[order]),
            "overlap": ("topic", overlap[order]),
        },
        coords={"topic": clusters.names[order], "word": vocabulary},
        attrs={"rows": "words" if draws.is_words() else "documents"},
    )


def held_out_log_likelihood(
    idata: Any,
    name: str,
    observed: Any,
    group: Any = None,
    *,
    n_draws: int = 20,
    n_particles: int = 20,
    reference: Any = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return the log probability of held-out documents, and the weights of topics in them.

    The probability of a document is averaged over draws of the topics of all words, and of the shares of topics.
    Given these, with the word probabilities of topics integrated out, it is estimated by the left-to-right
    algorithm (Wallach, Murray, Salakhutdinov and Mimno 2009). The estimates are unbiased before the log is
    taken; no point estimates are plugged in.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the words.
    observed : (J, V) array_like, DataFrame or sparse matrix of counts, or (m,) array_like of words
        New documents. A DataFrame may have the words in another order, and words are looked up by their names.
    group : (m,) array_like, optional
        The document of each word, if ``observed`` has single words.
    n_draws : int, >= 1
        Number of draws to average over, evenly spaced over all chains.
    n_particles : int, >= 1
        Number of estimates for each document in each draw.
    reference : (n,) array_like, optional
        Topics of all tokens of the data, to which those of the draws are matched; see :func:`topics`.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    Dataset
        ``log_likelihood`` (document,), the log of the mean over draws; ``n_words`` (document,); ``weight``
        (document, topic), the posterior mean of the weights of topics, by their names in the reference;
        ``other_weight`` (document,), the total weight of topics that match none of these; and the attribute
        ``perplexity``, the exponential of minus the mean log likelihood of a word.

    Raises
    ------
    TypeError, ValueError
        If the data is not words in groups, or new documents have other words.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> counts = pd.DataFrame({"cat": [4, 5, 0], "dog": [5, 4, 1], "tax": [0, 0, 6], "law": [0, 1, 5]})
    >>> with pm.Model():
    ...     words = dp.LDA("words", n_topics=2, alpha=0.1, eta=0.1, observed=counts)
    ...     idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> new = ["cat", "dog", "cat", "dog", "cat", "law"]
    >>> document = ["likely", "likely", "likely", "unlikely", "unlikely", "unlikely"]
    >>> found = dp.held_out_log_likelihood(idata, "words", new, document, random_seed=1)["log_likelihood"]
    >>> bool(found.sel(document="likely") > found.sel(document="unlikely"))
    True
    """
    check_count("n_draws", n_draws, 1)
    check_count("n_particles", n_particles, 1)
    draws = _grouped(read_labelled(idata, name, model))
    _, vocabulary = _words_of(draws)
    table = read_documents(observed, group)
    tokens = read_tokens(table, group, words=_names_for(table, vocabulary))
    new_words = np.array([as_text(word) for word in tokens.vocabulary], dtype=object)
    codes = pd.Index(vocabulary).get_indexer(new_words)[tokens.codes]
    if np.any(codes < 0):
        unknown = sorted(set(new_words[tokens.codes[codes < 0]]))
        raise ValueError(
            f"new documents must have only words of the data, got also {listed(unknown)}: leave these out"
        )
    order = np.argsort(tokens.document, kind="stable")
    lengths = np.bincount(tokens.document, minlength=len(tokens.documents))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    some = draws.numbers.at_most(n_draws)
    words = np.ascontiguousarray(codes[order], dtype=np.int64)
    rng = np.random.default_rng(random_seed)
    clusters = _reference(draws, reference)
    estimates = held_out(some, words, starts, int(n_particles), rng, clusters.labels)
    log_p = np.logaddexp.reduce(estimates.log_probability, axis=0) - np.log(some.n_draws)
    return xr.Dataset(
        {
            "log_likelihood": ("document", log_p),
            "n_words": ("document", lengths),
            "weight": (("document", "topic"), estimates.weights),
            "other_weight": ("document", np.maximum(1.0 - estimates.weights.sum(axis=1), 0.0)),
        },
        coords={"document": coordinates(tokens.documents), "topic": clusters.names},
        attrs={"perplexity": float(np.exp(-log_p.sum() / max(len(words), 1)))},
    )


def _names_for(table: Table, vocabulary: np.ndarray) -> np.ndarray | None:
    """Return the vocabulary as names for columns of counts, or None if these have names."""
    if table.is_vector or table.columns is not None:
        return None
    if table.values.shape[1] != len(vocabulary):
        raise ValueError(
            f"new documents must have {len(vocabulary)} columns, as the data, got {table.values.shape[1]}"
        )
    return vocabulary


def _grouped(draws: MixtureDraws) -> MixtureDraws:
    """Return the draws, or raise ValueError if rows have no groups."""
    if draws.groups is None:
        raise ValueError(
            f"the rows of {draws.labels_name} have no groups: this needs a mixture with group=, or dp.LDA"
        )
    return draws


def _words_of(draws: MixtureDraws) -> tuple[NamedView, np.ndarray]:
    """Return the view of words, and their names."""
    view = draws.sole()
    if view.family.name != "DirichletCategorical" or view.d != 1:
        raise ValueError(
            f"{view.name} is not words: topics need one column of categories (DirichletCategorical) in groups, or "
            "counts of words (DirichletMultinomial)"
        )
    length = np.asarray(view.params(0).a).shape[1]
    names = view.category_names(length)
    return view, np.asarray([str(code) for code in range(length)] if names is None else names, dtype=object)


def _reference(draws: MixtureDraws, reference: Any) -> Reference:
    """Return the reference labels that clusters are matched to, 0, 1, ..., and their names.

    By default they are those of the draw with the largest log joint density.
    """
    return draws.best_labels() if reference is None else checked_partition("reference", reference, draws.drawn)
