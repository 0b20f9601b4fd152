"""The documentation names everything that is public, and its links lead somewhere."""

import inspect
import re
from pathlib import Path

import pytest

import pymc_dpgmm as dp

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "notebooks" not in page.parts]
PAGES += sorted((ROOT / "notebooks").glob("*.py"))
PUBLIC = [name for name in dp.__all__ if name != "datasets"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        # Pages of the reference are made when the site is built.
        if "://" not in target and "reference/generated" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_has_every_public_name():
    reference = (ROOT / "docs" / "reference" / "index.md").read_text()
    listed = set(re.findall(r"^   (?:families\.|testing\.)?(\w+)$", reference, re.MULTILINE))
    loaders = {name for name in vars(dp.datasets) if name.startswith("load_")}
    assert {*PUBLIC, *loaders} <= listed


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name):
    assert "Examples\n--------" in inspect.getdoc(getattr(dp, name))


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines.index("## Features") <= 60
    assert all(len(line) <= 115 for line in lines if not line.startswith("!["))
