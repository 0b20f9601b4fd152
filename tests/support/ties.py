"""Posteriors of tiny models whose rows share atoms, by enumeration and quadrature, without the package."""

import copy
import functools
from typing import NamedTuple

import exact
import numpy as np
from scipy.special import logsumexp


class Oracle:
    """A model of n rows, with atoms on a grid of G cells.

    Parameters
    ----------
    log_priors : (B_n,) array
        Log prior of all partitions of n rows.
    values : list of (G, ...) arrays
        The middles of the cells, one array for each parameter.
    widths : list of (G,) arrays
        Widths of the cells, zeros for discrete values.
    log_base : (H, G) array
        Log probabilities of the cells under the base, for each of H values of a hyperparameter.
    log_rows : (n, G) array
        Log density of each row in each cell.
    log_hyper : (H,) array
        Log prior of the hyperparameter's values.
    """

    def __init__(self, log_priors, values, widths, log_base, log_rows, log_hyper=(0.0,)):
        self.values, self.widths = values, widths
        self.log_rows, self.n = log_rows, len(log_rows)
        self.log_base = np.atleast_2d(log_base)
        self.labels = exact.partitions(self.n)
        found = {}

        def cluster(members):
            if members not in found:
                found[members] = logsumexp(self.log_base + log_rows[list(members)].sum(axis=0), axis=1)
            return found[members]

        log_joint = np.array(
            [
                log_prior + log_hyper + sum(cluster(tuple(np.flatnonzero(p == k))) for k in range(max(p) + 1))
                for p, log_prior in zip(self.labels, log_priors, strict=True)
            ]
        )
        self.log_evidence = logsumexp(log_joint)
        self.joint = np.exp(log_joint - self.log_evidence)
        self.p = self.joint.sum(axis=1)

    def given(self, log_likelihoods):
        """The same, given other data that depends on the labels alone: its log density under all partitions."""
        other = copy.copy(self)
        with np.errstate(divide="ignore"):
            log_joint = np.log(self.joint) + self.log_evidence + np.asarray(log_likelihoods)[:, None]
        other.log_evidence = logsumexp(log_joint)
        other.joint = np.exp(log_joint - other.log_evidence)
        other.p = other.joint.sum(axis=1)
        return other

    def draws(self, rng, n_draws):
        """Independent draws: labels, parameters of the rows, and the number of the hyperparameter's value."""
        where = rng.choice(self.joint.size, size=n_draws, p=self.joint.ravel())
        partitions, hyper = np.unravel_index(where, self.joint.shape)

        @functools.cache
        def cumulated(members, h):
            return np.cumsum(exact.normalized(self.log_base[h] + self.log_rows[list(members)].sum(axis=0)))

        @functools.cache
        def of_clusters(partition, h):
            labels = self.labels[partition]
            return [cumulated(tuple(np.flatnonzero(labels == k)), h) for k in range(labels.max() + 1)]

        are_wide = [np.any(width) for width in self.widths]
        for partition, h in zip(partitions.tolist(), hyper.tolist(), strict=True):
            labels = self.labels[partition]
            cells = np.array([own.searchsorted(rng.random() * (1 - 1e-9)) for own in of_clusters(partition, h)])
            atoms = [
                value[cells] + (rng.random(len(cells)) - 0.5) * width[cells] if is_wide else value[cells]
                for value, width, is_wide in zip(self.values, self.widths, are_wide, strict=True)
            ]
            yield labels, [own[labels] for own in atoms], h

    def means(self, parameter=0):
        """Posterior mean and standard deviation of each row's value of a parameter."""
        first, second, value = np.zeros(self.n), np.zeros(self.n), self.values[parameter]
        square = value**2

        @functools.cache
        def of_cluster(members, h):
            p = exact.normalized(self.log_base[h] + self.log_rows[list(members)].sum(axis=0))
            return p @ value, p @ square

        for labels, joint in zip(self.labels, self.joint, strict=True):
            for k in range(labels.max() + 1):
                members = np.flatnonzero(labels == k)
                for h, weight in enumerate(joint):
                    of_first, of_second = of_cluster(tuple(members), h)
                    first[members] += weight * of_first
                    second[members] += weight * of_second
        return first, np.sqrt(second - first**2)


class Grid(NamedTuple):
    middles: np.ndarray
    width: float


def cells(low, high, n):
    edges = np.linspace(low, high, n + 1)
    return Grid(0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0])


def of_numbers(log_priors, grid, log_base, log_rows):
    """The oracle of atoms that are single numbers, in the cells of a grid."""
    widths = np.full(len(grid.middles), grid.width)
    return Oracle(log_priors, [grid.middles], [widths], log_base, log_rows)


def assert_means(found, oracle, parameter=0):
    """Assert that means of independent draws (draws, n) are those of the posterior."""
    mean, sd = oracle.means(parameter)
    z = (found.mean(axis=0) - mean) / (sd / np.sqrt(len(found)))
    assert np.all(np.abs(z) < 4.5), z
