"""Ctrl-C and kill at random moments: no crash, nothing lost that could be kept, and words that say what is."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.integration.hooks.chains import told_of_interrupted_chain, told_of_interrupted_tuning
from pymc_dpgmm.integration.hooks.convergence import checked_without_labels
from pymc_dpgmm.native.interrupts import interrupted_later, is_interrupt

# A process that samples again and again, and says how each run ended. The signals go to all of its children too,
# as those of a terminal do.
VICTIM = """
import sys, warnings, logging, signal
import numpy as np, pymc as pm, pymc_dpgmm as dp
from pymc_dpgmm.native.interrupts import is_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
cores, n = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
rows = rng.normal(size=(n, 2)) + 5.0 * rng.integers(4, size=n)[:, None]
with pm.Model() as model:
    dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=rows)
print("ready", flush=True)

def run():
    try:
        idata = pm.sample(200, tune=100, chains=2, cores=cores, progressbar=False, model=model)
    except ValueError as error:
        return "tuning" if "stopped while tuning" in str(error) else repr(error)
    except BaseException as error:
        return "interrupt" if is_interrupt(error) else repr(error)
    labels = idata.posterior["y_labels"].to_numpy()
    return "draws" if labels.shape[2] == n and labels.min() == 0 else repr(labels)

for _ in range(int(sys.argv[3])):
    try:
        print(run().replace(" ", "_"), flush=True)
    except KeyboardInterrupt:
        pass
"""


# A run ends with draws, tells that it was still tuning, or is stopped before it starts. PyMC's own processes end
# without an answer where they are stopped while they start, or do not read what they are sent: the pipe to them is
# then broken for who writes, and reset for who reads. An interrupt that comes while numba's list of new functions
# is read, as PyTensor does to compile a graph (where the package compiles, interrupts wait), ends that generator
# (``numba.core.utils.stream_list``) for the process.
HOW_RUNS_END = {
    "draws",
    "tuning",
    "interrupt",
    "EOFError()",
    "BrokenPipeError(32,_'Broken_pipe')",
    "ConnectionResetError(104,_'Connection_reset_by_peer')",
    "RuntimeError('generator_raised_StopIteration')",
}


def interrupted(cores, n_rows, n_interrupts, cache, seed, pause):
    """Interrupt a process at random moments; return what it said, and how it was alive in the end."""
    rng = np.random.default_rng(seed)
    environment = dict(os.environ) | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(cores), str(n_rows), "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    assert victim.stdout is not None
    try:
        assert victim.stdout.readline() == "ready\n"
        for _ in range(n_interrupts):
            time.sleep(rng.uniform(*pause))
            assert victim.poll() is None, victim.communicate()
            os.killpg(victim.pid, signal.SIGINT)
        time.sleep(1.0)
        alive = victim.poll() is None
    finally:
        if victim.poll() is None:
            os.killpg(victim.pid, signal.SIGKILL)
    said, errors = victim.communicate()
    return alive, said.split(), errors


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("n_rows", [300, 5_000])
def test_interrupts_while_sampling(cores, n_rows):
    """Twenty at random moments of tuning, sampling and checks, for each number of cores and rows."""
    alive, said, errors = interrupted(cores, n_rows, 20, None, 1, (0.05, 2.5))
    assert alive, errors
    assert set(said) <= HOW_RUNS_END


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cores", [1, 2])
def test_interrupts_while_compiling(cores, seed, tmp_path):
    """Seven at random moments of compilation from an empty cache, in each of four processes."""
    alive, said, errors = interrupted(cores, 100, 7, tmp_path, seed, (0.5, 6.0))
    assert alive, errors
    assert set(said) <= HOW_RUNS_END
    # What was written to the cache before is whole: another process uses it.
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(cores), "100", "1"],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ready", "draws"]


def test_words_for_a_run_that_is_stopped_while_tuning():
    class Trace(list):
        varnames = ("y_labels",)

        def __init__(self, n, model):
            super().__init__(range(n))
            self.model = model

    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=np.arange(6.0))
    calls = []
    choose = told_of_interrupted_tuning(lambda traces, tune: calls.append(len(traces)))
    with pytest.raises(ValueError, match=r"after 7 of 10 tuning draws.*dp.ResumableRun"):
        choose([Trace(3, model), Trace(7, model)], 10)
    choose([Trace(3, model), Trace(12, model)], 10)
    assert calls == [2]


def test_words_of_pymc_stay_its_own_where_nothing_was_stopped():
    with pm.Model() as plain:
        pm.Normal("x")
    with pm.Model() as mixture:
        dp.DPMixture("y", 1.0, observed=np.arange(6.0))
    for model in (plain, mixture):
        with model, pytest.raises(ValueError, match="Not enough samples to build a trace"):
            pm.sample(20, tune=20, chains=1, cores=1, progressbar=False, quiet=True, var_names=[])


def test_pymc_says_so():
    def stop(trace, draw):
        if draw.draw_idx == 12:
            raise KeyboardInterrupt

    with pm.Model():
        dp.DPMixture("y", 1.0, observed=np.arange(6.0))
        with pytest.raises(ValueError, match=r"stopped while tuning, after 1[0-9] of 50 tuning draws"):
            pm.sample(20, tune=50, chains=1, cores=1, progressbar=False, callback=stop)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN])
def usual(request):
    """What a process does at Ctrl-C: one that a shell starts in the background takes no notice."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def test_interrupts_wait_until_a_body_is_done(usual):
    done = []

    def work():
        with interrupted_later():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with contextlib.nullcontext() if usual == signal.SIG_IGN else pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is usual
    with pytest.raises(ZeroDivisionError), interrupted_later():
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is usual


