"""Steps in processes that do not share memory with this one, as under Windows and by default from Python 3.14."""

import multiprocessing
import sys

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest
from support.model_kinds import KINDS, model_of
from support.sampled import sample

TUNE, DRAWS = 4, 3


class SentError(Exception):
    """Ends ``pm.sample`` when chains would begin."""


def drawn(step, point, seed):
    """The points of a chain."""
    step.setup_chain(np.random.default_rng(seed), TUNE, DRAWS)
    points = []
    for draw in range(TUNE + DRAWS):
        if draw == TUNE:
            step.stop_tuning()
        point, _ = step.step(point)
        points.append(point)
    return points


def drawn_elsewhere(pipe):
    """Draw with every step that comes through a pipe, in another process, until None comes."""
    pytensor.config.numba__fastmath = False
    for pickled, point in iter(pipe.recv, None):
        pipe.send(drawn(cloudpickle.loads(pickled), point, 5))


@pytest.fixture(scope="module")
def process():
    """A pipe to a process that draws with steps that it is sent."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    child = context.Process(target=drawn_elsewhere, args=(other,), daemon=True)
    child.start()
    other.close()
    yield pipe
    pipe.send(None)
    child.join(10)


def assert_are_same(points, others):
    for point, other in zip(points, others, strict=True):
        assert set(point) == set(other)
        for name, value in point.items():
            assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_steps_draw_the_same_in_a_process_that_they_are_sent_to(kind, process, monkeypatch):
    sent = {}

    def begin(step, start, **_):
        sent.update(step=step, point=start[0], pickled=cloudpickle.dumps(step))
        raise SentError

    model = model_of(kind)
    monkeypatch.setattr(pm.sampling.mcmc, "_mp_sample", begin)
    # With it, the rounding of code that has just been compiled is not that of the same code from disk.
    monkeypatch.setattr(pytensor.config, "numba__fastmath", False)
    with pytest.raises(SentError):
        sample(model, DRAWS, tune=TUNE, chains=2, cores=2, random_seed=1)
    own = drawn(sent["step"], sent["point"], 5)
    process.send((sent["pickled"], sent["point"]))
    assert process.poll(120), "the process has ended"
    assert_are_same(own, process.recv())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_processes_are_those_of_one_core(kind, method, monkeypatch):
    """Protects everything that ``pm.sample`` sends to processes, whichever way they begin."""
    # See above; processes read the environment.
    monkeypatch.setattr(pytensor.config, "numba__fastmath", False)
    monkeypatch.setenv("PYTENSOR_FLAGS", "numba__fastmath=False")
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"{sys.platform} begins no processes by {method}")
    options = {"tune": 20, "chains": 2, "random_seed": 1}
    if "process" not in kind:
        # Chains that tell each other what they have found draw otherwise where they run in turn.
        options["dpmixture"] = {"share": False}
    own = sample(model_of(kind), 10, cores=1, **options)
    other = sample(model_of(kind), 10, cores=2, mp_ctx=method, **options)
    for name, values in own.posterior.items():
        assert np.array_equal(values, other.posterior[name]), name
