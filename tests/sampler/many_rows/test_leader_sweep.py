"""Leader sweeps: partitions before and after, a twin with mistakes, bookkeeping, numbers of threads."""

import threading

import exact
import numpy as np
import pymc as pm
import pytest
import sampled
from scipy import stats
from scipy.special import log_softmax, logsumexp
from slowly import rest_slow
from small_posteriors import CASES, PRIORS, SETS, after_sweeps
from small_states import BASES, check_state, state_at

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.native.arithmetic import bits_at, scrambled, uniform_at
from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.draws import draw_partition
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.amounts import ROWS_FOR_LEADERS
from pymc_dpgmm.sampler.many_rows import many_rows, super_clusters
from pymc_dpgmm.sampler.many_rows.drawn_carving import carvings
from pymc_dpgmm.sampler.many_rows.drawn_clusters import log_gamma_numbers
from pymc_dpgmm.sampler.many_rows.leader_sweep import leader_sweep
from pymc_dpgmm.sampler.many_rows.many_rows import scan, scan_some
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.memory import DISCOUNT
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule


def sweeps(number=2):
    def move(rng, state):
        for _ in range(number):
            leader_sweep(rng, state, 1, chunk=2)
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_a_sweep_leaves_the_posterior_invariant(cases, prior):
    """Leader sweeps alone, against enumeration, for every family."""
    exact.assert_matches(*after_sweeps(cases, prior, 3_000, sweeps()))


@pytest.fixture
def pairs(monkeypatch):
    """Super-clusters of two clusters, where there are three or more."""
    monkeypatch.setattr(super_clusters, "MANY_CLUSTERS", 3)
    monkeypatch.setattr(super_clusters, "MOST_CLUSTERS", 2)
    monkeypatch.setattr(super_clusters, "ROWS_PER_CHOSEN", 0)


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_a_sweep_within_super_clusters_leaves_the_posterior_invariant(cases, prior, pairs):
    """Sweeps in which rows look only at clusters near their own."""
    exact.assert_matches(*after_sweeps(cases, prior, 3_000, sweeps()))


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("cases", [("niw",), ("poisson",), ("nig", "categorical")])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_sweep_leaves_the_posterior_invariant_in_many_draws(cases, prior, has_pairs, request):
    """Every family and prior, with draws enough to see a small error."""
    if has_pairs:
        request.getfixturevalue("pairs")
    exact.assert_matches(*after_sweeps(cases, prior, 4_000 if has_pairs else 7_000, sweeps(4)))


class Twin:
    """One sweep as the proof tells it, row by row, for rows of one view; with a mistake if one is named."""

    def __init__(self, mistake=None, groups=None):
        self.mistake, self.groups = mistake, groups

    def __call__(self, rng, state):
        (table,) = state.tables
        labels, n_clusters = canonical_labels(state.labels())
        n, sizes = len(labels), np.bincount(labels)
        order = rng.permutation(n)
        place = np.argsort(order)
        leaders = np.array([order[np.flatnonzero(labels[order] == k)[0]] for k in range(n_clusters)])
        sums = table.family.kept_sums(
            *(part[[int(state.slots[leader]) for leader in leaders]] for part in table.sums(0, state.capacity + 1))
        )
        component = table.family.component
        drawn = component.restore(component.draw(rng, table.shifted, sums), table.origin)
        discount = 0.0 if self.mistake == "weights without the discount" else state.prior[DISCOUNT]
        log_weights = log_gamma_numbers(rng, sizes - discount)
        if self.mistake == "weights are shares":
            log_weights = np.log(sizes)
        log_density = log_weights + component.log_density(drawn, table.values)
        # Numbers of super-clusters: those of clusters that are next to each other.
        by = {"parameters": log_density[0], "labels": sizes + 0.1 * np.arange(n_clusters)}.get(self.groups)
        groups = None if by is None else np.argsort(np.argsort(by)) // 2
        for i in range(n):
            may = np.array([place[leaders[k]] < place[i] or leaders[k] == i for k in range(n_clusters)])
            if i in leaders and self.mistake != "leaders move":
                may = leaders == i
            if self.mistake == "rows join any cluster":
                may = (leaders == i) if i in leaders else np.ones(n_clusters, dtype=bool)
            if self.groups is not None:
                may &= groups == groups[labels[i]]
            p = np.exp(log_softmax(np.where(may, log_density[i], -np.inf)))
            labels[i] = rng.choice(n_clusters, p=p / p.sum())
        return canonical_labels(labels)[0]


