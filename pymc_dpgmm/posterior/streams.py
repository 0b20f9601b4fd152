"""Random numbers that log likelihoods and replicates of the same draws share.

Leave-one-out predictive checks weight the replicates of a draw by its log likelihood, so both must have the same
weights and parameters of clusters. The seed of these is stored with whichever of the two is computed first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.posterior.draws import DrawnLabels

# Name of the attribute of a variable that stores the seed.
SEED = "seed_of_clusters"


def shared_seed(idata: Any, groups: tuple[str, ...], names: list[str], rng: np.random.Generator) -> int:
    """Return the seed stored with a variable of these names in these groups, or else a new seed."""
    new = int(rng.integers(2**31))
    for group in groups:
        there = dataset_of(idata, group)
        for name in names:
            if name in there and SEED in there[name].attrs:
                return int(there[name].attrs[SEED])
    return new


def streams_of(seed: int, drawn: DrawnLabels) -> Callable[[int], np.random.Generator]:
    """Return a function that maps the number of a draw to its random number generator.

    The generator depends on the coordinates of chain and draw, so it stays the same if draws are selected later.
    """
    names = [np.asarray(values) for values in drawn.per_draw().values()]
    shape = drawn.shape[:2]
    if not all(values.dtype.kind in "iu" and values.min(initial=0) >= 0 for values in names):
        names = [np.arange(length) for length in shape]

    def stream(s: int) -> np.random.Generator:
        chain, draw = np.unravel_index(s, shape)
        return np.random.default_rng([seed, int(names[0][chain]), int(names[1][draw])])

    return stream
