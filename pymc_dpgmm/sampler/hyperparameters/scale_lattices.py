"""Points of a lattice through a scale, of which draws choose one: what all covariances of clusters share.

See :mod:`pymc_dpgmm.sampler.hyperparameters.learnt_scales`.
"""

import math

from pymc_dpgmm.families.contract.scale import COLUMNS, least_degrees
from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.compiled import FLOATS, INT, NOTHING, inlined
from pymc_dpgmm.native.special import log_rising

# Points of a lattice, and the logarithms of its smallest and its largest spacing.
N_POINTS = 12
_SMALLEST, _LARGEST = math.log(0.05), math.log(1.5)
# A share stays above its known part by more than rounding.
ABOVE = 1.0 + 1e-12
# The least degrees of freedom of columns that are independent, and of spherical clusters.
LEAST_DEGREES = least_degrees(COLUMNS, 1)
# Directions of lines: degrees alone, and all shares.
DEGREES, SHARES = 0, 1
# The type of the kernels that draw scales.
DRAWS_SCALES = NOTHING(
    INT, INT, INT, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, INT, INT
)


@inlined
def place_lattice(bits):
    """Draw the place of the present point in a lattice, and the spacing: neither depends on the state."""
    spacing = math.exp(_SMALLEST + (_LARGEST - _SMALLEST) * uniform(bits))
    return int(N_POINTS * uniform(bits)), spacing


@inlined
def chosen_point(log_p, bits):
    """Return the place of a point that is drawn in proportion to densities; those that are NaN are zero."""
    largest = -math.inf
    for i in range(N_POINTS):
        largest = max(largest, log_p[i]) if log_p[i] > -math.inf else largest
    total = 0.0
    for i in range(N_POINTS):
        log_p[i] = math.exp(log_p[i] - largest) if log_p[i] > -math.inf else 0.0
        total += log_p[i]
    level = total * uniform(bits)
    place = 0
    for i in range(N_POINTS):
        if log_p[i] > 0.0:
            place = i
            level -= log_p[i]
            if level < 0.0:
                break
    return place


@inlined
def log_normal(log_x, mean, sd):
    """Return the log density of a normal logarithm, up to a constant."""
    standardized = (log_x - mean) / sd
    return -0.5 * standardized * standardized


@inlined
def draw_kappa(n_forms, sizes, squares, power, repeats, nu, kappa, law, log_p, bits):
    """Return kappa, drawn given all else.

    Parameters
    ----------
    n_forms : int
        Parts of clusters that are independent given the scale.
    sizes, squares : (n_forms,)
        Their rows, and the squared lengths of their offsets in units of their scatter and psi.
    power : float
        Half of the numbers of a row in each.
    repeats : float
        Numbers of one row about each unknown variance.
    nu, kappa : float
    law : (5,)
    log_p : (N_POINTS,)
        Scratch memory.
    """
    before, spacing = place_lattice(bits)
    for i in range(N_POINTS):
        log_kappa = math.log(kappa) + (i - before) * spacing
        other = math.exp(log_kappa)
        log_p[i] = log_normal(log_kappa, law[0], law[1])
        for q in range(n_forms):
            n = sizes[q]
            weight = other * n / (other + n)
            log_p[i] += power * math.log(other / (other + n))
            log_p[i] -= 0.5 * (nu + n * repeats) * math.log1p(weight * squares[q])
    return kappa * math.exp((chosen_point(log_p, bits) - before) * spacing)


@inlined
def log_evidence_of_form(n, form, nu, x):
    """Return the log evidence of ``n`` numbers about one variance, up to a constant.

    ``form`` is their scatter in units of psi as it was; it is x times that now.
    """
    total = log_rising(0.5 * nu, 0.5 * n) - 0.5 * n * math.log(x)
    return total - 0.5 * (nu + n) * math.log1p(form / x)


