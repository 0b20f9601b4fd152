r"""What kernels keep of rows in groups, whose clusters are shared and whose weights are each group's own.

Two priors are served: the hierarchical Dirichlet process, and finitely many components with symmetric Dirichlet
weights in every group (see :mod:`pymc_dpgmm.partitions.grouped`). Given *shares* :math:`\beta_k` of the clusters
over all groups, a row of group j joins a cluster of :math:`n_{jk}` other rows of its group with weight
:math:`n_{jk} + \alpha_j \beta_k`, and opens one with weight :math:`\alpha_j \beta_*`, :math:`\beta_*` being the
share of all clusters without rows. The finite prior has equal shares, and those of components without rows make up
:math:`\beta_*`. Under the process, shares are drawn with the labels and forgotten when a draw ends:

.. math:: p(\text{labels}, \beta) = \gamma^K \beta_*^{\gamma - 1} \prod_k \beta_k^{-1} \prod_j
    \frac{\Gamma(\alpha_j)}{\Gamma(\alpha_j + n_j)} \prod_k
    \frac{\Gamma(\alpha_j \beta_k + n_{jk})}{\Gamma(\alpha_j \beta_k)}

(Teh et al. 2006, section 5.3, with the density of the shares of K clusters of which each has rows). A row that
opens a cluster draws its share, :math:`\beta_*` times a Beta(1, gamma) number; a cluster that loses its last row
gives its share back.
"""

import math

from pymc_dpgmm.native.arithmetic import SMALLEST, fast_log, minus_log_beta, standard_gamma, uniform
from pymc_dpgmm.native.compiled import (
    FLOAT,
    INTS,
    NOTHING,
    c_function,
    inlined,
)
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.partitions.concentration import draw_concentration
from pymc_dpgmm.sampler.state.choices import shuffle
from pymc_dpgmm.sampler.state.memory import (
    ALPHA,
    GAMMA,
    GAMMA_RATE,
    GAMMA_SHAPE,
    HEAD,
    LAW_RATE,
    LAW_SHAPE,
    LOG_SEATED,
    MOST,
    REST,
    RIGHT_SHARE,
    WHOLE,
    memory_at,
)

# How often openers, and the concentrations whose laws are given, are drawn at the beginning of a sweep.
N_REPEATED = 5


# What is kept of groups: the group of each row; the rows group by group, and where each group begins; the groups'
# concentrations, the rows of each group in each slot, the shares of the slots, the openers in each slot, and which
# rows are openers. The others are for work: ``visited`` has an entry for each slot, ``halves`` two for each group,
# and ``touched`` one.
_grouping_at = HEAD.reader(rows="group_rows", starts="group_starts", counts="group_counts", halves="half_counts")


@inlined
def grouping_of(s):
    """Return what is kept of groups; there must be such."""
    return _grouping_at(s.head)


@inlined
def are_grouped(s):
    """Tell whether rows come in groups."""
    return s.n_groups > 0


@inlined
def is_finite(s):
    """Tell whether there are finitely many components, with equal shares."""
    return s.prior[MOST] < math.inf


# Scans: the seats of one group at a time.


@inlined
def weigh_grouped_seat(s, k):
    """Set the log weights with which rows of the current group join slot ``k``, and stay in it."""
    g = grouping_of(s)
    j = s.current
    size = g.counts[j * (s.capacity + 1) + k]
    pseudo_count = g.group_alphas[j] * g.shares[k]
    s.seats[k] = fast_log(size + pseudo_count)
    s.seats_left[k] = fast_log(size - 1.0 + pseudo_count) if size > 0 else 0.0


@c_function(HEAD.signature("load_seats"))
def load_seats(head, j):
    """Make group ``j`` the current one, and set its log weights of all clusters."""
    s = memory_at(head)
    s.current = j
    for place in range(s.n_clusters):
        weigh_grouped_seat(s, s.order[place])


@inlined
def enter_group(s, i):
    """Make the group of row ``i`` the current one."""
    j = s.group[i]
    if j != s.current:
        s.load_seats(s.head, j)


@inlined
def log_open_grouped(s, returned):
    """Log weight with which a row of the current group opens a cluster, once a share has been given back."""
    return math.log(s.group_alphas[s.current] * (s.prior[REST] + returned))


@inlined
def share_of(s, k):
    """Return the share of slot ``k``."""
    return s.shares[k]


