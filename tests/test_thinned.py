"""Labels of few draws, kept while sampling."""

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

ROWS = np.random.default_rng(0).normal(size=(30, 2)) + 4.0 * (np.arange(30) % 3)[:, None]


def sample(keep, **kwargs):
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=ROWS)
        return pm.sample(
            30,
            tune=20,
            chains=2,
            random_seed=1,
            callback=keep,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **kwargs,
        )


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("every", "kept"), [(None, [29]), (10, [9, 19, 29]), (8, [7, 15, 23, 29]), (100, [29])])
def test_keeps_the_draws_of_the_trace(every, kept, cores):
    keep = dp.ThinnedLabels("y_labels", every=every)
    whole = sample(keep, cores=cores).posterior["y_labels"]
    thinned = keep.to_datatree()["y_labels"]
    assert thinned.dims == ("chain", "draw", "row")
    assert thinned["draw"].to_numpy().tolist() == kept
    assert np.array_equal(thinned, whole.sel(draw=kept))


def test_labels_may_stay_out_of_the_trace():
    keep = dp.ThinnedLabels("y_labels", every=15)
    idata = sample(keep, cores=1, var_names=["alpha", "y_n_clusters"])
    assert "y_labels" not in idata.posterior
    n_clusters = idata.posterior["y_n_clusters"].sel(draw=[14, 29])
    assert np.array_equal(keep.to_datatree()["y_labels"].max("row") + 1, n_clusters)
    assert np.array_equal(idata.sample_stats["y_labels_n_clusters"], idata.posterior["y_n_clusters"])


def test_bad_input():
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        dp.ThinnedLabels("y_labels", every=0)
    with pytest.raises(TypeError, match=r"every must be an integer or None, got 2\.5"):
        dp.ThinnedLabels("y_labels", every=2.5)
    with pytest.raises(ValueError, match="no draws after tuning have been seen"):
        dp.ThinnedLabels("y_labels").to_datatree()
    with pytest.raises(KeyError, match="labels is not among the sampled variables"):
        sample(dp.ThinnedLabels("labels"), cores=1)
