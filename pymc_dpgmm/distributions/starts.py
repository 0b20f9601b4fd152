"""Starting values that differ from chain to chain."""

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.families.base_measure import is_variable


def spread_starts(model: pm.Model, expressions: Sequence[Any]) -> None:
    """Let the free continuous variables behind expressions start from a different place in each chain.

    PyMC jitters starts only in models that NUTS samples alone. Variables for which the user gave a start keep it;
    the others start as NUTS would start them, uniformly within 1 of their support point in the space of the
    sampler, or from a draw of their prior where that depends on other variables.
    """
    behind = set(ancestors([e for e in expressions if is_variable(e)]))
    for rv in model.free_RVs:
        if rv not in behind or model.rvs_to_initial_values.get(rv) is not None:
            continue
        if rv.dtype not in pm.vartypes.continuous_types:
            continue
        start = pm.distributions.distribution.support_point(rv)
        if any(other in model.free_RVs for other in ancestors([start])):
            model.rvs_to_initial_values[rv] = "prior"
            continue
        transform = model.rvs_to_transforms[rv]
        inputs = rv.owner.inputs
        if any(other in model.free_RVs for other in ancestors(inputs)):
            model.rvs_to_initial_values[rv] = "prior"
            continue
        free = start if transform is None else transform.forward(start, *inputs)
        _, jitter = pt.random.uniform(
            -1.0, 1.0, size=free.shape, rng=pt.random.shared_rng(seed=None), return_next_rng=True
        )
        moved = free + jitter
        model.rvs_to_initial_values[rv] = moved if transform is None else transform.backward(moved, *inputs)
