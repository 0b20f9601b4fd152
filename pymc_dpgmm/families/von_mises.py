r"""Directions: the von Mises family with a known concentration.

For each column :math:`m \sim \mathrm{VM}(\mu, \kappa c)` and :math:`x_i \sim \mathrm{VM}(m, c)`, angles in radians
with the density :math:`e^{c \cos(x - m)} / (2 \pi I_0(c))`. For n rows with the sums C and S of their cosines and
sines let :math:`A e^{i \mu_n} = \kappa e^{i \mu} + C + i S`. Then m is :math:`\mathrm{VM}(\mu_n, c A)`, and the
rows have the density

.. math:: \frac{I_0(c A)}{I_0(c \kappa)} \frac{1}{(2 \pi I_0(c))^n}

(Mardia and Jupp 2000, section 10.5; Guttorp and Lockhart 1988). The prior counts as much as :math:`\kappa` rows in
the direction :math:`\mu`.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues, if_present
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, real, refuse_where
from pymc_dpgmm.families.shared.gaps import taking_gaps
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import log_i0
from pymc_dpgmm.tables.checks import is_variable


@inlined
def _length(p, j, cosines, sines):
    """Return A of a column."""
    return math.hypot(p.kappa[j] * math.cos(p.mu[j]) + cosines, p.kappa[j] * math.sin(p.mu[j]) + sines)


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.cosines[j] += sign * x[j]
        s.sines[j] += sign * x[p.d + j]
        s.entries[j] += sign * x[2 * p.d + j]
    # The terms have both signs: what is left of their sums tells nothing about lost digits.
    return 1.0


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        c = p.concentration[j]
        total += log_i0(c * _length(p, j, s.cosines[j], s.sines[j])) - log_i0(c * p.kappa[j])
        total -= s.entries[j] * p.log_norms[j]
    return total


def _refresh(p, n, s, c):
    for j in range(p.d):
        c.log_norm[j] = log_i0(p.concentration[j] * _length(p, j, s.cosines[j], s.sines[j]))


def _log_predictive(p, n, s, c, x):
    total = 0.0
    for j in range(p.d):
        if x[2 * p.d + j] > 0.0:
            length = _length(p, j, s.cosines[j] + x[j], s.sines[j] + x[p.d + j])
            total += log_i0(p.concentration[j] * length) - c.log_norm[j] - p.log_norms[j]
    return total, 0.0, 1.0


def _constants(params: Any) -> dict[str, Any]:
    return {"log_norms": math.log(2.0 * math.pi) + log_i0(params.concentration)}


def _mean_resultant(x: np.ndarray) -> np.ndarray:
    """Return I1(x) / I0(x), the mean length of the vectors of directions with concentration x."""
    from scipy.special import i0e, i1e

    return i1e(x) / i0e(x)


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A and the cosine and sine of mu_n of all clusters and columns: (K, d) each."""
    cosine = params.kappa * np.cos(params.mu) + s.cosines
    sine = params.kappa * np.sin(params.mu) + s.sines
    length = np.hypot(cosine, sine)
    divisor = np.maximum(length, np.finfo(np.float64).tiny)
    return length, cosine / divisor, sine / divisor


def _gradient(params: Any, s: Any) -> DrawnValues:
    length, cosine, sine = _posterior(params, s)
    c, kappa = params.concentration, params.kappa
    of_rows, of_prior, of_row = _mean_resultant(c * length), _mean_resultant(c * kappa), _mean_resultant(c)
    along = cosine * np.cos(params.mu) + sine * np.sin(params.mu)
    across = sine * np.cos(params.mu) - cosine * np.sin(params.mu)
    return {
        "mu": np.sum(c * of_rows * kappa * across, axis=0),
        "kappa": np.sum(c * (of_rows * along - of_prior), axis=0),
        "concentration": np.sum(length * of_rows - kappa * of_prior - s.entries * of_row, axis=0),
    }


def _expected(params: Any, s: Any) -> LinearExpectation:
    length, cosine, sine = _posterior(params, s)
    pull = params.concentration * _mean_resultant(params.concentration * length)
    norms = np.broadcast_to(_constants(params)["log_norms"], cosine.shape)
    return LinearExpectation(
        np.zeros(len(s.n)), {"cosines": pull * cosine, "sines": pull * sine, "entries": -norms}
    )


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    length, cosine, sine = _posterior(params, s)
    direction = rng.vonmises(np.arctan2(sine, cosine), params.concentration * length)
    return {"direction": direction, "concentration": np.broadcast_to(params.concentration, direction.shape)}


