"""New rows of units: all rows of one together, against sums over clusters and quadrature by separate code."""

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from drawn import results
from predicted_rows import ALPHAS, CASES, NIG, NODES, PAIRS, REAL, WEIGHTS, Case, stored, stored_data
from scipy import stats
from scipy.special import logsumexp
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.arrays.mixtures import Clusters

pytestmark = pytest.mark.interpreted

# Six rows of five units, and three draws of the partition of these.
UNIT = np.array(["a", "b", "c", "d", "e", "e"])
OF_UNIT = np.array([0, 1, 2, 3, 4, 4])
LABELS = np.array([[0, 1, 1, 2, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
# Families whose tests are short, and in which columns depend on each other or do not.
BY_DEFAULT = "niw", "nig", "poisson", "bernoulli"


def fitted(case, labels=LABELS, alphas=ALPHAS, **options):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), case.base, observed=case.rows, unit=UNIT, **options)
    return results(model, {"y_labels": labels, "alpha": alphas}, n_chains=1)


def given_of(case, m):
    """What is given with m new rows, the same with each."""
    given = case.given or {}
    return {field: np.repeat(np.asarray(value), m, axis=0) for field, value in given.items()} or None


def log_joint(case, rows, unit=None, power=1.0):
    """Log densities of rows together and of their cluster in all draws: (m,).

    The rows are of a new unit, or of a unit of the data.
    """
    log_marginal, data, found = exact.LOG_MARGINALS[case.base.family.name], stored_data(case), []
    params = case.base.numbers(2)._asdict()
    rows = np.vstack([stored(case, row[None]) for row in np.asarray(rows, float)])
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            own, n = data[labels[OF_UNIT] == k], np.sum(labels == k)
            seat = (n if n else alpha) / (5 + alpha) if unit is None else float(labels[unit] == k)
            gain = log_marginal(np.vstack([own, rows]), **params) - log_marginal(own, **params)
            with np.errstate(divide="ignore"):
                found.append(np.log(seat) + power * gain)
    return np.array(found)


def log_p(case, rows, unit=None):
    return logsumexp(log_joint(case, rows, unit)) - np.log(len(LABELS))


def visits(case):
    """Three rows of a new unit, the last with its second column unknown, and one of unit c."""
    third = [case.row, np.nan]
    return np.array([case.rows[1], case.rows[4], third, third], dtype=float), ["new", "new", "new", "c"]


def points_of(case):
    points, weights = (NODES, WEIGHTS) if case.support is None else (case.support, np.ones(len(case.support)))
    return points, weights if case.weights is None else case.weights


def exact_densities(case):
    """Densities of the second column of the two rows with a gap, given all that is known: (2, g)."""
    (points, weights), (rows, _), found = points_of(case), visits(case), []
    for before, unit in ((rows[:2], None), (rows[:0], 2)):
        each = [log_p(case, np.vstack([before, [[case.row, point]]]), unit) for point in points]
        density = np.exp(np.array(each) - max(each))
        found.append(density / (weights @ density))
    return np.array(found)


def ask(case, kind, idata=None, **options):
    rows, unit = visits(case)
    idata = fitted(case) if idata is None else idata
    return dp.predict(idata, "y", rows, kind=kind, unit=unit, given=given_of(case, 4), random_seed=1, **options)


@pytest.mark.parametrize("name", slow_but(CASES, *BY_DEFAULT))
def test_a_row_given_the_others_of_its_unit(name):
    """Means and densities of the third row of a new unit, and of one more row of a unit of the data."""
    case = CASES[name]
    points, weights = points_of(case)
    densities = exact_densities(case)
    if name != "categorical":
        means = ask(case, "mean")["mean"].to_numpy()
        np.testing.assert_allclose(means[2:, 0], densities @ (weights * points), rtol=1e-7)
        np.testing.assert_array_equal(means[:2, 0], case.rows[[1, 4], 1])
    n = len(points)
    chosen = slice(n // 5, -n // 5, n // 11) if name in REAL else slice(0, 6)
    found = ask(case, "density", of=1, x=points[chosen])["mean"]
    assert found["new_row"].to_numpy().tolist() == [2, 3]
    np.testing.assert_allclose(found, densities[:, chosen], rtol=1e-7)


@pytest.mark.parametrize("name", slow_but(CASES, *BY_DEFAULT))
def test_membership_and_densities_of_units(name):
    """Complete rows of two new units, of one and of two rows, and one of a unit of the data."""
    case, unit = CASES[name], ["new", "new", "other", "c"]
    rows, idata, given = np.asarray(case.rows, float)[[1, 4, 0, 3]], fitted(case), given_of(case, 4)
    named = {"c": (rows[3:], 2), "new": (rows[:2], None), "other": (rows[2:3], None)}
    wanted = [log_p(case, *each) for each in named.values()]
    reference = LABELS[0]
    found = dp.membership(idata, "y", rows, reference, unit=unit, given=given)
    assert found["new_unit"].to_numpy().tolist() == list(named)
    np.testing.assert_allclose(found["log_density"], wanted, rtol=1e-9)
    shares = np.zeros((9, 4))
    # By hand: clusters of the three draws, and the clusters of the reference that they have the rows of.
    shares[[0, 1, 2, 3]] = np.eye(4)
    shares[4], shares[5], shares[6] = [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]
    shares[7], shares[8] = [0.2, 0.6, 0.2, 0], [0, 0, 0, 1]
    for i, (own, of_data) in enumerate(named.values()):
        each = log_joint(case, own, of_data)
        expected = np.exp(each - logsumexp(each)) @ shares
        np.testing.assert_allclose(found["probability"][i], expected[:3], atol=1e-9)
        np.testing.assert_allclose(found["new_cluster"][i], expected[3], atol=1e-9)
    densities = dp.log_density(idata, "y", rows, unit=unit, given=given)
    np.testing.assert_allclose(densities["unit"], wanted, rtol=1e-9)
    first = log_p(case, rows[:2]) - log_p(case, rows[1:2])
    np.testing.assert_allclose(densities["row"][[0, 3]], [first, wanted[0]], rtol=1e-9)


def test_a_power_counts_all_rows_of_a_unit():
    """Membership, and the prediction of another view: one more row of which is asked for."""
    family, data = dp.NormalInverseGamma(**NIG), {"p": PAIRS[:, 0], "q": PAIRS[:, 1]}
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        dp.DPMixture("m", alpha, dict.fromkeys(data, family), observed=data, unit=UNIT, power={"p": 0.3})
    idata = results(model, {"m_labels": LABELS, "alpha": ALPHAS}, n_chains=1)
    new = {"p": [1.1, 0.4, np.nan], "q": [0.7, np.nan, np.nan]}
    log_marginal, each, means = exact.nig_log_marginal, [], []
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            rows, n = PAIRS[labels[OF_UNIT] == k], np.sum(labels == k)
            of_p = np.append(rows[:, 0], [1.1, 0.4])[:, None]
            of_q = np.append(rows[:, 1], 0.7)[:, None]
            gain = 0.3 * (log_marginal(of_p, **NIG) - log_marginal(rows[:, :1], **NIG))
            gain += log_marginal(of_q, **NIG) - log_marginal(rows[:, 1:], **NIG)
            each.append(np.log((n if n else alpha) / (5 + alpha)) + gain)
            means.append((NIG["kappa"] * NIG["mu"] + of_q.sum()) / (NIG["kappa"] + len(of_q)))
    p = np.exp(np.array(each) - logsumexp(each))
    found = dp.membership(idata, "m", new, LABELS[2], unit=[7, 7, 7])
    assert found["new_cluster"].item() == pytest.approx(p[[3, 6, 8]].sum())
    asked = dp.predict(idata, "m", new, of="q", unit=[7, 7, 7], random_seed=1)
    np.testing.assert_allclose(asked["mean"], [0.7, *2 * [p @ means]])


def test_rows_of_which_nothing_is_known_follow_those_of_their_unit():
    """Two visits predict the next ones: one column, by sums over clusters and quadrature."""
    x = PAIRS[:, :1]
    case = Case(dp.NormalInverseGamma(**NIG), x, None)
    known = np.array([[1.3], [0.8]])
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), case.base, observed=x[:, 0], unit=UNIT)
    idata = results(model, {"y_labels": LABELS, "alpha": ALPHAS}, n_chains=1)
    log_marginal, each = exact.nig_log_marginal, np.full(len(NODES), -np.inf)
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            own, n = x[labels[OF_UNIT] == k], np.sum(labels == k)
            seat = np.log((n if n else alpha) / (5 + alpha)) - log_marginal(own, **NIG)
            joint = [log_marginal(np.vstack([own, known, [[point]]]), **NIG) for point in NODES]
            each = np.logaddexp(each, seat + np.array(joint))
    density = np.exp(each - each.max())
    density /= WEIGHTS @ density
    new = np.append(known[:, 0], [np.nan, np.nan])
    options = {"unit": ["p"] * 4, "random_seed": 2}
    mean = dp.predict(idata, "y", new, **options)["mean"][:, 0]
    np.testing.assert_allclose(mean, [1.3, 0.8, *2 * [WEIGHTS @ (NODES * density)]], rtol=1e-7)
    found = dp.predict(idata, "y", new, kind="density", x=NODES[100:180:20], **options)["mean"]
    np.testing.assert_allclose(found, np.tile(density[100:180:20], (2, 1)), rtol=1e-7)
    times = 800
    idata = results(model, {"y_labels": np.tile(LABELS, (times, 1)), "alpha": np.tile(ALPHAS, times)}, n_chains=1)
    options = {"unit": ["p"] * 3, "n_draws": 3 * times, "random_seed": 2}
    below = dp.predict(idata, "y", new[:3], of=0, kind="probability", below=1.0, **options)
    wanted = np.interp(1.0, NODES, np.cumsum(WEIGHTS * density) - 0.5 * WEIGHTS * density)
    assert below["mean"].item() == pytest.approx(wanted, abs=0.02)
    assert below["lower"].item() < wanted < below["upper"].item()


