"""Checkpoint files of a run. A run is appended to its file, so that the cost of a checkpoint is that of new draws.

A file is a first line and a sequence of records, each with its length and its check sum. The first record
describes the run. Then records of draws and records of the state after these draws alternate. Draws count only if
the state after them has been written, so that an interrupted write never damages what is before it. Integers, such
as labels, are stored in the smallest type that holds them, as differences from the previous draw, and compressed.
"""

import os
import pickle
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_FIRST_LINE = b"pymc_dpgmm run 2\n"
# Length and check sum of a record.
_HEAD = struct.Struct("<QI")
# Level of compression: a higher level takes much longer and saves little.
_LEVEL = 1
# A file is written anew when outdated states take more than this share of it.
_MOST_REPLACED = 0.4

_INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")

Draws = list[tuple[dict[str, np.ndarray], Any]]


class CheckpointError(ValueError):
    """A file is no checkpoint, or none that this version can read."""


class Packed(NamedTuple):
    """The values of a variable in several draws; ``shape`` is None where ``content`` is the array itself."""

    content: Any
    dtype: str
    small: str
    shape: tuple[int, ...] | None


def pack(values: Sequence[np.ndarray]) -> Packed:
    """Return values of one shape and dtype in one array. Integers are compressed."""
    dtype = values[0].dtype
    if dtype.kind not in "iu" or values[0].size == 0:
        return Packed(np.stack(values), dtype.str, dtype.str, None)
    least, most = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    small = next(
        dtype_name
        for dtype_name in _INTEGERS
        if np.iinfo(dtype_name).min <= least and most <= np.iinfo(dtype_name).max
    )
    array = np.stack([v.astype(small) for v in values])
    array[1:] ^= array[:-1].copy()
    return Packed(zlib.compress(array, _LEVEL), dtype.str, small, array.shape)


def unpack(packed: Packed) -> np.ndarray:
    """Return the original values, one draw after the other."""
    if packed.shape is None:
        return packed.content
    flat = np.frombuffer(zlib.decompress(packed.content), dtype=packed.small)
    return np.bitwise_xor.accumulate(flat.reshape(packed.shape), axis=0).astype(packed.dtype)


def pack_draws(draws: Draws) -> Any:
    """Return draws in compressed form."""
    if not draws:
        return None
    points = {name: pack([np.asarray(point[name]) for point, _ in draws]) for name in draws[0][0]}
    return points, zlib.compress(pickle.dumps([stats for _, stats in draws]), _LEVEL)


def unpack_draws(packed: Any) -> Draws:
    """Return the draws that :func:`pack_draws` has packed."""
    if packed is None:
        return []
    points = {name: unpack(values) for name, values in packed[0].items()}
    stats = pickle.loads(zlib.decompress(packed[1]))
    # The ellipsis makes scalars arrays without dimensions.
    return [({name: values[s, ...] for name, values in points.items()}, stats[s]) for s in range(len(stats))]


class _Written(NamedTuple):
    """Bytes of a file, of its last state and of outdated states, and the number of draws of each chain."""

    length: int
    state: int
    replaced: int
    n_draws: list[int]

    def is_mostly_replaced(self) -> bool:
        """Tell whether outdated states would take too large a share of the file after another state."""
        return self.replaced + self.state > _MOST_REPLACED * self.length

    def then(self, length: int, state: int, n_draws: list[int]) -> "_Written":
        """Return the new numbers after another state has been written to the end of the file."""
        return _Written(length, state, self.replaced + self.state, n_draws)


