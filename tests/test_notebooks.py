"""Notebooks are stored as text, without output, and run from beginning to end."""

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


# The documentation is built from them, too.
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own machinery
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_notebook_runs(path):
    """Every notebook runs from an empty kernel, without a warning."""
    NotebookClient(jupytext.read(path), timeout=600, kernel_name="python3").execute()


def test_there_are_notebooks():
    assert NOTEBOOKS
