"""Shared set-up of the tests."""

from typing import Any


def pytest_configure(config: Any) -> None:
    """Compile, or find on disk, what nearly every test calls, before workers do so all at once."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from pymc_dpgmm.kernels.memory import IN_VIEWS
        from pymc_dpgmm.kernels.state import fill, log_joint, rederive, write_labels
        from pymc_dpgmm.kernels.sweep import run_sweeps

        for function in (*IN_VIEWS, fill, log_joint, rederive, write_labels, run_sweeps):
            assert function.address
