"""What is released: one version, a recipe with the package's requirements, workflows that call what there is."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import pymc_dpgmm as dp

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = ROOT / "recipe" / "recipe.yaml"


def requirement(text):
    """Name and bounds, whatever is written between them."""
    name, bounds = re.fullmatch(r"([A-Za-z0-9_-]+)\s*(.*)", text).groups()
    return name, bounds


def test_one_version():
    assert "version" in PROJECT["dynamic"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == dp.__version__
    assert f"## {dp.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_the_recipe_renders():
    rattler_build = pytest.importorskip("rattler_build")
    recipe = rattler_build.Stage0Recipe.from_file(RECIPE)
    (variant,) = recipe.render()
    rendered = variant.recipe.to_dict()
    assert rendered["package"] == {"name": "pymc-dpgmm", "version": dp.__version__}
    wanted = {requirement(text) for text in PROJECT["dependencies"]}
    wanted.add(("python", PROJECT["requires-python"]))
    assert {requirement(text) for text in rendered["requirements"]["run"]} == wanted
    assert rendered["about"]["license"] == PROJECT["license"]
    assert rendered["about"]["summary"] == PROJECT["description"]


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_call_what_there_is(name):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = 0
    for job in workflow["jobs"].values():
        assert set(job.get("needs", [])) <= set(workflow["jobs"]) or job["needs"] in workflow["jobs"]
        assert job["timeout-minutes"] > 0
        for step in job["steps"]:
            command = step.get("run", "")
            for target in re.findall(r"make PYTHON=python ([a-z-]+)", command):
                assert target in targets
                called += 1
            for path in re.findall(r"(?:tests|tools|benchmarks)/[\w./-]+", command):
                assert (ROOT / path).exists()
                called += 1
    assert called