@pytest.mark.parametrize("groups", rest_slow([None, "parameters"]))
def test_the_twin_leaves_the_posterior_invariant(groups):
    """The slow twin in NumPy is right, so that agreement with it means something."""
    exact.assert_matches(*after_sweeps(("nig",), "pitman-yor", 5_000, Twin(groups=groups)))


SLIGHT = ["rows join any cluster", "weights without the discount", "weights are shares"]


@pytest.mark.parametrize(
    ("mistake", "n_draws"),
    [
        pytest.param("leaders move", 2_000, marks=pytest.mark.slow),
        pytest.param("super-clusters that depend on labels", 4_000, marks=pytest.mark.slow),
        *(pytest.param(m, 20_000, marks=pytest.mark.slow) for m in SLIGHT),
    ],
)
def test_mistakes_are_seen(mistake, n_draws):
    """The comparisons of leader sweeps can fail, by slight mistakes too."""
    twin = Twin(mistake, "labels" if mistake.startswith("super-clusters") else None)

    def four_sweeps(rng, state):
        for _ in range(4):
            state.relabel(twin(rng, state))
        return state.labels()

    codes, partitions, p = after_sweeps(("poisson",), "pitman-yor", n_draws, four_sweeps)
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, partitions, p)


def births(number=3):
    def move(rng, state):
        carvings(rng, state, number, 1, 1)
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_births_and_deaths_leave_the_posterior_invariant(cases, prior):
    """Births and deaths alone, against enumeration."""
    exact.assert_matches(*after_sweeps(cases, prior, 20_000, births()))


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("cases", [("niw",), ("poisson",)])
def test_births_and_deaths_leave_the_posterior_invariant_in_many_draws(cases, prior):
    """The same with draws and moves enough to see a small error."""
    exact.assert_matches(*after_sweeps(cases, prior, 50_000, births(15)))


def birth_twin(rng, state, mistake):
    """One birth or death as docs/moves.md has it, in Python; with a mistake."""
    labels = state.labels()
    n, sizes = len(labels), np.bincount(labels)

    def log_weights(i):
        # Log densities of the partitions in which the row is in each of the other clusters, and alone.
        rest = np.delete(labels, i)
        others = np.unique(rest)
        found = []
        for k in (*others, n - 1 if n - 1 not in rest else -1):
            own = labels.copy()
            own[i] = k if k >= 0 else next(name for name in range(n) if name not in rest)
            state.relabel(canonical_labels(own)[0])
            found.append(state.log_joint())
        return others, np.array(found[:-1]), found[-1]

    if rng.random() < 0.5:
        i = int(rng.integers(n))
        if sizes[labels[i]] == 1:
            return labels
        _, weights, alone = log_weights(i)
        singles = (sizes == 1).sum() + (2 if sizes[labels[i]] == 2 else 1)
        singles -= mistake == "singles before"
        if np.log(rng.random()) < np.log(n / max(singles, 1)) + alone - logsumexp(weights):
            labels[i] = next(name for name in range(n) if name not in np.delete(labels, i))
        return canonical_labels(labels)[0]
    single = np.flatnonzero(sizes[labels] == 1)
    if len(single) == 0 or len(sizes) == 1:
        return labels
    i = int(rng.choice(single))
    others, weights, alone = log_weights(i)
    if np.log(rng.random()) < np.log(len(single) / n) + logsumexp(weights) - alone:
        labels[i] = rng.choice(others, p=np.exp(weights - logsumexp(weights)))
    return canonical_labels(labels)[0]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [None, "singles before"])
def test_the_twin_of_births_and_its_mistake(mistake):
    """The slow twin of births is right, and a mistake in it is seen."""

    def move(rng, state):
        start = state.labels()
        for _ in range(3):
            state.relabel(start)
            start = birth_twin(rng, state, mistake)
        return start

    codes, partitions, p = after_sweeps(("poisson",), "crp", 4_000, move)
    if mistake is None:
        exact.assert_matches(codes, partitions, p)
        return
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, partitions, p)


