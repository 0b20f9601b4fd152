"""What chains tell each other when their searches have ended: the best partition that each one has found.

A comparison has two rounds. After the first, chains put together what all have found; in the second they tell what
has come of it. Chains that go on to find better partitions compare again, in certain draws of tuning.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from pymc_dpgmm.sampler.amounts import SHARES_OF_COMPARISONS

# Seconds between two looks at what other chains have told.
PAUSE = 0.02
# Of one comparison.
ROUNDS = 2
COMPARISONS = 1 + len(SHARES_OF_COMPARISONS)


class Found(NamedTuple):
    """The best partition of a chain's search.

    Parameters
    ----------
    labels : (n,) int array
    merit : float
        Estimated log of the joint density summed over all labellings like it, under the chain's own parameters.
    clusters : list of int arrays
        The rows of each cluster that the search has kept.
    """

    labels: np.ndarray
    merit: float
    clusters: Sequence[np.ndarray] = ()


# What a chain tells that has found nothing.
NOTHING = Found(np.empty(0, dtype=np.int64), -np.inf)


@dataclass(frozen=True)
class Exchange:
    """A folder in which chains leave what they have found, for others to read.

    A chain hears those that begin together with it and all that have begun before. It waits for them, unless
    chains run in turn. So draws depend on the seed and on how many chains run at once, and not on the clock.

    Parameters
    ----------
    folder : str
        Where files are written.
    n_together : int
        Number of chains that run together from the beginning: the first ones.
    chain : int, optional
        The chain that runs now, where processes have no names that tell.
    n_vectors : int
        Number of vectors of labels in the model.
    """

    folder: str
    n_together: int
    chain: int | None = None
    n_vectors: int = 1

    def place(self, chain: int, labels: str) -> "Mailbox":
        """Return what one chain tells and hears of one vector of labels, by its name."""
        waits = self.n_together > 1
        n_heard = max(chain, self.n_together) if waits else chain
        heard = tuple(other for other in range(n_heard) if other != chain)
        return Mailbox(self.folder, chain, quote(labels, safe=""), heard, waits, self.n_vectors > 1)


@dataclass
class Mailbox:
    """What one chain tells and hears of one vector of labels. It tells in every round, since others wait.

    With ``has_fixed_draw``, chains must compare at a draw of the same number. If they compared each of several
    vectors when its own search has ended, two chains could wait for each other: each for the vector that the other
    one comes to later.
    """

    folder: str
    chain: int
    labels: str
    heard: tuple[int, ...]
    waits: bool
    has_fixed_draw: bool = False
    n_told: int = 0

    def _file(self, chain: int, at: int) -> Path:
        return Path(self.folder) / f"{self.labels}-{chain}-{at}.npz"

    def tell(self, found: Found | None) -> None:
        """Tell others, in the next round, what has been found, or, with None, that nothing has."""
        if self.n_told == ROUNDS * COMPARISONS:
            return
        found = NOTHING if found is None else found
        file = self._file(self.chain, self.n_told)
        unfinished = file.with_suffix(".part")
        with unfinished.open("wb") as opened:
            starts = np.cumsum([0, *map(len, found.clusters)])
            rows = np.concatenate([np.empty(0, dtype=np.int64), *found.clusters])
            np.savez(opened, labels=found.labels, merit=found.merit, rows=rows, starts=starts)
        os.replace(unfinished, file)
        self.n_told += 1

    def end_comparison(self, n_compared: int) -> None:
        """Tell nothing in the rounds that are left of the first ``n_compared`` comparisons."""
        while self.n_told < ROUNDS * n_compared:
            self.tell(None)

    def leave(self) -> None:
        """Tell nothing in all rounds that are left."""
        self.end_comparison(COMPARISONS)

    def of_others(self) -> list[Found]:
        """Return what other chains have told in the round of this one's last word, or else in the first."""
        at = max(self.n_told - 1, 0)
        # Of chains in turn, one that was interrupted has told nothing, and never will.
        told = [self._read(chain, at) for chain in self.heard if self.waits or self._file(chain, at).exists()]
        return [found for found in told if len(found.labels)]

    def _read(self, chain: int, at: int) -> Found:
        file = self._file(chain, at)
        while not file.exists():
            time.sleep(PAUSE)
        with np.load(file) as kept:
            clusters = np.split(kept["rows"], kept["starts"][1:-1]) if len(kept["rows"]) else []
            return Found(kept["labels"], float(kept["merit"]), clusters)
