"""Read from a model a Dirichlet process as the prior of rows' parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.process_density.atom_densities import AtomDensities
from pymc_dpgmm.integration.process_density.row_terms import RowTerms
from pymc_dpgmm.integration.variables import dependents, fixed_rows, is_plain_mixture, mixture_inputs
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.integration.variables.lengths import explain_lengths
from pymc_dpgmm.integration.variables.models import with_densities


class ProcessModel:
    """Labels, the parameters of rows on them, and the densities that depend on these parameters.

    ``mixtures`` are the collapsed mixtures on the same labels.

    Parameters
    ----------
    model : pm.Model
    labels : variable
    compile_kwargs : dict, optional
        Options of ``pm.compile``.

    Raises
    ------
    NotImplementedError
        If the labels are fixed, rows are not independent given their parameters, or other variables depend on the
        labels.
    """

    def __init__(self, model: pm.Model, labels: Variable, compile_kwargs: Any = None) -> None:
        self.labels, self._model = labels, model
        if labels not in model.free_RVs:
            atoms = ", ".join(str(rv.name) for rv in model.free_RVs if is_atoms(rv))
            raise NotImplementedError(
                f"the labels of {atoms} are fixed, by pm.observe or pm.do, but dp.DirichletProcess can only be "
                "sampled together with its labels. With fixed labels, give each cluster a parameter: "
                'atoms = pm.Normal("atoms", shape=n_clusters), and atoms[labels] for the rows'
            )
        self.parameters = [rv for rv in model.free_RVs if is_atoms(rv) and atoms_inputs(rv)[0] is labels]
        parameters = set(self.parameters)
        depending_names = []
        self.mixtures: list[Variable] = []
        for other in dependents(model, labels):
            if is_plain_mixture(model, labels, other):
                self.mixtures.append(other)
            elif other not in parameters:
                depending_names.append(other.name)
        if depending_names:
            raise NotImplementedError(
                f"nothing but the parameters of dp.DirichletProcess, and a dp.CollapsedMixture, can depend on "
                f"{labels.name}, but {', '.join(depending_names)} does"
            )
        drawn = [mixture.name for mixture in self.mixtures if mixture_inputs(mixture).missing is not None]
        if drawn:
            raise NotImplementedError(
                f"missing entries of {', '.join(drawn)} would have to be drawn, which they cannot be on the "
                "labels of a dp.DirichletProcess: use a family that integrates over them, such as "
                "dp.NormalInverseGamma, and leave out impute="
            )
        depending = _depending_on_values(model, labels, self.parameters)
        self.dependents = list(depending)
        n = fixed_rows(labels)
        assert n is not None
        self.n = n
        self.terms = RowTerms(model, self.parameters, n, {rv.name: density for rv, density in depending.items()})
        self.densities = AtomDensities(model, self.parameters, self.terms, compile_kwargs)
        self._is_confirmed = False

    def confirm(self, point: Mapping[str, np.ndarray]) -> None:
        """Check once, numerically, that rows are independent given their parameters."""
        if self._is_confirmed:
            return
        self.densities.at(point)
        seeds = iter(range(1_000))
        try:
            self.terms.confirm(lambda n: self.densities.draws(next(seeds), n), point)
        except ValueError as error:
            names = ", ".join(str(rv.name) for rv in self.parameters)
            densities = [term.expression for term in self.terms.terms]
            explain_lengths(error, self._model, names, self.n, densities)
            raise
        self._is_confirmed = True


def _depending_on_values(
    model: pm.Model, labels: Variable, parameters: Sequence[Variable]
) -> dict[Variable, Variable]:
    """Return the log densities that depend on rows' parameters if all other values are fixed, by their variables.

    Step methods fix values, which may be transformed. If the bounds of a transformation depend on the parameters,
    the variable depends on its value and on the parameters. Densities that depend on this variable are then
    included.
    """
    values = {model.rvs_to_values[rv] for rv in parameters}
    others = [other for other in with_densities(model) if other is not labels and other not in parameters]
    densities = model.logp(vars=others, sum=False) if others else []
    return {
        other: density
        for other, density in zip(others, densities, strict=True)
        if values & set(ancestors([density]))
    }
