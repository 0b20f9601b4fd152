"""What depends on what in a model."""

import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors


def dependents(model: pm.Model, variable: Variable) -> list[Variable]:
    """Return the variables and potentials of a model whose own log density depends on a variable.

    A variable that depends on it only through another random variable is not among them.
    """
    random = set(model.basic_RVs)
    found = []
    for other in [*model.basic_RVs, *model.potentials]:
        if other is variable:
            continue
        roots = other.owner.inputs if other in random else [other]
        if variable in set(ancestors(roots, blockers=random - {other})):
            found.append(other)
    return found
