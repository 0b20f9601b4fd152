"""Conjugate families of cluster distributions, one a module."""

from pymc_dpgmm.families import normal_inverse_gamma, normal_inverse_wishart, unobserved
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart
from pymc_dpgmm.families.verbs import Family

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        normal_inverse_wishart,
        normal_inverse_gamma,
        unobserved,
    )
}

__all__ = ["FAMILIES", "BaseMeasure", "Family", "NormalInverseGamma", "NormalInverseWishart"]