@pytest.mark.parametrize("family", [*BASES, None])
@pytest.mark.parametrize("start", ["together", "some", "apart", "some in super-clusters"])
def test_bookkeeping(family, start, request):
    """Any number of threads gives the same state."""
    if start == "some in super-clusters":
        request.getfixturevalue("pairs")
    n, alpha = 400, 30.0
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(n, 2)) + 6.0 * rng.integers(3, size=(n, 1))
    base, ends = BASES.get(family, {}), []
    labels = {"together": np.zeros(n), "some": np.arange(n) % 40, "apart": np.arange(n)}[start.split()[0]]
    for threads in (1, 2, 5):
        rng, state = np.random.default_rng(7), state_at(labels, rows, family, base)
        state.set_prior(chinese_restaurant(alpha))
        for _ in range(6):
            n_clusters = state.n_clusters
            assert 0 <= leader_sweep(rng, state, threads, chunk=37) <= n
            assert state.n_clusters == n_clusters
            check_state(state, chinese_restaurant(alpha), rows, family, base)
            carvings(rng, state, 50, 1, 1)
            check_state(state, chinese_restaurant(alpha), rows, family, base)
            carvings(rng, state, 50)
            check_state(state, chinese_restaurant(alpha), rows, family, base)
            scan_some(rng, state)
            check_state(state, chinese_restaurant(alpha), rows, family, base)
        ends.append(state.labels())
    assert all(np.array_equal(end, ends[0]) for end in ends)
    assert len(np.unique(ends[0])) > 8


@pytest.mark.parametrize("family", [*BASES, None])
def test_many_rows_keep_their_prior(family):
    """Labels and rows drawn together from the prior: scans leave the labels' prior moments where they are."""
    n, alpha, replicates = 20_000, 5.0, 80
    rng = np.random.default_rng(5)
    base = BASES.get(family, {})
    seen = []
    for _ in range(replicates):
        labels = draw_partition(rng, chinese_restaurant(alpha), n)
        rows = np.zeros((n, 0))
        if base:
            params = getattr(dp, family)(**base).numbers(2)
            rows = FAMILIES[family].draw_rows(rng, params, labels, None)
        state = state_at(labels, rows, family, base)
        state.set_prior(chinese_restaurant(alpha))
        scan(rng, state, 2, 2, 2)
        sizes = state.cluster_sizes
        seen.append((len(sizes), (sizes == 1).sum(), np.sum((sizes / n) ** 2)))
    # Means of the number of clusters, of clusters of one row (Ewens 1972), and of the chance that two rows share.
    expected = [
        np.sum(alpha / (alpha + np.arange(n))),
        n * alpha / (n - 1 + alpha),
        (n + n * (n - 1) / (1 + alpha)) / n**2,
    ]
    errors = np.std(seen, axis=0, ddof=1) / np.sqrt(replicates)
    assert np.all(np.abs(np.mean(seen, axis=0) - expected) < 4 * errors)


