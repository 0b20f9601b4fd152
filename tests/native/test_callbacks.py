"""Functions that compiled graphs call by name: called, kept as long as needed, and found on disk."""

import gc
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.integration.internals import callbacks
from pymc_dpgmm.integration.internals.callbacks import callback_of_node, described
from pymc_dpgmm.integration.variables.chunked_partition import EvidenceOp
from pymc_dpgmm.integration.variables.operations import JointOp, MarginalLikelihoodOp, ParameterGradientOp

ROWS = np.array([-2.1, -1.9, 0.3, 4.0, 4.2, 3.8])


def density_of(rows, family=dp.NormalInverseGamma, mode=None):
    """The compiled log density of a mixture, and its gradient in kappa, as a function of kappa."""
    with pm.Model() as model:
        kappa = pm.Gamma("kappa", 1.0, 1.0, default_transform=None)
        dp.DPMixture("y", 1.0, family(0.0, kappa, 2.0, 1.0), observed=rows)
    compiled = model.compile_fn([model.logp(), model.dlogp(vars=[kappa])], mode=mode)
    labels = np.arange(len(rows)) % 2
    return lambda kappa: np.concatenate([np.ravel(v) for v in compiled({"kappa": kappa, "y_labels": labels})])


def test_equal_graphs_of_different_data_have_their_own_values():
    """They differ in constants only."""
    functions = [density_of(rows) for rows in (ROWS, -2.0 * ROWS)]
    slow = [density_of(rows, mode="FAST_COMPILE") for rows in (ROWS, -2.0 * ROWS)]
    for kappa in (0.1, 0.5, 0.1):
        found = [function(kappa) for function in functions]
        np.testing.assert_allclose(found, [function(kappa) for function in slow], rtol=1e-12)
        assert len(np.unique(np.round(found, 6))) == 4


def test_a_name_belongs_to_one_node_as_long_as_it_lives():
    """PyTensor keeps some nodes for ever."""
    op = EvidenceOp("NormalInverseGamma", 7)
    nodes = [op.make_node(pt.dmatrix(), pt.dvector(), *[pt.dvector() for _ in range(4)]) for _ in range(3)]
    made = [callback_of_node(node, lambda n=n: n) for n, node in enumerate(nodes)]
    assert [function() for function, _ in made] == [0, 1, 2]
    names = [name for _, name in made]
    assert len(set(names)) == 3
    del nodes[1]
    gc.collect()
    assert [name in callbacks._of_nodes for name in names] == [True, False, True]
    # The next one gets the name that is free.
    nodes.append(op.make_node(*nodes[0].inputs))
    function, name = callback_of_node(nodes[-1], lambda: 3)
    assert name == names[1]
    assert function() == 3
    assert [made[0][0](), made[2][0]()] == [0, 2]


def test_a_family_that_is_defined_anew_has_functions_of_its_own(monkeypatch):
    """Models of the old one keep theirs."""
    old = density_of(ROWS)
    before = old(0.5)
    family = FAMILIES["NormalInverseGamma"]

    def doubled(params, sums):
        return {name: 2.0 * np.asarray(value) for name, value in family.gradient(params, sums).items()}

    monkeypatch.setitem(FAMILIES, "NormalInverseGamma", replace(family, gradient=doubled))
    value, slope = density_of(ROWS)(0.5)
    assert value == before[0]
    # That of the gamma prior is in both.
    assert slope - -1.0 == pytest.approx(2.0 * (before[1] - -1.0), rel=1e-12)
    np.testing.assert_array_equal(old(0.5), before)


def test_known_labels_of_one_model_are_none_of_another():
    """Their graphs differ in constants only."""

    def is_possible(must_link):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=ROWS, must_link=must_link)
        return model.compile_fn(model.logp())

    together, apart = is_possible([0, -1, 0, -1, -1, -1]), is_possible([0, 0, -1, -1, -1, -1])
    for labels, expected in (([0, 0, 1, 1, 1, 1], (False, True)), ([0, 1, 0, 1, 1, 1], (True, False))):
        point = {"y_labels": np.array(labels)}
        assert (np.isfinite(together(point)), np.isfinite(apart(point))) == expected


def test_operations_are_told_apart():
    parts = MarginalLikelihoodOp("NormalInverseGamma"), ParameterGradientOp("NormalInverseGamma")
    ops = [
        *parts,
        MarginalLikelihoodOp("NormalInverseWishart"),
        MarginalLikelihoodOp("NormalInverseGamma", True),
        JointOp(parts),
        JointOp(parts[::-1]),
        EvidenceOp("NormalInverseGamma", 1),
        EvidenceOp("NormalInverseGamma", 2),
    ]
    texts = [described(op) for op in ops]
    assert None not in texts
    assert len(set(texts)) == len(ops)
    assert described(MarginalLikelihoodOp("NormalInverseGamma")) == texts[0]
    assert described((1, np.ones(2))) is None


PROCESS = """
import numpy as np, pymc as pm, pymc_dpgmm as dp
from numba.core import event

with pm.Model() as model:
    kappa = pm.Gamma("kappa", 1.0, 1.0)
    base = dp.NormalInverseGamma(0.0, kappa, 2.0, 1.0)
    dp.DPMixture("y", 1.0, base, observed=np.array([-2.1, -1.9, 4.0, 4.2]))
with event.install_recorder("numba:compile") as recorder:
    log_density = model.compile_fn([model.logp(), *model.dlogp(vars=[kappa])])
    values = log_density(model.initial_point(0) | {"y_labels": np.array([0, 0, 1, 1])})
# What calls Python takes no time to compile, and is not kept.
compiled = [type(e.data["dispatcher"]).__name__ for _, e in recorder.buffer if e.is_start]
print(compiled.count("CPUDispatcher"), *values)
"""


@pytest.mark.slow
def test_the_next_process_finds_all_compiled_code_on_disk(tmp_path):
    """A second process compiles nothing, and has the same density and gradients."""
    environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    found = []
    for _ in range(2):
        command = [sys.executable, "-W", "ignore", "-c", PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        found.append(done.stdout.strip().splitlines()[-1].split())
    assert int(found[0][0]) > 0
    assert int(found[1][0]) == 0
    assert found[0][1:] == found[1][1:]


def test_draws_outlive_the_nodes_that_they_were_made_for():
    """PyTensor compiles those of random variables as parts of other operations."""
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=ROWS)
        draws = []
        for seed in (1, 1, 2):
            draws.append(
                pm.sample_prior_predictive(3, random_seed=seed)["prior_predictive"].dataset["y"].to_numpy()
            )
            gc.collect()
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


PRIOR = """
import sys
import numpy as np, pymc as pm, pymc_dpgmm as dp

n = int(sys.argv[1])
with pm.Model(coords={"row": range(n)}):
    base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    unit = np.arange(n) // 2 if sys.argv[2] == "unit" else None
    dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=np.arange(float(n)), unit=unit)
    drawn = pm.sample_prior_predictive(3, random_seed=1)["prior_predictive"].dataset["y"]
print(drawn.shape)
"""


@pytest.mark.slow
def test_other_shapes_find_the_code_and_what_it_calls(tmp_path):
    """Code on disk that was compiled for graphs alike but for their static shapes."""
    environment = os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    for n, kind in ((6, "row"), (9, "unit"), (9, "row")):
        command = [sys.executable, "-W", "ignore", "-c", PRIOR, str(n), kind]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.strip().endswith(f"(1, 3, {n})"), done.stderr