def test_draws_are_of_all_rows_of_a_unit_together():
    """Two unknown rows, against the probabilities of all their values; one known row."""
    times, case = 1_500, CASES["bernoulli"]
    idata = fitted(case, np.tile(LABELS, (times, 1)), np.tile(ALPHAS, times))
    new = np.array([[1.0, 0.0], [np.nan, 1.0], [np.nan, np.nan]])
    found = dp.predict(idata, "y", new, kind="draws", unit=["p"] * 3, random_seed=5)
    np.testing.assert_array_equal(found["0"][..., 0], 1)
    drawn = [found["0"][0, :, 1], found["0"][0, :, 2], found["1"][0, :, 2]]
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, tuple(np.asarray(each, int) for each in drawn), 1)
    values = [[[1.0, 0.0], [a, 1.0], [b, c]] for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    p = np.exp([log_p(case, rows) for rows in values])
    assert stats.chisquare(counts.ravel(), p / p.sum() * counts.sum()).pvalue > 1e-4
    rows = dp.sample_new_rows(idata, "y", known=new, unit=["p"] * 3, random_seed=6)
    counts = np.zeros((2, 2, 2))
    np.add.at(counts, tuple(rows["y"].to_numpy().astype(int)[0, :, i, j] for i, j in ((1, 0), (2, 0), (2, 1))), 1)
    assert stats.chisquare(counts.ravel(), p / p.sum() * counts.sum()).pvalue > 1e-4


def test_a_gap_is_drawn_before_the_rows_that_follow_it():
    """Of dependent columns: a row with a gap, and one of which nothing is known, by quadrature over the gap."""
    times, case = 1_500, CASES["niw"]
    known = np.asarray(case.rows, float)[[1]]
    idata = fitted(case, np.tile(LABELS, (times, 1)), np.tile(ALPHAS, times))
    new = np.vstack([known, [[1.0, np.nan], [np.nan, np.nan]]])
    found = dp.predict(idata, "y", new, kind="draws", unit=["p"] * 3, random_seed=5)
    gap, after = found["1"][0, :, 1].to_numpy(), found["0"][0, :, 2].to_numpy()
    gaps = NODES[20:-20:4]
    at = np.exp([log_p(case, np.vstack([known, [[1.0, value]]])) for value in gaps])
    weights = WEIGHTS[20:-20:4] * at
    weights /= weights.sum()
    assert stats.kstest(gap, lambda x: np.interp(x, gaps, np.cumsum(weights) - 0.5 * weights)).pvalue > 1e-4
    # The next row follows the gap, which is bounded here as its tails are heavy.
    for bounded in (np.tanh, np.ones_like):
        own = bounded(gap) * np.tanh(after)
        some = bounded(gaps) * _mean_of_tanh(case, known, gaps)
        assert own.mean() == pytest.approx(weights @ some, abs=4 * own.std() / np.sqrt(len(own)))


def _mean_of_tanh(case, known, gaps):
    """The mean of tanh of the first column of the row after one with each of these gaps."""
    found, points = [], NODES[::2]
    for value in gaps:
        rows = np.vstack([known, [[1.0, value], [np.nan, np.nan]]])
        density = dp.predict(
            fitted(case), "y", rows, of=0, kind="density", x=points, unit=["p"] * 3, n_draws=3, random_seed=1
        )
        found.append(2 * WEIGHTS[::2] @ (np.tanh(points) * density["mean"].to_numpy()[-1]))
    return np.array(found)


def test_new_rows_of_units_share_their_cluster():
    """Probabilities that two rows of a new unit, and a row of a unit of the data, are in clusters."""
    times, case = 2_000, CASES["niw"]
    idata = fitted(case, np.tile(LABELS, (times, 1)), np.tile(ALPHAS, times))
    cluster = dp.sample_new_rows(idata, "y", unit=["n", "a", "n"], random_seed=1)["cluster"].to_numpy()[0]
    np.testing.assert_array_equal(cluster[:, 0], cluster[:, 2])
    np.testing.assert_array_equal(cluster[:, 1], 0)
    first = cluster[::3, 0]
    assert np.mean(first == 1) == pytest.approx(3 / (5 + ALPHAS[0]), abs=0.05)


def test_a_view_with_one_row_for_each_unit():
    """A column that every visit repeats counts once."""
    sex, y = np.array([0.0, 1.0, 1.0, 0.0, 1.0]), PAIRS[:, 0]
    bases = {"sex": dp.BetaBernoulli(1.0, 1.0), "y": dp.NormalInverseGamma(**NIG)}
    with pm.Model() as model:
        observed = {"sex": pd.Series(sex, name="sex"), "y": pd.Series(y, name="y")}
        dp.DPMixture("m", pm.Gamma("alpha", 2.0, 2.0), bases, observed=observed, unit={"y": OF_UNIT})
    idata = results(model, {"m_labels": LABELS, "alpha": ALPHAS}, n_chains=1)
    repeated = pd.DataFrame({"sex": [1.0, 1.0], "y": [0.3, 1.1]})
    once = pd.DataFrame({"sex": [np.nan, 1.0], "y": [0.3, 1.1]})
    found = [dp.log_density(idata, "m", rows, unit=[9, 9])["unit"].item() for rows in (repeated, once)]
    total = -np.inf
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            n, ones = np.sum(labels == k), np.sum(sex[labels == k])
            own = y[labels[OF_UNIT] == k][:, None]
            gain = exact.nig_log_marginal(np.vstack([own, [[0.3], [1.1]]]), **NIG)
            gain -= exact.nig_log_marginal(own, **NIG)
            seat = (n if n else alpha) / (5 + alpha) * (ones + 1) / (n + 2)
            total = np.logaddexp(total, np.log(seat) + gain)
    np.testing.assert_allclose(found, total - np.log(3), rtol=1e-9)
    with pytest.raises(ValueError, match="m_sex has one row for each unit, and the rows of 9 differ there"):
        dp.membership(idata, "m", pd.DataFrame({"sex": [1.0, 0.0], "y": [0.3, 1.1]}), unit=[9, 9])


def test_units_are_matched_by_name():
    idata, rows = fitted(CASES["niw"]), pd.DataFrame(PAIRS[:3], index=["x", "y", "z"])
    units = pd.Series(["new", "c", "new"], index=rows.index)
    found = [dp.log_density(idata, "y", rows, unit=own)["unit"] for own in (units, units.iloc[::-1], list(units))]
    np.testing.assert_allclose(found, np.tile(found[0], (3, 1)))
    with pytest.raises(ValueError, match="unit"):
        dp.log_density(idata, "y", rows, unit=units.set_axis(["x", "y", "other"]))


def test_what_is_refused():
    case = CASES["niw"]
    idata = fitted(case)
    rows = np.array([[1.0, np.nan], [np.nan, 0.2]])
    with pytest.raises(NotImplementedError, match="several rows of one unit have gaps"):
        dp.membership(idata, "y", rows, unit=["p", "p"])
    with pytest.raises(ValueError, match="one entry for each new row"):
        dp.membership(idata, "y", rows, unit=["p"])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, case.base, observed=case.rows)
    alone = results(model, {"y_labels": np.zeros((2, 6), int)}, n_chains=1)
    with pytest.raises(ValueError, match="is for mixtures that have units"):
        dp.predict(alone, "y", rows, unit=["p", "p"])


JOINED = Clusters.joined
MISTAKES = {
    "others tell nothing of the cluster": lambda *asked: (JOINED(*asked)[0], 0.0 * JOINED(*asked)[1]),
    "others tell nothing of its parameters": lambda clusters, *asked: (clusters, JOINED(clusters, *asked)[1]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake, monkeypatch):
    monkeypatch.setattr(Clusters, "joined", MISTAKES[mistake])
    with pytest.raises(AssertionError):
        test_a_row_given_the_others_of_its_unit("nig")


def test_a_question_without_units_is_told_of():
    """Where rows may be of one unit, and could have been given."""
    case = CASES["nig"]
    idata, rows = fitted(case), np.asarray(case.rows, float)[:2]
    with pytest.warns(UserWarning, match=r"each of the 2 new rows is taken for a unit of its own: pass unit="):
        alone = dp.log_density(idata, "y", rows)
    found = dp.log_density(idata, "y", rows, unit=range(2))
    np.testing.assert_allclose(found["unit"], alone["row"])
    # One row is one unit, and contrasts are of separate rows.
    dp.log_density(idata, "y", rows[:1])
    dp.contrast(idata, "y", rows, rows + np.array([1.0, 0.0]), of=1, random_seed=1)
