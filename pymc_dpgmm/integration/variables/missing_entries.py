"""Missing entries of data as variables of a model, where they are not integrated out."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV


class MissingEntriesRV(LabelsMixtureRV):
    """Missing entries of a mixture's data, whose density is that of the completed data.

    Their own density is therefore 1. Prior draws of the data do not need them and have zeros. The parameters,
    location and scale, determine where chains start.
    """

    name = "MissingEntries"
    signature = "(m),(m)->(m)"
    dtype = "float64"
    _print_name = ("MissingEntries", "\\operatorname{MissingEntries}")

    def rng_fn(self, rng: np.random.Generator, location: Any, scale: Any, size: Any) -> np.ndarray:
        return np.zeros(np.shape(location))


class MissingEntries(pm.Distribution):
    """Missing entries of observed data: (m,), in the order of rows and then columns.

    Parameters
    ----------
    name : str
    values : (n,) or (n, d) array
        The data, NaN where an entry is missing. Chains start from draws of normal distributions with the means and
        standard deviations of the columns.
    """

    rv_type = MissingEntriesRV
    rv_op = MissingEntriesRV()

    @classmethod
    def dist(cls, values: np.ndarray, **kwargs: Any) -> Any:
        values = values.reshape(len(values), -1)
        empty = np.flatnonzero(np.all(np.isnan(values), axis=0))
        if len(empty):
            raise ValueError(f"all entries of column {empty[0]} are missing")
        column = np.nonzero(np.isnan(values))[1]
        location, scale = np.nanmean(values, axis=0)[column], np.nanstd(values, axis=0)[column]
        return super().dist([pt.as_tensor(location), pt.as_tensor(scale)], **kwargs)


def missing_logp(op: MissingEntriesRV, values: Any, *_: Any, **__: Any) -> Any:
    """Log density of missing entries, for PyMC: 0."""
    return pt.zeros((), dtype="float64")


def missing_support_point(op: MissingEntriesRV, rv: Any, rng: Any, size: Any, location: Any, scale: Any) -> Any:
    """Start of missing entries, for PyMC."""
    start = pt.random.normal(location, scale, rng=pt.random.shared_rng(seed=None), return_next_rng=True)
    return start[1]
