"""What is done with draws of partitions: co-clustering probabilities and point partitions."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import norm

import pymc_dpgmm as dp
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.posterior.arrays import point_partition as arrays
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.posterior.arrays.point_partition import search_point_partition
from pymc_dpgmm.posterior.arrays.seats import GibbsSeats
from pymc_dpgmm.testing import partitions


def tree(labels, coords=None, group="posterior"):
    """Draws (chain, draw, n) as pm.sample would store them."""
    coords = {"row": np.arange(labels.shape[-1])} if coords is None else coords
    array = xr.DataArray(labels, dims=("chain", "draw", "row"), coords=coords)
    return xr.DataTree.from_dict(
        {group: xr.Dataset({"y_labels": array, "alpha": (("chain", "draw"), labels[..., 0] * 1.0)})}
    )


def random_draws(rng, n, n_draws):
    draws = [rng.integers(rng.integers(1, n + 1), size=n) for _ in range(n_draws)]
    return np.array([canonical_labels(draw)[0] for draw in draws])


def slow_vi(c, s, a=1.0, b=1.0):
    """By conditional entropies: H(c | s) counts what is separated, H(s | c) what is united."""
    joint = np.zeros((c.max() + 1, s.max() + 1))
    np.add.at(joint, (c, s), 1 / len(c))
    p = joint[joint > 0]
    given_s = -np.sum(p * np.log2((joint / joint.sum(axis=0))[joint > 0]))
    given_c = -np.sum(p * np.log2((joint / joint.sum(axis=1, keepdims=True))[joint > 0]))
    return a * given_s + b * given_c


def slow_binder(c, s, a=1.0, b=1.0):
    i, j = np.triu_indices(len(c), 1)
    same_c, same_s = c[i] == c[j], s[i] == s[j]
    return np.mean(a * (same_s & ~same_c) + b * (same_c & ~same_s))


def between(candidates, draws, loss, costs=(1.0, 1.0)):
    with Threads(1) as threads:
        return losses_between(threads, candidates, draws, loss, costs)


SLOW = {"vi": slow_vi, "binder": slow_binder}


@pytest.mark.parametrize("loss", SLOW)
@pytest.mark.parametrize("costs", [(1.0, 1.0), (1.0, 0.3), (0.0, 2.0)])
def test_losses(loss, costs):
    rng = np.random.default_rng(0)
    draws, candidates = random_draws(rng, 9, 20), random_draws(rng, 9, 12)
    found = between(candidates, draws, loss, costs)
    wanted = [[SLOW[loss](c, s, *costs) for s in draws] for c in candidates]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_co_clustering_counts_pairs():
    rng = np.random.default_rng(1)
    labels = random_draws(rng, 7, 40).reshape(2, 20, 7).astype(np.int16)
    matrix = dp.co_clustering(tree(labels, {"row": list("abcdefg")}), "y")
    flat = labels.reshape(40, 7)
    np.testing.assert_allclose(matrix, np.mean(flat[:, :, None] == flat[:, None, :], axis=0))
    assert matrix.dims == ("row", "row_2")
    assert matrix.sel(row="b", row_2="e") == matrix.sel(row="e", row_2="b")
    some = dp.co_clustering(tree(labels), "y_labels", rows=[4, 1])
    np.testing.assert_allclose(some, matrix.to_numpy()[np.ix_([4, 1], [4, 1])])
    assert some["row"].to_numpy().tolist() == [4, 1]


def test_threads_count_the_same():
    from pymc_dpgmm.posterior.co_clustering import count_together

    draws = random_draws(np.random.default_rng(2), 30, 50)
    np.testing.assert_array_equal(count_together(draws, 1), count_together(draws, 3))


def test_a_matrix_that_is_too_large():
    labels = np.zeros((1, 1, 3_000), dtype=np.int16)
    with pytest.raises(
        MemoryError, match=r"the matrix of 3,000 rows takes 0.1 GiB, more than most_bytes = 0.0 GiB"
    ):
        dp.co_clustering(tree(labels), "y", most_bytes=1e6)


@pytest.mark.parametrize("loss", SLOW)
def test_the_search_finds_the_enumerated_optimum(loss):
    rng = np.random.default_rng(3)
    found = 0
    for case in range(200):
        n = int(rng.integers(3, 9))
        everything = partitions(n).astype(np.int64)
        if case % 2:
            draws = random_draws(rng, n, int(rng.integers(3, 40)))
        else:
            # Few partitions have most of the mass.
            draws = everything[rng.choice(len(everything), 30, p=rng.dirichlet(np.full(len(everything), 0.05)))]
        _, expected = search_point_partition(draws, loss, seed=case, n_threads=1)
        of_all = between(everything, draws, loss).mean(axis=1)
        assert expected >= of_all.min() - 1e-12
        found += expected <= of_all.min() + 1e-9
    assert found >= 190


@pytest.mark.parametrize("loss", SLOW)
@pytest.mark.parametrize("costs", [(1.0, 1.0), (1.0, 0.4)])
def test_rows_that_are_together_in_all_draws_are_one(loss, costs):
    """Of all partitions, one that keeps such rows together is the best, and it is found."""
    rng, found = np.random.default_rng(8), 0
    everything = partitions(8).astype(np.int64)
    for case in range(40):
        rows = np.repeat(np.arange(4), rng.multinomial(4, np.full(4, 0.25)) + 1)
        draws = random_draws(rng, 4, int(rng.integers(3, 20)))[:, rng.permutation(rows)]
        of_all = between(everything, np.array([canonical_labels(draw)[0] for draw in draws]), loss, costs)
        labels, expected = search_point_partition(draws, loss, costs, seed=case, n_threads=1)
        assert expected >= of_all.mean(axis=1).min() - 1e-12
        found += expected <= of_all.mean(axis=1).min() + 1e-9
        for i, j in zip(*np.triu_indices(8, 1), strict=True):
            assert labels[i] == labels[j] or np.any(draws[:, i] != draws[:, j])
    assert found >= 38


def test_rows_that_stand_for_several():
    rng, counts = np.random.default_rng(9), np.array([3, 1, 4, 2])
    draws, candidates = random_draws(rng, 4, 6), random_draws(rng, 4, 5)
    with Threads(1) as threads:
        found = losses_between(threads, candidates, draws, "vi", (1.0, 0.5), counts)
    whole = between(np.repeat(candidates, counts, axis=1), np.repeat(draws, counts, axis=1), "vi", (1.0, 0.5))
    np.testing.assert_allclose(found, whole)


def test_searches_see_a_sample_of_very_many_labels(monkeypatch):
    """The result is near that of all draws, and is chosen by all."""
    rng = np.random.default_rng(10)
    truth = rng.integers(4, size=60)
    draws = np.array([np.where(rng.random(60) < 0.15, rng.integers(6, size=60), truth) for _ in range(200)])
    _, by_all = search_point_partition(draws, seed=1)
    monkeypatch.setattr("pymc_dpgmm.posterior.arrays.point_partition.MOST_LABELS", 60 * 50)
    labels, by_some = search_point_partition(draws, seed=1)
    canonical = np.array([canonical_labels(draw)[0] for draw in draws])
    assert by_some == pytest.approx(between(labels[None], canonical, "vi").mean())
    assert by_all - 1e-12 <= by_some < 1.02 * by_all


@pytest.mark.parametrize("loss", SLOW)
def test_no_draw_is_better(loss):
    rng = np.random.default_rng(4)
    truth = rng.integers(4, size=60)
    draws = np.array([np.where(rng.random(60) < 0.15, rng.integers(6, size=60), truth) for _ in range(200)])
    point = dp.point_partition(tree(draws.reshape(2, 100, 60)), "y", loss=loss, random_seed=1)
    canonical = np.array([canonical_labels(draw)[0] for draw in draws])
    of_draws = between(canonical, canonical, loss).mean(axis=1)
    assert float(point["expected_loss"]) <= of_draws.min() + 1e-12
    again = dp.point_partition(tree(draws.reshape(2, 100, 60)), "y", loss=loss, random_seed=1)
    xr.testing.assert_identical(point, again)
    assert len(np.unique(truth)) == int(point["n_clusters"]) or loss == "binder"


def test_bounds_and_costs_of_point_partitions():
    rng = np.random.default_rng(5)
    draws = random_draws(rng, 12, 100).reshape(1, 100, 12)
    for most in (1, 2, 3):
        assert int(dp.point_partition(tree(draws), "y", max_clusters=most, random_seed=0)["n_clusters"]) <= most
    # Where uniting costs nothing all rows are united, where separating costs nothing none.
    assert int(dp.point_partition(tree(draws), "y", costs=(1, 0), random_seed=0)["n_clusters"]) == 1
    assert int(dp.point_partition(tree(draws), "y", costs=(0, 1), random_seed=0)["n_clusters"]) == 12


def test_draws_that_agree():
    labels = np.tile(np.array([0, 1, 0, 2], dtype=np.int16), (2, 5, 1))
    point = dp.point_partition(tree(labels, {"row": list("abcd")}, group="thinned"), "y")
    assert point["labels"].to_numpy().tolist() == [0, 1, 0, 2]
    assert float(point["expected_loss"]) == pytest.approx(0.0, abs=1e-12)
    assert point["row"].to_numpy().tolist() == list("abcd")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "z"}, ValueError, r"no labels of 'z' in posterior; there are labels named \['y_labels'\]"),
        ({"loss": "ari"}, ValueError, "loss must be one of vi, binder, got 'ari'"),
        ({"costs": (1, -1)}, ValueError, "costs must be at least 0 and one of them > 0"),
        ({"costs": 1.0}, TypeError, "costs must be two numbers"),
        ({"max_clusters": 0}, ValueError, "max_clusters must be at least 1, got 0"),
        ({"n_starts": 1.5}, TypeError, "n_starts must be an integer"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        dp.point_partition(tree(np.zeros((1, 3, 4), dtype=int)), **({"name": "y"} | arguments))


def test_results_without_draws():
    with pytest.raises(ValueError, match=r"no group of draws \(posterior or thinned\), it has \['prior'\]"):
        dp.co_clustering(tree(np.zeros((1, 3, 4), dtype=int), group="prior"), "y")
    with pytest.raises(TypeError, match=r"must be an xarray.DataTree, as pm.sample returns, got dict"):
        dp.co_clustering({}, "y")


def stuck(n_draws=200, same=False, seed=0):
    """Two chains with three clusters each, of the same sizes, around different partitions."""
    rng = np.random.default_rng(seed)
    centres = [np.repeat([0, 1, 2], 20), np.tile([0, 1, 2], 20)]
    chains = []
    for chain in range(2):
        own = np.tile(centres[0 if same else chain], (n_draws, 1))
        moved = rng.integers(60, size=n_draws)
        own[np.arange(n_draws), moved] = rng.integers(3, size=n_draws)
        chains.append(own)
    return tree(np.array(chains).astype(np.int16))


def test_chains_stuck_in_different_partitions_are_told():
    with pytest.warns(UserWarning, match="the chains are at different partitions: R-hat of the distance"):
        found = dp.partition_diagnostics(stuck(), "y")
    # By ranks, R-hat of two chains without overlap is a little below 2.
    assert found.attrs["distance_r_hat"] > 1.9
    # Nothing else gives them away.
    assert np.all(found["n_clusters"] == 3)
    assert found["entropy"].mean("draw").diff("chain").to_numpy() == pytest.approx(0.0, abs=0.005)


def test_chains_that_agree_pass():
    found = dp.partition_diagnostics(stuck(same=True), "y")
    assert found.attrs["distance_r_hat"] < 1.03
    assert found["distance"].dims == ("chain", "draw", "reference")


def test_chains_that_stand_still():
    labels = np.zeros((2, 10, 6), dtype=np.int16)
    assert dp.partition_diagnostics(tree(labels), "y").attrs["distance_r_hat"] == 1.0
    labels[1, :, :3] = 1
    with pytest.warns(UserWarning, match="R-hat of the distance to a partition of one of them is inf"):
        dp.partition_diagnostics(tree(labels), "y")


def test_numbers_of_partitions():
    labels = np.array([[[0, 0, 0, 1, 1, 2], [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1]]])
    draws = tree(labels)
    draws["sample_stats"] = xr.Dataset({"y_labels_log_joint": (("chain", "draw"), [[1.0, 2.0, 3.0, 4.0]])})
    found = dp.partition_diagnostics(draws, "y", reference=[5, 5, 5, 9, 9, 9], n_largest=2)
    assert found["n_clusters"].to_numpy().tolist() == [[3, 6, 1, 2]]
    np.testing.assert_allclose(found["share"].values[0], [[1 / 2, 1 / 3], [1 / 6, 1 / 6], [1, 0], [1 / 2, 1 / 2]])
    shares = np.array([3, 2, 1]) / 6
    np.testing.assert_allclose(found["entropy"].values[0, 0], -np.sum(shares * np.log(shares)))
    np.testing.assert_allclose(found["entropy"].values[0, 2], 0.0)
    wanted = [slow_vi(own, np.array([0, 0, 0, 1, 1, 1])) for own in labels[0]]
    np.testing.assert_allclose(found["distance"].values[0, :, 0], wanted, atol=1e-12)
    assert found["log_joint"].to_numpy().tolist() == [[1.0, 2.0, 3.0, 4.0]]
    with pytest.raises(ValueError, match=r"reference must have shape \(6,\), got \(2,\)"):
        dp.partition_diagnostics(draws, "y", reference=[0, 1])
    with pytest.raises(ValueError, match="n_largest must be an integer of at least 1"):
        dp.partition_diagnostics(draws, "y", n_largest=0)


def test_diagnostics_are_what_arviz_takes():
    summary = az.summary(dp.partition_diagnostics(stuck(same=True), "y"))
    assert {"n_clusters", "entropy", "share[largest]", "distance[0]"} < set(summary.index)


def test_credible_balls():
    rng = np.random.default_rng(6)
    centre = np.repeat([0, 1, 2], 4)
    draws = np.tile(centre, (100, 1))
    draws[:20, 0] = 3  # one more cluster
    draws[20:40][draws[20:40] == 2] = 1  # one less
    draws[40:44] = random_draws(rng, 12, 4)  # far away
    # Chains that have met: each has every second draw.
    idata = tree(np.stack([draws[::2], draws[1::2]]))
    ball = dp.credible_ball(idata, "y", random_seed=1)
    assert ball["center"].to_numpy().tolist() == centre.tolist()
    distances = np.array([slow_vi(centre, canonical_labels(draw)[0]) for draw in draws])
    radius = np.sort(distances)[94]
    assert float(ball["radius"]) == pytest.approx(radius)
    assert float(ball["probability"]) == pytest.approx(np.mean(distances <= radius + 1e-12))
    assert float(ball["probability"]) == pytest.approx(0.96)
    assert ball["n_clusters"].sel(bound=["vertical_upper", "vertical_lower"]).to_numpy().tolist() == [2, 4]
    np.testing.assert_allclose(ball["distance"].sel(bound="horizontal"), radius)
    lower = ball["labels"].sel(bound="vertical_lower").to_numpy()
    assert np.array_equal(lower, canonical_labels(draws[0])[0])
    given = dp.credible_ball(idata, "y", dp.point_partition(idata, "y", random_seed=1), loss="binder")
    other = np.array([slow_binder(centre, canonical_labels(draw)[0]) for draw in draws])
    assert float(given["radius"]) == pytest.approx(np.sort(other)[94])
    for wrong in (0, 1, 95):
        with pytest.raises(ValueError, match=r"probability must lie in \(0, 1\)"):
            dp.credible_ball(idata, "y", centre, probability=wrong)
    with pytest.raises(ValueError, match=r"partition must have shape \(12,\), got \(3,\)"):
        dp.credible_ball(idata, "y", [0, 1, 2])


def test_the_same_draws_have_the_same_point_partition(monkeypatch):
    """One search serves tables and pictures, and a new process finds the same."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, size=(2, 50, 30))
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"y_labels": (("chain", "draw", "row"), labels)})})
    searched = []
    search = arrays.search_point_partition

    def counted(*arguments):
        searched.append(arguments)
        return search(*arguments)

    monkeypatch.setattr(arrays, "search_point_partition", counted)
    monkeypatch.setattr(arrays, "_remembered", {})
    first, again = dp.point_partition(idata, "y"), dp.point_partition(idata, "y")
    ball = dp.credible_ball(idata, "y")
    assert len(searched) == 1
    assert first.identical(again)
    assert np.array_equal(ball["center"], first["labels"])
    assert np.array_equal(search(labels.reshape(-1, 30))[0], first["labels"])
    # What is remembered is not what a user may write to.
    first["labels"][:] = 7
    assert dp.point_partition(idata, "y").identical(again)
    dp.point_partition(idata, "y", random_seed=1)
    assert len(searched) == 2


