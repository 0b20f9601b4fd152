"""Special functions, for arrays and for compiled code.

Those of SciPy are imported when they are first called, since that takes as long as all the rest. In compiled code
:func:`digamma` and :func:`log_i0` take single numbers and are what this module writes for them.

A difference of two log gammas loses digits where their arguments are large. What takes its place is
:func:`log_rising` for single numbers, in compiled code too, :func:`log_risings` for arrays, and
``pymc_dpgmm.integration.variables.rising`` for PyTensor's variables.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.native.compiled import compiled_as, inlined

# From this base on Stirling's series has no error that double precision would show.
_LARGE_BASE = 60.0
# Up to so many factors a rising factorial is multiplied out, from a base whose power to that is far from overflow.
_FEW_FACTORS = 12
_LARGEST_FACTOR = 1e20
# Where the asymptotic series of digamma and of the Bessel function begin, and the share of a last term.
_LARGE_DIGAMMA = 10.0
_LARGE_BESSEL = 20.0
_LAST_TERM = 1e-17


def gammaln(x: Any) -> Any:
    """Return the log of the absolute value of the gamma function: see ``scipy.special.gammaln``."""
    from scipy.special import gammaln

    return gammaln(x)


def digamma(x: Any) -> Any:
    """Return the derivative of ``gammaln``: see ``scipy.special.psi``. In compiled code, x must be > 0."""
    from scipy.special import psi

    return psi(x)


@compiled_as(digamma)
def _digamma(x):
    """Compute digamma for x > 0, by 1 / x = digamma(x + 1) - digamma(x) and its asymptotic series."""
    if not x > 0.0:
        return math.nan
    value = 0.0
    while x < _LARGE_DIGAMMA:
        value -= 1.0 / x
        x += 1.0
    square = 1.0 / (x * x)
    tail = 1.0 / 132.0 - square * (691.0 / 32760.0 - square / 12.0)
    tail = 1.0 / 120.0 - square * (1.0 / 252.0 - square * (1.0 / 240.0 - square * tail))
    return value + math.log(x) - 0.5 / x - square * (1.0 / 12.0 - square * tail)


def xlogy(x: Any, y: Any) -> Any:
    """Return ``x log y``, 0 where x is 0: see ``scipy.special.xlogy``."""
    from scipy.special import xlogy

    return xlogy(x, y)


def gammaincinv(shape: Any, share: Any) -> Any:
    """Return quantiles of gamma distributions with rate 1: see ``scipy.special.gammaincinv``."""
    from scipy.special import gammaincinv

    return gammaincinv(shape, share)


def log_i0(x: Any) -> Any:
    """Return the log of the modified Bessel function of the first kind of order zero.

    Densities of directions have it in their norm. It neither overflows nor loses digits: near 0 it is x^2 / 4.

    Examples
    --------
    >>> log_i0(np.array([1.0, 10.0])).round(4)
    array([0.2359, 7.943 ])
    """
    from scipy.special import i0e

    x = np.abs(x)
    quarter = 0.25 * np.minimum(x, 1.0) ** 2
    term = series = quarter
    for k in range(2, 11):
        term = term * quarter / (k * k)
        series = series + term
    return np.where(x < 1.0, np.log1p(series), x + np.log(i0e(x)))[()]


@compiled_as(log_i0)
def _log_i0(x):
    """Compute log_i0 by the power series, all of whose terms are positive, or the asymptotic one."""
    x = abs(x)
    term, total, k = 1.0, 0.0, 1.0
    if x < _LARGE_BESSEL:
        quarter = 0.25 * x * x
        while term > _LAST_TERM * total:
            term *= quarter / (k * k)
            total += term
            k += 1.0
        return math.log1p(total)
    # The terms fall until 2 x of them are added, and the last one is by then far below what matters.
    while term > _LAST_TERM:
        term *= (2.0 * k - 1.0) * (2.0 * k - 1.0) / (8.0 * k * x)
        total += term
        k += 1.0
    return x - 0.5 * math.log(2.0 * math.pi * x) + math.log1p(total)


@inlined
def _stirling_tail(x):
    """Tail of Stirling's series for log Gamma(x), for x >= 60."""
    inverse = 1.0 / x
    square = inverse * inverse
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0))


@inlined
def _stirling_rising(x, m, log_x, log_growth):
    """Log of Gamma(x + m) / Gamma(x) for x >= 60, given log x and log1p(m / x): numbers or arrays."""
    return (x + m - 0.5) * log_growth + m * log_x - m + _stirling_tail(x + m) - _stirling_tail(x)


@inlined
def log_rising(x, m):
    """Log of Gamma(x + m) / Gamma(x), for numbers x > 0 and m >= 0, which need not be whole.

    A difference of two log gammas would lose digits for large x.
    """
    if m <= _FEW_FACTORS and m == math.floor(m) and x < _LARGEST_FACTOR:
        product = 1.0
        for i in range(int(m)):
            product *= x + i
        return math.log(product)
    if x < _LARGE_BASE:
        return math.lgamma(x + m) - math.lgamma(x)
    return _stirling_rising(x, m, math.log(x), math.log1p(m / x))


def log_risings(x: Any, m: Any) -> Any:
    """Return log Gamma(x + m) - log Gamma(x) of arrays that are broadcast against each other."""
    is_large = np.asarray(x) >= _LARGE_BASE
    if not is_large.any():
        return gammaln(x + m) - gammaln(x)
    # Each formula is given numbers that it can take where the other one serves.
    small, large = np.where(is_large, 1.0, x), np.where(is_large, x, _LARGE_BASE)
    by_stirling = _stirling_rising(large, m, np.log(large), np.log1p(m / large))
    return np.where(is_large, by_stirling, gammaln(small + m) - gammaln(small))[()]


# From here on, the asymptotic series of trigamma has all digits.
_LARGE_TRIGAMMA = 20.0


@inlined
def _digamma_tail(x):
    """Log of x less digamma(x), for x >= 60."""
    inverse = 1.0 / x
    square = inverse * inverse
    return 0.5 * inverse + square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))


@inlined
def digamma_rise(x, m):
    """Return digamma(x + m) - digamma(x) for numbers, the derivative of :func:`log_rising` in x."""
    if m <= _FEW_FACTORS and m == math.floor(m):
        total = 0.0
        for i in range(int(m)):
            total += 1.0 / (x + i)
        return total
    if x < _LARGE_BASE:
        return digamma(x + m) - digamma(x)
    return math.log1p(m / x) + _digamma_tail(x) - _digamma_tail(x + m)


@inlined
def trigamma_of_sum(x, m):
    """Return trigamma(x + m), the second derivative of log gamma, for numbers with x + m > 0."""
    argument, total = x + m, 0.0
    while argument < _LARGE_TRIGAMMA:
        total += 1.0 / (argument * argument)
        argument += 1.0
    inverse = 1.0 / argument
    square = inverse * inverse
    tail = square * (1.0 / 30.0 - square * (1.0 / 42.0 - square / 30.0))
    return total + inverse * (1.0 + 0.5 * inverse + square * (1.0 / 6.0 - tail))


def digamma_rises(x: Any, m: Any) -> Any:
    """Return digamma(x + m) - digamma(x) of arrays that are broadcast against each other."""
    is_large = np.asarray(x) >= _LARGE_BASE
    if not is_large.any():
        return digamma(x + m) - digamma(x)
    small, large = np.where(is_large, 1.0, x), np.where(is_large, x, _LARGE_BASE)
    by_series = np.log1p(m / large) + _digamma_tail(large) - _digamma_tail(large + m)
    return np.where(is_large, by_series, digamma(small + m) - digamma(small))[()]
