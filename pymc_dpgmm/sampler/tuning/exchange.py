"""What chains tell each other when their searches have ended: the best partition that each one has found."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Seconds between two looks at what other chains have told.
PAUSE = 0.02


class Found(NamedTuple):
    """The best partition of a chain's search.

    Parameters
    ----------
    labels : (n,) int array
    merit : float
        Estimated log of the joint density summed over all labellings like it, under the chain's own parameters.
    """

    labels: np.ndarray
    merit: float


@dataclass(frozen=True)
class Exchange:
    """A folder in which chains leave what they have found, for others to read.

    Which chains a chain hears does not depend on the clock, so that draws depend on the seed alone: those that run
    together from the beginning, for which it waits, or, where chains run one after the other, all before it.

    Parameters
    ----------
    folder : str
        Where files are written.
    n_together : int
        Number of chains that run together from the beginning: the first ones.
    chain : int, optional
        The chain that runs now, where processes have no names that tell.
    """

    folder: str
    n_together: int
    chain: int | None = None

    def place(self, chain: int, topic: int) -> "Place":
        """Return what one chain tells and hears of one vector of labels."""
        waits = self.n_together > 1
        heard = tuple(other for other in range(self.n_together if waits else chain) if other != chain)
        return Place(self.folder, chain, topic, heard, waits)


@dataclass
class Place:
    """What one chain tells and hears of one vector of labels. It tells once, and has to, since others wait."""

    folder: str
    chain: int
    topic: int
    heard: tuple[int, ...]
    waits: bool
    has_told: bool = False

    def _file(self, chain: int) -> Path:
        return Path(self.folder) / f"{self.topic}-{chain}.npz"

    def tell(self, found: Found | None) -> None:
        """Tell others what the search has found, or, with None, that it has found nothing."""
        if self.has_told:
            return
        self.has_told = True
        labels = np.empty(0, dtype=np.int64) if found is None else found.labels
        merit = -np.inf if found is None else found.merit
        unfinished = self._file(self.chain).with_suffix(".part")
        with unfinished.open("wb") as file:
            np.savez(file, labels=labels, merit=merit)
        os.replace(unfinished, self._file(self.chain))

    def best_of_others(self) -> Found | None:
        """Return the best that other chains have found, None if there is nothing."""
        # Of chains in turn, one that was interrupted has told nothing, and never will.
        found = [self._read(chain) for chain in self.heard if self.waits or self._file(chain).exists()]
        return max((one for one in found if len(one.labels)), key=lambda one: one.merit, default=None)

    def _read(self, chain: int) -> Found:
        while not self._file(chain).exists():
            time.sleep(PAUSE)
        with np.load(self._file(chain)) as kept:
            return Found(kept["labels"], float(kept["merit"]))
