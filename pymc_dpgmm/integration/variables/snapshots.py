"""What data the labels of a mixture were sampled with, so that draws are not combined with other data.

Data of a model may change after sampling, by ``pm.set_data``: the data itself, an offset, a covariate, the unit of
each row. Labels in the draws are then those of other data, and rows must not be drawn anew from them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.sampler.state.marginal import same_values


class Snapshot:
    """Values of the data behind a mixture at one time, by name. It never changes, and equals only itself.

    A copy of it, also in another process, holds the values that the labels were last sampled with.
    """

    def __init__(self, values: Mapping[str, np.ndarray]) -> None:
        self.values: Mapping[str, np.ndarray] = MappingProxyType(dict(values))

    def __reduce__(self) -> Any:
        return Snapshot, (dict(last_sampled(self).values),)


# The snapshots at the last sampling in this process, by those of when the mixtures were built.
_sampled: WeakKeyDictionary[Snapshot, Snapshot] = WeakKeyDictionary()


def snapshot(inputs: Sequence[Variable]) -> Snapshot:
    """Return the current values of all data behind the inputs of a mixture."""
    return Snapshot(
        {
            a.name: np.array(a.get_value(borrow=True))
            for a in ancestors(inputs)
            if isinstance(a, SharedVariable) and a.name and not isinstance(a.type, RandomType)
        }
    )


def note_sampling(built: Snapshot, inputs: Sequence[Variable]) -> None:
    """Remember the current data as what the labels of a mixture are sampled with from now on."""
    _sampled[built] = snapshot(inputs)


def last_sampled(built: Snapshot) -> Snapshot:
    """Return the data of the last sampling in this process, or else of when the mixture was built."""
    return _sampled.get(built, built)


def check_unchanged(built: Snapshot, values: Mapping[str, Any]) -> None:
    """Raise ValueError where data is known to be another than the labels were sampled with."""
    before = last_sampled(built).values
    for name, value in values.items():
        if not same_values(np.asarray(value), before[name]):
            raise ValueError(
                f"{name} was changed by pm.set_data, or otherwise, after the labels were sampled: they are "
                "those of other data. Sample again, or build the model with its data; for rows that arrive "
                "later use dp.membership, dp.density or dp.sample_new_rows"
            )
