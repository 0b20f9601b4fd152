r"""The density of a row under a new atom, :math:`\int f(y_i \mid \theta)\, h(\theta)\, d\theta`, all rows at once.

The atoms are in their free form, D numbers without bounds, and :math:`h` is the density of the base there. The
integrand of a row may have a peak where the row is, far narrower than the base, and another one where the base is,
so both have a centre :math:`m_c` with a scale :math:`S_c`.

- One or two dimensions: the trapezoidal rule in :math:`t` after :math:`\theta = m_c + S_c \sinh(t)`. Its nodes are
  dense at the centre and reach far from it; with analytic integrands the error falls exponentially in their number
  (Trefethen and Weideman 2014, section 4). The integrand is shared out among the centres by weights that add up to
  one, so that each grid has only the peak that it is made for. A mean over draws from the base takes the
  place of a sum that differs from it by more than its standard errors and what draws that were not seen can add:
  such a sum has missed a peak of the base. Where few draws come near to a row, what is not seen can be everything.
- More dimensions: importance sampling from a mixture of a t distribution at the Laplace approximation of the row's
  integrand, with quasi-random numbers, and the base, in equal parts, weighted by the density of the mixture (the
  balance heuristic: Owen and Zhou 2000; Veach 1997, section 9.2). The weights are bounded by twice the likelihood
  over the integral.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import gammaincinv, gammaln, ndtri

# Nodes on a line, and on each axis of a plane, in t.
_ON_A_LINE = np.linspace(-7.0, 7.0, 113)
_ON_A_PLANE = np.linspace(-3.9, 3.9, 27)
# The grid of the row's own peak has what is within so many of its scales, or such a share of the base's; the power
# by which the other grid, coarse there, is without it.
_REACH, _SHARE_OF_BASE, _SHARPNESS = 20.0, 0.5, 6.0
# Draws from the base that tell where it is, and of either half of importance sampling.
_N_BASE, _N_PROPOSED = 256, 256
_DEGREES = 5.0
# By how many standard errors the mean over the former has to differ from quadrature, and what share of draws, at
# most as likely as any node, may not have been seen.
_SIGNIFICANT, _UNSEEN = 4.0, 8.0 / _N_BASE
# Steps towards the peak of a row in the first draw, and from its place in the draw before.
_FIRST_STEPS, _NEXT_STEPS = 30, 3
_STEP = 1e-5
# Factors of a scale at which it is looked for where the density has fallen by this much.
_FACTORS, _FALL = 2.0 ** np.arange(-6.0, 13.0), 0.5
# Of the relative error, above which quadrature is done again from the highest node, with so many times the nodes.
_TOLERATED, _FINER, _TIMES_AGAIN = 1e-3, 8, 2


class Integrals(NamedTuple):
    """Integrals of all rows.

    Parameters
    ----------
    log_values : (n,) float64 array
    errors : (n,) float64 array, >= 0
        Estimates of their relative errors: of quadrature, what half the nodes give differently; of importance
        sampling, the standard error.
    """

    log_values: np.ndarray
    errors: np.ndarray


class Target(Protocol):
    """The densities of atoms in free form, and of rows given them."""

    def values(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log density of the base, and of each row, at its points (m, n, D): (m, n) each."""

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the same at one point of each row (n, D), (n,) each, and their gradients, (n, D) each."""

    def base_draws(self, n_draws: int) -> np.ndarray:
        """Return draws from the base: (n_draws, D)."""


class RowIntegrals:
    """Integrals of all rows in one draw after the other, whose peaks are looked for from where they were before.

    Parameters
    ----------
    n : int, >= 1
        Number of rows.
    d : int, >= 1
        Number of dimensions of an atom.
    rng : numpy.random.Generator
    """

    def __init__(self, n: int, d: int, rng: np.random.Generator) -> None:
        self._n, self._d, self._rng = n, d, rng
        self._peaks: np.ndarray | None = None
        self._grids = [_nodes(d, 1), _nodes(d, _FINER if d == 1 else 2)] if d <= 2 else []
        self._uniform = None if d <= 2 else _lattice(_N_PROPOSED, d + 1)

    def at(self, target: Target, start: np.ndarray) -> Integrals:
        """Return the integrals at a draw of the posterior.

        Parameters
        ----------
        target : Target
        start : (n, D) float64 array
            For each row an atom under which it has a positive density, such as that of its cluster.
        """
        drawn = target.base_draws(_N_BASE)
        base = _Centre.of_draws(drawn, self._n)
        own = self._own_centre(target, drawn, start, base)
        if self._d > 2:
            return self._sampled(target, own)
        found, highest, largest = self._by_quadrature(target, own, base, self._grids[0])
        for _ in range(_TIMES_AGAIN):
            poor = found.errors > _TOLERATED
            if not poor.any():
                break
            own = own.at(np.where(poor[:, None], highest, own.location)).rescaled(target)
            again, highest, largest = self._by_quadrature(target, own, base, self._grids[1])
            found = Integrals(*(np.where(poor, new, old) for new, old in zip(again, found, strict=True)))
        return self._checked(target, found, drawn, largest)

    def _checked(self, target: Target, found: Integrals, drawn: np.ndarray, largest: np.ndarray) -> Integrals:
        """Return the means over draws from the base where they show that quadrature is wrong.

        ``largest`` is the log density of each row where it is most likely among the nodes.
        """
        log_rows = target.values(np.repeat(drawn[:, None], self._n, axis=1))[1]
        mean = _log_sum(log_rows) - np.log(len(drawn))
        largest = np.maximum(largest, np.nan_to_num(log_rows, nan=-np.inf).max(axis=0))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.exp(log_rows - mean).std(axis=0) / np.sqrt(len(drawn))
            within = _SIGNIFICANT * error + _UNSEEN * np.exp(largest - mean)
            wrong = np.abs(np.expm1(found.log_values - mean)) > within
        wrong &= np.isfinite(mean)
        return Integrals(np.where(wrong, mean, found.log_values), np.where(wrong, error, found.errors))

    def _own_centre(self, target: Target, drawn: np.ndarray, start: np.ndarray, base: "_Centre") -> "_Centre":
        """Return the peak of each row's integrand, and its curvature there."""
        if self._peaks is None:
            points = np.concatenate([np.repeat(drawn[:, None], self._n, axis=1), start[None]])
            likely = np.nan_to_num(target.values(points)[1], nan=-np.inf).argmax(axis=0)
            # Towards the peak of the likelihood first: from the base, its own would hide a far one.
            self._peaks, _ = _ascend(target, points[likely, np.arange(self._n)], base, _FIRST_STEPS, of_rows=True)
            self._peaks, _ = _ascend(target, self._peaks, base, _FIRST_STEPS)
        lost = ~np.isfinite(np.add(*target.gradients(self._peaks)[:2]))
        self._peaks = np.where(lost[:, None], start, self._peaks)
        self._peaks, precisions = _ascend(target, self._peaks, base, _NEXT_STEPS)
        own = _Centre.of_precisions(self._peaks, precisions)
        return own.rescaled(target) if self._d <= 2 else own

    def _by_quadrature(
        self, target: Target, own: "_Centre", base: "_Centre", nodes: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> tuple[Integrals, np.ndarray, np.ndarray]:
        """Return the sum over grids around the centres of each one's share, the highest nodes, and ``largest``."""
        standard, log_volumes, is_half = nodes
        totals, halves, highest = [], [], []
        largest = np.full(self._n, -np.inf)
        reach = np.maximum(_REACH, _SHARE_OF_BASE * np.exp((base.log_scale - own.log_scale) / self._d))
        for centre in (own, base):
            points = centre.placed(standard)
            log_base, log_rows = target.values(points)
            with np.errstate(divide="ignore"):
                far = _SHARPNESS * np.log(np.sqrt(own.distances(points)) / reach)
            log_shares = -np.logaddexp(0.0, far if centre is own else -far)
            heights = np.nan_to_num(log_base + log_rows, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
            at = heights.argmax(axis=0)
            likely = np.nan_to_num(log_rows, nan=-np.inf, posinf=-np.inf, neginf=-np.inf).max(axis=0)
            largest = np.maximum(largest, likely)
            highest.append((heights[at, np.arange(self._n)], points[at, np.arange(self._n)]))
            terms = log_base + log_rows + log_shares + log_volumes[:, None] + centre.log_scale
            totals.append(_log_sum(terms))
            halves.append(_log_sum(terms[is_half]) + self._d * np.log(2.0))
        found, half = _log_sum(np.stack(totals)), _log_sum(np.stack(halves))
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(np.expm1(half - found))
        # The error of twice as many nodes is about the square.
        errors = np.where(np.isfinite(found), np.nan_to_num(differences, posinf=1.0) ** 1.5, 0.0)
        (of_own, by_own), (of_base, by_base) = highest
        return Integrals(found, errors), np.where((of_own >= of_base)[:, None], by_own, by_base), largest

    def _sampled(self, target: Target, own: "_Centre") -> Integrals:
        """Return means of importance weights over draws of a t distribution and of the base, in equal parts."""
        assert self._uniform is not None
        u = (self._uniform + self._rng.random(self._d + 1)) % 1.0
        u = np.clip(u, 1e-12, 1.0 - 1e-12)
        scales = np.sqrt(_DEGREES / (2.0 * gammaincinv(0.5 * _DEGREES, u[:, -1])))
        proposed = own.placed(ndtri(u[:, :-1]) * scales[:, None])
        drawn = np.repeat(target.base_draws(_N_PROPOSED)[:, None], self._n, axis=1)
        points = np.concatenate([proposed, drawn])
        log_base, log_rows = target.values(points)
        log_mixture = np.logaddexp(own.log_t(points, _DEGREES), log_base) - np.log(2.0)
        weights = log_base + log_rows - log_mixture
        found = _log_sum(weights) - np.log(len(weights))
        with np.errstate(invalid="ignore"):
            relative = np.exp(weights - found).reshape(2, _N_PROPOSED, -1)
            errors = np.sqrt(relative.var(axis=1).sum(axis=0) / _N_PROPOSED) / 2.0
        return Integrals(found, np.where(np.isfinite(found), errors, 0.0))


class _Centre:
    """A place (n, D) in the integrands of rows, with a scale there: a lower triangle (n, D, D)."""

    def __init__(self, location: np.ndarray, root: np.ndarray) -> None:
        self._location, self._root = location, root
        self._inverse = np.linalg.inv(root)
        self.log_scale = np.log(np.abs(np.diagonal(root, axis1=1, axis2=2))).sum(axis=1)

    @classmethod
    def of_draws(cls, drawn: np.ndarray, n: int) -> "_Centre":
        """Make the centre of the base from draws: their medians, and ranges in the middle."""
        low, middle, high = np.quantile(drawn, [0.16, 0.5, 0.84], axis=0)
        spread = np.maximum(0.5 * (high - low), np.finfo(np.float64).tiny)
        return cls(np.tile(middle, (n, 1)), np.tile(np.diag(spread), (n, 1, 1)))

    @classmethod
    def of_precisions(cls, location: np.ndarray, precisions: np.ndarray) -> "_Centre":
        """Make the centre of a Laplace approximation."""
        return cls(location, np.linalg.cholesky(np.linalg.inv(precisions)))

    def at(self, location: np.ndarray) -> "_Centre":
        """Return the same scales elsewhere."""
        return _Centre(location, self._root)

    def rescaled(self, target: Target) -> "_Centre":
        """Return the same place with scales at which the integrand has fallen: curvatures know no kinks."""
        d = self._location.shape[1]
        root = self._root.copy()
        for j in range(d):
            steps = np.multiply.outer(np.concatenate([_FACTORS, -_FACTORS, [0.0]]), self._root[:, :, j])
            heights = np.nan_to_num(np.add(*target.values(self._location + steps)), nan=-np.inf)
            fallen = (heights[-1] - heights[:-1] > _FALL).reshape(2, len(_FACTORS), -1)
            # The nearest on either side.
            first = np.where(fallen.any(axis=1), _FACTORS[fallen.argmax(axis=1)], _FACTORS[-1])
            root[:, :, j] *= np.sqrt(first[0] * first[1])[:, None]
        return _Centre(self._location, root)

    @property
    def location(self) -> np.ndarray:
        """Where it is: (n, D)."""
        return self._location

    @property
    def variances(self) -> np.ndarray:
        """Of each coordinate: (n, D)."""
        return (self._root**2).sum(axis=2)

    def placed(self, standard: np.ndarray) -> np.ndarray:
        """Return points (m, D) moved to the centre of each row: (m, n, D)."""
        return self._location + np.einsum("nij,mj->mni", self._root, standard)

    def log_t(self, points: np.ndarray, degrees: float) -> np.ndarray:
        """Return the log density of the t distribution: (m, n)."""
        d = self._location.shape[1]
        norm = gammaln(0.5 * (degrees + d)) - gammaln(0.5 * degrees) - 0.5 * d * np.log(degrees * np.pi)
        return norm - 0.5 * (degrees + d) * np.log1p(self.distances(points) / degrees) - self.log_scale

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Return squared distances of points (m, n, D) from the centre, in its scale: (m, n)."""
        standard = np.einsum("nij,mnj->mni", self._inverse, points - self._location)
        return (standard**2).sum(axis=2)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Return logs of sums over the first axis; what is NaN counts as zero."""
    terms = np.where(np.isnan(terms), -np.inf, terms)
    largest = terms.max(axis=0)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - shift).sum(axis=0)) + shift


