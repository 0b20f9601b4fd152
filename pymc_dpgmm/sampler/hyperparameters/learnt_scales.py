r"""Draws of the scale of a normal base measure, given the labels, with the clusters' parameters integrated out.

The base measure has three unknowns: :math:`\kappa`, the prior precision of the cluster means as a number of rows;
:math:`\delta > 0`, the degrees of freedom beyond d - 1; and :math:`w_j > 0`, the share of each column's variance
:math:`v_j` that is typical within clusters:

.. math:: \nu = d - 1 + \delta, \qquad \Psi = \nu \, \mathrm{diag}(v_j t_j), \qquad t_j = w_j + r_j,

where :math:`r_j \ge 0` is known, so that :math:`(E \, \Sigma^{-1})^{-1} = \mathrm{diag}(v_j t_j)` for any
:math:`\delta`. Columns that are independent are the case d = 1 of this, each for itself. For clusters of
:math:`n_k` rows with scatter :math:`S_k` and means :math:`o_k` away from the prior mean, the evidence is (Murphy
2007, eq. 266), up to a constant,

.. math:: \sum_k \Big[ \sum_{i < d} \log \frac{\Gamma((\nu + n_k - i) / 2)}{\Gamma((\nu - i) / 2)}
          + \frac{\nu}{2} \log |\Psi| - \frac{\nu + n_k}{2} \log |\Psi + S_k + c_k o_k o_k'|
          + \frac{d}{2} \log \frac{\kappa}{\kappa + n_k} \Big], \qquad c_k = \frac{\kappa n_k}{\kappa + n_k}.

A spherical cluster has one unknown variance, which multiplies :math:`v_j t_j` and has :math:`\nu = \delta` degrees
of freedom. With :math:`q_{kj} = S_{kjj} + c_k o_{kj}^2` its evidence is, up to a constant (eq. 203, with d numbers
a row),

.. math:: \log \frac{\Gamma((\nu + n_k d) / 2)}{\Gamma(\nu / 2)} - \frac{n_k}{2} \log |\Psi|
          - \frac{\nu + n_k d}{2} \log\Big(1 + \sum_j \frac{q_{kj}}{\Psi_{jj}}\Big)
          + \frac{d}{2} \log \frac{\kappa}{\kappa + n_k}.

Each draw is one of points on a line in the logarithms of the unknowns. The determinants of all these points come
from one decomposition of each cluster's matrix:

* :math:`\kappa` changes a matrix by a multiple of :math:`o_k o_k'`, so that :math:`|A + c\,oo'| = |A| (1 + c\,
  o'A^{-1}o)`;
* one :math:`t_j` changes one entry of the diagonal: :math:`|A + f e_j e_j'| = |A| (1 + f (A^{-1})_{jj})`, and the
  inverse by Sherman and Morrison's formula;
* a factor x of :math:`\Psi` changes all of its diagonal: :math:`|x \Psi + M| = x^d |\Psi| |I + T / x|` with T the
  tridiagonal form of :math:`\Psi^{-1/2} M \Psi^{-1/2}`.

Of spherical clusters, all of these change sums over the columns.

The points are a lattice through the present one: its spacing and the place of the present point in it do not
depend on the state. From each of its points the same lattice is drawn with the same probability, so that a choice
among them in proportion to their densities leaves the density invariant.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.families.contract.scale import COLUMNS, FULL, SPHERICAL, ScatterOfClusters
from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.compiled import (
    FLOATS,
    INT,
    NOTHING,
    address_of,
    bits_of_generator,
    c_function,
    inlined,
    shifted,
)
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.triangles import cholesky_in_place, invert_in_place

# Points of a lattice, and the logarithms of its smallest and its largest spacing.
N_POINTS = 12
_SMALLEST, _LARGEST = math.log(0.05), math.log(1.5)
# Rounds of a draw: what few columns need is made in less time than what surrounds it takes.
_ROUNDS_OF_ONE, _MOST_ROUNDS = 16, 4
# A share stays above its known part by more than rounding.
_ABOVE = 1.0 + 1e-12


class ScalePrior(NamedTuple):
    """The prior of the scale: log-normal kappa and degrees, exponential shares.

    Parameters
    ----------
    log_kappa, sd_kappa, log_degrees, sd_degrees : float
        Means and standard deviations of the logarithms.
    rate : float
        Of the shares' exponential distributions.
    """

    log_kappa: float
    sd_kappa: float
    log_degrees: float
    sd_degrees: float
    rate: float


class Scale(NamedTuple):
    """The unknowns: two numbers, and (d,) shares."""

    kappa: float
    degrees: float
    within: np.ndarray

    def log_prior(self, prior: ScalePrior) -> float:
        """Return the log density of the logarithms of all unknowns, up to a constant."""
        log_kappa, log_degrees = math.log(self.kappa), math.log(self.degrees)
        of_shares = float(np.sum(np.log(self.within) - prior.rate * self.within))
        of_kappa = ((log_kappa - prior.log_kappa) / prior.sd_kappa) ** 2
        return of_shares - 0.5 * (of_kappa + ((log_degrees - prior.log_degrees) / prior.sd_degrees) ** 2)


@inlined
def _spacing(bits):
    return math.exp(_SMALLEST + (_LARGEST - _SMALLEST) * uniform(bits))


@inlined
def _chosen(log_p, bits):
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
def _log_normal(log_x, mean, sd):
    standardized = (log_x - mean) / sd
    return -0.5 * standardized * standardized


@inlined
def _invert(matrix, d, out):
    """Write the packed inverse of a packed positive definite matrix, which is spoilt."""
    cholesky_in_place(matrix, d)
    invert_in_place(matrix, d, 1.0)
    for at in range(d * (d + 1) // 2):
        out[at] = 0.0
    # inv(A) = inv(L)' inv(L), by rows of inv(L).
    for k in range(d):
        row = k * (k + 1) // 2
        at = 0
        for i in range(k + 1):
            for j in range(i + 1):
                out[at] += matrix[row + i] * matrix[row + j]
                at += 1


@inlined
def _repeats(d, covariances):
    """Return how many numbers of one row are about each unknown variance; full matrices count as one."""
    return d if covariances == SPHERICAL else 1


@inlined
def _n_forms(d, covariances):
    """Return how many parts a cluster has that are independent given its scale."""
    return 1 if covariances != COLUMNS else d


@inlined
def _draw_kappa(n_clusters, d, covariances, sizes, offsets, scatter, psi, nu, kappa, law, work, bits):
    """Return kappa, drawn given all else. ``work`` has (d (d + 1) + K d + N_POINTS) numbers."""
    length = d * (d + 1) // 2 if covariances == FULL else d
    matrix, inverse = work, shifted(work, length)
    squares, log_p = shifted(work, 2 * length), shifted(work, 2 * length + n_clusters * d)
    # Of columns that are independent there are a size and a squared length for each, else there is one.
    n_squares, repeats = _n_forms(d, covariances), _repeats(d, covariances)
    power = 0.5 * d / n_squares
    for k in range(n_clusters):
        own, offset = shifted(scatter, k * length), shifted(offsets, k * d)
        if covariances == FULL:
            for q in range(length):
                matrix[q] = own[q]
            for j in range(d):
                matrix[j * (j + 1) // 2 + j] += psi[j]
            _invert(matrix, d, inverse)
            squares[k] = 0.0
            at = 0
            for i in range(d):
                for j in range(i + 1):
                    squares[k] += (2.0 if j < i else 1.0) * inverse[at] * offset[i] * offset[j]
                    at += 1
        elif covariances == SPHERICAL:
            within, squares[k] = 1.0, 0.0
            for j in range(d):
                within += own[j] / psi[j]
                squares[k] += offset[j] * offset[j] / psi[j]
            squares[k] /= within
        else:
            for j in range(d):
                squares[k * d + j] = offset[j] * offset[j] / (psi[j] + own[j])
    spacing = _spacing(bits)
    before = int(N_POINTS * uniform(bits))
    for i in range(N_POINTS):
        log_kappa = math.log(kappa) + (i - before) * spacing
        other = math.exp(log_kappa)
        log_p[i] = _log_normal(log_kappa, law[0], law[1])
        for q in range(n_clusters * n_squares):
            n = sizes[q]
            weight = other * n / (other + n)
            log_p[i] += power * math.log(other / (other + n))
            log_p[i] -= 0.5 * (nu + n * repeats) * math.log1p(weight * squares[q])
    return kappa * math.exp((_chosen(log_p, bits) - before) * spacing)


@inlined
def _whole(k, d, covariances, sizes, offsets, scatter, kappa, out):
    """Write the scatter of cluster ``k`` about the prior mean: a packed triangle, or its diagonal alone."""
    offset, at = shifted(offsets, k * d), 0
    if covariances == FULL:
        weight = kappa * sizes[k] / (kappa + sizes[k])
        own = shifted(scatter, k * (d * (d + 1) // 2))
        for i in range(d):
            for j in range(i + 1):
                out[at] = own[at] + weight * offset[i] * offset[j]
                at += 1
    else:
        own = shifted(scatter, k * d)
        for j in range(d):
            n = sizes[k] if covariances == SPHERICAL else sizes[k * d + j]
            out[j] = own[j] + kappa * n / (kappa + n) * offset[j] * offset[j]


@inlined
def _draw_shares(n_clusters, d, is_full, sizes, offsets, scatter, psi, nu, kappa, shares, least, law, work, bits):
    """Draw the shares one by one, each given all else; ``psi`` follows.

    ``work`` has ((K + 1) d (d + 1) / 2 + d + N_POINTS) numbers.
    """
    length = d * (d + 1) // 2 if is_full else d
    inverses, column = shifted(work, length), shifted(work, (n_clusters + 1) * length)
    log_p = shifted(column, d)
    for k in range(n_clusters):
        own = shifted(inverses, k * length)
        _whole(k, d, FULL if is_full else COLUMNS, sizes, offsets, scatter, kappa, work)
        if is_full:
            for j in range(d):
                work[j * (j + 1) // 2 + j] += psi[j]
            _invert(work, d, own)
        else:
            for j in range(d):
                own[j] = 1.0 / (work[j] + psi[j])
    for j in range(d):
        diagonal = j * (j + 1) // 2 + j if is_full else j
        spacing = _spacing(bits)
        before = int(N_POINTS * uniform(bits))
        for i in range(N_POINTS):
            log_p[i] = -math.inf
            log_factor = (i - before) * spacing
            factor = math.exp(log_factor)
            if i == before or shares[j] * factor > least[j] * _ABOVE:
                change = psi[j] * (factor - 1.0)
                log_p[i] = (0.5 * n_clusters * nu + 1.0) * log_factor - law[4] * shares[j] * factor
                for k in range(n_clusters):
                    grown = 1.0 + change * inverses[k * length + diagonal]
                    n = sizes[k] if is_full else sizes[k * d + j]
                    log_p[i] -= 0.5 * (nu + n) * math.log(grown)
        factor = math.exp((_chosen(log_p, bits) - before) * spacing)
        change = psi[j] * (factor - 1.0)
        if is_full and change != 0.0:
            for k in range(n_clusters):
                own = shifted(inverses, k * length)
                for i in range(d):
                    column[i] = own[j * (j + 1) // 2 + i] if i <= j else own[i * (i + 1) // 2 + j]
                scale = change / (1.0 + change * column[j])
                at = 0
                for i in range(d):
                    for q in range(i + 1):
                        own[at] -= scale * column[i] * column[q]
                        at += 1
        shares[j] *= factor
        psi[j] *= factor


@inlined
def _draw_shares_of_spherical(
    n_clusters, d, sizes, offsets, scatter, psi, nu, kappa, shares, least, law, work, bits
):
    """Draw the shares one by one, each given all else; ``psi`` follows.

    ``work`` has (K d + K + N_POINTS) numbers.
    """
    sums, log_p = shifted(work, n_clusters * d), shifted(work, n_clusters * d + n_clusters)
    n_rows = 0.0
    for k in range(n_clusters):
        own = shifted(work, k * d)
        _whole(k, d, SPHERICAL, sizes, offsets, scatter, kappa, own)
        n_rows += sizes[k]
        sums[k] = 1.0
        for j in range(d):
            sums[k] += own[j] / psi[j]
    for j in range(d):
        spacing = _spacing(bits)
        before = int(N_POINTS * uniform(bits))
        for i in range(N_POINTS):
            log_p[i] = -math.inf
            log_factor = (i - before) * spacing
            factor = math.exp(log_factor)
            if i == before or shares[j] * factor > least[j] * _ABOVE:
                log_p[i] = (1.0 - 0.5 * n_rows) * log_factor - law[4] * shares[j] * factor
                for k in range(n_clusters):
                    change = work[k * d + j] / psi[j] * (1.0 / factor - 1.0)
                    log_p[i] -= 0.5 * (nu + sizes[k] * d) * math.log1p(change / sums[k])
        factor = math.exp((_chosen(log_p, bits) - before) * spacing)
        for k in range(n_clusters):
            # Sums are at least 1 in exact arithmetic.
            sums[k] = max(sums[k] + work[k * d + j] / psi[j] * (1.0 / factor - 1.0), 1.0)
        shares[j] *= factor
        psi[j] *= factor


@inlined
def _tridiagonal(matrix, d, diagonal, squares, vector, image):
    """Write the diagonal (d,) and the squares beside it (d - 1,) of a tridiagonal form of a packed matrix.

    By Householder's reflections (Golub and Van Loan 2013, algorithm 8.3.1). The matrix is spoilt.
    """
    for c in range(d - 2):
        tail, total = 0.0, 0.0
        for i in range(c + 1, d):
            vector[i] = matrix[i * (i + 1) // 2 + c]
            total += vector[i] * vector[i]
            tail += vector[i] * vector[i] if i > c + 1 else 0.0
        squares[c] = total
        if tail > 0.0:
            length = math.sqrt(total)
            vector[c + 1] += length if vector[c + 1] > 0.0 else -length
            beta = 2.0 / (tail + vector[c + 1] * vector[c + 1])
            product = 0.0
            for i in range(c + 1, d):
                image[i] = 0.0
            for i in range(c + 1, d):
                row = i * (i + 1) // 2
                for j in range(c + 1, i):
                    image[i] += matrix[row + j] * vector[j]
                    image[j] += matrix[row + j] * vector[i]
                image[i] += matrix[row + i] * vector[i]
            for i in range(c + 1, d):
                image[i] *= beta
                product += image[i] * vector[i]
            for i in range(c + 1, d):
                image[i] -= 0.5 * beta * product * vector[i]
            for i in range(c + 1, d):
                row = i * (i + 1) // 2
                for j in range(c + 1, i + 1):
                    matrix[row + j] -= vector[i] * image[j] + image[i] * vector[j]
    if d > 1:
        last = matrix[(d - 1) * d // 2 + d - 2]
        squares[d - 2] = last * last
    for i in range(d):
        diagonal[i] = matrix[i * (i + 1) // 2 + i]


@inlined
def _log_det(d, diagonal, squares, x):
    """Return log |I + T / x| of a tridiagonal T, by its pivots."""
    total, product, pivot = 0.0, 1.0, 1.0
    for i in range(d):
        before = squares[i - 1] / (x * x * pivot) if i > 0 else 0.0
        # In exact arithmetic pivots are at least 1.
        pivot = max(1.0 + diagonal[i] / x - before, 1.0)
        product *= pivot
        if product > 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@inlined
def _log_evidence(d, covariances, sizes, form, nu, x):
    """Return the log evidence of a cluster where psi is x times what its form was made with, up to a constant."""
    total = 0.0
    if covariances == FULL:
        for i in range(d):
            total += log_rising(0.5 * (nu - i), 0.5 * sizes[0])
        total -= 0.5 * sizes[0] * d * math.log(x)
        return total - 0.5 * (nu + sizes[0]) * _log_det(d, form, shifted(form, d), x)
    for j in range(_n_forms(d, covariances)):
        m = sizes[j] * _repeats(d, covariances)
        total += log_rising(0.5 * nu, 0.5 * m) - 0.5 * m * math.log(x)
        total -= 0.5 * (nu + m) * math.log1p(form[j] / x)
    return total


# Directions of lines: degrees alone, and all shares.
_DEGREES, _SHARES = 0, 1


@inlined
def _draw_along(
    direction, n_clusters, d, covariances, sizes, forms, extra, numbers, shares, least, psi, law, log_p, bits
):
    """Draw degrees, or all shares, along a line. ``numbers`` are kappa, degrees, and the factor of psi."""
    spacing = _spacing(bits)
    before = int(N_POINTS * uniform(bits))
    total = 0.0
    for j in range(d):
        total += shares[j]
    nu = numbers[1] + extra
    for i in range(N_POINTS):
        step = (i - before) * spacing
        of_shares = step if direction == _SHARES else 0.0
        factor = math.exp(of_shares)
        degrees = numbers[1] * math.exp(step - of_shares)
        x = numbers[2] * (degrees + extra) / nu * factor
        log_p[i] = _log_normal(math.log(degrees), law[2], law[3]) + d * of_shares - law[4] * factor * total
        if i != before and direction == _SHARES:
            for j in range(d):
                if not shares[j] * factor > least[j] * _ABOVE:
                    log_p[i] = -math.inf
        if log_p[i] > -math.inf:
            for k in range(n_clusters):
                own, form = shifted(sizes, k * _n_forms(d, covariances)), shifted(forms, 2 * k * d)
                log_p[i] += _log_evidence(d, covariances, own, form, degrees + extra, x)
    step = (_chosen(log_p, bits) - before) * spacing
    factor = math.exp(step if direction == _SHARES else 0.0)
    numbers[1] *= math.exp(0.0 if direction == _SHARES else step)
    x = (numbers[1] + extra) / nu * factor
    numbers[2] *= x
    for j in range(d):
        shares[j] *= factor
        psi[j] *= x


@c_function(
    NOTHING(INT, INT, INT, INT, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, INT, INT)
)
def draw_scales(
    n_rounds,
    n_clusters,
    d,
    covariances,
    sizes,
    offsets,
    scatter,
    variances,
    shares,
    least,
    numbers,
    law,
    work,
    next_double,
    bit_state,
):
    """Draw kappa, degrees and shares in place.

    Parameters
    ----------
    n_rounds : int
        How many times each is drawn.
    n_clusters, d : int
    covariances : int
        As in ``ScatterOfClusters``.
    sizes, offsets, scatter : (K,) or (K, d), (K, d), (K, d (d + 1) / 2) or (K, d)
        Of clusters: rows, means less the prior mean, and scatter about the mean.
    variances, shares, least : (d,)
        Variances of the columns, shares of these within clusters, and their known part.
    numbers : (3,)
        kappa, degrees, and one number of scratch memory.
    law : (5,)
        :class:`ScalePrior`.
    work : (see ``_n_work``)
    next_double, bit_state
        The generator.
    """
    bits = Bits(next_double, bit_state)
    for _ in range(n_rounds):
        psi, rest = work, shifted(work, d)
        extra = d - 1.0 if covariances == FULL else 0.0
        nu = numbers[1] + extra
        for j in range(d):
            psi[j] = nu * variances[j] * shares[j]
        numbers[0] = _draw_kappa(
            n_clusters, d, covariances, sizes, offsets, scatter, psi, nu, numbers[0], law, rest, bits
        )
        data = sizes, offsets, scatter, psi, nu, numbers[0], shares, least, law, rest, bits
        if covariances == SPHERICAL:
            _draw_shares_of_spherical(n_clusters, d, *data)
        else:
            _draw_shares(n_clusters, d, covariances == FULL, *data)
        length = d * (d + 1) // 2 if covariances == FULL else d
        forms, vector = shifted(rest, length), shifted(rest, length + 2 * n_clusters * d)
        log_p = shifted(vector, 2 * d)
        for k in range(n_clusters):
            form = shifted(forms, 2 * k * d)
            _whole(k, d, covariances, sizes, offsets, scatter, numbers[0], rest)
            if covariances == FULL:
                at = 0
                for i in range(d):
                    for j in range(i + 1):
                        rest[at] /= math.sqrt(psi[i] * psi[j])
                        at += 1
                _tridiagonal(rest, d, form, shifted(form, d), vector, shifted(vector, d))
            elif covariances == SPHERICAL:
                form[0] = 0.0
                for j in range(d):
                    form[0] += rest[j] / psi[j]
            else:
                for j in range(d):
                    form[j] = rest[j] / psi[j]
        numbers[2] = 1.0
        for direction in (_DEGREES, _SHARES):
            _draw_along(
                direction,
                n_clusters,
                d,
                covariances,
                sizes,
                forms,
                extra,
                numbers,
                shares,
                least,
                psi,
                law,
                log_p,
                bits,
            )


def _n_work(n_clusters: int, d: int, length: int) -> int:
    """Return how many numbers of scratch memory the kernel needs, whose parts use it in turn."""
    return 2 * d + (n_clusters + 2) * length + 2 * (n_clusters + 1) * d + N_POINTS


def draw_scale(
    rng: np.random.Generator,
    scale: Scale,
    prior: ScalePrior,
    variances: np.ndarray,
    least: np.ndarray,
    clusters: ScatterOfClusters,
) -> Scale:
    """Draw the scale of a base measure given clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    scale : Scale
        The present one.
    prior : ScalePrior
    variances, least : (d,) float64 arrays
        Variances of the columns, and what is known of their shares within clusters.
    clusters : ScatterOfClusters
    """
    n_clusters, d = clusters.offsets.shape
    numbers = np.array([scale.kappa, scale.degrees, 1.0])
    shares = scale.within + least
    arrays = [
        np.ascontiguousarray(array, dtype=np.float64)
        for array in (clusters.sizes, clusters.offsets, clusters.scatter, variances)
    ]
    own = [*arrays, shares, np.ascontiguousarray(least), numbers, np.array(prior, dtype=np.float64)]
    own.append(np.empty(_n_work(n_clusters, d, clusters.scatter.shape[1])))
    addresses = [address_of(array) for array in own]
    n_rounds = min(max(_ROUNDS_OF_ONE // d, 1), _MOST_ROUNDS)
    draw_scales(n_rounds, n_clusters, d, clusters.covariances, *addresses, *bits_of_generator(rng))
    return Scale(float(numbers[0]), float(numbers[1]), shares - least)
