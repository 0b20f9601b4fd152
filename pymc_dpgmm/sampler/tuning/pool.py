r"""The best partition that can be put together from clusters that a search has seen.

The log joint density of labels is a sum over clusters: each adds the log evidence of its rows and what the prior
has for its size. So the best partition made of some clusters is a set partitioning problem, as the best plan made
of routes of vehicles is (Rochat and Taillard 1995). With :math:`x_c` for whether cluster c is taken, it is the
linear program

.. math:: \max \sum_c s_c x_c - a \sum_i o_i - b \sum_i u_i, \qquad
          \sum_{c \ni i} x_c - o_i + u_i = 1 \text{ for each row } i,

whose solutions are whole numbers but for a few, which are rounded. Two clusters may both have row i
(:math:`o_i`), or none (:math:`u_i`), at a price, since such rows find their clusters afterwards. The score
:math:`s_c` is what the cluster adds, less what its rows add where they are now. For tuning only, as all of a
search.
"""

import math
from collections.abc import Iterable

import numpy as np

from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, address_of, c_function, shifted
from pymc_dpgmm.native.interrupts import imported
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.state.cluster_table import rows_of_clusters
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import join, leave
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import gather, log_evidence, weigh

# The price, in nats, of a row in two clusters, and of one in none, is drawn between these, so that no two programs
# are the same: with high prices few rows are left to find their cluster, with low ones clusters combine freely.
PRICES = 4.0, 12.0
# When there are more clusters than this, or more rows in all of them together, those go that would have made the
# last partition the least probable. With 1,000,000 rows in 2,000 clusters, a program takes ten seconds.
MOST_CLUSTERS, MOST_ROWS = 4_000, 100_000


@c_function(INT(INTS, INTS, INTS, INT, FLOATS))
def _scores(head, rows, starts, n_sets, scores):
    """Set what each set of rows ``rows[starts[t]:starts[t + 1]]`` adds to the log joint density as a cluster."""
    s = memory_at(head)
    prior = prior_of(s)
    n_clusters = s.n_clusters
    if n_clusters == s.capacity:
        return NEEDS_ROOM
    spare = s.order[n_clusters]
    # A prior that allows no more clusters has others go for it.
    opening = log_seat_new(prior, n_clusters - 1 if n_clusters >= prior.most else n_clusters)
    for t in range(n_sets):
        size = starts[t + 1] - starts[t]
        gather(s, spare, shifted(rows, starts[t]), size, 1)
        scores[t] = opening + log_rising(1.0 - prior.discount, size - 1) + log_evidence(s, spare)
    return DONE


@c_function(INT(INTS, FLOATS))
def _row_scores(head, scores):
    """Set what each row adds to the log joint density in the cluster that it is in."""
    s = memory_at(head)
    prior = prior_of(s)
    weights = s.log_weights
    for i in range(s.n):
        k = s.slots[i]
        if s.sizes[k] == 1:
            scores[i] = log_seat_new(prior, s.n_clusters - 1) + s.prior_predictive[i]
            continue
        s.listed[0] = k
        weights[0] = log_seat(prior, s.sizes[k] - 1)
        weigh(s, i, s.listed, 1, k, weights)
        if math.isnan(weights[0]):
            # It has to leave before its density without itself can be computed.
            leave(s, i)
            weights[0] = log_seat(prior, s.sizes[k])
            weigh(s, i, s.listed, 1, -1, weights)
            join(s, i, k)
        scores[i] = weights[0]
    return DONE


