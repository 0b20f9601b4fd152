"""Register the densities, starts and steps of the package's variables with PyMC, when the package is imported."""

import importlib

from pymc_dpgmm.integration import variables
from pymc_dpgmm.integration.hooks.guards import guard, guard_chunks, guard_results
from pymc_dpgmm.integration.hooks.printing import hide_records, print_by_family
from pymc_dpgmm.integration.internals.first_use import CHUNKS, GRAPH, MIXTURE, at_first
from pymc_dpgmm.integration.internals.pymc_internals import STEP_METHODS, logprob, support_point
from pymc_dpgmm.integration.steps import (
    ChangePointsStep,
    ComponentsGibbs,
    ConcentrationGibbs,
    DPMixtureStep,
    HiddenStatesStep,
)
from pymc_dpgmm.integration.variables import (
    atoms,
    chunked_partition,
    grouped_labels,
    hidden_labels,
    segment_labels,
)


def register() -> None:
    """Register the package's variables and steps with PyMC; a second call changes nothing."""
    logprob.register(variables.CollapsedMixtureRV)(variables.mixture_logp)
    logprob.register(variables.MissingEntriesRV)(variables.missing_logp)
    logprob.register(atoms.AtomsRV)(atoms.atoms_logp)
    logprob.register(chunked_partition.ChunkedClustersRV)(chunked_partition.chunked_logp)
    support_point.register(variables.MissingEntriesRV)(variables.missing_support_point)
    support_point.register(variables.CollapsedMixtureRV)(variables.mixture_support_point)
    support_point.register(variables.PartitionRV)(variables.partition_support_point)
    support_point.register(atoms.AtomsRV)(atoms.atoms_support_point)
    support_point.register(grouped_labels.GroupedLabelsRV)(grouped_labels.grouped_labels_support_point)
    support_point.register(segment_labels.SegmentsRV)(segment_labels.segments_support_point)
    support_point.register(hidden_labels.HiddenLabelsRV)(hidden_labels.hidden_support_point)
    support_point.register(hidden_labels.HiddenOpenersRV)(hidden_labels.hidden_openers_support_point)
    support_point.register(grouped_labels.OpenersRV)(grouped_labels.openers_support_point)
    support_point.register(chunked_partition.ChunkedClustersRV)(chunked_partition.chunked_support_point)
    for step in (DPMixtureStep, ChangePointsStep, HiddenStatesStep, ConcentrationGibbs, ComponentsGibbs):
        if step not in STEP_METHODS:
            STEP_METHODS.append(step)
    hide_records()
    for action in (_import_backends, guard, print_by_family):
        at_first(GRAPH, action)
    at_first(MIXTURE, guard_results)
    for action in (guard_results, guard_chunks):
        at_first(CHUNKS, action)


def _import_backends() -> None:
    # Imported by name, and only now: the module imports PyTensor's backends, which takes long.
    importlib.import_module("pymc_dpgmm.integration.hooks.backends")
