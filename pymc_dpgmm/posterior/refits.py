"""Fits of several models, one after the other."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.internals.bars import Bar


def refits(
    makers: Sequence[Callable[[], pm.Model]], random_seed: Any, progressbar: bool, sample: dict[str, Any]
) -> Iterator[tuple[pm.Model, Any, int]]:
    """Make models and sample them, each with a seed of its own; yield the model, its results and the seed."""
    seeds = np.random.default_rng(random_seed).integers(2**31, size=len(makers))
    with Bar(*Bar.get_default_columns(), is_shown=progressbar) as progress:
        task = progress.add_task("Fits", total=len(makers))
        for make_model, seed in zip(makers, seeds.tolist(), strict=True):
            with make_model() as model:
                quiet = {"progressbar": False, "compute_convergence_checks": False}
                idata = pm.sample(**{**quiet, "random_seed": seed, **sample})
            yield model, idata, seed
            progress.advance(task)
