"""Labels of few draws, kept while sampling."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dpgmm as dp

pytestmark = pytest.mark.interpreted

ROWS = np.random.default_rng(0).normal(size=(30, 2)) + 4.0 * (np.arange(30) % 3)[:, None]


SHORT = {"draws": 30, "tune": 20, "chains": 2, "random_seed": 1}
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def sample(keep, **kwargs):
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=ROWS)
        return pm.sample(callback=keep, **SHORT, **QUIET, **kwargs)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("every", "kept"), [(None, [29]), (10, [9, 19, 29]), (8, [7, 15, 23, 29]), (100, [29])])
def test_keeps_the_draws_of_the_trace(every, kept, cores):
    keep = dp.ThinnedLabels("y_labels", every=every)
    whole = sample(keep, cores=cores).posterior["y_labels"]
    thinned = keep.to_datatree()["y_labels"]
    assert thinned.dims == whole.dims
    assert thinned["draw"].to_numpy().tolist() == kept
    assert np.array_equal(thinned, whole.sel(draw=kept))


def test_labels_may_stay_out_of_the_trace():
    keep = dp.ThinnedLabels("y_labels", every=15)
    idata = sample(keep, cores=1, var_names=["alpha", "y_n_clusters"])
    assert "y_labels" not in idata.posterior
    for name in ("y", "y_labels"):
        with pytest.raises(ValueError, match="the draws have no y_labels, which var_names left out"):
            dp.summary(idata, name)
    n_clusters = idata.posterior["y_n_clusters"].sel(draw=[14, 29])
    assert np.array_equal(keep.to_datatree()["y_labels"].max("y_labels_dim_0") + 1, n_clusters)
    assert np.array_equal(idata.sample_stats["y_labels_n_clusters"], idata.posterior["y_n_clusters"])


def test_bad_input():
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        dp.ThinnedLabels("y_labels", every=0)
    with pytest.raises(TypeError, match=r"every must be an integer or None, got 2\.5"):
        dp.ThinnedLabels("y_labels", every=2.5)
    with pytest.raises(ValueError, match="no draws after tuning were received"):
        dp.ThinnedLabels("y_labels").to_datatree()
    with pytest.raises(KeyError, match="labels is not among the sampled variables"):
        sample(dp.ThinnedLabels("labels"), cores=1)


class Draw:
    """What PyMC hands to a callback."""

    def __init__(self, chain, number):
        self.chain, self.tuning, self.draw_idx = chain, False, number
        self.point = {"labels": np.array([chain, number])}


@pytest.mark.parametrize(
    ("lengths", "every", "chains", "draws"),
    [
        ([10, 10], None, [0, 1], [9]),
        ([10, 7], 5, [0, 1], [4]),
        ([10, 7], 7, [0, 1], [6]),
        # One chain alone has more draws than two of the shorter length.
        ([10, 4], 3, [0], [2, 5, 8, 9]),
        ([10, 0], None, [0], [9]),
        ([3, 10, 9], 4, [1, 2], [3, 7]),
    ],
)
def test_interrupted_chains_keep_their_draws(lengths, every, chains, draws):
    keep = dp.ThinnedLabels("labels", every=every)
    for chain, length in enumerate(lengths):
        for number in range(length):
            keep(None, Draw(chain, number))
    kept = keep.to_datatree()["labels"]
    assert kept["chain"].to_numpy().tolist() == chains
    assert kept["draw"].to_numpy().tolist() == draws
    for chain in chains:
        for draw in draws:
            assert kept.sel(chain=chain, draw=draw).to_numpy().tolist() == [chain, draw]
    assert {chain: number for chain, (number, _) in keep.last.items()} == {
        chain: length - 1 for chain, length in enumerate(lengths) if length
    }


def test_interrupted_chains_without_a_common_draw():
    keep = dp.ThinnedLabels("labels")
    for chain, length in ((0, 10), (1, 7)):
        for number in range(length):
            keep(None, Draw(chain, number))
    with pytest.raises(ValueError, match="have no kept draw in common"):
        keep.to_datatree()


def test_results_are_those_of_the_sliced_run():
    """Views, units and gaps; everything that is asked of labels of few draws."""
    rng = np.random.default_rng(2)
    x = ROWS.copy()
    x[3, 0] = x[11, 1] = np.nan
    unit = np.repeat(np.arange(30), 2)
    counts = rng.poisson(3.0 + 3.0 * (unit % 3)).astype(float)
    keep = dp.ThinnedLabels("y_labels", every=10)
    with pm.Model():
        dp.DPMixture(
            "y",
            pm.Gamma("alpha", 1.0, 1.0),
            {"x": dp.NormalInverseWishart.from_data(x), "k": dp.GammaPoisson(pm.Gamma("a", 2.0, 2.0), 1.0)},
            observed={"x": x, "k": counts},
            unit={"k": unit},
        )
        whole = pm.sample(callback=keep, cores=1, **SHORT, **QUIET)
    chosen = whole.map_over_datasets(lambda group: group.sel(draw=[9, 19, 29]) if "draw" in group.dims else group)
    thinned = whole.copy()
    thinned["posterior"] = xr.DataTree(whole["posterior"].dataset.drop_vars("y_labels"))
    thinned["thinned"] = keep.to_datatree()
    new = {"x": np.array([[0.0, 0.5], [4.0, np.nan]]), "k": np.array([2.0, 7.0])}
    for name, what in {
        "summary": lambda idata: dp.summary(idata, "y", np.arange(30) % 3, random_seed=1).scalars,
        "clusters": lambda idata: dp.summary(idata, "y", np.arange(30) % 3, random_seed=1).clusters,
        "diagnostics": lambda idata: dp.partition_diagnostics(idata, "y", warn=False).to_dataframe(),
        "co-clustering": lambda idata: dp.co_clustering(idata, "y").to_numpy(),
        "components": lambda idata: dp.component_draws(idata, "y", reference=np.arange(30) % 3, random_seed=1)[
            "y_x_mean"
        ],
        "membership": lambda idata: dp.membership(idata, "y", new, unit=range(2), random_seed=1)["probability"],
    }.items():
        found, expected = np.asarray(what(thinned)), np.asarray(what(chosen))
        np.testing.assert_array_equal(found, expected, err_msg=name)