@inlined
def open_share(s, k):
    """Give a share to slot ``k``, which a row opens."""
    if is_finite(s):
        share = 1.0 / s.prior[MOST]
        left = max(s.prior[REST] - share, 0.0)
        # Nothing of rounding errors may be left when all components have rows.
        left = left if left > 0.5 * share else 0.0
    else:
        left = s.prior[REST] * math.exp(math.log1p(-uniform(s.bits)) / s.prior[GAMMA])
        share = s.prior[REST] - left
    s.shares[k] = max(share, SMALLEST)
    s.prior[REST] = left


@inlined
def close_share(s, k):
    """Take the share of slot ``k`` back, which has no rows any more."""
    shares = s.shares
    s.prior[REST] += shares[k]
    shares[k] = 0.0


@inlined
def shuffle_groups(s):
    """Bring all rows into an order, in ``queue``, group by group; it does not depend on the partition."""
    g = grouping_of(s)
    for j in range(g.n_groups):
        g.touched[j] = j
    shuffle(s.bits, g.touched, 0, g.n_groups)
    t = 0
    for r in range(g.n_groups):
        first = t
        for place in range(g.starts[g.touched[r]], g.starts[g.touched[r] + 1]):
            s.queue[t] = g.rows[place]
            t += 1
        shuffle(s.bits, s.queue, first, t)


# Shares, concentrations and openers.


@inlined
def draw_openers(s, g):
    """Draw which rows open tables, given labels and shares, and count them in ``seated``.

    Row i of group j opens one with probability ``a / (a + c)``, ``a`` being its group's concentration times its
    cluster's share, and ``c`` the number of rows of its group and cluster before it.
    """
    for k in range(s.capacity + 1):
        g.seated[k] = 0
        g.visited[k] = 0
    logs = 0.0
    product = 1.0
    for j in range(g.n_groups):
        opened = 0
        for t in range(g.starts[j], g.starts[j + 1]):
            i = g.rows[t]
            k = s.slots[i]
            before = g.visited[k]
            pseudo_count = g.group_alphas[j] * g.shares[k]
            if uniform(s.bits) * (pseudo_count + before) < pseudo_count or before == 0:
                g.openers[i] = 1
                g.seated[k] += 1
                opened += 1
            else:
                g.openers[i] = 0
                product *= before
                if product > 1e250:
                    logs += math.log(product)
                    product = 1.0
            g.visited[k] = before + 1
        for t in range(g.starts[j], g.starts[j + 1]):
            g.visited[s.slots[g.rows[t]]] = 0
        n = g.starts[j + 1] - g.starts[j]
        logs += opened * math.log(g.group_alphas[j]) - log_rising(g.group_alphas[j], n)
    s.prior[LOG_SEATED] = logs + math.log(product)


@inlined
def draw_shares(s, g):
    """Draw the concentrations whose laws are given, and the shares of clusters, given openers and labels.

    With w_j ~ Beta(alpha, n_j), alpha is Gamma(shape + M, rate - sum of log w_j) (Teh et al. 2006, appendix A).
    """
    n_clusters = s.n_clusters
    n_tables = 0
    for place in range(n_clusters):
        n_tables += g.seated[s.order[place]]
    if s.prior[LAW_RATE] > 0.0:
        rate = s.prior[LAW_RATE]
        alpha = s.prior[ALPHA]
        for j in range(g.n_groups):
            n = g.starts[j + 1] - g.starts[j]
            if n > 0:
                rate += minus_log_beta(s.bits, alpha, float(n))
        alpha = max(standard_gamma(s.bits, s.prior[LAW_SHAPE] + n_tables) / rate, SMALLEST)
        s.prior[ALPHA] = alpha
        for j in range(g.n_groups):
            g.group_alphas[j] = alpha
    if s.prior[GAMMA_RATE] > 0.0:
        # Tables choose among clusters as rows do under one Chinese restaurant process.
        s.prior[GAMMA] = draw_concentration(
            s.bits, s.prior[GAMMA], n_clusters, float(n_tables), s.prior[GAMMA_SHAPE], s.prior[GAMMA_RATE]
        )
    rest = max(standard_gamma(s.bits, s.prior[GAMMA]), SMALLEST)
    total = rest
    for place in range(n_clusters):
        k = s.order[place]
        g.shares[k] = max(standard_gamma(s.bits, float(g.seated[k])), SMALLEST)
        total += g.shares[k]
    for place in range(n_clusters):
        g.shares[s.order[place]] /= total
    s.prior[REST] = rest / total


@inlined
def share_equally(s, g):
    """Set the shares of finitely many components."""
    n_clusters = s.n_clusters
    for place in range(n_clusters):
        g.shares[s.order[place]] = 1.0 / s.prior[MOST]
    s.prior[REST] = (s.prior[MOST] - n_clusters) / s.prior[MOST]


