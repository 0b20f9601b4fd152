"""Replicates of observed rows, given labels from a posterior."""

from typing import Any

import numpy as np

from pymc_dpgmm.distributions.operations import LabelsMixtureRV, as_numbers
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.families.counts import from_triplets
from pymc_dpgmm.kernels.marginal import same_values, summarize_clusters
from pymc_dpgmm.partitions import canonical_labels


class Witness:
    """What data labels were sampled with, where it may be changed later by ``pm.set_data``."""

    def __init__(self) -> None:
        self.data: np.ndarray | None = None

    def check(self, data: np.ndarray) -> None:
        """Raise ValueError where data is known to be another."""
        if self.data is not None and not same_values(np.asarray(data), self.data):
            raise ValueError(
                "the data was changed by pm.set_data after the labels were sampled: they are those of other rows. "
                "Sample again; or, for rows that arrive later, use dp.membership, dp.density or dp.sample_new_rows"
            )


class PosteriorRowsRV(LabelsMixtureRV):
    """Rows drawn anew given labels and data: cluster parameters from their posterior, then rows.

    The inputs are labels, the family's parameters, the data less its offset with columns for what is given,
    the offset if there is one, and the data as it is.
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
        "witness",
    )
    _print_name = ("PosteriorRows", "\\operatorname{PosteriorRows}")

    def __init__(
        self,
        family: str,
        is_vector: bool,
        is_sparse: bool,
        has_offset: bool,
        witness: Witness,
        **kwargs: Any,
    ) -> None:
        self.family = family
        self.is_vector = is_vector
        self.is_sparse = is_sparse
        self.has_offset = has_offset
        self.witness = witness
        drawn = "n" if is_vector else "n,d"
        inputs = ["n", *(",".join(letters) for letters in FAMILIES[family].axes.values()), "v,c"]
        inputs += [drawn] if has_offset else []
        inputs += ["z,t" if is_sparse else "z" if is_vector else "z,t"]
        kwargs["signature"] = ",".join(f"({letters})" for letters in inputs) + f"->({drawn})"
        super().__init__(**kwargs)

    def rng_fn(self, rng: np.random.Generator, labels: Any, *params: Any) -> np.ndarray:
        *numbers, data, _ = params
        self.witness.check(data)
        offset = numbers.pop() if self.has_offset else 0.0
        *numbers, values = numbers
        family = FAMILIES[self.family]
        own = family.params(*as_numbers(numbers))
        if not family.supports(own):
            raise ValueError(
                f"the parameters of {self.family} are outside their support, so there is no draw: {own}"
            )
        if self.is_sparse:
            values = from_triplets(np.asarray(values), (len(labels), len(own[0])))
        if len(labels) != values.shape[0]:
            raise ValueError(
                f"there are {len(labels)} labels, but the data has {values.shape[0]} rows: for rows that arrive "
                "later use dp.membership, dp.density or dp.sample_new_rows"
            )
        canonical, n_clusters = canonical_labels(np.unique(labels, return_inverse=True)[1])
        rows, origin = family.represent(own, np.asarray(values) if not self.is_sparse else values)
        summary = family.allocate_summary(own, n_clusters)
        summarize_clusters(summary, rows, canonical, np.bincount(canonical))
        component = family.component
        drawn = component.restore(component.draw(rng, family.shift(own, origin), summary), origin)
        d = data.shape[1] if data.ndim == 2 and not self.is_sparse else 1
        given = values.sum(axis=1)[:, None] if self.is_sparse else np.asarray(values)[:, d:]
        found = component.draw_rows(rng, drawn, canonical, given)
        return (found[:, 0] if self.is_vector else found) + offset
