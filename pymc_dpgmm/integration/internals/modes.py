"""Modes of PyTensor in which the package's operations cannot be evaluated."""

from typing import Any

from pytensor.compile.mode import get_mode

NO_JAX = "pymc_dpgmm does not support the JAX backend; use the default backend of pm.sample"


def check_mode(mode: Any) -> None:
    """Raise NotImplementedError if a compilation mode is that of JAX."""
    # The class is compared by name, since importing it takes long.
    if any(kind.__name__ == "JAXLinker" for kind in type(get_mode(mode).linker).__mro__):
        raise NotImplementedError(NO_JAX)
