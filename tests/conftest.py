"""Shared set-up of the tests."""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Compile, or find on disk, what nearly every test calls, before workers do so all at once."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from pymc_dpgmm.families import FAMILIES
        from pymc_dpgmm.kernels.preparation import prepare
        from pymc_dpgmm.kernels.schedule import Options

        prepare([FAMILIES["NormalInverseWishart"], FAMILIES["NormalInverseGamma"]], Options())
