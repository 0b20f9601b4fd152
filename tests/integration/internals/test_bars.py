"""Progress bars: the last frame is complete, also in a notebook, and a notebook without ipywidgets has a bar."""

import importlib.util

import numpy as np
import pymc as pm
import pytest
import rich
from rich.console import Console
from rich.live import Live

import pymc_dpgmm as dp
from pymc_dpgmm.integration.internals.bars import Bar

DATA = np.array([-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])


def make_model(alpha=1.0):
    with pm.Model() as model:
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=DATA)
    return model


def resumable():
    dp.ResumableRun(make_model(), chains=2, tune=20, random_seed=1).sample(80)
    return "200/200 draws"


def fit():
    dp.fit(make_model(), n_starts=4, random_seed=1)
    return "start 4 of 4"


def sensitivity():
    run = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1}
    dp.sensitivity(make_model, "y", {"alpha": 1.0}, {"alpha": [2.0]}, **run)
    return "100%"


RUNS = pytest.mark.parametrize("run", [resumable, fit, sensitivity])


@pytest.fixture
def notebook(monkeypatch):
    """Let rich take this for a notebook."""
    console = Console(force_jupyter=True)
    monkeypatch.setattr(rich, "_console", console)
    monkeypatch.setattr("pymc_dpgmm.integration.internals.bars.get_console", lambda: console)
    monkeypatch.setattr("rich.progress.get_console", lambda: console)


@RUNS
def test_the_last_frame_in_a_notebook_is_complete(run, notebook, monkeypatch):
    bars, frames = [], []
    init = Bar.__init__
    monkeypatch.setattr(Bar, "__init__", lambda self, *a, **k: (init(self, *a, **k), bars.append(self))[0])
    # What is displayed in a widget, whatever the thread that refreshes it is in time for.
    monkeypatch.setattr(Live, "refresh", lambda self: frames.append(bars[-1].line()))
    assert run() in frames[-1]


@RUNS
def test_the_last_line_in_a_terminal_is_complete(run, capsys):
    assert run() in capsys.readouterr().out.rstrip().splitlines()[-1]


@RUNS
def test_without_widgets_there_is_one_line_of_text(run, notebook, monkeypatch, capsys):
    # Rich would warn, which is an error here, and show nothing.
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ipywidgets" else found(name))
    expected = run()
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert shown.startswith("\r")
    *_, last = shown.rstrip("\n").split("\r")
    assert expected in last
    assert len(last) <= 80
    assert "\x1b" not in shown


def test_no_bar_is_shown_where_none_is_wanted(notebook, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with Bar(is_shown=False) as bar:
        bar.advance(bar.add_task("", total=3))
    assert capsys.readouterr().out == ""


def test_lines_of_text_cover_longer_ones(notebook, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("pymc_dpgmm.integration.internals.bars._BETWEEN", 0.0)
    with Bar("{task.description}") as bar:
        task = bar.add_task("", total=3)
        bar.update(task, description="a long description")
        bar.update(task, description="short")
    lines = capsys.readouterr().out.rstrip("\n").split("\r")
    assert lines[1].strip() == "a long description"
    assert lines[2] == "short".ljust(len("a long description"))
