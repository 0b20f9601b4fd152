"""Logs of ratios of gamma functions, as PyTensor operations.

As expressions of other operations, with a switch between two formulas, they would double the time that PyTensor
takes to compile a density, and rewrites could reorder their terms.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from pytensor.scalar.basic import BinaryScalarOp, upgrade_to_float
from pytensor.scalar.math import polygamma, psi
from pytensor.tensor.elemwise import Elemwise

from pymc_dpgmm.integration.internals import first_use
from pymc_dpgmm.native.special import digamma_rise, trigamma_of_sum
from pymc_dpgmm.native.special import log_rising as log_rising_of_numbers


class OfNumbers(BinaryScalarOp):
    """An operation whose value is a function of two numbers, which compiled code calls too."""

    numbers: ClassVar[Callable[[float, float], float]]

    def impl(self, x: Any, m: Any) -> Any:
        return float(type(self).numbers(float(x), float(m)))


class LogRising(OfNumbers):
    """Log of Gamma(x + m) / Gamma(x): see :func:`pymc_dpgmm.native.special.log_rising`."""

    numbers = staticmethod(log_rising_of_numbers)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        x, m = inputs
        (slope,) = cotangents
        return [slope * _digamma_rise(x, m), slope * psi(x + m)]


class DigammaRise(OfNumbers):
    """Derivative of :class:`LogRising` in x: see :func:`pymc_dpgmm.native.special.digamma_rise`."""

    numbers = staticmethod(digamma_rise)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        x, m = inputs
        (slope,) = cotangents
        of_sum = _trigamma_of_sum(x, m)
        return [slope * (of_sum - _trigamma_of_sum(x, 0.0)), slope * of_sum]


class TrigammaOfSum(OfNumbers):
    """Second derivative of log gamma at a sum: see :func:`pymc_dpgmm.native.special.trigamma_of_sum`.

    PyTensor's own operation has no compiled code.
    """

    numbers = staticmethod(trigamma_of_sum)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        x, m = inputs
        (slope,) = cotangents
        return [slope * polygamma(2, x + m), slope * polygamma(2, x + m)]


_trigamma_of_sum = TrigammaOfSum(upgrade_to_float, name="trigamma_of_sum")
_digamma_rise = DigammaRise(upgrade_to_float, name="digamma_rise")
_log_rising = Elemwise(LogRising(upgrade_to_float, name="log_rising"))


def log_rising(x: Any, m: Any) -> Any:
    """Return the log of Gamma(x + m) / Gamma(x), for real x > 0 and m >= 0, as a variable."""
    first_use.begin(first_use.GRAPH)
    return _log_rising(x, m)
