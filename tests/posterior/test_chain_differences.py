"""In which clusters chains differ: tables, words and a picture."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import pymc_dpgmm as dp

pytestmark = pytest.mark.interpreted

RNG = np.random.default_rng(3)
# Three clusters; the second chain joins the last two of them.
APART = np.repeat([0, 1, 2], [20, 12, 8])
JOINED = np.minimum(APART, 1)


def results(*chains):
    labels = xr.DataArray(
        np.array(chains), dims=("chain", "draw", "row"), coords={"row": [f"r{i}" for i in range(len(APART))]}
    )
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"y_labels": labels})})


def moving(partition, n_draws=60):
    """Draws in which one row of forty has moved to another cluster."""
    draws = np.tile(partition, (n_draws, 1))
    moved = RNG.integers(len(partition), size=n_draws)
    draws[np.arange(n_draws), moved] = RNG.integers(partition.max() + 1, size=n_draws)
    return draws


def test_chains_that_join_clusters_which_others_keep_apart():
    found = dp.chain_differences(results(moving(APART), moving(JOINED)), "y", APART)
    np.testing.assert_allclose(found["together"], 1.0, atol=0.08)
    np.testing.assert_allclose(found["alone"][0], 1.0, atol=0.08)
    np.testing.assert_allclose(found["alone"][1], [1.0, 11 / 19, 7 / 19], atol=0.08)
    difference = found["difference"].to_numpy()
    # The share of the others among companions, which the first chain does not have.
    np.testing.assert_allclose(difference[:20], 0.0, atol=0.08)
    np.testing.assert_allclose(difference[20:], np.repeat([8 / 19, 12 / 19], [12, 8]), atol=0.1)
    assert found["size"].to_numpy().tolist() == [20, 12, 8]
    assert found["row"].to_numpy()[0] == "r0"


def test_rows_that_are_alone():
    """A cluster of one row that another chain puts elsewhere."""
    single = np.append(np.zeros(5, dtype=int), 1)
    labels = np.stack([np.tile(single, (10, 1)), np.tile(np.zeros(6, dtype=int), (10, 1))])
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"y_labels": (("chain", "draw", "row"), labels)})})
    found = dp.chain_differences(tree, "y", single)
    np.testing.assert_allclose(found["together"], [[1.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(found["alone"], [[1.0, 1.0], [0.8, 0.0]])
    np.testing.assert_allclose(found["difference"], [0.2] * 5 + [1.0])


def test_words_name_the_clusters_in_which_chains_differ():
    idata = results(moving(APART), moving(JOINED))
    words = r"They differ most in clusters of \d+ rows like r[23]\d, .*\(dp.chain_differences, dp.plot_chains\)"
    with pytest.warns(UserWarning, match=rf"the chains are at different partitions: R-hat .*{words}"):
        dp.partition_diagnostics(idata, "y", reference=APART)
    with pytest.warns(UserWarning, match=rf"this one is a compromise between them. {words}"):
        dp.point_partition(idata, "y")


def test_chains_that_agree_are_not_told_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idata = results(moving(APART), moving(APART), moving(APART))
        assert dp.point_partition(idata, "y")["n_clusters"] == 3
        found = dp.chain_differences(idata, "y")
    assert found["difference"].max() < 0.2


def test_one_chain_has_nothing_to_differ_from():
    with pytest.raises(ValueError, match="y_labels has only one chain: sample with chains=2 or more"):
        dp.chain_differences(results(moving(APART)), "y")


def test_a_picture_has_a_point_for_each_chain_and_cluster():
    figure = dp.plot_chains(results(moving(APART), moving(JOINED)), "y", APART, n_largest=2)
    panels = figure.axes
    assert [len(axes.get_lines()) for axes in panels] == [2 + 1] * 2
    shown = np.array([line.get_ydata() for line in panels[1].get_lines()[:2]])
    np.testing.assert_allclose(shown, [[1.0, 1.0], [1.0, 11 / 19]], atol=0.08)
    plt.close(figure)
