"""Read the words of documents as tokens, from a matrix of counts or from the words one by one."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import is_sparse, is_variable, listed, refuse_dims
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.names import check_columns
from pymc_dpgmm.tables.reading import factorized, read_table
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import NUMBERS, Table

_COUNT_TEXTS = (
    "from sklearn.feature_extraction.text import CountVectorizer; vectorizer = CountVectorizer({}); "
    "counts = vectorizer.fit_transform({}); and then observed=counts, words=vectorizer.get_feature_names_out()"
)


class Tokens(NamedTuple):
    """Words of documents.

    Parameters
    ----------
    words : Table
        One column of categories: the word of each token; the levels are the vocabulary.
    document : (n,) int64 array
        Number of each token's document.
    documents : (J,) array
        Names of the documents, also of those without words.
    """

    words: Table
    document: np.ndarray
    documents: np.ndarray

    @property
    def codes(self) -> np.ndarray:
        """Number of each token's word in the vocabulary: (n,) int64 array."""
        return self.words.values.astype(np.int64)

    @property
    def vocabulary(self) -> tuple[Any, ...]:
        """The words that tokens may have."""
        (levels,) = self.words.levels
        assert levels is not None
        return levels


def as_tokens(observed: Any, words: Any = None) -> pd.DataFrame:
    """Return the words of documents one by one, from the counts of each word in each document.

    Parameters
    ----------
    observed : (J, V) array_like, DataFrame or sparse matrix
        Counts. Index and columns of a DataFrame name documents and words.
    words : (V,) sequence, optional
        Names of the columns of a matrix without column names.

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
    tokens = read_tokens(observed, None, words=words)
    words = pd.Categorical.from_codes(tokens.codes, categories=pd.Index(tokens.vocabulary))
    return pd.DataFrame({"word": words, "document": tokens.documents[tokens.document]})


def read_tokens(observed: Any, group: Any, *, words: Any = None, documents: Any = None) -> Tokens:
    """Return the tokens of documents.

    Parameters
    ----------
    observed : (J, V) array_like, frame or sparse matrix of counts, or (n,) array_like of words
    group : (n,) array_like or None
        The document of each word, None with a matrix.
    words, documents : sequence, optional
        Names of the columns and rows of a matrix without such names.

    Raises
    ------
    TypeError, ValueError
        If counts are negative or no whole numbers, or words and documents do not fit together.
    """
    table = read_documents(observed, group)
    if not table.is_vector:
        if group is not None:
            raise ValueError(
                "group and a matrix of counts exclude each other: the rows of the matrix are the documents. With "
                "group=, observed must be the words one by one, shape (n,)"
            )
        return _from_matrix(table, words, documents)
    if group is None:
        raise ValueError("words one by one need group=, the document of each of them")
    if words is not None:
        raise ValueError("words= names the columns of a matrix of counts; words one by one have their names")
    return _from_words(table, group)


def read_documents(observed: Any, group: Any) -> Table:
    """Return counts or words of documents as a table; a table is returned as it is.

    Raises
    ------
    TypeError
        If they are whole texts, lists of words, or variables. The message says how to convert them.
    """
    if isinstance(observed, Table):
        return observed
    refuse_dims("observed", observed)
    if is_variable(observed):
        raise TypeError("observed must be counts or words; variables and pm.Data are not supported")
    _refuse_texts(observed, group)
    return read_table(observed)


def _refuse_texts(observed: Any, group: Any) -> None:
    """Raise TypeError for whole texts, or lists of words, where counts are expected."""
    if is_sparse(observed) or group is not None:
        return
    entries = list(observed) if isinstance(observed, list | tuple) or np.ndim(observed) == 1 else []
    if entries and all(_is_list_of_words(entry) for entry in entries):
        recipe = _COUNT_TEXTS.format("analyzer=list", "lists")
        raise TypeError(f"observed must be counts of words, got lists of words: {recipe}")
    if entries and all(isinstance(entry, str) for entry in entries):
        raise TypeError(
            f"observed must be counts of words, got texts: {_COUNT_TEXTS.format('', 'texts')}. "
            "Words one by one need group=, the document of each of them"
        )


def _is_list_of_words(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and all(isinstance(word, str) for word in entry)


def _from_matrix(table: Table, words: Any, documents: Any) -> Tokens:
    counts = _as_counts(table)
    vocabulary = _names("words", words, table.columns, counts.shape[1], "columns")
    check_columns("observed", vocabulary.tolist())
    named = _names("documents", documents, table.rows, counts.shape[0], "rows")
    repeated = pd.Index(named)[pd.Index(named).duplicated()]
    if len(repeated):
        raise ValueError(
            f"several documents are named {listed(repeated.unique().tolist(), 3)}, which results could not "
            "distinguish: rename them, or add up their counts, frame.groupby(level=0).sum()"
        )
    from scipy.sparse import csr_array

    counts = csr_array(counts)
    counts.sum_duplicates()
    values = counts.data
    bad = ~((values >= 0) & (values == np.floor(values)))
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(counts.indptr, first, side="right")) - 1
        raise ValueError(
            f"counts must be whole numbers >= 0, but {listed(named[row : row + 1].tolist())} has "
            f"{values[first]:g} of the word {listed(vocabulary[counts.indices[first:][:1]].tolist())}"
        )
    repeats = values.astype(np.int64)
    if not repeats.sum():
        raise ValueError("there are no words: all counts are 0")
    codes = np.repeat(counts.indices, repeats)
    document = np.repeat(np.repeat(np.arange(len(named)), np.diff(counts.indptr)), repeats)
    return Tokens(_words(codes, vocabulary.tolist()), document.astype(np.int64), named)


def _as_counts(table: Table) -> Any:
    """Return a table as counts.

    Raises
    ------
    TypeError
        If columns are no numbers, such as a column that names the documents.
    ValueError
        If counts are missing.
    """
    bad = [j for j, kind in enumerate(table.kinds) if kind not in NUMBERS]
    if bad and table.columns is not None:
        names = [table.columns[j] for j in bad]
        raise TypeError(
            f"observed must be counts of words, but the columns {listed(names)} are no numbers: leave them out, "
            f"or, if they name the documents, make them the index, observed.set_index({names[0]!r})"
        )
    counts = as_numbers(table)
    if not is_sparse(counts) and np.isnan(counts).any():
        raise ValueError(
            f"observed has {np.isnan(counts).sum()} missing counts; where a word that does not occur was left "
            "out, fill in zeros, observed.fillna(0)"
        )
    return counts


def _names(what: str, argument: Any, of_data: Any, n: int, of: str) -> np.ndarray:
    """Return names of rows or columns: those of the data, those of the argument ``what``, or 0, 1, ..."""
    if argument is None:
        return np.arange(n) if of_data is None else np.asarray(pd.Index(of_data), dtype=object)
    names = np.asarray(list(argument), dtype=object)
    if len(names) != n:
        raise ValueError(f"{what} must name the {n} {of} of observed, got {len(names)} names")
    if of_data is not None and list(names) != list(of_data):
        raise ValueError(f"the {of} of observed have other names already: leave out {what}=")
    return names


def _words(codes: np.ndarray, vocabulary: list[Any]) -> Table:
    """Return the words of tokens as a table."""
    return Table("the words of observed", codes.astype(np.float64), ("category",), (tuple(vocabulary),))


def _from_words(table: Table, group: Any) -> Tokens:
    missing = int(np.isnan(table.values).sum())
    if missing and table.kinds[0] in ("integer", "text", "category"):
        raise ValueError(f"observed has {missing} missing words")
    if table.kinds[0] not in ("integer", "text", "category"):
        raise TypeError(f"observed must be words or their codes, got {table.kinds[0]} numbers")
    rows = RowNames("observed")
    rows.arrange(table)
    names = rows.entries("group", group, "every word has a document")
    if names.shape != (table.n_rows,):
        raise ValueError(f"group must have one document for each of {table.n_rows} words, got shape {names.shape}")
    document, documents = factorized("group", names)
    if np.any(document < 0):
        raise ValueError(f"group has {int(np.sum(document < 0))} missing entries; every word has a document")
    levels, codes = table.levels[0], table.values
    if levels is None:
        values, codes = np.unique(table.values.astype(np.int64), return_inverse=True)
        levels = tuple(values.tolist())
    return Tokens(_words(codes.astype(np.int64), list(levels)), document.astype(np.int64), documents)
