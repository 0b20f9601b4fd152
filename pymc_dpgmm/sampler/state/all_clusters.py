"""What is computed of all clusters of a state: statistics from the rows, labels, and the log joint density."""

from pymc_dpgmm.native.compiled import FLOAT, INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.partitions.priors import log_eppf
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import link, refit, rows_elsewhere
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import gather, log_evidence, merge, weigh_rows


@c_function(NOTHING(INTS))
def fill(head):
    """Set rings, sizes and statistics of clusters in slots 1..K from ``slots``."""
    s = memory_at(head)
    for i in range(s.n - 1, -1, -1):
        link(s, i, s.slots[i])
    # Rows slot by slot, to be gathered.
    start = 0
    for k in range(1, s.n_clusters + 1):
        n_here = s.sizes[k]
        i = s.following[s.n + k]
        for t in range(n_here):
            s.gathered[start + t] = i
            i = s.following[i]
        gather(s, k, shifted(s.gathered, start), n_here, 1)
        n_elsewhere = rows_elsewhere(s, k)
        if n_elsewhere > 0:
            merge(s, k, s.n_elsewhere + k)
            s.sizes[k] += n_elsewhere
        start += n_here
    gather(s, 0, s.gathered, 0, 1)
    set_prior_predictives(s, 0, s.n)


@c_function(NOTHING(INTS))
def link_all(head):
    """Set rings, sizes and the list of slots from ``slots``, whatever was there."""
    link_rows(memory_at(head))


@inlined
def link_rows(s):
    """Set rings, sizes and the list of slots from ``slots``, inside a kernel."""
    for k in range(s.capacity + 1):
        ring = s.n + k
        s.following[ring], s.preceding[ring], s.sizes[k] = ring, ring, 0
    for i in range(s.n - 1, -1, -1):
        link(s, i, s.slots[i])
    # Slots in use first.
    n_clusters, n_free = 0, 0
    for k in range(1, s.capacity + 1):
        if s.sizes[k] > 0:
            s.order[n_clusters] = k
            n_clusters += 1
    for k in range(1, s.capacity + 1):
        if s.sizes[k] == 0:
            s.order[n_clusters + n_free] = k
            n_free += 1
    for place in range(s.capacity):
        s.place[s.order[place]] = place
    s.n_clusters = n_clusters


@inlined
def set_prior_predictives(s, start, stop):
    """Set the log predictives of rows in a cluster without others."""
    s.listed[0] = 0
    for first in range(start, stop, WEIGHED_AT_ONCE):
        m = min(WEIGHED_AT_ONCE, stop - first)
        for q in range(m):
            s.gathered[q] = first + q
            s.owns[q] = -1
            s.prior_predictive[first + q] = 0.0
        weigh_rows(s, s.gathered, m, s.listed, 1, s.owns, 1, shifted(s.prior_predictive, first))


@c_function(NOTHING(INTS))
def refit_all(head):
    """Compute the statistics of all clusters from their rows, for other parameters.

    Sums do not depend on these, but how many digits of them matter does: what a wide prior has hidden, a narrow
    one shows.
    """
    refit_clusters(memory_at(head))


@inlined
def refit_clusters(s):
    """Compute the statistics of all clusters from their rows, inside a kernel."""
    for place in range(s.n_clusters):
        refit(s, s.order[place])
    gather(s, 0, s.gathered, 0, 1)
    set_prior_predictives(s, 0, s.n)


@c_function(NOTHING(INTS, INTS))
def write_labels(head, found):
    """Write labels in order of first appearance."""
    s = memory_at(head)
    for k in range(s.capacity + 1):
        s.listed[k] = -1
    n_named = 0
    for i in range(s.n):
        k = s.slots[i]
        if s.listed[k] < 0:
            s.listed[k] = n_named
            n_named += 1
        found[i] = s.listed[k]


@c_function(FLOAT(INTS))
def log_joint(head):
    """Log probability of the partition and the data, given the parameters of both."""
    return log_joint_of(memory_at(head))


@inlined
def log_joint_of(s):
    """Return the log probability of the partition and the data, inside a kernel."""
    n_clusters = s.n_clusters
    for place in range(n_clusters):
        s.listed[place] = s.sizes[s.order[place]]
    total = 0.0 if s.n_groups > 0 else log_eppf(prior_of(s), s.listed, n_clusters)
    for place in range(n_clusters):
        total += log_evidence(s, s.order[place])
    return total
