"""PyMC step methods: read the point, call a kernel, write the point.

Moves that serve one structure of a model rest on one of two grounds, never on values that agree at some points.

The graph shows the structure, or the package has recorded it there: hyperparameters (``hyperparameters.py``),
numbers in offsets (``moved_by_offset``), gamma concentrations (``concentration_of``), what atoms share
(``shared_variables``), learnt scales (``learnt_scale``, by the record of the mixture), the row that a term
depends on (``RowTerms``; its check of numbers can only refuse), and observations that are alike
(``RowTerms.are_alike``). That all else is continuous is what its gradient says (``can_move``).

The acceptance ratio counts every density, so that a wrong guess costs acceptance alone: means of the base of atoms
(``SharedOfAtoms``), directions of translations, widths, and scales of Hamiltonian moves.
"""

from pymc_dpgmm.integration.steps.atoms import DirichletProcessStep
from pymc_dpgmm.integration.steps.components import ComponentsGibbs
from pymc_dpgmm.integration.steps.concentration import ConcentrationGibbs
from pymc_dpgmm.integration.steps.mixture_steps import CollapsedGibbs, DPMixtureStep, SplitMerge

__all__ = [
    "CollapsedGibbs",
    "ComponentsGibbs",
    "ConcentrationGibbs",
    "DPMixtureStep",
    "DirichletProcessStep",
    "SplitMerge",
]
