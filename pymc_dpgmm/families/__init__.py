"""Conjugate families of cluster distributions, one in each module."""

from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.beta_binomial import BetaBinomial
from pymc_dpgmm.families.contract.base_measure import BASE_MEASURES, FAMILIES, BaseMeasure
from pymc_dpgmm.families.contract.component import Component
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import Parameter, positive, positive_definite, real, refuse_where
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.families.dirichlet_categorical import DirichletCategorical
from pymc_dpgmm.families.dirichlet_multinomial import DirichletMultinomial
from pymc_dpgmm.families.gamma_poisson import GammaPoisson
from pymc_dpgmm.families.linear_regression import LinearRegression
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart
from pymc_dpgmm.families.spherical_normal_inverse_gamma import SphericalNormalInverseGamma

__all__ = [
    "BASE_MEASURES",
    "FAMILIES",
    "BaseMeasure",
    "BetaBernoulli",
    "BetaBinomial",
    "Component",
    "DirichletCategorical",
    "DirichletMultinomial",
    "Family",
    "GammaPoisson",
    "LinearRegression",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "Parameter",
    "SphericalNormalInverseGamma",
    "View",
    "positive",
    "positive_definite",
    "real",
    "refuse_where",
]