@c_function(HEAD.signature("begin_sweep"))
def begin_sweep(head, with_openers):
    """Draw shares anew: through openers that are drawn first, or, ``with_openers``, those that are there."""
    s = memory_at(head)
    g = grouping_of(s)
    if is_finite(s):
        share_equally(s, g)
        return
    if with_openers == 0 and (s.prior[LAW_RATE] > 0.0 or s.prior[GAMMA_RATE] > 0.0):
        # Openers and concentrations depend much on each other, and cost little beside a scan.
        for _ in range(N_REPEATED - 1):
            draw_openers(s, g)
            draw_shares(s, g)
    if with_openers == 1:
        for k in range(s.capacity + 1):
            g.seated[k] = 0
        for i in range(s.n):
            g.seated[s.slots[i]] += g.openers[i]
    else:
        draw_openers(s, g)
    draw_shares(s, g)


@inlined
def redraw_shares(s):
    """Draw shares, and the concentrations whose laws are given, at the beginning of a sweep."""
    s.begin_sweep(s.head, 0)


@c_function(NOTHING(INTS))
def end_draw(head):
    """Draw the openers that a draw ends with."""
    s = memory_at(head)
    if not is_finite(s):
        draw_openers(s, grouping_of(s))


@c_function(NOTHING(INTS))
def recount(head):
    """Count the rows of every group in every slot."""
    s = memory_at(head)
    g = grouping_of(s)
    for place in range(g.n_groups * (s.capacity + 1)):
        g.counts[place] = 0
    for i in range(s.n):
        g.counts[g.group[i] * (s.capacity + 1) + s.slots[i]] += 1


@c_function(FLOAT(INTS))
def log_prior(head):
    """Log density of labels, and of the openers last drawn if there are such."""
    s = memory_at(head)
    g = grouping_of(s)
    n_clusters = s.n_clusters
    total = 0.0
    if not is_finite(s):
        n_tables = 0
        for place in range(n_clusters):
            tables = g.seated[s.order[place]]
            n_tables += tables
            total += math.lgamma(float(tables))
        gamma = s.prior[GAMMA]
        total += n_clusters * math.log(gamma) - log_rising(gamma, n_tables)
        return total + s.prior[LOG_SEATED]
    most = s.prior[MOST]
    total = log_rising(most - n_clusters + 1.0, n_clusters)
    for j in range(g.n_groups):
        pseudo_count = g.group_alphas[j] / most
        n = g.starts[j + 1] - g.starts[j]
        total -= log_rising(g.group_alphas[j], n)
        for place in range(n_clusters):
            size = g.counts[j * (s.capacity + 1) + s.order[place]]
            if size > 0:
                total += log_rising(pseudo_count, size)
    return total


# Splits and merges.


@inlined
def forget_halves(s, size):
    """Set the rows of both halves to none in the groups of ``pool[:size]``."""
    g = grouping_of(s)
    for t in range(size):
        j = g.group[s.pool[t]]
        g.halves[2 * j] = 0
        g.halves[2 * j + 1] = 0


@inlined
def count_halves(s, start, stop):
    """Count the rows ``pool[start:stop]`` in their groups' halves."""
    g = grouping_of(s)
    for t in range(start, stop):
        g.halves[2 * g.group[s.pool[t]] + s.side[t]] += 1


@inlined
def log_grouped_odds(s, i, n_left, n_right):
    """Log odds of the right half for a row, by its group's rows in the halves and, for a part, all rows there."""
    g = grouping_of(s)
    j = g.group[i]
    left = right = g.group_alphas[j] / s.prior[MOST]
    if not is_finite(s):
        pseudo_count = g.group_alphas[j] * s.prior[WHOLE] / (n_left + n_right)
        left, right = pseudo_count * n_left, pseudo_count * n_right
    return fast_log((g.halves[2 * j + 1] + right) / (g.halves[2 * j] + left))


@inlined
def _guess_tables(pseudo_count, n):
    """About the expected number of tables that n >= 1 rows open."""
    return 1.0 + pseudo_count * math.log1p((n - 1.0) / (pseudo_count + 1.0))


