"""PyMC step methods: read the point, call a kernel, write the point.

Moves that serve one structure of a model rest on one of two grounds, never on values that agree at some points.

The graph shows the structure, or the package has recorded it there: hyperparameters (``hyperparameters.py``),
numbers in offsets (``moved_by_offset``), gamma concentrations (``concentration_of``), learnt scales
(``learnt_scale``, by the record of the mixture), the row that a term depends on (``RowTerms``; its check of
numbers can only refuse), and observations that are alike (``RowTerms.are_alike``). That all else is
continuous is what its gradient says (``has_gradient``).

The acceptance ratio counts every density, so that a wrong guess costs acceptance alone: locations and scales of
the bases of atoms (``AtomsPart``), widths, and what Hamiltonian moves learn.
"""

from pymc_dpgmm.integration.steps.atoms import DirichletProcessStep
from pymc_dpgmm.integration.steps.components import ComponentsGibbs
from pymc_dpgmm.integration.steps.concentration import ConcentrationGibbs
from pymc_dpgmm.integration.steps.hidden_states import HiddenStatesStep
from pymc_dpgmm.integration.steps.mixture_steps import CollapsedGibbs, DPMixtureStep, SplitMerge
from pymc_dpgmm.integration.steps.segments import ChangePointsStep

__all__ = [
    "ChangePointsStep",
    "CollapsedGibbs",
    "ComponentsGibbs",
    "ConcentrationGibbs",
    "DPMixtureStep",
    "DirichletProcessStep",
    "HiddenStatesStep",
    "SplitMerge",
]
