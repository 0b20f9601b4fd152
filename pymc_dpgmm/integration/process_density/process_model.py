"""A Dirichlet process as the prior of rows' parameters, as it is found in a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.process_density.atom_densities import AtomDensities
from pymc_dpgmm.integration.process_density.row_terms import RowTerms
from pymc_dpgmm.integration.variables import dependents, fixed_rows
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.integration.variables.lengths import explain_lengths
from pymc_dpgmm.integration.variables.models import with_densities


class ProcessModel:
    """Labels, the parameters of rows on them, and what depends on these.

    Parameters
    ----------
    model : pm.Model
    labels : variable
    compile_kwargs : dict, optional
        Of ``pm.compile``.

    Raises
    ------
    NotImplementedError
        If the labels are fixed, rows are not independent given their parameters, or anything else depends on the
        labels.
    """

    def __init__(self, model: pm.Model, labels: Variable, compile_kwargs: Any = None) -> None:
        self.labels, self._model = labels, model
        if labels not in model.free_RVs:
            atoms = ", ".join(str(rv.name) for rv in model.free_RVs if is_atoms(rv))
            raise NotImplementedError(
                f"the labels of {atoms} are fixed, by pm.observe or pm.do, and dp.DirichletProcess is drawn "
                "together with its labels only. With fixed labels, give each cluster a parameter: "
                'atoms = pm.Normal("atoms", shape=n_clusters), and atoms[labels] for the rows'
            )
        self.parameters = [rv for rv in model.free_RVs if is_atoms(rv) and atoms_inputs(rv)[0] is labels]
        own = set(self.parameters)
        strangers = [other.name for other in dependents(model, labels) if other not in own]
        if strangers:
            raise NotImplementedError(
                f"nothing but the parameters of dp.DirichletProcess can depend on {labels.name}, but "
                f"{', '.join(strangers)} does"
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
        """Confirm once, by numbers, that rows are independent given their parameters."""
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
    """Return the log densities that depend on rows' parameters given values of all others, by what they are of.

    Values are what steps hold fixed. A variable whose transformation has bounds that depend on the parameters is
    computed from its value and from them, so that what depends on it depends on the parameters too.
    """
    values = {model.rvs_to_values[rv] for rv in parameters}
    others = [other for other in with_densities(model) if other is not labels and other not in parameters]
    densities = model.logp(vars=others, sum=False) if others else []
    return {
        other: density
        for other, density in zip(others, densities, strict=True)
        if values & set(ancestors([density]))
    }
