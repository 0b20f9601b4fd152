"""Gamma functions of SciPy, imported when they are first called, since that takes as long as all the rest."""

from typing import Any


def gammaln(x: Any) -> Any:
    """Return the log of the absolute value of the gamma function: see ``scipy.special.gammaln``."""
    from scipy.special import gammaln

    return gammaln(x)


def digamma(x: Any) -> Any:
    """Return the derivative of ``gammaln``: see ``scipy.special.psi``."""
    from scipy.special import psi

    return psi(x)


def xlogy(x: Any, y: Any) -> Any:
    """Return ``x log y``, 0 where x is 0: see ``scipy.special.xlogy``."""
    from scipy.special import xlogy

    return xlogy(x, y)


def gammaincinv(shape: Any, share: Any) -> Any:
    """Return quantiles of gamma distributions with rate 1: see ``scipy.special.gammaincinv``."""
    from scipy.special import gammaincinv

    return gammaincinv(shape, share)
