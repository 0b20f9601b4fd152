"""Replicates of observed rows, given labels from a posterior."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.distributions.operations import LabelsMixtureRV, drawable
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.families.counts import from_triplets
from pymc_dpgmm.kernels.marginal import same_values
from pymc_dpgmm.kernels.table import Table
from pymc_dpgmm.partitions import canonical_labels


class Witness:
    """Data that labels were sampled with and that ``pm.set_data`` may change: its values, by name.

    They are those of the model when it was built, and then those of the last ``pm.sample`` in this process.
    """

    def __init__(self) -> None:
        self.values: dict[str, np.ndarray] = {}

    def see(self, inputs: Sequence[Variable]) -> None:
        """Take the current values of all data behind the inputs of a mixture."""
        self.values = {
            a.name: np.array(a.get_value(borrow=True))
            for a in ancestors(inputs)
            if isinstance(a, SharedVariable) and a.name and not isinstance(a.type, RandomType)
        }

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError where data is known to be another."""
        for name, value in values.items():
            if not same_values(np.asarray(value), self.values[name]):
                raise ValueError(
                    f"{name} was changed by pm.set_data, or otherwise, after the labels were sampled: they are "
                    "those of other data. Sample again, or build the model with its data; for rows that arrive "
                    "later use dp.membership, dp.density or dp.sample_new_rows"
                )


class PosteriorRowsRV(LabelsMixtureRV):
    """Rows drawn anew given labels and data: cluster parameters from their posterior, then rows.

    The inputs are labels, the family's parameters, the data less its offset with columns for what is given,
    the offset if there is one, and all data of which the witness has values.

    Parameters
    ----------
    family : str
    is_vector, is_sparse, has_offset : bool
    d : int
        Columns of the data.
    seen : tuple of (str, int)
        Names and numbers of dimensions of the last inputs.
    witness : Witness
    """

    name = "PosteriorRows"
    dtype = "float64"
    __props__ = (
        "name",
        "signature",
        "dtype",
        "inplace",
        "family",
        "is_vector",
        "is_sparse",
        "has_offset",
        "d",
        "seen",
        "witness",
    )
    _print_name = ("PosteriorRows", "\\operatorname{PosteriorRows}")

    def __init__(
        self,
        family: str,
        is_vector: bool,
        is_sparse: bool,
        has_offset: bool,
        d: int,
        seen: tuple[tuple[str, int], ...],
        witness: Witness,
        **kwargs: Any,
    ) -> None:
        self.family = family
        self.is_vector = is_vector
        self.is_sparse = is_sparse
        self.has_offset = has_offset
        self.d = d
        self.seen = seen
        self.witness = witness
        drawn = "n" if is_vector else "n,d"
        inputs = ["n", *(",".join(letters) for letters in FAMILIES[family].axes.values()), "v,c"]
        inputs += [drawn] if has_offset else []
        inputs += [",".join(f"s{i}_{j}" for j in range(ndim)) for i, (_, ndim) in enumerate(seen)]
        kwargs["signature"] = ",".join(f"({letters})" for letters in inputs) + f"->({drawn})"
        super().__init__(**kwargs)

    def rng_fn(self, rng: np.random.Generator, labels: Any, *params: Any) -> np.ndarray:
        numbers = list(params[: len(params) - 1 - len(self.seen)])
        self.witness.check(dict(zip([name for name, _ in self.seen], params[len(numbers) : -1], strict=True)))
        offset = numbers.pop() if self.has_offset else 0.0
        *numbers, values = numbers
        family = FAMILIES[self.family]
        own = drawable(family, numbers)
        if self.is_sparse:
            values = from_triplets(np.asarray(values), (len(labels), len(own[0])))
        if len(labels) != values.shape[0]:
            raise ValueError(
                f"there are {len(labels)} labels, but the data has {values.shape[0]} rows: for rows that arrive "
                "later use dp.membership, dp.density or dp.sample_new_rows"
            )
        canonical, n_clusters = canonical_labels(np.unique(labels, return_inverse=True)[1])
        view = View(family, own, np.asarray(values) if not self.is_sparse else values)
        table = Table(view, n_clusters, for_sampling=False)
        table.sum_up(canonical, np.bincount(canonical))
        component = family.component
        drawn = component.draw(rng, table.shifted, table.sums(0, n_clusters))
        drawn = component.restore(drawn, table.origin)
        given = values.sum(axis=1)[:, None] if self.is_sparse else np.asarray(values)[:, self.d :]
        found = component.draw_rows(rng, drawn, canonical, given)
        return (found[:, 0] if self.is_vector else found) + offset
