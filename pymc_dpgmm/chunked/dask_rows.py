"""Rows of a dask array or DataFrame.

Dask is imported only when it is used. It computes in threads of this process, or on the workers of a
``distributed.Client`` if there is one.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.chunked.passes import Gathered, Sent, as_rows, run_pass, unite
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.tables.columns import KINDS_OF_DTYPES
from pymc_dpgmm.tables.names import as_text, check_columns

# Number of chunks whose results are combined in one task, on the workers.
CHUNKS_UNITED = 16


class Reader(NamedTuple):
    """Converts the rows of a chunk to the values of a family.

    Parameters
    ----------
    base : BaseMeasure
        Without parameters. It has the covariates, exposure or trials that are the same for every row.
    """

    base: Any

    def read(self, chunk: Any, n_rows: int | None = None) -> np.ndarray:
        """Return the values of a chunk (n,) or (n, d), with further columns for covariates: (n, c) float64."""
        chunk = as_numpy(chunk, n_rows)
        given = self.base.given_columns(chunk.shape, chunk)
        rows = as_rows(chunk)
        return np.ascontiguousarray(np.concatenate([rows, *given], axis=1)) if given else rows


class ChunkPlace(NamedTuple):
    """First row of a chunk among all rows, and its number of rows."""

    first_row: int
    n_rows: int


def as_numpy(chunk: Any, n_rows: int | None = None) -> np.ndarray:
    """Return a chunk as an array, with NaN for masked entries.

    Raises
    ------
    TypeError, ValueError
        If it is sparse, or its number of rows differs from the declared one.
    """
    if hasattr(chunk, "tocsr"):
        raise TypeError(
            "its chunks are sparse matrices: make them arrays, .map_blocks(lambda block: block.toarray())"
        )
    if isinstance(chunk, np.ma.MaskedArray):
        chunk = np.ma.filled(chunk.astype(np.float64), np.nan)
    array = np.asarray(chunk)
    if n_rows is not None and len(array) != n_rows:
        raise ValueError(f"a chunk must have {n_rows} rows, as its dask array declares, got {len(array)}")
    return array


def _raw(chunk: Any, place: ChunkPlace, wanted: np.ndarray) -> np.ndarray:
    chunk, first_row = as_numpy(chunk, place.n_rows), place.first_row
    start, stop = np.searchsorted(wanted, [first_row, first_row + len(chunk)])
    return chunk[wanted[start:stop] - first_row]


class Checked(NamedTuple):
    """Result of a check: number of missing entries, ranges of columns (2, c), and an error message or ""."""

    n_missing: int
    ranges: np.ndarray
    error: str = ""


def _check(
    chunk: Any,
    place: ChunkPlace,
    reader: Reader,
    family: Family,
    known: Mapping[str, Any],
    check: Callable[[Any], None],
) -> Checked:
    try:
        chunk = as_numpy(chunk, place.n_rows)
        check(chunk)
        values = reader.read(chunk)
        n_missing = int(np.isnan(values).sum())
        needed = (family.incomplete or family) if n_missing else family
        if needed.takes_missing or n_missing == 0:
            needed.check_values(needed.params(**known), values)
        with warnings.catch_warnings():
            # NumPy warns about columns without entries.
            warnings.simplefilter("ignore", RuntimeWarning)
            ranges = np.array([np.nanmin(values, axis=0), np.nanmax(values, axis=0)])
        return Checked(n_missing, ranges)
    except (TypeError, ValueError) as error:
        return Checked(0, np.empty((2, 0)), _placed(error, place))


def _check_raw(chunk: Any, place: ChunkPlace, check: Callable[[Any], None]) -> str:
    try:
        check(as_numpy(chunk, place.n_rows))
    except (TypeError, ValueError) as error:
        return _placed(error, place)
    return ""


def _placed(error: Exception, place: ChunkPlace) -> str:
    """Return an error message with the rows of the chunk that it concerns."""
    last = place.first_row + place.n_rows - 1
    return f"rows {place.first_row} to {last} (if a row is named, the first of these is row 0): {error}"


class DaskRows:
    """Rows of a dask array, in its chunks.

    Parameters
    ----------
    array : dask.array.Array
        (n,) or (n, d), of known shape, with chunks of whole rows.
    """

    reader: Reader
    n_columns: int

    def __init__(self, array: Any) -> None:
        self.n = int(array.shape[0])
        sizes = np.array(array.chunks[0], dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        blocks = array.to_delayed().ravel()
        self.chunk_sizes = sizes[sizes > 0].tolist()
        self._chunks = [
            (block, ChunkPlace(int(start), int(size)))
            for block, start, size in zip(blocks, starts, sizes, strict=True)
            if size
        ]

    def sample(self, rows: np.ndarray) -> np.ndarray:
        """Return rows in raw form, given their numbers in increasing order."""
        return np.concatenate(self._compute(_raw, rows))

    def check(self, family: Family, known: Mapping[str, Any], check: Callable[[Any], None]) -> Checked:
        """Check all rows in one pass; return the number of missing entries and the ranges of columns.

        Parameters
        ----------
        family : Family
        known : mapping
            Its parameters, with None for those that are random.
        check : callable
            Raises TypeError or ValueError for an array that cannot be data at all.

        Raises
        ------
        ValueError
            If rows are not data of this family. The message says which.
        """
        checks = self._compute(_check, self.reader, family, dict(known), check)
        _raise_first([of_chunk.error for of_chunk in checks])
        low, high = (np.array([of_chunk.ranges[end] for of_chunk in checks]) for end in (0, 1))
        return Checked(
            sum(of_chunk.n_missing for of_chunk in checks), np.array([np.fmin.reduce(low), np.fmax.reduce(high)])
        )

    def check_raw(self, check: Callable[[Any], None]) -> None:
        """Check all rows in one pass without a family; raise ValueError as :meth:`check` does."""
        _raise_first(self._compute(_check_raw, check))

    def read_with(self, reader: Reader, n_columns: int) -> None:
        """Set the reader of chunks, and the number of columns of its values."""
        self.reader, self.n_columns = reader, n_columns

    def values_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the values of rows, given their numbers in increasing order: (m, c) array."""
        return self.reader.read(self.sample(rows))

    def run(self, sent: Sent) -> Gathered:
        """Return the result of one pass over all chunks."""
        gathered: Gathered = self.reduced(run_pass, unite, sent)
        return gathered

    def reduced(self, function: Callable[..., Any], unite: Callable[..., Any], message: Any) -> Any:
        """Map a function over all chunks, and reduce the results.

        Parameters
        ----------
        function : callable
            Takes the values of a chunk, the number of its first row, and the message.
        unite : callable
            Takes a list of results for several chunks, in order, and the message; returns the combined result.
        message : object
            Sent to all chunks.
        """
        import dask

        sent = dask.delayed(message, traverse=False)
        parts = self._of_values(function, sent)
        # The order of reduction, and so the last bits of sums, depends only on the chunks.
        while len(parts) > 1:
            groups = [parts[i : i + CHUNKS_UNITED] for i in range(0, len(parts), CHUNKS_UNITED)]
            parts = [dask.delayed(unite)(group, sent) for group in groups]
        (result,) = _computed(parts[0])
        return result

    def by_chunk(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Map a function of values and first row over the chunks; return delayed objects."""
        import dask

        return self._of_values(function, *(dask.delayed(argument, traverse=False) for argument in arguments))

    def array(self, function: Callable[..., Any], dtype: Any, shape: tuple[int, ...], *arguments: Any) -> Any:
        """Map a function over the chunks; return a dask array with ``shape`` for every row, in these chunks."""
        import dask.array

        da: Any = dask.array
        parts = zip(self.by_chunk(function, *arguments), self.chunk_sizes, strict=True)
        return da.concatenate([da.from_delayed(part, (n, *shape), dtype) for part, n in parts])

    def _of_values(self, function: Callable[..., Any], *sent: Any) -> list[Any]:
        import dask

        return [
            dask.delayed(_of_values)(function, chunk, place, self.reader, *sent) for chunk, place in self._chunks
        ]

    def _compute(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        import dask

        delayed = [dask.delayed(argument, traverse=False) for argument in arguments]
        return _computed(*[dask.delayed(function)(chunk, place, *delayed) for chunk, place in self._chunks])


def _computed(*wanted: Any) -> list[Any]:
    """Compute delayed objects.

    Raises
    ------
    RuntimeError
        If it fails. The message says what to do. The partition is then unchanged: a pass is all or nothing.
    """
    import dask

    try:
        return list(dask.compute(*wanted))
    except Exception as error:
        raise RuntimeError(
            f"a pass over the rows of observed was not completed: {type(error).__name__}: {error}. Workers or "
            "files of the data may be gone, or files may have changed. Sampling ends here. A dp.ResumableRun with "
            "checkpoint= can continue from its last checkpoint, with a model of the same data"
        ) from error


def _of_values(
    function: Callable[..., Any], chunk: Any, place: ChunkPlace, reader: Reader, *arguments: Any
) -> Any:
    return function(reader.read(chunk, place.n_rows), place.first_row, *arguments)


def _raise_first(errors: Sequence[str]) -> None:
    messages = [error for error in errors if error]
    if messages:
        raise ValueError(f"observed cannot be used, because of {messages[0]}")


def columns_in(observed: Any) -> list[Any] | None:
    """Return the names of the columns of a DataFrame or DataArray, or the name of a Series; None without any.

    Raises
    ------
    ValueError
        If two columns have the same name.
    """
    if hasattr(observed, "columns"):
        check_columns("observed", list(observed.columns))
        return list(observed.columns)
    if getattr(observed, "dims", None):
        names = observed.indexes.get(observed.dims[-1]) if observed.ndim == 2 else None
        return None if names is None else list(names)
    return [observed.name] if getattr(observed, "to_dask_array", None) and observed.name else None


def names_in(observed: Any) -> list[str] | None:
    """Return these names as text."""
    columns = columns_in(observed)
    return None if columns is None else [as_text(column) for column in columns]


def _all_floats(part: Any) -> Any:
    """Return a partition of a dask DataFrame or Series with float64 columns, NaN where an entry is missing."""
    values = part.to_numpy(dtype=np.float64, na_value=np.nan)
    named = {"columns": part.columns} if hasattr(part, "columns") else {"name": part.name}
    return type(part)(values, index=part.index, **named)


def kinds_in(observed: Any) -> tuple[str, ...] | None:
    """Return the kinds of the columns of a dask DataFrame or Series; None for an array."""
    if not hasattr(observed, "to_dask_array"):
        return None
    return tuple(KINDS_OF_DTYPES[dtype.kind] for dtype in _dtypes_in(observed).values())


def _dtypes_in(observed: Any) -> dict[Any, Any]:
    """Return the dtypes of a dask DataFrame or Series by column name."""
    # A dask Series has the attribute columns too, so look at dtypes: it has a single one.
    dtypes = observed.dtypes
    return dict(dtypes.items()) if hasattr(dtypes, "items") else {observed.name: dtypes}


def as_dask_array(observed: Any) -> Any:
    """Return a dask array of whole rows.

    Raises
    ------
    TypeError, ValueError
        If it is not numeric, its chunk sizes are not known, or chunks divide columns.
    """
    if type(observed).__module__.startswith("xarray"):
        observed = observed.data
    if hasattr(observed, "to_dask_array"):
        dtypes = _dtypes_in(observed)
        bad = [str(column) for column, dtype in dtypes.items() if dtype.kind not in "biuf"]
        if bad:
            raise TypeError(
                f"the columns {', '.join(bad)} of observed are not numbers: leave them out, or replace categories "
                "by codes, observed[column].cat.codes"
            )
        are_bools = {dtype.kind == "b" for dtype in dtypes.values()}
        if any(not isinstance(dtype, np.dtype) for dtype in dtypes.values()) or len(are_bools) > 1:
            # Missing entries of nullable dtypes become NaN; bools among numbers become 0 and 1.
            observed = observed.map_partitions(_all_floats, meta=_all_floats(observed._meta))
        # Dask may merge partitions when only some columns of a file are read, so chunks are computed anew.
        observed = observed.to_dask_array().compute_chunk_sizes()
    if observed.dtype.kind not in "biuf":
        raise TypeError(f"observed must be real numbers, got a dask array of dtype {observed.dtype}")
    if observed.ndim not in (1, 2):
        raise ValueError(f"observed must have shape (n,) or (n, d), got {observed.ndim} dimensions")
    if np.isnan(np.sum([np.sum(sizes) for sizes in observed.chunks])):
        raise ValueError(
            "the sizes of the chunks of observed are not known: call observed.compute_chunk_sizes() first"
        )
    if 0 in observed.shape:
        raise ValueError(f"observed must have at least one row and one column, got shape {observed.shape}")
    if observed.ndim == 2 and len(observed.chunks[1]) > 1:
        raise ValueError(
            f"observed is chunked along its columns, {len(observed.chunks[1])} chunks wide, but every chunk must "
            "hold whole rows: pass observed.rechunk({1: -1})"
        )
    return observed