class Checkpoint:
    """A file that holds a run, and how much of the run has been written to it.

    Parameters
    ----------
    path : Path
    what : dict
        Description of the run, which never changes: anything that pickle takes.
    """

    def __init__(self, path: Path, what: Mapping[str, Any]) -> None:
        self._path, self._what = path, dict(what)
        self._written: _Written | None = None

    def save(self, chains: Sequence[Mapping[str, Any]]) -> None:
        """Append new draws and the state of chains. An interruption leaves the earlier content intact."""
        written = self._written
        if written is None or written.is_mostly_replaced() or not self._is_there(written):
            self._write(chains)
            return
        with self._path.open("r+b") as file:
            # Remove the rest of an interrupted write.
            file.truncate(written.length)
            file.seek(written.length)
            self._written = _append(file, chains, written)

    def _is_there(self, written: _Written) -> bool:
        """Tell whether the file is still the one that was written last, and not shorter."""
        try:
            with self._path.open("rb") as file:
                is_own = _first_record(file).get("id") == self._what.get("id")
                return is_own and self._path.stat().st_size >= written.length
        except (OSError, CheckpointError):
            return False

    def _write(self, chains: Sequence[Mapping[str, Any]]) -> None:
        """Write a new file beside the old one, and then replace the old one."""
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        # The id distinguishes the file from other ones with the same path.
        what = {**self._what, "id": uuid.uuid4().hex}
        with unfinished.open("wb") as file:
            file.write(_FIRST_LINE)
            _write_record(file, what)
            written = _append(file, chains, _Written(0, 0, 0, [0] * len(chains)))
        unfinished.replace(self._path)
        self._what, self._written = what, written

    @classmethod
    def load(cls, path: Path) -> tuple["Checkpoint", dict[str, Any], bool]:
        """Return a file, the run that it holds, and whether its end is incomplete.

        Raises
        ------
        CheckpointError
            If it is no checkpoint. The message says what to do.
        """
        with path.open("rb") as file:
            if file.read(len(_FIRST_LINE)) != _FIRST_LINE:
                raise CheckpointError(f"{path} is no checkpoint of a dp.ResumableRun: begin a new run")
            file.seek(0)
            checkpoint = cls(path, _first_record(file))
            chains, written = _read_chains(file)
        checkpoint._written = written
        return checkpoint, checkpoint._what | {"chains": chains}, written.length < path.stat().st_size


def _append(file: BinaryIO, chains: Sequence[Mapping[str, Any]], written: _Written) -> _Written:
    """Append the new draws of chains, and their state, to a file."""
    new = [chain["draws"][n:] for chain, n in zip(chains, written.n_draws, strict=True)]
    if any(new):
        _write_record(file, [pack_draws(draws) for draws in new])
    states = [{key: value for key, value in chain.items() if key != "draws"} for chain in chains]
    state = _write_record(file, zlib.compress(pickle.dumps(states), _LEVEL))
    file.flush()
    os.fsync(file.fileno())
    return written.then(file.tell(), state, [len(chain["draws"]) for chain in chains])


def _read_chains(file: BinaryIO) -> tuple[list[dict[str, Any]], _Written]:
    """Read from after the first record of a file; return the chains up to the last complete state."""
    draws: list[Draws] = []
    waiting: list[Any] = []
    last, written, before = b"", _Written(0, 0, 0, []), file.tell()
    for content in _records(file):
        if isinstance(content, bytes):
            draws = draws or [[] for _ in _states(content)]
            for block in waiting:
                for of_chain, packed in zip(draws, block, strict=True):
                    of_chain += unpack_draws(packed)
            waiting, last = [], content
            written = written.then(file.tell(), file.tell() - before, [len(of_chain) for of_chain in draws])
        else:
            waiting.append(content)
        before = file.tell()
    if not last:
        raise CheckpointError(f"{file.name} ends before its first state: begin a new run")
    return [chain | {"draws": of_chain} for chain, of_chain in zip(_states(last), draws, strict=True)], written


def _states(content: bytes) -> list[dict[str, Any]]:
    return pickle.loads(zlib.decompress(content))


def _write_record(file: BinaryIO, content: Any) -> int:
    """Append a record; return its number of bytes."""
    payload = pickle.dumps(content)
    file.write(_HEAD.pack(len(payload), zlib.crc32(payload)))
    file.write(payload)
    return _HEAD.size + len(payload)


def _records(file: BinaryIO) -> Iterator[Any]:
    """Yield the complete records of a file from its current position on."""
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        payload = file.read(length)
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield pickle.loads(payload)


def _first_record(file: BinaryIO) -> dict[str, Any]:
    if file.read(len(_FIRST_LINE)) == _FIRST_LINE:
        for content in _records(file):
            return content
    raise CheckpointError(f"{file.name} is no checkpoint of a dp.ResumableRun")