@pytest.mark.interpreted
def test_one_chain_or_draw_chosen_by_its_name_keeps_its_concentration():
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
        idata = pm.sample(4, tune=4, chains=2, cores=1, random_seed=1, progressbar=False)
    whole = dp.density(idata.sel(chain=[1]), "y", [0.0], random_seed=1)
    xr.testing.assert_identical(dp.density(idata.sel(chain=1), "y", [0.0], random_seed=1), whole)


def test_small_clusters_are_there_for_limits_in_the_tails():
    """The random density far from the data, against deep stick-breaking by NumPy."""
    rng, n_draws = np.random.default_rng(0), 3_000
    seats = GibbsSeats(chinese_restaurant(1.0), np.array([3]))
    found, expected = np.empty(n_draws), np.empty(n_draws)
    for s in range(n_draws):
        weights = seats.draw_all(rng)[0, 1:]
        found[s] = weights @ norm.pdf(2.0, rng.normal(size=len(weights)), 0.1)
        left = np.cumprod(1.0 - (shares := rng.beta(1.0, 1.0, size=100)))
        weights = rng.beta(1.0, 3.0) * shares * np.append(1.0, left[:-1])
        expected[s] = weights @ norm.pdf(2.0, rng.normal(size=100), 0.1)
    for q in (0.3, 0.5, 0.8):
        assert abs(np.log10(np.quantile(found, q) / np.quantile(expected, q))) < 1.0