@inlined
def points_of_share(share, least, rate, power, log_p, factors, bits):
    """Place a lattice through the logarithm of a share, or of what it has beyond its known part, by chance.

    Of many rows, a share that is near its known part is so near that a lattice through its own logarithm has no
    second point where the density is not negligible.

    Parameters
    ----------
    share, least : float
        The share, and its known part.
    rate : float
        Of its exponential distribution.
    power : float
        Of the share, in the density of its logarithm.
    log_p, factors : (N_POINTS,)
        Log densities without the terms of single clusters, minus infinity outside the support, and the shares in
        units of the present one, which are written.
    """
    before, spacing = place_lattice(bits)
    of_excess = uniform(bits) < 0.5
    excess = share - least
    for i in range(N_POINTS):
        step = (i - before) * spacing
        other = least + excess * math.exp(step) if of_excess else share * math.exp(step)
        factors[i] = 1.0 if i == before else other / share
        log_p[i] = -math.inf
        if i == before or other > least * ABOVE:
            log_factor = math.log(factors[i])
            log_p[i] = power * log_factor - rate * other
            # From the density of the share's logarithm to that of the other one.
            log_p[i] += step - log_factor if of_excess else 0.0


@inlined
def points_along(direction, d, extra, numbers, shares, least, law, points, bits):
    """Place a lattice on a line through degrees, or through all shares.

    Parameters
    ----------
    direction : int
        ``DEGREES`` or ``SHARES``.
    d : int
    extra : float
        What nu is more than the degrees.
    numbers : (3,)
        kappa, degrees, and the factor of psi.
    shares, least : (d,)
    law : (5,)
    points : (3, N_POINTS)
        Log densities without the clusters, nu, and factors of psi, which are written.

    Returns
    -------
    before : int
        The place of the present point.
    spacing : float
    """
    before, spacing = place_lattice(bits)
    total = 0.0
    for j in range(d):
        total += shares[j]
    nu = numbers[1] + extra
    for i in range(N_POINTS):
        step = (i - before) * spacing
        of_shares = step if direction == SHARES else 0.0
        factor = math.exp(of_shares)
        degrees = numbers[1] * math.exp(step - of_shares)
        points[N_POINTS + i] = degrees + extra
        points[2 * N_POINTS + i] = numbers[2] * (degrees + extra) / nu * factor
        points[i] = log_normal(math.log(degrees), law[2], law[3]) + d * of_shares - law[4] * factor * total
        if i != before and direction == SHARES:
            for j in range(d):
                if not shares[j] * factor > least[j] * ABOVE:
                    points[i] = -math.inf
    return before, spacing


@inlined
def move_along(direction, d, extra, numbers, shares, psi, points, before, spacing, bits):
    """Draw a point of :func:`points_along`, whose log densities have the clusters by now, and move there."""
    step = (chosen_point(points, bits) - before) * spacing
    factor = math.exp(step if direction == SHARES else 0.0)
    nu = numbers[1] + extra
    numbers[1] *= math.exp(0.0 if direction == SHARES else step)
    x = (numbers[1] + extra) / nu * factor
    numbers[2] *= x
    for j in range(d):
        shares[j] *= factor
        psi[j] *= x


@inlined
def set_psi(d, nu, variances, shares, psi):
    """Write the diagonal of Psi."""
    for j in range(d):
        psi[j] = nu * variances[j] * shares[j]


@inlined
def draw_lines(n, d, sizes, repeats, forms, numbers, shares, least, psi, law, points, bits):
    """Draw degrees, and then all shares along a line, where nu is ``LEAST_DEGREES`` more than the degrees.

    Parameters
    ----------
    n, d : int
    sizes, forms : (n,)
        Rows of parts of clusters, and their scatter in units of psi; see :func:`log_evidence_of_form`.
    repeats : int
        Numbers of one row in each.
    """
    numbers[2] = 1.0
    for direction in (DEGREES, SHARES):
        before, spacing = points_along(direction, d, LEAST_DEGREES, numbers, shares, least, law, points, bits)
        for i in range(N_POINTS):
            if points[i] > -math.inf:
                for q in range(n):
                    points[i] += log_evidence_of_form(
                        sizes[q] * repeats, forms[q], points[N_POINTS + i], points[2 * N_POINTS + i]
                    )
        move_along(direction, d, LEAST_DEGREES, numbers, shares, psi, points, before, spacing, bits)
