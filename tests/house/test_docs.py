"""The documentation names everything that is public, and its links lead somewhere."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import pymc_dpgmm as dp

ROOT = Path(__file__).parents[2]
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


SOURCES = sorted(Path(dp.__file__).parent.rglob("*.py"))
CALL = re.compile(r"`+((?:with pm\.Model\(\): )?(?:\w+ = )?dp\.[A-Za-z_.]+\([^`]*\))`+")


def shown_calls(path):
    """Return the calls of public functions that prose, a docstring or a message shows."""
    text = re.sub(r"\s*\n\s*(?:#\s*)?", " ", path.read_text())
    for found in CALL.finditer(text):
        try:
            tree = ast.parse(found.group(1).partition("= ")[2] if " = dp." in found.group(1) else found.group(1))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield node


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_calls_that_are_shown_have_arguments_that_there_are(path):
    for call in shown_calls(path):
        name = ast.unparse(call.func)
        if not name.startswith("dp."):
            continue
        public = dp
        for part in name.removeprefix("dp.").split("."):
            public = getattr(public, part)
        given = [ast.unparse(argument) for argument in call.args]
        keywords = {keyword.arg: "" for keyword in call.keywords if keyword.arg is not None}
        is_whole = "..." not in given and "Ellipsis" not in given
        signature = inspect.signature(public)
        given = [argument for argument in given if argument != "..."]
        try:
            (signature.bind if is_whole and (given or keywords) else signature.bind_partial)(*given, **keywords)
        except TypeError as error:
            pytest.fail(f"{ast.unparse(call)}: {error}")


def _is_slow(node):
    return isinstance(node, ast.FunctionDef) and any("slow" in ast.unparse(d) for d in node.decorator_list)


def test_slow_tests_say_what_they_protect():
    """Nobody leaves out, or shortens, what takes minutes without knowing what is lost."""
    silent = [
        f"{path.name}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if _is_slow(node) and not ast.get_docstring(node)
    ]
    assert silent == []
