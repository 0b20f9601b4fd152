r"""The density of a row under a new atom, :math:`\int f(y_i \mid \theta)\, h(\theta)\, d\theta`, all rows at once.

Atoms are in free form, D unbounded numbers, and :math:`h` is the density of the base measure there. The integrand
of a row may have two peaks: one at the row, far narrower than the base measure, and one where the base measure is.
Each peak has a centre :math:`m_c` with a scale :math:`S_c`.

- One or two dimensions: the trapezoidal rule in :math:`t` after :math:`\theta = m_c + S_c \sinh(t)`. Its nodes are
  dense at the centre and reach far from it. For analytic integrands the error falls exponentially in the number of
  nodes (Trefethen and Weideman 2014, section 4). Weights that add up to one divide the integrand between the two
  centres, so that each grid integrates one peak only. The result is compared with a Monte Carlo mean over draws
  from the base measure, which replaces it where the difference is too large: the grids have then missed a peak.
  The tolerance is a multiple of the standard error, plus what regions without draws may contribute. For a row that
  few draws come near, that contribution may be the whole integral.
- More dimensions: importance sampling. Half of the proposals are from the base measure. The others are from two t
  distributions, with quasi-random numbers: one at the Laplace approximation of the row's integrand, and one with
  the moments of the draws before, as they are weighed (Cappe et al. 2004). Draws are weighted by the density of
  the mixture of all three (the balance heuristic: Owen and Zhou 2000; Veach 1997, section 9.2). The weights are at
  most twice the likelihood over the integral. Two dimensions have it too where the rule does not do, as for a mean
  and the log of a standard deviation, and in all draws but the first: there the integral is one of several terms,
  and is only as good as their sum needs.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import expit, gammaincinv, ndtri

from pymc_dpgmm.posterior.arrays.centres import Centre

# Nodes in t: for atoms of one dimension, and on each axis for atoms of two.
_ON_A_LINE = np.linspace(-7.0, 7.0, 113)
_ON_A_PLANE = np.linspace(-3.9, 3.9, 27)
# The integrand belongs to the grid of the row's peak within a radius: _REACH scales of the peak, or _SHARE_OF_BASE
# scales of the base measure if that is more. The other grid's weight falls inside it with the power _SHARPNESS.
_REACH, _SHARE_OF_BASE, _SHARPNESS = 20.0, 0.5, 6.0
# _N_BASE draws locate the base measure and check quadrature; each half of importance sampling has _N_PROPOSED.
_N_BASE, _N_PROPOSED = 256, 256
# Degrees of freedom of the t proposal.
_DEGREES = 5.0
# Quadrature is wrong where it differs from the mean over base draws by more than _SIGNIFICANT standard errors plus
# _UNSEEN times the largest likelihood of the row: the draws may have missed regions with that probability.
_SIGNIFICANT, _UNSEEN = 4.0, 8.0 / _N_BASE
# Newton steps to the peak of a row: in the first draw, and in later draws, which start from the previous peak.
_FIRST_STEPS, _NEXT_STEPS = 30, 3
# Step of finite differences, in scales of the base measure.
_STEP = 1e-5
# A scale is multiplied by the first of _FACTORS at which the log integrand is lower than the peak by _FALL.
_FACTORS, _FALL = 2.0 ** np.arange(-6.0, 13.0), 0.5
# Importance sampling is repeated and averaged while the relative error of the sum that the integral is part of is
# above _OF_SUM: up to _ROUNDS times, and up to _FIRST_ROUNDS times in the first draw, which may serve all others.
_OF_SUM, _ROUNDS, _FIRST_ROUNDS = 0.02, 4, 32
# Before the first, proposals move to where the weighed draws are so many times.
_ADAPTATIONS = 8
# Where the relative error of quadrature is above _TOLERATED, it is repeated up to _TIMES_AGAIN times around the
# highest node, with _FINER times the nodes (one dimension) or twice as many on each axis (two).
_TOLERATED, _FINER, _TIMES_AGAIN = 1e-3, 8, 2


class Integrals(NamedTuple):
    """Integrals of all rows.

    Parameters
    ----------
    log_values : (n,) float64 array
    errors : (n,) float64 array, >= 0
        Estimates of their relative errors: for quadrature from the difference to half the nodes, for Monte Carlo
        the standard error.
    are_means : (n,) bool array
        Which of them are Monte Carlo means, whose errors are independent of those in other draws.
    """

    log_values: np.ndarray
    errors: np.ndarray
    are_means: np.ndarray

    def where(self, chosen: np.ndarray, other: "Integrals") -> "Integrals":
        """Return these with others in place of some."""
        return Integrals(*(np.where(chosen, new, old) for new, old in zip(other, self, strict=True)))


class Target(Protocol):
    """Log density of the base measure, and of each row given its atom, for atoms in free form."""

    def values(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both log densities at points (m, n, D), m for each of n rows: two (m, n) arrays."""

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return both log densities at one point of each row (n, D), two (n,) arrays, and two (n, D) gradients."""

    def base_draws(self, n_draws: int) -> np.ndarray:
        """Return draws from the base: (n_draws, D)."""


class RowIntegrals:
    """Integrals of all rows, draw by draw. The search for the peaks starts from those of the previous draw.

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
        self._centre: Centre | None = None
        self._grids = [_nodes(d, 1), _nodes(d, _FINER if d == 1 else 2)] if d <= 2 else []
        self._uniform = None if d < 2 else _lattice(_N_PROPOSED, d + 1)

    def at(self, target: Target, start: np.ndarray, log_others: np.ndarray | None = None) -> Integrals:
        """Return the integrals at a draw of the posterior.

        Parameters
        ----------
        target : Target
        start : (n, D) float64 array
            For each row an atom under which its density is positive, such as the atom of its cluster.
        log_others : (n,) float64 array, optional
            Logs of what the integrals will be added to: an integral that is small beside it may be off by more.
        """
        drawn = target.base_draws(_N_BASE)
        base = Centre.of_draws(drawn, self._n)
        peak = self._own_centre(target, drawn, start, base)
        if self._d > 2 or (self._d == 2 and log_others is not None):
            return self._averaged(target, peak, log_others)
        integrals, highest, largest = self._by_quadrature(target, peak, base, self._grids[0])
        for _ in range(_TIMES_AGAIN):
            poor = integrals.errors > _TOLERATED
            if not poor.any():
                break
            peak = _rescaled(peak.at(np.where(poor[:, None], highest, peak.location)), target)
            finer, highest, largest = self._by_quadrature(target, peak, base, self._grids[1])
            integrals = integrals.where(poor, finer)
        integrals = self._checked(target, integrals, drawn, largest)
        if self._d == 2:
            # The rule may miss what is long and narrow, and not know it.
            means = self._averaged(target, peak, None)
            with np.errstate(invalid="ignore"):
                differ = np.abs(means.log_values - integrals.log_values) > _SIGNIFICANT * means.errors
            integrals = integrals.where(differ | (means.errors < integrals.errors), means)
        return integrals

    def _checked(self, target: Target, integrals: Integrals, drawn: np.ndarray, largest: np.ndarray) -> Integrals:
        """Replace quadrature by the mean over base draws where the two differ significantly.

        ``largest`` is the largest log density of each row at any node.
        """
        log_rows = target.values(np.repeat(drawn[:, None], self._n, axis=1))[1]
        mean = _log_sum(log_rows) - np.log(len(drawn))
        largest = np.maximum(largest, np.nan_to_num(log_rows, nan=-np.inf).max(axis=0))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.exp(log_rows - mean).std(axis=0) / np.sqrt(len(drawn))
            within = _SIGNIFICANT * error + _UNSEEN * np.exp(largest - mean)
            wrong = np.abs(np.expm1(integrals.log_values - mean)) > within
        return integrals.where(
            wrong & np.isfinite(mean), Integrals(mean, error, np.ones(len(mean), dtype=np.bool_))
        )

    def _own_centre(self, target: Target, drawn: np.ndarray, start: np.ndarray, base: Centre) -> Centre:
        """Return the peak of each row's integrand, and its curvature there."""
        if self._peaks is None:
            points = np.concatenate([np.repeat(drawn[:, None], self._n, axis=1), start[None]])
            likely = np.nan_to_num(target.values(points)[1], nan=-np.inf).argmax(axis=0)
            # First climb to the peak of the likelihood: from the base measure, a search could stop at its peak.
            self._peaks, _ = _ascend(target, points[likely, np.arange(self._n)], base, _FIRST_STEPS, of_rows=True)
            self._peaks, _ = _ascend(target, self._peaks, base, _FIRST_STEPS)
        lost = ~np.isfinite(np.add(*target.gradients(self._peaks)[:2]))
        self._peaks = np.where(lost[:, None], start, self._peaks)
        self._peaks, precisions = _ascend(target, self._peaks, base, _NEXT_STEPS)
        peak = Centre.of_precisions(self._peaks, precisions)
        return _rescaled(peak, target) if self._d <= 2 else peak

    def _by_quadrature(
        self, target: Target, peak: Centre, base: Centre, nodes: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> tuple[Integrals, np.ndarray, np.ndarray]:
        """Return the integrals, the highest node (n, D), and the largest log likelihood at any node (n,)."""
        standard, log_volumes, is_half = nodes
        totals, halves, highest = [], [], []
        largest = np.full(self._n, -np.inf)
        reach = np.maximum(_REACH, _SHARE_OF_BASE * np.exp((base.log_scale - peak.log_scale) / self._d))
        for centre in (peak, base):
            points = centre.placed(standard)
            log_base, log_rows = target.values(points)
            with np.errstate(divide="ignore"):
                far = _SHARPNESS * np.log(np.sqrt(peak.distances(points)) / reach)
            log_shares = -np.logaddexp(0.0, far if centre is peak else -far)
            heights = np.nan_to_num(log_base + log_rows, nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
            at = heights.argmax(axis=0)
            likely = np.nan_to_num(log_rows, nan=-np.inf, posinf=-np.inf, neginf=-np.inf).max(axis=0)
            largest = np.maximum(largest, likely)
            highest.append((heights[at, np.arange(self._n)], points[at, np.arange(self._n)]))
            terms = log_base + log_rows + log_shares + log_volumes[:, None] + centre.log_scale
            totals.append(_log_sum(terms))
            halves.append(_log_sum(terms[is_half]) + self._d * np.log(2.0))
        log_values, half = _log_sum(np.stack(totals)), _log_sum(np.stack(halves))
        with np.errstate(invalid="ignore", over="ignore"):
            differences = np.abs(np.expm1(half - log_values))
        # Doubling the nodes about squares the error; the power 1.5 is on the safe side.
        errors = np.where(np.isfinite(log_values), np.nan_to_num(differences, posinf=1.0) ** 1.5, 0.0)
        (of_peak, by_peak), (of_base, by_base) = highest
        integrals = Integrals(log_values, errors, np.zeros(self._n, dtype=np.bool_))
        return integrals, np.where((of_peak >= of_base)[:, None], by_peak, by_base), largest

    def _averaged(self, target: Target, peak: Centre, log_others: np.ndarray | None) -> Integrals:
        """Return means over so many proposals that the sum with what is beside the integrals is good enough."""
        if self._centre is None:
            self._centre = Centre.of_draws(target.base_draws(_N_BASE), self._n)
            for _ in range(_ADAPTATIONS):
                self._sampled(target, peak)
        found = self._sampled(target, peak)
        for done in range(1, _FIRST_ROUNDS if log_others is None else _ROUNDS):
            shares = 1.0 if log_others is None else expit(found.log_values - log_others)
            if np.all(shares * found.errors < _OF_SUM):
                break
            more = self._sampled(target, peak)
            log_sum = np.logaddexp(found.log_values + np.log(done), more.log_values)
            variances = (np.exp(found.log_values - log_sum) * done * found.errors) ** 2
            variances += (np.exp(more.log_values - log_sum) * more.errors) ** 2
            found = Integrals(log_sum - np.log(done + 1), np.sqrt(variances), found.are_means)
        return found

    def _sampled(self, target: Target, peak: Centre) -> Integrals:
        """Return means of importance weights: half of the draws from t distributions, half from the base.

        One of the t distributions is at the peak, and the other where the weighed draws were before. Where the
        base has a density at the end of a scale, the peak is there, and tells nothing.
        """
        assert self._uniform is not None
        assert self._centre is not None
        u = (self._uniform + self._rng.random(self._d + 1)) % 1.0
        u = np.clip(u, 1e-12, 1.0 - 1e-12)
        scales = np.sqrt(_DEGREES / (2.0 * gammaincinv(0.5 * _DEGREES, u[:, -1])))
        standard = ndtri(u[:, :-1]) * scales[:, None]
        proposed = peak.placed(standard[::2]), self._centre.placed(standard[1::2])
        drawn = np.repeat(target.base_draws(_N_PROPOSED)[:, None], self._n, axis=1)
        points = np.concatenate([*proposed, drawn])
        log_base, log_rows = target.values(points)
        of_both = np.logaddexp(peak.log_t(points, _DEGREES), self._centre.log_t(points, _DEGREES)) - np.log(2.0)
        log_mixture = np.logaddexp(of_both, log_base) - np.log(2.0)
        weights = log_base + log_rows - log_mixture
        log_values = _log_sum(weights) - np.log(len(weights))
        with np.errstate(invalid="ignore"):
            relative = np.exp(weights - log_values).reshape(2, _N_PROPOSED, -1)
            errors = np.sqrt(relative.var(axis=1).sum(axis=0) / _N_PROPOSED) / 2.0
        errors = np.where(np.isfinite(log_values), errors, 0.0)
        self._centre = Centre.of_weighed(points, weights)
        return Integrals(log_values, errors, np.ones(self._n, dtype=np.bool_))


def _rescaled(centre: Centre, target: Target) -> Centre:
    """Rescale to the distance at which the integrand has fallen: at a kink, the curvature says nothing."""
    root = centre.root.copy()
    for j in range(root.shape[1]):
        steps = np.multiply.outer(np.concatenate([_FACTORS, -_FACTORS, [0.0]]), centre.root[:, :, j])
        heights = np.nan_to_num(np.add(*target.values(centre.location + steps)), nan=-np.inf)
        fallen = (heights[-1] - heights[:-1] > _FALL).reshape(2, len(_FACTORS), -1)
        # The smallest factor on either side.
        first = np.where(fallen.any(axis=1), _FACTORS[fallen.argmax(axis=1)], _FACTORS[-1])
        root[:, :, j] *= np.sqrt(first[0] * first[1])[:, None]
    return Centre(centre.location, root)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Return the log of the sum of exponentials over the first axis; NaN terms are left out."""
    terms = np.where(np.isnan(terms), -np.inf, terms)
    largest = terms.max(axis=0)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - shift).sum(axis=0)) + shift


def _nodes(d: int, times: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standard nodes (m, d), logs of their volumes (m,), and a mask (m,) of the grid half as dense.

    Each axis has ``times`` the usual number of intervals.
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
    """Return points that fill the unit cube evenly, (n, d): multiples of a generalised golden ratio, modulo 1."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (d + 1))
    return (np.arange(1, n + 1)[:, None] * ratio ** -np.arange(1.0, d + 1)) % 1.0


def _ascend(
    target: Target, points: np.ndarray, base: Centre, n_steps: int, *, of_rows: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Climb towards the peaks of the integrands; return points (n, D), and precisions (n, D, D) there.

    Newton steps, with the curvature made positive definite. A step is at most a few scales of the base measure,
    and is halved while it does not go up. With ``of_rows`` the function is the likelihood of the row alone.
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
    """Return negative second derivatives, from differences of gradients, made positive definite: (n, D, D)."""
    d = points.shape[1]
    columns = []
    for j in range(d):
        step = np.zeros_like(points)
        step[:, j] = _STEP * scale[:, j]
        _, there = look(points + step)
        columns.append((gradient - there) / step[:, [j]])
    curvature = np.stack(columns, axis=2)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    # In scales of the base measure, so that one bound fits all coordinates.
    units = scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(0.5 * (curvature + np.swapaxes(curvature, 1, 2)) * units)
    values = np.maximum(np.abs(values), 1e-2)
    return np.einsum("nij,nj,nkj->nik", vectors, values, vectors) / units
