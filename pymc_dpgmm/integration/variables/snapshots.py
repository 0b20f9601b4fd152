"""Snapshots of the data with which labels were sampled, so that draws are not combined with other data.

``pm.set_data`` may change data after sampling: the observed data, an offset, a covariate, the unit of each row.
Labels in the draws then belong to the earlier data, and posterior predictive draws must be refused.
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
    """Values of the data behind a mixture at one time, by name: immutable, and equal only to itself.

    A pickled copy, also in another process, holds the values with which the labels were last sampled.
    """

    def __init__(self, values: Mapping[str, np.ndarray]) -> None:
        self.values: Mapping[str, np.ndarray] = MappingProxyType(dict(values))

    def __reduce__(self) -> Any:
        return Snapshot, (dict(last_sampled(self).values),)


# Snapshots at the last sampling in this process, by the snapshots from the time when the mixtures were built.
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
    """Note that the labels of a mixture are sampled with the current data from now on."""
    _sampled[built] = snapshot(inputs)


def last_sampled(built: Snapshot) -> Snapshot:
    """Return the data of the last sampling in this process, or else of the time when the mixture was built."""
    return _sampled.get(built, built)


def calls_for_later_rows(mixture: str) -> str:
    """Return what a user calls for rows that arrive after sampling."""
    return (
        f"For rows that arrive later, dp.predict(idata, {mixture!r}, new) predicts what is missing in them, or "
        f"the columns that of= names, and dp.membership(idata, {mixture!r}, new) tells their clusters: less the "
        "offset of these rows, if the mixture has one, which is yours to subtract and to add"
    )


def check_unchanged(built: Snapshot, values: Mapping[str, Any], mixture: str) -> None:
    """Raise ValueError if data is known to differ from that with which the labels were sampled."""
    refuse_changes(values, last_sampled(built).values, mixture)


def refuse_changes(values: Mapping[str, Any], before: Mapping[str, np.ndarray], mixture: str) -> None:
    """Raise ValueError if values are not those before, by their names."""
    for name, value in values.items():
        if not same_values(np.asarray(value), before[name]):
            raise ValueError(
                f"{name} was changed by pm.set_data, or otherwise, after the labels were sampled, so that they "
                "belong to other data. Sample again, or build the model with its data. "
                + calls_for_later_rows(mixture)
            )