@c_function(HEAD.signature("divide"))
def divide_share(head, size, n_clusters, forced):
    """Divide or unite in groups, in compiled code of its own: see :func:`log_division`."""
    s = memory_at(head)
    g = grouping_of(s)
    forget_halves(s, size)
    n_touched = 0
    for t in range(size):
        j = g.group[s.pool[t]]
        if g.halves[2 * j] + g.halves[2 * j + 1] == 0:
            g.touched[n_touched] = j
            n_touched += 1
        g.halves[2 * j + s.side[t]] += 1
    total = 0.0
    if is_finite(s):
        # The new component may be any of those without rows.
        total = math.log(s.prior[MOST] - n_clusters)
        for r in range(n_touched):
            j = g.touched[r]
            left, right = g.halves[2 * j], g.halves[2 * j + 1]
            pseudo_count = g.group_alphas[j] / s.prior[MOST]
            total += (
                log_rising(pseudo_count, left)
                + log_rising(pseudo_count, right)
                - log_rising(pseudo_count, left + right)
            )
        return total
    n_right = 0
    for t in range(size):
        n_right += s.side[t]
    whole = s.prior[WHOLE]
    left_tables, right_tables = 0.0, 0.0
    for r in range(n_touched):
        j = g.touched[r]
        left, right = g.halves[2 * j], g.halves[2 * j + 1]
        pseudo_count = g.group_alphas[j] * whole
        if left > 0:
            left_tables += _guess_tables(pseudo_count * (size - n_right) / size, left)
        if right > 0:
            right_tables += _guess_tables(pseudo_count * n_right / size, right)
    if forced == 0:
        own = standard_gamma(s.bits, right_tables)
        s.prior[RIGHT_SHARE] = own / (own + standard_gamma(s.bits, left_tables))
    share = s.prior[RIGHT_SHARE]
    if not (share > 0.0 and share < 1.0):
        return -math.inf
    log_right, log_left = math.log(share), math.log1p(-share)
    log_q = (
        math.lgamma(left_tables + right_tables)
        - math.lgamma(left_tables)
        - math.lgamma(right_tables)
        + (right_tables - 1.0) * log_right
        + (left_tables - 1.0) * log_left
    )
    total = math.log(s.prior[GAMMA]) - log_right - log_left - log_q
    for r in range(n_touched):
        j = g.touched[r]
        left, right = g.halves[2 * j], g.halves[2 * j + 1]
        pseudo_count = g.group_alphas[j] * whole
        total += (
            log_rising(pseudo_count * (1.0 - share), left)
            + log_rising(pseudo_count * share, right)
            - log_rising(pseudo_count, left + right)
        )
    return total


@inlined
def log_division(s, size, n_clusters, forced):
    r"""Log ratio of the priors after and before one of ``n_clusters`` divides, ``pool[:size]``, as ``side`` tells.

    Under the process, the share :math:`\beta` of the whole, in ``WHOLE``, divides too: the right half takes a part
    :math:`\rho`, in ``RIGHT_SHARE``, which is drawn from a beta distribution whose parameters are about the
    numbers of tables; the log of its density is subtracted. It is not drawn where the move is ``forced``, as the
    reverse of a merge: :func:`note_whole` has set it. In the measure :math:`d\rho` the ratio is

    .. math:: \frac{\gamma}{\rho (1 - \rho)} \prod_j \frac{\Gamma(\alpha_j \beta (1 - \rho) + l_j)}{\Gamma(\alpha_j
        \beta (1 - \rho))} \frac{\Gamma(\alpha_j \beta \rho + r_j)}{\Gamma(\alpha_j \beta \rho)}
        \frac{\Gamma(\alpha_j \beta)}{\Gamma(\alpha_j \beta + l_j + r_j)}.
    """
    return s.divide(s.head, size, n_clusters, 1 if forced else 0)


@inlined
def note_whole(s, left, right):
    """Note the shares of two clusters that are to unite."""
    shares = s.shares
    s.prior[WHOLE] = shares[left] + shares[right]
    s.prior[RIGHT_SHARE] = shares[right] / s.prior[WHOLE]


@inlined
def note_divided(s, whole):
    """Note the share of a cluster that is to divide."""
    s.prior[WHOLE] = share_of(s, whole)


@inlined
def divide_accepted(s, whole, right):
    """Give the right half of a cluster that has divided its share."""
    if is_finite(s):
        open_share(s, right)
        return
    shares = s.shares
    shares[right] = max(s.prior[WHOLE] * s.prior[RIGHT_SHARE], SMALLEST)
    shares[whole] = max(s.prior[WHOLE] * (1.0 - s.prior[RIGHT_SHARE]), SMALLEST)


@inlined
def unite_accepted(s, left, right):
    """Give the left one of two clusters that have united the shares of both."""
    if is_finite(s):
        close_share(s, right)
        return
    shares = s.shares
    shares[left] = s.prior[WHOLE]
    shares[right] = 0.0
