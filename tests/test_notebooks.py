"""Notebooks are stored as text, without output, and run from beginning to end."""

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


# One in every run; the others are slow.
PARAMETERS = [pytest.param(p, marks=() if p.stem == "old_faithful" else pytest.mark.slow) for p in NOTEBOOKS]


@pytest.mark.parametrize("path", PARAMETERS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own machinery
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_notebook_runs(path):
    NotebookClient(jupytext.read(path), timeout=600, kernel_name="python3").execute()


def test_there_are_notebooks():
    assert NOTEBOOKS
