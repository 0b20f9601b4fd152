"""The base measure that a mixture has where none is given."""

import numpy as np

from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart


def default_base(dtype: object, rows: np.ndarray) -> BaseMeasure:
    """Return a base measure for data of some dtype, made from rows (n,) or (n, d)."""
    if str(dtype) == "bool":
        return BetaBernoulli.from_data(rows)
    kind = NormalInverseGamma if rows.ndim == 1 else NormalInverseWishart
    return kind.from_data(rows)
