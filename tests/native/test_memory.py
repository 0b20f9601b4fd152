"""What a process keeps from run to run: code is compiled once, also for models that differ in data alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from support.model_kinds import KINDS

from pymc_dpgmm.integration.internals import direct
from pymc_dpgmm.integration.internals.direct import DirectFunction

GROWTH = """
import ctypes, gc, sys
import numpy as np
from support.model_kinds import model_of
from support.sampled import sample

def memory():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

kind, is_fresh, n_runs = sys.argv[1], sys.argv[2] == "fresh", int(sys.argv[3])
model, found = model_of(kind), []
for run in range(n_runs):
    model = model_of(kind) if is_fresh else model
    sample(model, 20, tune=20, chains=1, random_seed=run)
    found.append(memory())
half = n_runs // 2
print((found[-1] - found[half]) / (n_runs - 1 - half))
"""


def growth(kind, models, n_runs):
    """MiB that each of the later runs of a process adds to its memory."""
    command = [sys.executable, "-W", "ignore", "-c", GROWTH, kind, models, str(n_runs)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    return float(found.stdout.split()[-1])


on_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux tells it")


@on_linux
def test_memory_does_not_grow_from_run_to_run():
    """A process added 1.7 MiB a run, and 12 with new data."""
    assert growth("process", "fresh", 8) < 1.0


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("models", ["same", "fresh"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_in_twenty_runs(kind, models):
    """Protects loops over data sets, such as calibrations, from filling the memory."""
    assert growth(kind, models, 20) < 1.0


def made(data, shared):
    x = pt.dvector("x")
    return DirectFunction([x], [(x * data + pt.exp(data)).sum() + shared.sum()])


def test_functions_that_differ_in_data_alone_are_compiled_once(monkeypatch):
    compiled, original = [], pm.compile
    monkeypatch.setattr(pm, "compile", lambda *given, **options: compiled.append(1) or original(*given, **options))
    monkeypatch.setattr(direct, "_kept", type(direct._kept)())
    x, variables = np.linspace(0.0, 1.0, 10), [pytensor.shared(np.ones(3)), pytensor.shared(np.zeros(3))]
    constants = [np.arange(10.0), np.arange(10.0) ** 2 / 20.0]
    functions = [made(pt.constant(data), shared) for data, shared in zip(constants, variables, strict=True)]
    variables[1].set_value(np.full(4, 2.0))
    for function, data, added in zip(functions, constants, (3.0, 8.0), strict=True):
        (found,) = function(x)
        np.testing.assert_allclose(found, (x * data).sum() + added + np.exp(data).sum(), rtol=1e-12)
    assert len(compiled) == 1
    # Other lengths and small constants are other code.
    made(pt.constant(np.arange(9.0)), variables[0])
    made(pt.constant(np.arange(2.0)), variables[0])
    assert len(compiled) == 3


def test_the_functions_that_have_not_been_used_for_longest_are_given_up(monkeypatch):
    monkeypatch.setattr(direct, "_kept", type(direct._kept)())
    monkeypatch.setattr(direct, "MOST_KEPT", 2)
    x = pt.dvector("x")
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        for factor in (2.0, 3.0, 2.0, 4.0):
            function = DirectFunction([x], x * factor)
            assert function(np.ones(2)).tolist() == [factor, factor]
    assert len(direct._kept) == 2


def test_data_of_a_user_can_still_be_written_to():
    data = np.arange(10.0)
    made(pt.constant(data), pytensor.shared(np.ones(3)))
    data[0] = 1.0


class Shifted(Op):
    """An operation that declares nothing of what it holds, as black-box likelihoods are often written."""

    __props__ = ()

    def __init__(self, by):
        self.by = by

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] + self.by)


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_operations_of_a_users_own_are_not_taken_for_each_other():
    x = pt.dscalar("x")
    found = [float(DirectFunction([x], 2.0 * Shifted(by)(x))(np.array(1.0))) for by in (0.0, 5.0)]
    assert found == [2.0, 12.0]