def _predictive(params: Any, s: Any) -> DrawnValues:
    # The expected unit vector of a row: that of a row given m, times the length of the expected unit vector of m.
    length, cosine, sine = _posterior(params, s)
    return {
        "direction": np.arctan2(sine, cosine),
        "concentration": np.broadcast_to(params.concentration, cosine.shape),
        "length": _mean_resultant(params.concentration * length),
    }


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    length = _mean_resultant(drawn["concentration"]) * drawn.get("length", 1.0)
    return (length * np.exp(1j * drawn["direction"]))[None]


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return rng.vonmises(drawn["direction"][labels], drawn["concentration"][labels])


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    total = np.zeros((len(values), len(drawn["direction"])))
    for x, direction, c in zip(values.T, drawn["direction"].T, drawn["concentration"].T, strict=True):
        log_norm = math.log(2.0 * math.pi) + log_i0(c)
        total += if_present(x, c * np.cos(x[:, None] - direction) - log_norm)
    return total


def _check_values(params: Any, values: np.ndarray) -> None:
    refuse_where(
        np.abs(values) > math.pi * (1.0 + 1e-12),
        "directions must be radians in [-pi, pi] (np.deg2rad makes them of degrees, and "
        "(x + np.pi) % (2 * np.pi) - np.pi brings others there)",
        values,
    )


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    present = ~np.isnan(values)
    angles = np.where(present, values, 0.0)
    return np.hstack([np.where(present, np.cos(angles), 0.0), np.sin(angles), present.astype(np.float64)]), None


class VonMises(BaseMeasure):
    """Base measure of directions, von Mises and independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a mean direction ``m ~ VonMises(mu, kappa * concentration)``, and rows are
    VonMises(m, concentration). A scalar parameter applies to all columns.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Mean of the prior, in radians.
    kappa : scalar or (d,) array_like or variable, > 0
        How many rows the prior counts as much as. A small number, such as 0.01, lets directions be anywhere.
    concentration : scalar or (d,) array_like or variable, > 0
        Concentration of the rows of a cluster: for c of 2 or more, their standard deviation is about
        ``1 / sqrt(c)`` radians. It is the same for all clusters, and may be a variable.

    Notes
    -----
    Directions are radians in [-pi, pi]. Summaries average them as directions: as the angle of the mean of their
    unit vectors.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> winds = np.deg2rad([-170.0, 175.0, 168.0, 20.0, 35.0])
    >>> with pm.Model():
    ...     concentration = pm.Gamma("concentration", 2.0, 0.2)
    ...     base = dp.VonMises(mu=0.0, kappa=0.01, concentration=concentration)
    ...     y = dp.DPMixture("y", 1.0, base, observed=winds)
    """

    family = taking_gaps(
        Family(
            name="VonMises",
            parameters={"mu": real("d"), "kappa": positive("d"), "concentration": positive("d")},
            check_values=_check_values,
            sums={"cosines": "d", "sines": "d", "entries": "d"},
            update=_update,
            log_evidence=_log_evidence,
            gradient=_gradient,
            predictive=_predictive,
            expected=_expected,
            tables={"log_norms": "d"},
            tabulate=lambda params, n: _constants(params),
            constants=_constants,
            tabulated_by=(),
            cache={"log_norm": "d"},
            refresh=_refresh,
            log_predictive=_log_predictive,
            represent=_represent,
            component=Component(
                axes={"direction": "d"},
                draw=_draw,
                draw_rows=_draw_rows,
                log_density=_log_density,
                bounds=(-math.pi, math.pi),
                is_circular=True,
                directions=("direction",),
                mean=_mean,
            ),
        )
    )

    def __init__(self, mu: Any, kappa: Any, concentration: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, concentration=concentration)
        if not is_variable(self.parameters["mu"]) and np.abs(self.parameters["mu"]).max() > 2.0 * math.pi:
            raise ValueError(f"mu must be radians (np.deg2rad makes them of degrees), got {mu}")