class Pool:
    """Clusters that a search has seen.

    Parameters
    ----------
    n : int
        Number of rows, or units.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.clusters: dict[bytes, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.clusters)

    def add(self, labels: np.ndarray) -> None:
        """Add the clusters of canonical labels (n,)."""
        self.add_clusters(rows_of_clusters(labels))

    def add_clusters(self, clusters: Iterable[np.ndarray]) -> None:
        """Add clusters, each given by its rows in increasing order."""
        for own in clusters:
            self.clusters.setdefault(own.tobytes(), own)

    def recombined(self, rng: np.random.Generator, state: State) -> np.ndarray:
        """Return canonical labels (n,) of one of the most probable partitions that can be made of the clusters.

        Parameters
        ----------
        rng : numpy.random.Generator
        state : State
            Where rows are now; clusters are judged by its prior and its base measures.
        """
        sets = list(self.clusters.values())
        starts = np.cumsum([0, *map(len, sets)])
        rows = np.concatenate(sets)
        scores, of_rows = np.empty(len(sets)), np.empty(self.n)
        state.run(rng, _row_scores, address_of(of_rows))
        state.run(rng, _scores, address_of(rows), address_of(starts), len(sets), address_of(scores))
        scores -= np.add.reduceat(of_rows[rows], starts[:-1])
        prices = rng.uniform(*PRICES, size=2)
        taken, gains = _best_cover(rows, starts, scores, prices, self.n, state.most)
        if len(sets) > MOST_CLUSTERS or len(rows) > MOST_ROWS:
            kept = np.argsort(-gains, kind="stable")[: MOST_CLUSTERS // 2]
            kept = kept[np.cumsum(np.diff(starts)[kept]) <= MOST_ROWS]
            self.clusters = {sets[k].tobytes(): sets[k] for k in np.sort(kept)}
        labels = np.full(self.n, -1)
        for k in taken:
            own = sets[k]
            labels[own[labels[own] < 0]] = k
        return _completed(labels, state.labels())


def _best_cover(
    rows: np.ndarray, starts: np.ndarray, scores: np.ndarray, prices: np.ndarray, n: int, most: float
) -> tuple[list[int], np.ndarray]:
    """Return which sets of rows are taken, and what the program would gain by each set at most.

    Parameters
    ----------
    rows : (m,) int array
        Those of set t are ``rows[starts[t]:starts[t + 1]]``.
    starts : (S + 1,) int array
    scores : (S,) array
    prices : (2,) array
        Of a row that is in one set more than one, and of a row that is in none.
    n : int
        Number of rows.
    most : float
        Of sets that are taken.

    Returns
    -------
    taken : list of int
    gains : (S,) array
        0 for sets that are taken, at most 0 for others.
    """
    sparse, optimize = imported("scipy.sparse"), imported("scipy.optimize")
    n_sets = len(scores)
    first, counts = _alike(rows, starts, n)
    n_kinds = len(first)
    has_row = sparse.csc_array((np.ones(len(rows)), rows, starts), shape=(n, n_sets)).tocsr()[first]
    identity = sparse.eye_array(n_kinds, format="csr")
    costs = np.concatenate([-scores, prices[0] * counts, prices[1] * counts])
    upper = np.concatenate([np.ones(n_sets), np.full(2 * n_kinds, np.inf)])
    counted = np.concatenate([np.ones(n_sets), np.zeros(2 * n_kinds)])
    found = optimize.linprog(
        costs,
        A_eq=sparse.hstack([has_row, -identity, identity], format="csc"),
        b_eq=np.ones(n_kinds),
        A_ub=sparse.csc_array(counted[None]) if most < np.inf else None,
        b_ub=[most] if most < np.inf else None,
        bounds=np.column_stack([np.zeros_like(upper), upper]),
        method="highs",
    )
    if found.x is None:
        return [], np.zeros(n_sets)
    shares = found.x[:n_sets]
    taken: list[int] = []
    is_covered = np.zeros(n, dtype=bool)
    for k in np.argsort(-shares, kind="stable").tolist():
        own = rows[starts[k] : starts[k + 1]]
        n_twice = int(is_covered[own].sum())
        gain = scores[k] + prices[1] * (len(own) - n_twice) - prices[0] * n_twice
        # What is left of solutions that are not whole numbers is taken where it pays beside the others.
        if len(taken) < most and shares[k] > 0.0 and gain > 0.0:
            taken.append(k)
            is_covered[own] = True
    return taken, np.minimum(-found.lower.marginals[:n_sets], 0.0)


def _alike(rows: np.ndarray, starts: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each kind, and how many rows are of it: two are of a kind if they share all sets."""
    of_sets = np.random.default_rng(0).integers(2**63, size=len(starts) - 1)
    # Sums of random numbers, which wrap around, tell kinds apart.
    sums = np.zeros(n, dtype=np.int64)
    np.add.at(sums, rows, np.repeat(of_sets, np.diff(starts)))
    _, first, counts = np.unique(sums, return_index=True, return_counts=True)
    return first, counts


def _completed(labels: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Let rows without a label, -1, join the cluster of most rows that have been in one cluster with them.

    Parameters
    ----------
    labels : (n,) int array
    before : (n,) int array
        Canonical labels. Rows of a cluster of which no row has a label form a cluster.

    Returns
    -------
    (n,) int array
        Canonical labels.
    """
    has_label = labels >= 0
    names, named = np.unique(labels[has_label], return_inverse=True)
    shared = np.zeros((before.max() + 1, len(names) + 1), dtype=np.int64)
    np.add.at(shared, (before[has_label], named), 1)
    # Where rows of each cluster go.
    goes = np.where(shared.any(axis=1), shared.argmax(axis=1), len(names) + np.arange(len(shared)))
    found = goes[before]
    found[has_label] = named
    return canonical_labels(found)[0]
