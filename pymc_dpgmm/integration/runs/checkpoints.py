"""Files that a run is appended to, so that a checkpoint costs what is new since the last one.

A file is a first line and a sequence of records, each with its length and its check sum: what the run is, and then
in turn draws and the state after them. Draws count once the state after them is there. So whatever an interrupted
write has left at the end, all before it is whole. Integers, such as labels, are stored in the smallest type that
holds them, as what has changed since the draw before, and compressed.
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
# Level of compression: a higher one takes much longer and saves little.
_LEVEL = 1
# The share of a file that states may take which later ones have replaced, before it is written anew.
_MOST_REPLACED = 0.4

_INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")

Draws = list[tuple[dict[str, np.ndarray], Any]]


class CheckpointError(ValueError):
    """A file that is no checkpoint, or not one that this version can read."""


class Packed(NamedTuple):
    """The values of a variable in several draws; ``shape`` is None where ``content`` is the array itself."""

    content: Any
    dtype: str
    small: str
    shape: tuple[int, ...] | None


def pack(values: Sequence[np.ndarray]) -> Packed:
    """Return values of one shape and dtype, small if they are integers."""
    dtype = values[0].dtype
    if dtype.kind not in "iu" or values[0].size == 0:
        return Packed(np.stack(values), dtype.str, dtype.str, None)
    least, most = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    small = next(own for own in _INTEGERS if np.iinfo(own).min <= least and most <= np.iinfo(own).max)
    array = np.stack([v.astype(small) for v in values])
    array[1:] ^= array[:-1].copy()
    return Packed(zlib.compress(array, _LEVEL), dtype.str, small, array.shape)


def unpack(packed: Packed) -> np.ndarray:
    """Return the values as they were, one draw after the other."""
    if packed.shape is None:
        return packed.content
    flat = np.frombuffer(zlib.decompress(packed.content), dtype=packed.small)
    return np.bitwise_xor.accumulate(flat.reshape(packed.shape), axis=0).astype(packed.dtype)


def pack_draws(draws: Draws) -> Any:
    """Return draws in a form that takes little room."""
    if not draws:
        return None
    points = {name: pack([np.asarray(point[name]) for point, _ in draws]) for name in draws[0][0]}
    return points, zlib.compress(pickle.dumps([stats for _, stats in draws]), _LEVEL)


def unpack_draws(packed: Any) -> Draws:
    """Return the draws that :func:`pack_draws` has packed."""
    if packed is None:
        return []
    points = {name: unpack(own) for name, own in packed[0].items()}
    stats = pickle.loads(zlib.decompress(packed[1]))
    # Of scalars, arrays without dimensions.
    return [({name: own[s, ...] for name, own in points.items()}, stats[s]) for s in range(len(stats))]


class _Written(NamedTuple):
    """What is known of a file: its bytes, those of its last state, those of states before, draws of each chain."""

    length: int
    state: int
    replaced: int
    n_draws: list[int]

    def is_mostly_replaced(self) -> bool:
        """Tell whether, after another state, too much of the file would be those before."""
        return self.replaced + self.state > _MOST_REPLACED * self.length

    def then(self, length: int, state: int, n_draws: list[int]) -> "_Written":
        """Return what is known after another state, which ends where the file does."""
        return _Written(length, state, self.replaced + self.state, n_draws)


class Checkpoint:
    """A file that holds a run, and how much of the run it holds.

    Parameters
    ----------
    path : Path
    what : dict
        What stays the same: anything that pickle takes.
    """

    def __init__(self, path: Path, what: Mapping[str, Any]) -> None:
        self._path, self._what = path, dict(what)
        self._written: _Written | None = None

    def save(self, chains: Sequence[Mapping[str, Any]]) -> None:
        """Bring the file to where chains are; what it holds is there whatever happens meanwhile."""
        written = self._written
        if written is None or written.is_mostly_replaced() or not self._is_there(written):
            self._write(chains)
            return
        with self._path.open("r+b") as file:
            # What an interrupted write has left.
            file.truncate(written.length)
            file.seek(written.length)
            self._written = _append(file, chains, written)

    def _is_there(self, written: _Written) -> bool:
        """Tell whether the file is the one that was written last, and no shorter."""
        try:
            with self._path.open("rb") as file:
                return _first_record(file) == self._what and self._path.stat().st_size >= written.length
        except (OSError, CheckpointError):
            return False

    def _write(self, chains: Sequence[Mapping[str, Any]]) -> None:
        """Write the file anew beside the old one, and put it in its place."""
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        # So that what has been known of one file is never taken for another one of that name.
        what = {**self._what, "id": uuid.uuid4().hex}
        with unfinished.open("wb") as file:
            file.write(_FIRST_LINE)
            _write_record(file, what)
            written = _append(file, chains, _Written(0, 0, 0, [0] * len(chains)))
        unfinished.replace(self._path)
        self._what, self._written = what, written

    @classmethod
    def load(cls, path: Path) -> tuple["Checkpoint", dict[str, Any], bool]:
        """Return a file, the run that it holds, and whether its end was lost.

        Raises
        ------
        CheckpointError
            If it is no checkpoint; the message says what to do.
        """
        with path.open("rb") as file:
            if file.read(len(_FIRST_LINE)) != _FIRST_LINE:
                # The next time it is saved it is written anew.
                content = _load_old(path)
                return cls(path, {key: value for key, value in content.items() if key != "chains"}), content, False
            file.seek(0)
            found = cls(path, _first_record(file))
            chains, written = _read_chains(file)
        found._written = written
        return found, found._what | {"chains": chains}, written.length < path.stat().st_size


def _append(file: BinaryIO, chains: Sequence[Mapping[str, Any]], written: _Written) -> _Written:
    """Write to the end of a file what is new in chains, and their state."""
    new = [chain["draws"][n:] for chain, n in zip(chains, written.n_draws, strict=True)]
    if any(new):
        _write_record(file, [pack_draws(own) for own in new])
    states = [{key: value for key, value in chain.items() if key != "draws"} for chain in chains]
    state = _write_record(file, zlib.compress(pickle.dumps(states), _LEVEL))
    file.flush()
    os.fsync(file.fileno())
    return written.then(file.tell(), state, [len(chain["draws"]) for chain in chains])


def _read_chains(file: BinaryIO) -> tuple[list[dict[str, Any]], _Written]:
    """Return the chains up to the last state that is whole, from behind the first record of a file."""
    draws: list[Draws] = []
    waiting: list[Any] = []
    last, written, before = b"", _Written(0, 0, 0, []), file.tell()
    for content in _records(file):
        if isinstance(content, bytes):
            draws = draws or [[] for _ in _states(content)]
            for block in waiting:
                for own, packed in zip(draws, block, strict=True):
                    own += unpack_draws(packed)
            waiting, last = [], content
            written = written.then(file.tell(), file.tell() - before, [len(own) for own in draws])
        else:
            waiting.append(content)
        before = file.tell()
    if not last:
        raise CheckpointError(f"{file.name} ends before its first state: begin a new run")
    return [chain | {"draws": own} for chain, own in zip(_states(last), draws, strict=True)], written


def _states(content: bytes) -> list[dict[str, Any]]:
    return pickle.loads(zlib.decompress(content))


def _write_record(file: BinaryIO, content: Any) -> int:
    """Append a record; return its number of bytes."""
    payload = pickle.dumps(content)
    file.write(_HEAD.pack(len(payload), zlib.crc32(payload)))
    file.write(payload)
    return _HEAD.size + len(payload)


def _records(file: BinaryIO) -> Iterator[Any]:
    """Return the records that are whole, from where the file is on."""
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


def _load_old(path: Path) -> dict[str, Any]:
    """Return what one pickle holds, as it was written before files were appended to."""
    try:
        content = pickle.loads(path.read_bytes())
    except Exception as error:
        raise CheckpointError(
            f"{path} is no checkpoint of a dp.ResumableRun, or one of a version whose files this one cannot read "
            f"({type(error).__name__}): begin a new run, or go on with that version"
        ) from error
    if not isinstance(content, dict) or not {"chains", "tune", "options", "numbers"} <= set(content):
        raise CheckpointError(f"{path} is no checkpoint of a dp.ResumableRun: it holds something else")
    return content
