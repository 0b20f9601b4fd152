"""Conjugate families of cluster distributions, one in each module."""

from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.beta_binomial import BetaBinomial
from pymc_dpgmm.families.beta_negative_binomial import BetaNegativeBinomial
from pymc_dpgmm.families.contract.base_measure import BASE_MEASURES, FAMILIES, BaseMeasure
from pymc_dpgmm.families.contract.component import Component
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import Parameter, positive, positive_definite, real, refuse_where
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.families.dirichlet_categorical import DirichletCategorical
from pymc_dpgmm.families.dirichlet_multinomial import DirichletMultinomial
from pymc_dpgmm.families.gamma_exponential import GammaExponential
from pymc_dpgmm.families.gamma_gamma import GammaGamma
from pymc_dpgmm.families.gamma_poisson import GammaPoisson
from pymc_dpgmm.families.linear_regression import LinearRegression
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart
from pymc_dpgmm.families.normal_known_covariance import NormalKnownCovariance
from pymc_dpgmm.families.normal_known_variance import NormalKnownVariance
from pymc_dpgmm.families.shared_covariance import SharedCovariance
from pymc_dpgmm.families.spherical_normal_inverse_gamma import SphericalNormalInverseGamma
from pymc_dpgmm.families.von_mises import VonMises

__all__ = [
    "BASE_MEASURES",
    "FAMILIES",
    "BaseMeasure",
    "BetaBernoulli",
    "BetaBinomial",
    "BetaNegativeBinomial",
    "Component",
    "DirichletCategorical",
    "DirichletMultinomial",
    "Family",
    "GammaExponential",
    "GammaGamma",
    "GammaPoisson",
    "LinearRegression",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalKnownCovariance",
    "NormalKnownVariance",
    "Parameter",
    "SharedCovariance",
    "SphericalNormalInverseGamma",
    "View",
    "VonMises",
    "positive",
    "positive_definite",
    "real",
    "refuse_where",
]
