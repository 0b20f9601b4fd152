"""Shared set-up of the tests."""

import sys
from collections.abc import Iterator
from typing import Any

import pytensor
import pytest


def pytest_addoption(parser: Any) -> None:
    """Add an option for the slow suite."""
    parser.addoption(
        "--compile-graphs",
        action="store_true",
        help="compile graphs also where tests are `interpreted`, and run the first case of each test",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave the first case of each test where graphs are compiled that its other cases have too."""
    if config.option.compile_graphs:
        first = {getattr(item, "function", item): item for item in reversed(items)}
        others = [item for item in items if first[getattr(item, "function", item)] is not item]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def pytest_configure(config: Any) -> None:
    """Compile, or find on disk, what nearly every test calls, before workers do so all at once."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from pymc_dpgmm.families import FAMILIES
        from pymc_dpgmm.sampler.tuning.preparation import prepare
        from pymc_dpgmm.sampler.tuning.schedule import Options

        prepare([FAMILIES["NormalInverseWishart"], FAMILIES["NormalInverseGamma"]], Options())


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close what a test has drawn: matplotlib warns when many figures are open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Any:
    """Evaluate PyTensor's graphs node by node where a test is marked ``interpreted``, and in its fixtures.

    To compile them takes seconds each, and such tests evaluate them a few times. The package's own kernels are
    compiled either way. ``interpreted(False)`` makes an exception in a file that is marked.
    """
    marker = item.get_closest_marker("interpreted")
    is_interpreted = marker is not None and False not in marker.args and not item.config.option.compile_graphs
    # Without a compiler PyTensor interprets the graphs inside of operations too.
    flags = {"mode": "FAST_COMPILE", "cxx": ""} if is_interpreted else {}
    # Where a node was made is of no use here, and takes a tenth of the time of all tests to find out.
    with pytensor.config.change_flags(traceback__limit=0, **flags):
        return (yield)