def slowly(rng, responsibilities, most):
    """Super-clusters, by loops over clusters: the number of each cluster's."""
    n_clusters = responsibilities.shape[1]
    shared = np.zeros((n_clusters, n_clusters))
    for row in responsibilities:
        own = np.where(row >= np.sort(row)[-4:][0], row, 0.0)
        shared += np.outer(own, own)
    found = np.full(n_clusters, -1)
    n_super = -(-n_clusters // most)
    ends = [int(n_clusters * g / n_super) for g in range(n_super + 1)]
    for g in range(n_super):
        k = rng.choice([k for k in range(n_clusters) if found[k] < 0])
        for t in range(ends[g + 1] - ends[g]):
            if t > 0:
                inside = np.flatnonzero(found == g)
                k = max(
                    (k for k in range(n_clusters) if found[k] < 0), key=lambda k: (shared[inside, k].sum(), -k)
                )
            found[k] = g
    return found


def test_super_clusters_are_of_clusters_that_share_rows():
    # Rows that could belong to both clusters of a pair: 0 and 1, 2 and 3, and so on.
    pair = np.arange(400) % 32
    places = np.column_stack([2 * pair, 2 * pair + 1])
    found = super_clusters.super_clusters(np.random.default_rng(1), 64, places, np.tile([0.6, 0.4], (400, 1)))
    assert [len(members) for members in found] == [16, 16, 16, 16]
    assert sorted(np.concatenate(found)) == list(range(64))
    for members in found:
        assert np.array_equal(members[1::2], members[::2] + 1)


def test_super_clusters_of_rows_that_tell_nothing():
    found = super_clusters.super_clusters(
        np.random.default_rng(1), 50, np.zeros((3, 4), dtype=np.int64), np.zeros((3, 4))
    )
    assert sorted(np.concatenate(found)) == list(range(50))
    assert [len(members) for members in found] == [12, 13, 12, 13]


def test_few_rows_for_each_cluster_are_not_looked_at_in_super_clusters():
    assert not super_clusters.has_super_clusters(10**6, 35)
    assert super_clusters.has_super_clusters(10**6, 36)
    assert not super_clusters.has_super_clusters(20_000, 200)
    assert super_clusters.clusters_looked_at(10**6, 400) < super_clusters.clusters_looked_at(20_000, 400) == 400


@pytest.mark.parametrize("has_pairs", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("family", ["NormalInverseWishart", "NormalInverseGamma"])
def test_quadratic_densities_are_those_of_the_component(family, d, has_pairs, request):
    """Compiled sweeps choose as NumPy does, given the same clusters and numbers."""
    if has_pairs:
        request.getfixturevalue("pairs")
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(300, d)) * 3.0 + 40.0
    base = getattr(dp, family).from_data(rows)
    state = State([View(base.family, base.numbers(d), rows)], rng.integers(7, size=300))
    state.set_prior(chinese_restaurant(1.0))
    before, slots, sizes = state.slots.copy(), state.order[: state.n_clusters].copy(), state.sizes.copy()
    (table,) = state.tables
    kept = table.array.copy()
    leader_sweep(np.random.default_rng(11), state, 1, chunk=100)
    # The same numbers again, in the order in which a sweep draws them.
    again = np.random.default_rng(11)
    order_key, uniform_key = (int(key) for key in again.integers(2**63, size=2))
    priority = np.array([bits_at(order_key, i) for i in range(300)])
    assert len(np.unique(priority)) == 300
    log_weights = log_gamma_numbers(again, sizes[slots] - 0.0)
    table.array[:] = kept
    sums = table.family.kept_sums(*(part[slots] for part in table.sums(0, state.capacity + 1)))
    component = base.family.component
    drawn = component.draw(again, table.shifted, sums)
    # In the order of the leaders, from here on.
    leading = np.array([priority[before == k].min() for k in slots])
    order = np.argsort(leading)
    slots, leading, log_weights = slots[order], leading[order], log_weights[order]
    drawn = {name: values[order] for name, values in drawn.items()}
    log_density = log_weights + component.log_density(drawn, table.rows)
    groups = np.zeros(len(slots), dtype=int)
    if has_pairs:
        chosen = again.integers(300, size=8 * len(slots))
        groups = slowly(again, np.exp(log_softmax(log_density[chosen], axis=1)), 2)
        assert len(slots) == 7
        assert np.bincount(groups).tolist() == [1, 2, 2, 2]
    log_density[priority[:, None] < leading] = -np.inf
    log_density[groups[np.array([np.flatnonzero(slots == k)[0] for k in before])][:, None] != groups] = -np.inf
    is_leader = np.isin(priority, leading)
    log_density[is_leader] = np.where(leading == priority[is_leader][:, None], 0.0, -np.inf)
    # One super-cluster after the other: clusters of the others have no weight.
    shares = np.exp(log_density - logsumexp(log_density, axis=1)[:, None]).cumsum(axis=1)
    uniforms = np.array([uniform_at(uniform_key, i) for i in range(300)])
    np.testing.assert_array_equal(slots[(shares <= uniforms[:, None]).sum(axis=1)], state.slots)


@c_function(NOTHING(INTS, INT, INTS))
def _scramble(numbers, n, found):
    for i in range(n):
        found[i] = scrambled(numbers[i])


def test_scrambled_numbers_are_those_of_compiled_code():
    numbers = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, size=1_000)
    found = np.empty_like(numbers)
    _scramble(numbers.ctypes.data, len(numbers), found.ctypes.data)
    assert found.tolist() == [scrambled(int(x)) for x in numbers]
    # The first outputs of splitmix64 from seed 0, of its authors' code.
    first = [scrambled(-7046029254386353131 * k) & (2**64 - 1) for k in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    uniforms = np.array([uniform_at(123, i) for i in range(20_000)])
    assert 0.0 <= uniforms.min() < uniforms.max() < 1.0
    assert abs(np.corrcoef(uniforms[1:], uniforms[:-1])[0, 1]) < 0.03
    assert abs(uniforms.mean() - 0.5) < 4.0 * np.sqrt(1.0 / 12.0 / len(uniforms))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "draws"),
    [("fixed", 2_000), *(pytest.param(law, 20_000, marks=pytest.mark.slow) for law in ("gamma", "nuts"))],
)
def test_partition_frequencies_in_a_model(law, draws):
    """The default mix with leader sweeps; alpha fixed, drawn with the labels, or by NUTS."""
    family, base, rows = CASES["nig"]
    with pm.Model() as model:
        if law == "gamma":
            alpha = pm.Gamma("alpha", 2.0, 1.0)
        else:
            alpha = pm.LogNormal("alpha", 0.0, 0.7) if law == "nuts" else 1.0
        dp.DPMixture("y", alpha, getattr(dp, family)(**base), observed=rows)
    options = {"leader_sweeps": 1, "n_sweeps": 1}
    idata = sampled.sample(model, draws, tune=200, chains=2, cores=2, random_seed=5, dpmixture=options)
    partitions = exact.partitions(5)
    grid = np.exp(np.linspace(-7.0, 4.0, 400))
    # Densities of the logarithm of alpha.
    weights = stats.gamma.pdf(grid, 2.0) * grid if law == "gamma" else stats.norm.pdf(np.log(grid), 0.0, 0.7)
    if law == "fixed":
        grid, weights = np.ones(1), np.ones(1)
    log_prior = [logsumexp([exact.log_eppf(labels, a) for a in grid], b=weights) for labels in partitions]
    likelihood = exact.log_likelihoods(partitions, rows, exact.LOG_MARGINALS[family], **base)
    exact.assert_matches(
        exact.codes(idata.posterior["y_labels"].to_numpy()), partitions, exact.normalized(likelihood + log_prior)
    )


