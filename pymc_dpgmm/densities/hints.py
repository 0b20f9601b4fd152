"""Hints at a family of the package where one fits the base and the likelihood."""

from collections.abc import Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic

from pymc_dpgmm.distributions.atoms import AtomsRV

# Distributions of the base and of the data, and the base measure that integrates the parameter out.
_PAIRS = {
    (basic.GammaRV, basic.PoissonRV): "dp.GammaPoisson(a, b)",
    (basic.BetaRV, basic.BernoulliRV): "dp.BetaBernoulli(a, b)",
    (basic.BetaRV, basic.BinomialRV): "dp.BetaBinomial(a, b)",
    (basic.DirichletRV, basic.CategoricalRV): "dp.DirichletCategorical(a)",
    (basic.DirichletRV, basic.MultinomialRV): "dp.DirichletMultinomial(a)",
}


def family_for(parameters: Sequence[Variable], dependents: Sequence[Variable]) -> str | None:
    """Return the base measure of a family that fits rows' parameters and what depends on them, or None."""
    if len(dependents) != 1 or dependents[0].owner is None:
        return None
    (data,) = dependents
    bases = [_base_of(rv) for rv in parameters]
    has_params = hasattr(data.owner.op, "dist_params")
    given: Sequence[Variable] = data.owner.op.dist_params(data.owner) if has_params else []
    if len(parameters) == 1:
        for (base, likelihood), family in _PAIRS.items():
            is_pair = isinstance(bases[0].owner.op, base) and isinstance(data.owner.op, likelihood)
            if is_pair and parameters[0] in given:
                return family
        return None
    # A mean and a variance, tied as in a normal-inverse-gamma prior.
    if len(parameters) != 2 or not isinstance(data.owner.op, basic.NormalRV):
        return None
    for mean, variance in (parameters, parameters[::-1]):
        kinds = _base_of(mean).owner.op, _base_of(variance).owner.op
        is_tied = variance in mean.owner.inputs
        if (
            isinstance(kinds[0], basic.NormalRV)
            and isinstance(kinds[1], basic.InvGammaRV)
            and is_tied
            and len(given) == 2
            and given[0] is mean
            and variance in set(ancestors([given[1]], blockers=[mean]))
        ):
            return "dp.NormalInverseGamma(mu, kappa, a, b)"
    return None


def _base_of(rv: Variable) -> Variable:
    assert isinstance(rv.owner.op, AtomsRV)
    return rv.owner.op.template.base
