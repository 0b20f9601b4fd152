"""Rows drawn given labels, from the prior or from the posterior predictive distribution."""

from typing import Any

import numpy as np

from pymc_dpgmm.families import View
from pymc_dpgmm.families.shared.counts import from_triplets
from pymc_dpgmm.integration.variables.layout import Layout
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, drawable
from pymc_dpgmm.integration.variables.snapshots import Snapshot, calls_for_later_rows, check_unchanged
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable


class PriorRowsRV(LabelsMixtureRV):
    """Rows given labels: cluster parameters from the base measure, then rows. Observed data is not used.

    Parameters
    ----------
    layout : Layout
        Layout of the mixture, which has the same inputs.
    """

    name = "PriorRows"
    dtype = "float64"
    __props__ = ("name", "signature", "dtype", "inplace", "layout")
    _print_name = ("PriorRows", "\\operatorname{PriorRows}")

    def __init__(self, layout: Layout, **kwargs: Any) -> None:
        self.layout = layout
        super().__init__(**kwargs | {"signature": layout.signature()})

    def rng_fn(self, rng: np.random.Generator, *params: Any) -> np.ndarray:
        *values, size = params
        if size:
            raise NotImplementedError("a collapsed mixture has no batch dimensions")
        if self.layout.power != 1.0:
            raise NotImplementedError(
                "a mixture with power= is no density of its rows, so that there are none to draw from the prior: "
                "leave it out of var_names"
            )
        inputs, family = self.layout.split(values), self.layout.family
        drawn = drawable(family, inputs.params)
        covariates = np.empty((len(inputs.labels), 0)) if inputs.given is None else np.asarray(inputs.given)
        rows = family.draw_rows(rng, drawn, np.asarray(inputs.labels), covariates)
        rows = rows[:, 0] if self.layout.is_vector else rows
        return rows if inputs.offset is None else rows + inputs.offset


class PosteriorRowsRV(LabelsMixtureRV):
    """Replicates of rows given labels and data: cluster parameters from their posterior, then rows.

    Parameters
    ----------
    layout : Layout
        Layout with the completed rows in place of the data, and with the data of the model behind the inputs.
    built : Snapshot
        The data that the mixture was built with.
    mixture : str
        Its name, for messages.
    """

    name = "PosteriorRows"
    dtype = "float64"
    __props__ = ("name", "signature", "dtype", "inplace", "layout", "built", "mixture")
    _print_name = ("PosteriorRows", "\\operatorname{PosteriorRows}")

    def __init__(self, layout: Layout, built: Snapshot, mixture: str, **kwargs: Any) -> None:
        self.layout = layout
        self.built = built
        self.mixture = mixture
        super().__init__(**kwargs | {"signature": layout.signature()})

    def rng_fn(self, rng: np.random.Generator, *params: Any) -> np.ndarray:
        layout, inputs = self.layout, self.layout.split(params[:-1])
        behind = dict(zip([name for name, _ in layout.behind], inputs.behind, strict=True))
        check_unchanged(self.built, behind, self.mixture)
        family, labels, values = layout.family, inputs.labels, np.asarray(inputs.rows)
        numbers = drawable(family, inputs.params)
        if layout.is_sparse:
            values = from_triplets(values, (len(labels), len(numbers[0])))
        if len(labels) != values.shape[0]:
            raise ValueError(
                f"there are {len(labels)} labels, but the data has {values.shape[0]} rows. "
                + calls_for_later_rows(self.mixture)
            )
        canonical, n_clusters = canonical_labels(np.unique(labels, return_inverse=True)[1])
        table = ClusterTable(View(family, numbers, values), n_clusters, for_sampling=False)
        table.sum_up(canonical, np.bincount(canonical))
        component = family.component
        drawn = component.draw(rng, table.shifted, table.sums(0, n_clusters))
        drawn = component.restore(drawn, table.origin)
        covariates = values.sum(axis=1)[:, None] if layout.is_sparse else values[:, layout.n_columns :]
        rows = component.draw_rows(rng, drawn, canonical, covariates)
        rows = rows[:, 0] if layout.is_vector else rows
        return rows if inputs.offset is None else rows + inputs.offset