def _nodes(d: int, times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standard nodes (m, d), the logs of their volumes (m,), and which are those of half as many.

    There are ``times`` as many on each axis as usual.
    """
    t = _ON_A_LINE if d == 1 else _ON_A_PLANE
    t = np.linspace(t[0], t[-1], times * (len(t) - 1) + 1)
    log_volumes = np.log(np.cosh(t) * (t[1] - t[0]))
    is_half = np.arange(len(t)) % 2 == 0
    if d == 1:
        return np.sinh(t)[:, None], log_volumes, is_half
    grid = np.stack(np.meshgrid(np.sinh(t), np.sinh(t), indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.add.outer(log_volumes, log_volumes).ravel(), np.logical_and.outer(is_half, is_half).ravel()


def _lattice(n: int, d: int) -> np.ndarray:
    """Return points of the unit cube that fill it evenly (n, d): fractions of multiples of a generalised ratio."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (d + 1))
    return (np.arange(1, n + 1)[:, None] * ratio ** -np.arange(1.0, d + 1)) % 1.0


def _ascend(
    target: Target, points: np.ndarray, base: _Centre, n_steps: int, *, of_rows: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return points (n, D) nearer to the peaks of the integrands, and precisions (n, D, D) there.

    Newton steps with curvatures made positive, no longer than a few scales of the base, and halved where they do
    not go up. With ``of_rows`` the density of the base is left out.
    """

    def look(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_base, log_rows, of_base, of_row = target.gradients(at)
        value, gradient = (log_rows, of_row) if of_rows else (log_base + log_rows, of_base + of_row)
        return np.where(np.isfinite(value), value, -np.inf), np.where(np.isfinite(gradient), gradient, 0.0)

    scale = np.sqrt(base.variances)
    value, gradient = look(points)
    precisions = _precisions(look, points, gradient, scale)
    for _ in range(n_steps):
        step = np.linalg.solve(precisions, gradient[..., None])[..., 0]
        longest = np.max(np.abs(step) / scale, axis=1, keepdims=True)
        step = step * np.minimum(1.0, 10.0 / np.maximum(longest, 1e-300))
        moved = np.zeros(len(points), dtype=np.bool_)
        for halving in range(5):
            tried = np.where(moved[:, None], points, points + step * 0.5**halving)
            new, _ = look(tried)
            better = ~moved & (new > value)
            points, value = np.where(better[:, None], tried, points), np.where(better, new, value)
            moved |= better
            if moved.all():
                break
        _, gradient = look(points)
        precisions = _precisions(look, points, gradient, scale)
        small = np.abs(np.einsum("nij,nj->ni", precisions, step) * step).sum(axis=1) < 1e-2
        if np.all(small | ~moved):
            break
    return points, precisions


def _precisions(look: Any, points: np.ndarray, gradient: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return negative second derivatives by differences of gradients, made positive definite: (n, D, D)."""
    d = points.shape[1]
    columns = []
    for j in range(d):
        step = np.zeros_like(points)
        step[:, j] = _STEP * scale[:, j]
        _, there = look(points + step)
        columns.append((gradient - there) / step[:, [j]])
    curvature = np.stack(columns, axis=2)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    # In units of the base, in which all coordinates are alike.
    units = scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(0.5 * (curvature + np.swapaxes(curvature, 1, 2)) * units)
    values = np.maximum(np.abs(values), 1e-2)
    return np.einsum("nij,nj,nkj->nik", vectors, values, vectors) / units
