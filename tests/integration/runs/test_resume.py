"""A run that is interrupted, saved and continued equals one that was not."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.integration.runs import checkpoints
from pymc_dpgmm.integration.runs.checkpoints import Checkpoint, pack, unpack

pytestmark = pytest.mark.interpreted

ROWS = np.random.default_rng(0).normal(size=(25, 2)) + 4.0 * (np.arange(25) % 2)[:, None]


def make_model(rows=ROWS, rate=1.0, nu=4.0):
    with pm.Model() as model:
        kappa = pm.HalfNormal("kappa", 1.0)
        base = dp.NormalInverseWishart(0.0, kappa, nu, np.eye(2))
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, rate), base, observed=rows)
    return model


def new_run():
    return dp.ResumableRun(make_model(), chains=2, tune=60, random_seed=3)


def assert_equal(a, b):
    for name in ("y_labels", "alpha", "kappa", "y_n_clusters"):
        assert np.array_equal(a.posterior[name], b.posterior[name]), name
    assert np.array_equal(a.sample_stats["y_labels_log_joint"], b.sample_stats["y_labels_log_joint"])


def test_saved_runs_continue_bit_for_bit(tmp_path):
    whole = new_run().sample(80)
    run = new_run()
    run.sample(33)
    run.save(tmp_path / "run.pickle")
    continued = dp.ResumableRun.load(tmp_path / "run.pickle", make_model()).sample(47)
    assert continued.posterior.sizes["draw"] == 80
    assert_equal(whole, continued)


def test_runs_of_latent_rows_continue_bit_for_bit(tmp_path):
    """With the step size and the scales that were learnt."""

    def make():
        with pm.Model() as model:
            x = dp.DPMixture("x", 1.0, dp.NormalInverseGamma(pm.Normal("m"), 0.3, 2.5, 0.8), shape=5)
            pm.Normal("y", x + pm.Normal("slope") * np.arange(5.0), 0.5, observed=[0.1, 1.2, 4.0, 6.1, 8.3])
        return model

    run = {"chains": 1, "tune": 60, "random_seed": 3}
    whole = dp.ResumableRun(make(), **run).sample(20)
    interrupted = dp.ResumableRun(make(), **run)
    interrupted.sample(7)
    interrupted.save(tmp_path / "run.pickle")
    continued = dp.ResumableRun.load(tmp_path / "run.pickle", make()).sample(13)
    for name in ("x", "m", "slope", "x_labels"):
        np.testing.assert_array_equal(whole.posterior[name], continued.posterior[name])
    assert len(np.unique(continued.sample_stats["step_size"])) == 1


def test_a_run_does_not_go_on_with_another_model(tmp_path):
    run, path = new_run(), tmp_path / "run.pickle"
    run.save(path)
    for other, name in ((make_model(ROWS + 1.0), "y"), (make_model(rate=2.0), "alpha"), (make_model(nu=5.0), "y")):
        with pytest.raises(ValueError, match=f"the data of {name}, or numbers in its prior, differ"):
            dp.ResumableRun.load(path, other)
    assert repr(dp.ResumableRun.load(path, make_model())) == "<ResumableRun of 2 chains: 0 of 60 tuning draws>"


def test_a_run_tells_how_far_it_has_come_and_of_convergence(capsys, caplog):
    run = new_run()
    with caplog.at_level("INFO", logger="pymc"):
        run.sample(120)
    assert "sampling" in (shown := capsys.readouterr().out)
    assert "360/360 draws" in shown
    assert "2 chains have 60 tuning draws and 120 draws each" in caplog.text
    assert "We recommend running at least 4 chains" in caplog.text


def test_an_interrupted_run_keeps_its_draws_and_goes_on(monkeypatch):
    whole = new_run().sample(80)
    run, calls = new_run(), []
    step = dp.DPMixtureStep.step

    def interrupted(self, point):
        calls.append(1)
        if len(calls) == 251:
            raise KeyboardInterrupt
        return step(self, point)

    monkeypatch.setattr(dp.DPMixtureStep, "step", interrupted)
    kept = run.sample(80).posterior.sizes["draw"]
    assert 0 < kept < 80
    assert_equal(whole, run.sample(80 - kept))


def test_a_run_that_is_stopped_while_it_tunes_goes_on(monkeypatch, tmp_path):
    whole = new_run().sample(40)
    run, calls = new_run(), []
    step = dp.DPMixtureStep.step

    def interrupted(self, point):
        calls.append(1)
        if len(calls) == 70:
            raise KeyboardInterrupt
        return step(self, point)

    monkeypatch.setattr(dp.DPMixtureStep, "step", interrupted)
    assert run.sample(40) is None
    run.save(tmp_path / "run.pickle")
    assert [path.name for path in tmp_path.iterdir()] == ["run.pickle"]
    assert_equal(whole, dp.ResumableRun.load(tmp_path / "run.pickle", make_model()).sample(40))


def test_checkpoints_at_every_block_read_back_whole(tmp_path):
    path, whole = tmp_path / "run.pickle", new_run().sample(80)
    run = new_run()
    run.sample(20, checkpoint=path, every=0.0)
    run = dp.ResumableRun.load(path, make_model())
    run.sample(30, checkpoint=path, every=0.0)
    run.sample(30)
    run.save(path)
    assert_equal(whole, dp.ResumableRun.load(path, make_model()).draws())
    assert [own.name for own in tmp_path.iterdir()] == ["run.pickle"]


def test_an_interrupted_write_loses_nothing_that_was_there(tmp_path, caplog, monkeypatch):
    # States are larger than so few draws, and would have the file written anew.
    monkeypatch.setattr(checkpoints, "_MOST_REPLACED", 1.0)
    path, whole = tmp_path / "run.pickle", new_run().sample(60)
    run = new_run()
    run.sample(40)
    run.save(path)
    first = path.read_bytes()
    run.sample(20)
    run.save(path)
    second = path.read_bytes()
    # Wherever the write of what is new stops, in the head of a record, in draws or in the state after them.
    for length in np.linspace(len(first), len(second) - 1, 9).astype(int):
        path.write_bytes(second[:length])
        caplog.clear()
        loaded = dp.ResumableRun.load(path, make_model())
        assert ("was interrupted" in caplog.text) == (length > len(first))
        assert loaded.draws().posterior.sizes["draw"] == 40
    # What is left of the write is overwritten.
    assert_equal(whole, loaded.sample(20, checkpoint=path))
    assert_equal(whole, dp.ResumableRun.load(path, make_model()).draws())
    # And so it is with a record that is damaged.
    path.write_bytes(second[:-5] + bytes([second[-5] ^ 255]) + second[-4:])
    assert dp.ResumableRun.load(path, make_model()).draws().posterior.sizes["draw"] == 40


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("is_appended", [True, False])
def test_a_save_that_is_interrupted_is_made_up_for_by_the_next(call, is_appended, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_MOST_REPLACED", float(is_appended))
    path, run = tmp_path / "run.pickle", new_run()
    run.sample(40)
    run.save(path)
    run.sample(20)
    dumps, calls = pickle.dumps, []

    def interrupted(content):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return dumps(content)

    with monkeypatch.context() as patched:
        patched.setattr(pickle, "dumps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.save(path)
    assert dp.ResumableRun.load(path, make_model()).draws().posterior.sizes["draw"] == 40
    run.save(path)
    assert_equal(run.draws(), dp.ResumableRun.load(path, make_model()).draws())


def test_a_file_that_something_else_has_replaced_is_written_anew(tmp_path):
    path, run = tmp_path / "run.pickle", new_run()
    run.sample(20)
    run.save(path)
    other = new_run()
    other.save(path)
    run.save(path)
    assert_equal(run.draws(), dp.ResumableRun.load(path, make_model()).draws())
    path.unlink()
    run.save(path)
    assert_equal(run.draws(), dp.ResumableRun.load(path, make_model()).draws())


def chains_of(labels, state_bytes):
    """What a run hands over: one chain, a state that does not compress, and draws of labels."""
    state = np.random.default_rng(1).bytes(state_bytes)
    draws = [({"y_labels": own}, [{"y_labels_n_clusters": 3}]) for own in labels]
    return [{"point": {}, "state": state, "done": len(labels), "draws": draws}]


def test_labels_take_their_own_size_in_a_checkpoint(tmp_path):
    rng = np.random.default_rng(2)
    labels = list(rng.integers(200, size=(60, 5_000)).astype(np.int32))
    path = tmp_path / "run.pickle"
    file, sizes, before = Checkpoint(path, {}), [], b""
    for n in range(20, 61):
        file.save(chains_of(labels[:n], 100))
        sizes.append(path.stat().st_size)
        # It is appended to.
        assert path.read_bytes().startswith(before)
        before = path.read_bytes()
    # One byte a label of no pattern, where a label has four in memory.
    per_draw = np.diff(sizes)
    assert np.all(per_draw < 1.05 * 5_000)
    # Of labels of which few change, much less.
    still = np.tile(labels[0], (60, 1))
    for s in range(1, 60):
        still[s] = still[s - 1]
        still[s, rng.integers(5_000, size=20)] = 7
    file = Checkpoint(path, {})
    file.save(chains_of(still[:1], 100))
    alone = path.stat().st_size
    file.save(chains_of(still, 100))
    assert path.stat().st_size - alone < 0.1 * 59 * 5_000


def test_states_that_were_replaced_do_not_fill_the_disk(tmp_path):
    labels = list(np.random.default_rng(2).integers(200, size=(30, 1_000)).astype(np.int32))
    path = tmp_path / "run.pickle"
    file = Checkpoint(path, {})
    for n in range(1, 31):
        file.save(chains_of(labels[:n], 20_000))
        assert path.stat().st_size < 2.0 * (n * 1_100 + 21_000) + 1_000
        _, content, is_cut = Checkpoint.load(path)
        assert not is_cut
        assert len(content["chains"][0]["draws"]) == n


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (np.arange(256).reshape(2, 128), 1),
        (np.arange(257).reshape(1, 257), 2),
        (np.array([[-1, 5], [100, -128]]), 1),
        (np.array([[-1, 200]]), 2),
        (np.array([[-1, 2**62]]), 8),
        (np.array([[2**64 - 1, 0]], dtype=np.uint64), 8),
        (np.array([3, 70_000], dtype=np.int32), 4),
        (np.array([[0.5, np.nan]]), None),
        (np.array([[True, False]]), None),
        (np.empty((3, 0), dtype=np.int32), None),
    ],
)
def test_values_come_back_as_they_were(values, size):
    packed = pack(list(values))
    found = unpack(packed)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    assert size is None or np.dtype(packed.small).itemsize == size


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("mean", "other"),
    [
        (lambda x, b: x + b, lambda x, b: x - b),
        (lambda x, b: x - b, lambda x, b: b - x),
        (lambda x, b: pm.math.exp(b) * x, lambda x, b: pm.math.sigmoid(b) * x),
        (lambda x, b: b**2 * x, lambda x, b: abs(b) * x),
    ],
    ids=["minus", "order", "sigmoid", "absolute"],
)
def test_other_operations_are_another_model(tmp_path, mean, other):
    """Models that differ in nothing but what is done with the same numbers."""

    def make(mean):
        x = np.arange(6.0)
        with pm.Model() as model:
            dp.CRP("z", 1.0, 6)
            b = pm.Normal("b")
            pm.Normal("seen", mean(x, b), observed=x)
        return model

    run = dp.ResumableRun(make(mean), tune=2, chains=1, random_seed=1)
    run.save(tmp_path / "run.pickle")
    dp.ResumableRun.load(tmp_path / "run.pickle", make(mean))
    with pytest.raises(ValueError, match="seen"):
        dp.ResumableRun.load(tmp_path / "run.pickle", make(other))


def test_other_files_are_refused(tmp_path):
    path, run = tmp_path / "run.pickle", new_run()
    run.sample(20)
    run.save(path)
    for wrong in (b"", b"text", pickle.dumps([1, 2]), b"pymc_dpgmm run 2\n", path.read_bytes()[:300]):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"no checkpoint of a dp\.ResumableRun|begin a new run"):
            dp.ResumableRun.load(path, make_model())


def test_errors(tmp_path):
    run = new_run()
    with pytest.raises(ValueError, match="no draws after tuning"):
        run.draws()
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        run.sample(0)
    run.save(tmp_path / "run.pickle")
    with pm.Model() as other:
        pm.Normal("x")
    with pytest.raises(ValueError, match="the model has \\['x'\\]"):
        dp.ResumableRun.load(tmp_path / "run.pickle", other)
    with pytest.raises(ValueError, match="chains must be at least 1"):
        dp.ResumableRun(make_model(), chains=0)


def test_a_checkpoint_of_another_run_is_not_replaced(tmp_path):
    """As by a script that is run a second time."""
    path = tmp_path / "run.pickle"
    first = dp.ResumableRun(make_model(), chains=1, tune=5, random_seed=1)
    first.sample(5, checkpoint=path, progressbar=False)
    first.sample(5, checkpoint=path, progressbar=False)
    again = dp.ResumableRun(make_model(), chains=1, tune=5, random_seed=1)
    with pytest.raises(FileExistsError, match="may hold another run: continue that run with dp"):
        again.sample(5, checkpoint=path, progressbar=False)
    loaded = dp.ResumableRun.load(path, make_model())
    assert loaded.sample(5, checkpoint=path, progressbar=False)["posterior"].sizes["draw"] == 15