@pytest.mark.slow
def test_draws_depend_neither_on_cores_nor_on_threads():
    """The same seed gives the same draws of many rows, however many threads share a sweep."""
    rows = np.random.default_rng(4).normal(size=(60, 2)) + 5.0 * (np.arange(60) % 3)[:, None]
    found = []
    for cores, threads in ((1, 1), (1, 3), (2, 1)):
        with pm.Model() as model:
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), dp.NormalInverseWishart.from_data(rows), observed=rows)
        options = {"leader_sweeps": 2, "threads": threads}
        idata = sampled.sample(model, 30, tune=20, chains=2, cores=cores, random_seed=1, dpmixture=options)
        found.append(idata.posterior["y_labels"].to_numpy())
    assert all(np.array_equal(draws, found[0]) for draws in found)


def known():
    dp.DPMixture("y", 1.0, observed=np.arange(6.0), known_labels=[0, 0, -1, -1, -1, 1])


def units():
    dp.DPMixture("y", 1.0, observed=np.arange(6.0), unit=[0, 0, 1, 1, 2, 2])


def beside():
    dp.DPMixture("y", 1.0, observed=np.arange(6.0))
    pm.Potential("p", -pm.modelcontext(None)["y_n_clusters"])


def groups():
    dp.HDPMixture("y", 1.0, 1.0, observed=np.arange(6.0), group=[0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("model", [known, units, beside, groups])
def test_where_there_can_be_none(model):
    with pm.Model():
        model()
        with pytest.raises(NotImplementedError, match="no leader sweeps for y_labels"):
            dp.DPMixtureStep(leader_sweeps=1)


def test_wide_data_has_none():
    rows = np.random.default_rng(0).normal(size=(40, 60))
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(rows), observed=rows)
        with pytest.raises(NotImplementedError, match="so many columns that scans work with pairs of rows"):
            pm.sample(5, tune=0, chains=1, progressbar=False, dpmixture={"leader_sweeps": 1})


def test_moves_alone_have_their_numbers_with_many_rows():
    """A step without scans has no leader sweeps, whose moves are few."""
    rows = np.random.default_rng(0).normal(size=(25_000, 1))
    base = dp.NormalInverseGamma.from_data(rows)
    state = State([View(base.family, base.numbers(1), rows)], np.zeros(25_000))
    state.set_prior(chinese_restaurant(1.0))
    schedule = Schedule(Options(n_sweeps=1, n_scans=0, search=False), 10)
    schedule.draw(np.random.default_rng(1), state, True)
    assert schedule.numbers["random"] == 1
    with pytest.raises(ValueError, match="leader_sweeps go before scans"):
        Options(n_scans=0, leader_sweeps=1).check()


@pytest.mark.parametrize("n_clusters", [3, 60])
def test_rows_in_many_clusters_are_scanned(n_clusters, monkeypatch):
    """As many as tuning has had on average: in exact draws it must not depend on the labels which moves run."""
    n_sweeps = []
    monkeypatch.setattr(many_rows, "leader_sweep", lambda *given: n_sweeps.append(1) or leader_sweep(*given))
    rng = np.random.default_rng(0)
    labels = rng.integers(n_clusters, size=ROWS_FOR_LEADERS)
    rows = 10.0 * labels[:, None] + rng.normal(size=(ROWS_FOR_LEADERS, 1))
    base = dp.NormalInverseGamma.from_data(rows)
    state = State([View(base.family, base.numbers(1), rows)], labels)
    state.set_prior(chinese_restaurant(1.0))
    schedule = Schedule(Options(n_sweeps=1, search=False, threads=1), 10)
    schedule.draw(rng, state, True)
    state.relabel(labels % 3 if n_clusters == 60 else np.arange(len(labels)) % 60)
    schedule.draw(rng, state, False)
    assert len(n_sweeps) == (0 if n_clusters == 60 else 2)


# Covariance matrices that rounding makes indefinite, in compiled code and in NumPy.
HARD = {
    "collinear": (lambda x: np.column_stack([x, 2.0 * x]), 1e-12),
    "outlier": (lambda x: np.column_stack([x, x[::-1]]) + 1e9 * (np.arange(300) == 7)[:, None], 1.0),
    "far": (lambda x: np.column_stack([x, x[::-1]]) + 1e6, 1e-6),
}


@pytest.mark.parametrize("case", HARD)
def test_sweeps_of_badly_conditioned_rows_go_on(case):
    make, psi = HARD[case]
    rows = make(np.random.default_rng(0).normal(size=300) * 10.0)
    base = dp.NormalInverseWishart(mu=0.0, kappa=0.1, nu=4.0, psi=psi * np.eye(2))
    state = State([View(base.family, base.numbers(2), rows)], np.arange(300) % 3)
    state.set_prior(chinese_restaurant(1.0))
    rng = np.random.default_rng(1)
    for _ in range(20):
        leader_sweep(rng, state, 1)
        carvings(rng, state, 20, 1, 1)
        carvings(rng, state, 50)
        assert np.isfinite(state.log_joint())
    assert state.cluster_sizes.sum() == 300


def test_sweeps_of_badly_conditioned_regressions_go_on():
    rng = np.random.default_rng(0)
    year = rng.uniform(1950, 2020, size=300)
    base = dp.LinearRegression(0.0, 1e-9, 2.0, 1.0, covariates=np.column_stack([year**j for j in range(4)]))
    rows = np.column_stack([rng.integers(2, size=300) * 5.0 + rng.normal(size=300), *base.given.values()])
    state = State([View(base.family, base.numbers(1), rows)], np.arange(300) % 3)
    state.set_prior(chinese_restaurant(1.0))
    for _ in range(20):
        leader_sweep(rng, state, 1)
    assert state.cluster_sizes.sum() == 300


@pytest.mark.parametrize("d", [1, 2, 5])
def test_rows_gathered_at_once_are_those_that_join_one_by_one(d):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(300, d)) @ rng.normal(size=(d, d)) + 1e3
    base = dp.NormalInverseWishart.from_data(rows)
    table = ClusterTable(View(base.family, base.numbers(d), rows), 3)
    members = rng.permutation(300)[:201]
    table.gather(1, members)
    table.gather(2, members[:3])
    for i in members[3:]:
        table.change(int(i), 2, 1.0)
    one, other = (np.concatenate([np.ravel(part) for part in table.sums(k, k + 1)]) for k in (1, 2))
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-9)
    assert table.log_evidence(1) == pytest.approx(table.log_evidence(2), abs=1e-8)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_take_every_number_once(n_threads):
    """And go on while one of them is slow."""
    taken, names = [], set()
    first_has_begun = threading.Event()

    def work(numbers):
        for i in numbers:
            names.add(threading.current_thread().name)
            if i == 0 and n_threads > 1:
                # Until others have done all the rest.
                first_has_begun.wait(10.0)
            taken.append(i)
            if len(taken) == 19:
                first_has_begun.set()

    with Threads(n_threads) as threads:
        threads.share(work, 20)
        assert sorted(taken) == list(range(20))
        assert len(names) <= n_threads
        if n_threads > 1:
            assert taken[-1] == 0
        threads.share(taken.extend, 0)
    assert len(taken) == 20
