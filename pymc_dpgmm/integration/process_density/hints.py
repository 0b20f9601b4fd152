"""Hints at a conjugate family of the package that fits the base and the likelihood.

Hints depend on formulas, not only on their inputs: `sqrt(variance + se**2)` has the variance as an input too, but
fits no family. Whether an expression is the square root of a variance is tested by evaluating it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.integration.variables.atoms import AtomsRV, Template, atoms_inputs
from pymc_dpgmm.integration.variables.models import interpreted
from pymc_dpgmm.integration.variables.records import is_random

# Distributions of the base and of the data, and the base measure that integrates the parameter out.
_PAIRS = {
    (basic.GammaRV, basic.PoissonRV): "dp.GammaPoisson(a, b)",
    (basic.BetaRV, basic.BernoulliRV): "dp.BetaBernoulli(a, b)",
    (basic.BetaRV, basic.BinomialRV): "dp.BetaBinomial(a, b)",
    (basic.BetaRV, basic.NegBinomialRV): "dp.BetaNegativeBinomial(a, b, size)",
    (basic.NormalRV, basic.NormalRV): "dp.NormalKnownVariance(mu, tau2, variance)",
    (basic.MvNormalRV, basic.MvNormalRV): "dp.NormalKnownCovariance(mu, covariance_of_means, covariance)",
    (basic.VonMisesRV, basic.VonMisesRV): "dp.VonMises(mu, kappa, concentration)",
    (basic.DirichletRV, basic.CategoricalRV): "dp.DirichletCategorical(a)",
    (basic.DirichletRV, basic.MultinomialRV): "dp.DirichletMultinomial(a)",
}
# The mixture to use instead of a DirichletProcess, for each prior on partitions.
_MIXTURES = {
    "CRP": "dp.DPMixture",
    "PitmanYor": "dp.PYMixture",
    "FiniteDirichlet": "dp.FiniteMixture",
    "MFM": "dp.MFMixture",
}
# Two formulas are compared at these variances. All other inputs are set to one number.
_VARIANCES, _OTHERS = (0.37, 1.9, 26.0), 0.7


def family_for(parameters: Sequence[Variable], dependents: Sequence[Variable]) -> tuple[str, str] | None:
    """Return the mixture and the base measure that fit rows' parameters and their likelihood, or None.

    Parameters
    ----------
    parameters : list of variables
        All parameters of rows on some labels.
    dependents : list of variables
        The variables and potentials whose density depends on them.

    Returns
    -------
    (str, str) or None
        For example ``("dp.DPMixture", "dp.GammaPoisson(a, b)")``.
    """
    if len(dependents) != 1 or dependents[0].owner is None or not hasattr(dependents[0].owner.op, "dist_params"):
        return None
    (data,) = dependents
    data_params = data.owner.op.dist_params(data.owner)
    family = None
    if len(parameters) == 1:
        family = _family_of_one(parameters[0], data, data_params)
    elif len(parameters) == 2 and isinstance(data.owner.op, basic.NormalRV):
        # A mean and a variance, tied as in a normal-inverse-gamma prior.
        mean, variance = parameters if data_params[0] is parameters[0] else parameters[::-1]
        if data_params[0] is mean and _are_tied(mean, variance, data) and _is_root(data_params[1], variance):
            family = "dp.NormalInverseGamma(mu, kappa, a, b)"
    mixture = _MIXTURES.get(atoms_inputs(parameters[0])[0].owner.op.name)
    # A prior of another package has no such function.
    return None if family is None or mixture is None else (mixture, family)


def _family_of_one(parameter: Variable, data: Variable, data_params: Sequence[Variable]) -> str | None:
    """Return the base measure for a likelihood with the parameter itself as argument, and else known numbers."""
    if parameter not in data_params or any(is_random(other) for other in data_params if other is not parameter):
        return None
    op, position = data.owner.op, list(data_params).index(parameter)
    if data.type.ndim - op.ndim_supp != parameter.type.ndim - op.ndims_params[position]:
        # Several entries of the data share a parameter.
        return None
    base = _template_of(parameter).base.owner.op
    # Of a location, which comes first, the family integrates out the location and not what follows.
    locations = (basic.NormalRV, basic.MvNormalRV, basic.VonMisesRV)
    for (of_base, likelihood), family in _PAIRS.items():
        if isinstance(base, of_base) and isinstance(op, likelihood):
            return family if position == 0 or not issubclass(likelihood, locations) else None
    return None


def _template_of(rv: Variable) -> Template:
    assert isinstance(rv.owner.op, AtomsRV)
    return rv.owner.op.template


def _are_tied(mean: Variable, variance: Variable, data: Variable) -> bool:
    """Tell whether the mean is normal given the variance, and its variance is proportional to that variance."""
    template, inputs = _template_of(mean), atoms_inputs(mean)[1]
    base = template.base.owner.op
    if not isinstance(base, basic.NormalRV) or variance not in inputs:
        return False
    if not isinstance(_template_of(variance).base.owner.op, basic.InvGammaRV):
        return False
    if template.base.type.shape != _template_of(variance).base.type.shape or mean.type.ndim != data.type.ndim:
        return False
    location, scale = base.dist_params(template.base.owner)
    variance_leaf = template.inputs[inputs.index(variance)]
    if variance_leaf in set(ancestors([location])):
        return False
    others = {leaf: _numbers_like(leaf) for leaf in template.inputs if leaf is not variance_leaf}
    ratios = [_at(scale, {variance_leaf: np.full(_shape(variance_leaf), v)} | others) for v in _VARIANCES]
    if any(ratio is None for ratio in ratios):
        return False
    scaled = [ratio / np.sqrt(v) for ratio, v in zip(ratios, _VARIANCES, strict=True)]
    return all(np.allclose(ratio, scaled[0], rtol=1e-9, atol=0.0) for ratio in scaled)


def _is_root(scale: Variable, variance: Variable) -> bool:
    """Tell whether a scale is the square root of a variance, entry by entry."""
    leaf = variance.type()
    shape = _shape(leaf)
    # With different entries, a scale computed from another entry's variance is detected.
    factors = np.linspace(1.0, 1.7, int(np.prod(shape))).reshape(shape)
    for v in _VARIANCES:
        root = _at(clone_replace(scale, {variance: leaf}), {leaf: v * factors})
        if root is None or root.shape != shape or not np.allclose(root, np.sqrt(v * factors), 1e-9, 0.0):
            return False
    return True


def _at(expression: Variable, numbers: Mapping[Variable, np.ndarray]) -> np.ndarray | None:
    """Return the value of an expression at numbers, None if it depends on other unknown variables."""
    for leaf in ancestors([expression], blockers=numbers):
        is_known = leaf in numbers or leaf.owner is not None or isinstance(leaf, Constant | SharedVariable)
        if not is_known or isinstance(leaf.type, RandomType):
            return None
    function = interpreted(list(numbers), expression)
    try:
        return np.asarray(function(*numbers.values()))
    except (ValueError, AssertionError, IndexError):
        # The expression is not defined at these numbers.
        return None


def _numbers_like(leaf: Variable) -> np.ndarray:
    return np.full(_shape(leaf), _OTHERS).astype(leaf.type.dtype)


def _shape(leaf: Variable) -> tuple[int, ...]:
    return tuple(length or 1 for length in leaf.type.shape)
