"""Words of documents, as tokens: read from a matrix of counts, or from the words themselves."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dpgmm.checks import listed, refuse_dims
from pymc_dpgmm.families.base_measure import is_variable
from pymc_dpgmm.families.counts import is_sparse


class Tokens(NamedTuple):
    """Words of documents.

    Parameters
    ----------
    words : Series of category dtype (n,)
        The word of each token; its categories are the vocabulary.
    document : (n,) int64 array
        Number of each token's document.
    documents : (J,) array
        Names of the documents, also of those without words.
    """

    words: pd.Series
    document: np.ndarray
    documents: np.ndarray


def as_tokens(observed: Any) -> pd.DataFrame:
    """Return the words of documents one by one, given how often each document has each word.

    Parameters
    ----------
    observed : (J, V) array_like, DataFrame or sparse matrix
        Counts. Index and columns of a DataFrame name documents and words.

    Returns
    -------
    DataFrame
        One row for each token, with the columns ``word``, of category dtype, and ``document``. A
        :func:`HDPMixture` takes them as ``observed=tokens["word"]`` and ``group=tokens["document"]``.

    Raises
    ------
    TypeError, ValueError
        If counts are negative or no whole numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc_dpgmm as dp
    >>> dp.as_tokens(pd.DataFrame({"cat": [2, 0], "dog": [0, 1]}, index=["first", "second"]))
      word document
    0  cat    first
    1  cat    first
    2  dog   second
    """
    if np.ndim(observed) != 2 and not is_sparse(observed):
        raise ValueError(f"observed must be a matrix of counts, got shape {np.shape(observed)}")
    tokens = read_tokens(observed, None)
    return pd.DataFrame({"word": tokens.words, "document": tokens.documents[tokens.document]})


def read_tokens(observed: Any, group: Any, *, warn: bool = True) -> Tokens:
    """Return the tokens of documents.

    Parameters
    ----------
    observed : (J, V) array_like, DataFrame or sparse matrix of counts, or (n,) array_like of words
    group : (n,) array_like or None
        The document of each word, None with a matrix.
    warn : bool
        Whether to warn of words that no document has.

    Raises
    ------
    TypeError, ValueError
        If counts are negative or no whole numbers, or words and documents do not fit together.
    """
    refuse_dims("observed", observed)
    if is_variable(observed):
        raise TypeError("observed must be counts or words; variables and pm.Data are not supported")
    is_matrix = is_sparse(observed) or np.ndim(observed) == 2
    if is_matrix and group is not None:
        raise ValueError(
            "group and a matrix of counts exclude each other: the rows of the matrix are the documents. With "
            "group=, observed must be the words one by one, shape (n,)"
        )
    if is_matrix:
        return _from_matrix(observed, warn)
    if np.ndim(observed) != 1:
        raise ValueError(
            f"observed must be a matrix of counts or a vector of words, got shape {np.shape(observed)}"
        )
    if group is None:
        raise ValueError("words one by one need group=, the document of each of them")
    return _from_words(observed, group)


def _from_matrix(observed: Any, warn: bool) -> Tokens:
    n_documents, n_words = observed.shape if is_sparse(observed) else np.shape(observed)
    vocabulary, documents = np.arange(n_words), np.arange(n_documents)
    if isinstance(observed, pd.DataFrame):
        vocabulary, documents = observed.columns.to_numpy(), observed.index.to_numpy()
        observed = observed.to_numpy()
    from scipy.sparse import csr_array

    if not is_sparse(observed):
        observed = np.asarray(observed)
        if observed.dtype.kind not in "biuf":
            raise TypeError(f"observed must be counts, got dtype {observed.dtype}")
    counts = csr_array(observed)
    counts.sum_duplicates()
    values = counts.data
    bad = ~((values >= 0) & (values == np.floor(values)))
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(counts.indptr, first, side="right")) - 1
        raise ValueError(
            f"counts must be whole numbers >= 0, but {listed(documents[row : row + 1].tolist())} has "
            f"{values[first]} of the word {listed(vocabulary[counts.indices[first:][:1]].tolist())}"
        )
    repeats = values.astype(np.int64)
    if not repeats.sum():
        raise ValueError("there are no words: all counts are 0")
    codes = np.repeat(counts.indices, repeats)
    document = np.repeat(np.repeat(np.arange(len(documents)), np.diff(counts.indptr)), repeats)
    unused = np.flatnonzero(np.bincount(codes, minlength=len(vocabulary)) == 0)
    if warn and len(unused):
        warnings.warn(
            f"no document has {len(unused)} of the {len(vocabulary)} words: "
            f"{listed(vocabulary[unused].tolist(), 5)}. They take part with their eta; leave out their columns if "
            "that is not meant",
            UserWarning,
            stacklevel=4,
        )
    return Tokens(_named(codes, vocabulary), document.astype(np.int64), documents)


def _named(codes: np.ndarray, vocabulary: np.ndarray) -> pd.Series:
    return pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(vocabulary)))


def _from_words(observed: Any, group: Any) -> Tokens:
    words = observed if isinstance(observed, pd.Series) else pd.Series(np.asarray(observed))
    if words.isna().any():
        raise ValueError(f"observed has {int(words.isna().sum())} missing words")
    if words.dtype.kind == "f":
        raise TypeError("observed must be words or their codes, got real numbers")
    if isinstance(group, pd.Series) and isinstance(observed, pd.Series) and not group.index.equals(words.index):
        raise ValueError("group must have the index of observed")
    names = np.asarray(group)
    if names.shape != (len(words),):
        raise ValueError(f"group must have one document for each of {len(words)} words, got shape {names.shape}")
    document, documents = pd.factorize(names, sort=True)
    if np.any(document < 0):
        raise ValueError(f"group has {int(np.sum(document < 0))} missing entries; every word has a document")
    if not isinstance(words.dtype, pd.CategoricalDtype):
        words = words.astype("category")
    return Tokens(words.reset_index(drop=True), document.astype(np.int64), np.asarray(documents))
