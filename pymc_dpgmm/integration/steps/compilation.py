"""What the steps of a model will call is compiled while PyMC prepares a run."""

import pymc as pm

from pymc_dpgmm.integration.steps.grouped import is_topics
from pymc_dpgmm.integration.steps.hyperparameters import learnt_scales
from pymc_dpgmm.integration.steps.learnt_scales import kernels_of_scales
from pymc_dpgmm.integration.steps.targets import is_labels, sampled_family
from pymc_dpgmm.integration.variables import CollapsedMixtureRV, mixture_inputs, of_units
from pymc_dpgmm.integration.variables.atoms import has_atoms
from pymc_dpgmm.sampler.tuning.preparation import begin, functions_of
from pymc_dpgmm.sampler.tuning.schedule import Options


def begin_to_compile(model: pm.Model) -> None:
    """Begin to compile what the assigned step of a model's labels will call, as far as the model shows it.

    Topics, and parameters under a process, have few functions, which are compiled when they are used.
    """
    free = set(model.free_RVs)
    mixtures = [rv for rv in model.basic_RVs if isinstance(rv.owner.op, CollapsedMixtureRV)]
    labels = [of_units(mixture_inputs(mixture).labels)[0] for mixture in mixtures]
    families = [
        sampled_family(model, mixture)
        for mixture, of_rows in zip(mixtures, labels, strict=True)
        if of_rows in free and is_labels(of_rows) and not is_topics(of_rows) and not has_atoms(model, of_rows)
    ]
    if families:
        begin(functions_of(families, Options(), others=kernels_of_scales(learnt_scales(model))), families)