def test_interrupts_of_another_thread_are_left_alone(usual):
    found = []

    def other():
        with interrupted_later():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [usual]


def test_a_chain_that_is_stopped_in_compiled_code_is_kept():
    def stopped(cause):
        def sample(**arguments):
            raise SystemError("returned a result with an exception set") from cause

        return sample

    whole = {"trace": range(7), "draws": 7, "tune": 2, "step": None, "chain": 0}
    told_of_interrupted_chain(stopped(KeyboardInterrupt()))(**whole)
    inner = SystemError("returned a result with an exception set")
    inner.__cause__ = KeyboardInterrupt()
    told_of_interrupted_chain(stopped(inner))(**whole)
    with pytest.raises(SystemError):
        told_of_interrupted_chain(stopped(ValueError()))(**whole)
    assert not is_interrupt(ValueError())


def test_draws_are_kept_where_the_check_of_convergence_is_stopped(monkeypatch, caplog):
    def stopped(idata, model):
        raise KeyboardInterrupt

    monkeypatch.setattr(pm.sampling.mcmc, "run_convergence_checks", checked_without_labels(stopped))
    with pm.Model(), caplog.at_level(logging.WARNING, "pymc.dpgmm"):
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=np.arange(6.0))
        idata = pm.sample(120, tune=20, chains=2, cores=1, progressbar=False)
    assert idata.posterior.sizes["draw"] == 120
    assert "The check of convergence was stopped; the draws are complete." in caplog.messages


KILLED = """
import sys
import numpy as np, pymc as pm, pymc_dpgmm as dp
with pm.Model() as model:
    dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=np.arange(20.0) ** 0.5)
path = sys.argv[1]
try:
    run = dp.ResumableRun.load(path, model)
except FileNotFoundError:
    run = dp.ResumableRun(model, chains=2, tune=100, random_seed=5)
print("ready", flush=True)
idata = run.sample(int(sys.argv[2]), checkpoint=path, every=0.0)
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_from_its_checkpoint(tmp_path, caplog):
    """Killed at any time, as by a batch system, a run has lost what came after its last checkpoint alone."""
    path = tmp_path / "run.pickle"
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=np.arange(20.0) ** 0.5)
    whole = dp.ResumableRun(model, chains=2, tune=100, random_seed=5).sample(400)
    rng = np.random.default_rng(3)
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, str(path), "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.2, 1.0))
            victim.kill()
            assert victim.wait() == -signal.SIGKILL
    with caplog.at_level(logging.INFO, "pymc.dpgmm"):
        run = dp.ResumableRun.load(path, model)
    assert any("of each chain; sample() goes on from there." in message for message in caplog.messages)
    # A checkpoint may lie within a round of the chains: one of them may be longer.
    missing = 400 - min(len(chain["draws"]) for chain in run._chains)
    idata = run.sample(missing) if missing > 0 else run.draws()
    for name in ("y_labels", "alpha"):
        np.testing.assert_array_equal(idata.posterior[name][:, :400], whole.posterior[name])


def test_words_for_what_a_file_holds(tmp_path, caplog):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=np.arange(6.0))
    run = dp.ResumableRun(model, chains=1, tune=20, random_seed=1)
    path = tmp_path / "run.pickle"
    run.save(path)
    with caplog.at_level(logging.INFO, "pymc.dpgmm"):
        dp.ResumableRun.load(path, model)
        run.sample(7, checkpoint=path)
        dp.ResumableRun.load(path, model)
    assert [message.split(" holds ")[1] for message in caplog.messages if " holds " in message] == [
        "0 of 20 tuning draws of each chain; sample() goes on from there.",
        "7 draws after tuning of each chain; sample() goes on from there.",
    ]


@pytest.mark.parametrize(
    ("stop", "words", "kept"),
    [(55, "36 of 40 draws", 72), (25, "6 of 40 draws", 40), (5, "6 of 20 tuning draws", 40)],
)
def test_a_chain_that_is_stopped_says_what_it_keeps(stop, words, kept, caplog):
    """In one process PyMC itself says nothing, and goes on with the next chain."""

    def interrupt(trace, draw):
        if draw.chain == 0 and draw.draw_idx == stop:
            raise KeyboardInterrupt

    with pm.Model(), caplog.at_level(logging.WARNING, "pymc.dpgmm"):
        dp.DPMixture("y", 1.0, observed=np.arange(8.0))
        idata = pm.sample(40, tune=20, chains=2, cores=1, random_seed=1, callback=interrupt, progressbar=False)
    (line,) = [line for line in caplog.messages if "was stopped after" in line]
    assert line.startswith(f"Chain 0 was stopped after {words}. PyMC goes on with the next chain")
    assert dict(idata.posterior.sizes)["draw"] * idata.posterior.sizes["chain"] == kept
