"""A run that is interrupted, saved and continued equals one that was not."""

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

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


def test_a_run_does_not_go_on_with_another_model(tmp_path):
    run, path = new_run(), tmp_path / "run.pickle"
    run.save(path)
    for other, name in ((make_model(ROWS + 1.0), "y"), (make_model(rate=2.0), "alpha"), (make_model(nu=5.0), "y")):
        with pytest.raises(ValueError, match=f"the data of {name}, or numbers in the prior of it, differ"):
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
