"""Mixtures of dask data: the model, sampling, what comes after it, and what is refused."""

import logging
import subprocess
import sys
from dataclasses import replace

import chunked
import dask
import dask.array as da
import dask.dataframe as dd
import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from chunked import RUN, three_groups
from scipy.special import logsumexp

import pymc_dpgmm as dp
from pymc_dpgmm.chunked.records import from_dataset
from pymc_dpgmm.partitions.labels import canonical_labels, first_rows

pytestmark = pytest.mark.interpreted

FIVE = np.array([[0.1, -0.3], [0.4, 0.2], [-0.2, 0.5], [3.1, 2.7], [2.8, 3.3]])
NIW = {"mu": np.zeros(2), "kappa": 0.2, "nu": 4.0, "psi": np.eye(2)}
BASE = dp.NormalInverseWishart(**NIW)
# In chunks of two and of three rows.
IN_CHUNKS = da.from_array(FIVE, chunks=((2, 3), (2,)))


@pytest.fixture(scope="module")
def sampled():
    """Draws of three groups, and the data in chunks."""
    rows, label = three_groups()
    array = da.from_array(rows, chunks=(1_000, 2))
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=array)
        idata = pm.sample(draws=30, tune=20, chains=2, cores=1, dpmixture={"chunks": {"scanned": 200}}, **RUN)
    return idata, array, label


def at_labels(model, rows, labels):
    """Let a model be at a partition of its rows."""
    source = model["y_n_clusters"].owner.op.source
    partition = source.partition.copy()
    chunked.begin_at(partition, chunked.sums_of(partition, rows, labels), labels)
    source.show(partition)


@pytest.mark.parametrize(
    "prior",
    [
        lambda data, mu: dp.DPMixture("y", pm.Gamma("a", 2, 1), base(mu), observed=data),
        lambda data, mu: dp.PYMixture("y", pm.Gamma("a", 2, 1), pm.Beta("s", 1, 1), base(mu), observed=data),
        lambda data, mu: dp.FiniteMixture("y", pm.Gamma("a", 2, 1), 6, base(mu), observed=data),
        lambda data, mu: dp.MFMixture("y", pm.Gamma("a", 2, 1), base(mu), observed=data),
    ],
    ids=["dp", "py", "finite", "mfm"],
)
def test_density_and_gradient_are_those_of_rows_in_memory(prior):
    labels, found = np.array([0, 0, 1, 2, 2]), []
    for data in (FIVE, IN_CHUNKS):
        with pm.Model() as model:
            prior(data, pm.Normal("mu", shape=2))
        point = {k: v for k, v in model.initial_point().items() if not k.startswith("y_")}
        point |= {"mu": np.array([0.3, -0.2])}
        if data is FIVE:
            point |= {"y_labels": labels}
        else:
            at_labels(model, FIVE, labels)
            point |= {"y_n_clusters": 3}
        variables = [rv for rv in model.free_RVs if rv.dtype == "float64"]
        found.append(np.append(model.compile_dlogp(variables)(point), model.compile_logp()(point)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def base(mu):
    return dp.NormalInverseWishart(**NIW | {"mu": mu})


def exact_n_clusters(alphas, weights):
    """Probabilities of the number of clusters of five rows, alpha being one of several numbers."""
    partitions = exact.partitions(5)
    evidence = exact.log_likelihoods(partitions, FIVE, exact.niw_log_marginal, **NIW)
    log_prior = np.array([[exact.log_eppf(labels, alpha) for labels in partitions] for alpha in alphas])
    joint = logsumexp(log_prior + np.log(weights)[:, None], axis=0) + evidence
    p = np.exp(joint - logsumexp(joint))
    return np.bincount(partitions.max(axis=1), weights=p, minlength=5)


@pytest.mark.interpreted(False)
@pytest.mark.parametrize("by_nuts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sampling_matches_enumeration(by_nuts):
    # Gamma(2, 1), on a grid.
    """Rows of a dask array through pm.sample, alpha drawn with the clusters or by NUTS."""
    alphas = np.linspace(0.005, 20.0, 2_000)
    p = exact_n_clusters(alphas, alphas * np.exp(-alphas))
    with dask.config.set(scheduler="synchronous"), pm.Model():
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        if by_nuts:
            # A second one that depends on it, so that it has no closed form.
            pm.Potential("nothing", 0.0 * alpha)
        dp.DPMixture("y", alpha, BASE, observed=IN_CHUNKS)
        options = {"scanned": 2, "births": 2, "carvings": 2}
        idata = pm.sample(draws=1_200, tune=200, chains=1, dpmixture={"chunks": options}, **RUN)
    n_clusters = idata["posterior"]["y_n_clusters"].to_numpy().ravel()
    import arviz as az

    for k in range(1, 6):
        is_k = (n_clusters == k).astype(float)
        effective = float(az.ess(is_k[None, :])) if np.ptp(is_k) else 500.0
        error = np.sqrt(p[k - 1] * (1 - p[k - 1]) / effective)
        assert abs(is_k.mean() - p[k - 1]) < 4.0 * error + 1e-3, k


def test_draws_depend_on_seed_and_chunks_alone():
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler), pm.Model():
            dp.DPMixture(
                "y", pm.Gamma("alpha", 1.0, 1.0), observed=da.from_array(three_groups(600)[0], chunks=150)
            )
            found.append(pm.sample(draws=10, tune=5, chains=2, cores=1, **RUN))
    for group in ("posterior", "y_clusters"):
        xr.testing.assert_identical(*(idata[group].dataset.drop_attrs() for idata in found))


def test_finds_the_groups(sampled):
    idata, array, label = sampled
    labels = dp.chunked_labels(idata, "y", array)
    assert labels.dims == ("chain", "draw", "y_row")
    for own in labels.compute().to_numpy()[:, 0]:
        pairs = pd.crosstab(own, label)
        assert pairs.max(axis=0).sum() > 2_970


def test_labels_are_those_of_the_sums_whatever_the_chunks(sampled):
    idata, array, _ = sampled
    labels = dp.chunked_labels(idata, "y", array, draws=4)
    again = dp.chunked_labels(idata, "y", array.rechunk((700, 2)), draws=4)
    np.testing.assert_array_equal(labels, again)
    assert labels["draw"].to_numpy().tolist() == [7, 14, 21, 29]
    clusters = idata["y_clusters"].dataset.sel(draw=labels["draw"])
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=array)
    partition = model["y_n_clusters"].owner.op.source.partition
    for c, d in np.ndindex(2, 4):
        own = np.unique(labels[c, d].to_numpy(), return_inverse=True)[1]
        chunked.begin_at(partition, chunked.sums_of(partition, array.compute(), own), own)
        kept = from_dataset(clusters, c, d).sums
        # The second column is the error of the others.
        first, second = (
            np.delete(sums[np.lexsort(sums[:, [2, 0]].T)], 1, axis=1) for sums in (kept, partition.sums)
        )
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6)


def test_the_best_draw_is_one_of_all_chains(sampled):
    idata, array, _ = sampled
    best = dp.chunked_labels(idata, "y", array, draws="best")
    assert best.shape == (1, 1, 3_000)
    log_joint = idata["sample_stats"]["y_log_joint"]
    assert log_joint.sel(chain=best["chain"], draw=best["draw"]).item() == log_joint.max().item()
    chain = dp.chunked_labels(idata, "y", array, draws=30).sel(chain=best["chain"], draw=best["draw"])
    np.testing.assert_array_equal(best, chain)
    with pytest.raises(ValueError, match="best"):
        dp.chunked_labels(idata, "y", array, draws="worst")


def test_memberships_are_averages_over_draws(sampled):
    idata, array, _ = sampled
    members = dp.chunked_membership(idata, "y", array, draws=5)
    probability, reference = members["probability"].to_numpy(), members["reference"].to_numpy()
    assert members["probability"].dims == ("y_row", "cluster")
    assert members["probability"].chunks[0] == array.chunks[0]
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    # The clustering is that of the best draw, with the largest cluster first.
    best = dp.chunked_labels(idata, "y", array, draws="best").to_numpy()[0, 0]
    np.testing.assert_array_equal(first_rows(reference), first_rows(best))
    np.testing.assert_array_equal(np.bincount(reference), members["size"])
    assert np.all(np.diff(members["size"]) <= 0)
    # By a loop over draws, clusters and clusters of the reference.
    wanted = np.zeros_like(probability)
    labels = dp.chunked_labels(idata, "y", array, draws=5).to_numpy().reshape(10, -1)
    for own in labels:
        own = np.unique(own, return_inverse=True)[1]
        wanted += exact.shares_of_reference(own, reference)[own] / 10
    np.testing.assert_allclose(probability, wanted, atol=1e-12)
    assert np.mean(probability.argmax(axis=1) == reference) > 0.97
    with pytest.raises(ValueError, match=r"draws must be at most 30, .* got 31"):
        dp.chunked_membership(idata, "y", array, draws=31)
    with pytest.raises(TypeError, match="draws must be an integer"):
        dp.chunked_membership(idata, "y", array, draws="best")
    for others in (array[::-1], array + 4.0, array[:, ::-1]):
        with pytest.raises(ValueError, match="observed must have the rows of y in the same order"):
            dp.chunked_membership(idata, "y", others)


def test_memberships_are_those_of_the_rows_that_were_simulated():
    """A twentieth of the rows lie between two clusters, and do not make the others uncertain."""
    rng = np.random.default_rng(6)
    label = (rng.random(4_000) < 0.3).astype(int)
    rows = rng.standard_normal((4_000, 2)) + 3.5 * label[:, None] * [1.0, 0.0]
    array = da.from_array(rows, chunks=(1_000, 2))
    with pm.Model():
        dp.DPMixture("y", 0.1, dp.NormalInverseWishart(rows.mean(axis=0), 0.01, 4.0, np.eye(2)), observed=array)
        idata = pm.sample(draws=40, tune=20, chains=1, cores=1, **RUN)
    members = dp.chunked_membership(idata, "y", array, draws=40)
    # The log odds of the second cluster, for the densities that the rows were drawn from.
    second = 1.0 / (1.0 + np.exp(np.log(0.7 / 0.3) - 3.5 * rows[:, 0] + 0.5 * 3.5**2))
    found = members["probability"].to_numpy()[:, 1]
    assert members["size"].to_numpy()[1] == pytest.approx(1_200, abs=100)
    assert np.mean(np.abs(found - second)) < 0.02
    assert np.mean(np.abs(second - 0.5) < 0.4) > 0.04
    certain = np.abs(second - 0.5) > 0.49999
    assert np.mean(np.abs(found - second)[certain]) < 0.002
    assert np.mean((found > 0.5) == (second > 0.5)) > 0.98


def test_columns_in_another_order_are_refused():
    frame = dd.from_pandas(
        pd.DataFrame({"u": np.cos(np.arange(40.0)), "v": np.sin(np.arange(40.0))}), npartitions=2
    )
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=frame)
        idata = pm.sample(draws=5, tune=5, chains=1, cores=1, **RUN)
    assert dp.chunked_labels(idata, "y", frame).shape == (1, 1, 40)
    with pytest.raises(ValueError, match="in the same order, u, v, got v, u"):
        dp.chunked_labels(idata, "y", frame[["v", "u"]])


def test_some_columns_of_files(tmp_path):
    """Dask reads several files at once where only some of the columns are asked for."""
    frame = pd.DataFrame({"u": np.arange(600.0), "v": np.sin(np.arange(600.0))})
    for k in range(3):
        frame.iloc[200 * k : 200 * (k + 1)].to_parquet(tmp_path / f"{k}.parquet")
    found = dd.read_parquet(tmp_path)
    assert found["v"].npartitions == 3
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=found["v"])
        idata = pm.sample(draws=5, tune=5, chains=1, cores=1, **RUN)
    assert dp.density(idata, "y", [0.5], random_seed=1).attrs["columns"] == ["v"]
    labels = dp.chunked_labels(idata, "y", found["v"])
    assert labels.sizes["y_row"] == 600


def test_statistics_are_those_of_partitions(sampled):
    idata, array, _ = sampled
    statistics = idata["sample_stats"].dataset
    assert {"y_entropy", "y_log_joint", "y_seconds", "y_rows_per_second"} <= set(statistics)
    assert "y_drawn" not in statistics
    np.testing.assert_array_equal(statistics["y_n_clusters"], idata["posterior"]["y_n_clusters"])
    labels = dp.chunked_labels(idata, "y", array)
    shares = np.unique(labels[0, 0], return_counts=True)[1] / array.shape[0]
    entropy = -(shares * np.log(shares)).sum()
    assert statistics["y_entropy"].to_numpy()[0, -1] == pytest.approx(entropy)


def test_results_survive_a_file(sampled, tmp_path):
    idata, array, _ = sampled
    idata.to_netcdf(tmp_path / "draws.nc")
    read = xr.open_datatree(tmp_path / "draws.nc")
    np.testing.assert_array_equal(dp.chunked_labels(read, "y", array), dp.chunked_labels(idata, "y", array))
    xr.testing.assert_allclose(
        dp.density(read, "y", columns=0, random_seed=1), dp.density(idata, "y", columns=0, random_seed=1)
    )


def test_density_integrates_to_one_and_is_that_of_the_rows(sampled):
    idata, array, _ = sampled
    found = dp.density(idata, "y", columns=0, random_seed=1)
    x, mean = found["x"].to_numpy(), found["mean"].to_numpy()
    assert np.trapezoid(mean, x) == pytest.approx(1.0, abs=0.02)
    assert np.all(found["lower"] <= found["upper"])
    share = np.trapezoid(np.where(x > 3.0, mean, 0.0), x)
    assert share == pytest.approx(float((array[:, 0] > 3.0).mean().compute()), abs=0.02)


def test_components_and_new_rows(sampled):
    idata, _, _ = sampled
    components = dp.component_draws(idata, "y", ragged=True, random_seed=1)
    total = components["weight"].groupby("component_chain").sum() + components["new_weight"].sum("draw").to_numpy()
    np.testing.assert_allclose(total, 30.0)
    large = components["mean"].to_numpy()[components["size"].to_numpy() > 500]
    assert np.abs(large[:, None] - np.array([[0, 0], [6, 0], [0, 6]])).sum(axis=2).min(axis=1).max() < 0.5
    rows = dp.sample_new_rows(idata, "y", 4, random_seed=1)
    assert rows["y"].shape == (2, 30, 4, 2)


@pytest.mark.parametrize("function", [dp.point_partition, dp.summary, dp.co_clustering, dp.partition_diagnostics])
def test_what_needs_labels_says_so(sampled, function):
    with pytest.raises(NotImplementedError, match="in chunks"):
        function(sampled[0], "y")


def test_aligned_components_say_what_there_is(sampled):
    with pytest.raises(NotImplementedError, match="ragged=True"):
        dp.component_draws(sampled[0], "y")


def test_a_dataframe_gives_names_to_columns():
    frame = pd.DataFrame(three_groups(300)[0], columns=["width", "height"])
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=dd.from_pandas(frame, npartitions=3))
        idata = pm.sample(draws=5, tune=5, chains=1, **RUN)
    found = dp.density(idata, "y", columns="height", random_seed=1)
    assert found.attrs["columns"] == ["height"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (None, lambda rng: rng.normal(size=200)),
        (dp.GammaPoisson, lambda rng: rng.poisson(3.0, size=(200, 2))),
        (dp.BetaBernoulli, lambda rng: rng.random((200, 3)) < 0.4),
        (dp.DirichletCategorical, lambda rng: rng.integers(3, size=(200, 2))),
        (dp.DirichletMultinomial, lambda rng: rng.poisson(2.0, size=(200, 4))),
        (dp.SphericalNormalInverseGamma, lambda rng: rng.normal(size=(200, 3))),
    ],
)
def test_families_and_priors(kind, values):
    data = values(np.random.default_rng(2))
    array = da.from_array(data, chunks=(60, *data.shape[1:]))
    with pm.Model():
        dp.MFMixture("y", 1.0, kind, observed=array)
        idata = pm.sample(draws=5, tune=3, chains=1, **RUN)
    labels = dp.chunked_labels(idata, "y", array)
    assert labels.shape == (1, 1, 200)
    n_clusters = idata["posterior"]["y_n_clusters"].to_numpy()[0, -1]
    assert canonical_labels(np.unique(labels[0, 0], return_inverse=True)[1])[1] == n_clusters


def test_missing_entries_integrate_out_where_the_family_can():
    rows = three_groups(300)[0]
    rows[250, 1] = np.nan
    array = da.from_array(rows, chunks=(100, 2))
    base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    with pm.Model():
        dp.DPMixture("y", 1.0, base, observed=array)
        pm.sample(draws=5, tune=5, chains=1, **RUN)
    with pm.Model() as model, pytest.raises(NotImplementedError, match="1 missing entries"):
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart(**NIW), observed=array)
    assert not model.basic_RVs


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    array = da.from_array(three_groups(600)[0], chunks=(200, 2))

    def build():
        with pm.Model() as model:
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=array)
        return model

    whole = dp.ResumableRun(build(), chains=2, tune=6, random_seed=1).sample(20, progressbar=False)
    run = dp.ResumableRun(build(), chains=2, tune=6, random_seed=1)
    run.sample(8, progressbar=False, checkpoint=tmp_path / "run")
    found = dp.ResumableRun.load(tmp_path / "run", build()).sample(12, progressbar=False)
    xr.testing.assert_identical(found["y_clusters"].dataset.drop_attrs(), whole["y_clusters"].dataset.drop_attrs())


def test_chains_are_sampled_in_turn(caplog):
    with pm.Model(), caplog.at_level(logging.INFO, "pymc"):
        dp.DPMixture("y", 1.0, observed=da.from_array(three_groups(300)[0], chunks=(100, 2)))
        idata = pm.sample(draws=5, tune=5, chains=2, cores=2, **RUN)
    assert idata["posterior"].sizes["chain"] == 2
    assert "one after the other" in caplog.text


COLUMNS = {
    "NormalInverseGamma": lambda rng: rng.normal(size=(80, 3)) + 4.0 * rng.integers(2, size=(80, 1)),
    "NormalInverseWishart": lambda rng: rng.normal(size=(80, 2)) + 4.0 * rng.integers(2, size=(80, 1)),
    "BetaBernoulli": lambda rng: (rng.random((80, 4)) < 0.3).astype(float),
    "DirichletCategorical": lambda rng: rng.integers(3, size=(80, 2)).astype(float),
    "GammaPoisson": lambda rng: rng.poisson(3.0, size=(80, 4)).astype(float),
}


@pytest.mark.parametrize("family", COLUMNS)
def test_densities_of_some_columns_are_those_of_rows_in_memory(family):
    rows = COLUMNS[family](np.random.default_rng(3))
    base = getattr(dp, family).from_data(rows)
    array = da.from_array(rows, chunks=(30, rows.shape[1]))
    with pm.Model():
        dp.DPMixture("y", 0.5, base, observed=array)
        idata = pm.sample(draws=12, tune=5, chains=1, **RUN)
    # The same partitions, as labels of rows in memory.
    labels = dp.chunked_labels(idata, "y", array, draws=12).to_numpy()
    with pm.Model():
        dp.DPMixture("y", 0.5, base, observed=rows)
        others = pm.sample(draws=12, tune=5, chains=1, **RUN)
    drawn = others["posterior"].dataset["y_labels"]
    drawn.values[:] = [[canonical_labels(np.unique(own, return_inverse=True)[1])[0] for own in labels[0]]]
    for columns in (0, [0, 1]):
        x = np.unique(rows[:6, : np.size(columns)], axis=0)
        x = x.ravel() if columns == 0 else x
        found, wanted = (
            dp.density(own, "y", x, columns=columns, random_seed=1)["mean"] for own in (idata, others)
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
    gaps = rows[:3].copy()
    gaps[:, 1] = np.nan
    kind = "probability" if family == "DirichletCategorical" else "mean"
    found, wanted = (dp.predict(own, "y", gaps, of=1, kind=kind, random_seed=1)["mean"] for own in (idata, others))
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    found, wanted = (dp.log_density(own, "y", gaps)["row"] for own in (idata, others))
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    assert dp.component_draws(idata, "y", ragged=True, random_seed=1).sizes["component"] > 11
    assert dp.sample_new_rows(idata, "y", 3, random_seed=1)["y"].shape == (1, 12, 3, rows.shape[1])


def test_other_variables_on_the_number_of_clusters_are_refused():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS)
        pm.Normal("q", model["y_n_clusters"] * 1.0, 1.0, observed=20.0)
        with pytest.raises(NotImplementedError, match="q depends on y_n_clusters"):
            pm.sample(draws=2, tune=2, chains=1, **RUN)


@pytest.mark.interpreted(False)
def test_generic_steps_and_optimisation_are_refused():
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), BASE, observed=IN_CHUNKS)
        with pytest.raises(NotImplementedError, match="step methods"):
            pm.sample(draws=2, tune=2, chains=1, step=[pm.Metropolis([model["y_n_clusters"]])], **RUN)
        with pytest.raises(ValueError, match="find_MAP"):
            pm.find_MAP(progressbar=False)


def test_chunks_of_another_length_are_named():
    array = da.ones((60, 2), chunks=(20, 2)).map_blocks(
        lambda own: own[:13], dtype=float, chunks=((20,) * 3, (2,))
    )
    with pm.Model(), pytest.raises(RuntimeError, match=r"a chunk must have 20 rows, .* got 13"):
        dp.DPMixture("y", 1.0, BASE, observed=array)


def test_chunks_that_change_later_end_the_run():
    lengths = [20]
    array = da.ones((60, 2), chunks=(20, 2)).map_blocks(lambda own: own[: lengths[0]], dtype=float)
    with dask.config.set(scheduler="synchronous"), pm.Model():
        dp.DPMixture("y", 1.0, BASE, observed=array)
        lengths[0] = 13
        with pytest.raises(RuntimeError, match="a chunk must have 20 rows"):
            pm.sample(draws=2, tune=0, chains=1, **RUN)


def test_masked_entries_are_missing():
    rows = da.ma.masked_greater(da.from_array(three_groups(90)[0], chunks=(30, 2)), 1.0)
    with pm.Model(), pytest.raises(NotImplementedError, match="missing entries"):
        dp.DPMixture("y", 1.0, BASE, observed=rows)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=rows)
    assert model["y_n_clusters"].owner.op.source.partition.family.takes_missing


def test_a_model_in_a_model():
    with pm.Model(), pm.Model(name="sub"):
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS)
        idata = pm.sample(draws=3, tune=2, chains=1, **RUN)
    assert dp.chunked_labels(idata, "sub::y", IN_CHUNKS).shape == (1, 1, 5)
    assert dp.density(idata, "sub::y", FIVE, random_seed=1)["mean"].shape == (5,)


def test_flat_priors_of_the_base_measure():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(pm.Flat("mu"), 0.1, 2.0, 1.0), observed=IN_CHUNKS)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_xarray_around_dask_is_in_chunks():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=xr.DataArray(IN_CHUNKS, dims=("row", "column")))
    assert "y_n_clusters" in model.named_vars
    assert "y_labels" not in model.named_vars


def test_a_chain_chosen_by_name(sampled):
    idata, array, _ = sampled
    one = dp.chunked_labels(idata.sel(chain=1), "y", array)
    assert one.dims == ("chain", "draw", "y_row")
    np.testing.assert_array_equal(one, dp.chunked_labels(idata, "y", array).sel(chain=[1]))
    for some in (idata.sel(chain=1), idata.sel(draw=3)):
        assert dp.chunked_labels(some, "y", array, draws="best").sizes["draw"] == 1
        assert dp.chunked_membership(some, "y", array)["size"].sum() > 0


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("gaps", [False, True])
def test_known_variances_of_one_number(columns, gaps):
    """Rows are values, precisions and constants there, of which the values alone have an origin."""
    rows = np.random.default_rng(1).normal(3.0, 2.0, size=(40, columns))
    rows[5 : 8 if gaps else 5, 0] = np.nan
    labels, found = np.arange(40) % 3, []
    for data in (rows, da.from_array(rows, chunks=(7, columns))):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, dp.NormalKnownVariance(pm.Normal("mu"), 4.0, 1.5), observed=data)
        if data is not rows:
            at_labels(model, np.column_stack([rows, np.full(rows.shape, 1.5)]), labels)
        point = {"mu": np.array(0.4)} | ({"y_labels": labels} if data is rows else {"y_n_clusters": 3})
        found.append(np.append(model.compile_dlogp([model["mu"]])(point), model.compile_logp()(point)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_a_family_whose_parts_would_have_origins_of_their_own_is_refused(monkeypatch):
    normal = dp.NormalInverseGamma.family
    own = replace(normal, represent=lambda params, values: normal.represent(params, values), incomplete=None)
    monkeypatch.setattr(dp.NormalInverseGamma, "family", own)
    with pm.Model(), pytest.raises(NotImplementedError, match="chunks would have origins of their own"):
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=IN_CHUNKS)


def test_steps_of_rows_in_memory_are_refused():
    """They would see no labels, and leave what they are to draw where it is."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, BASE, observed=IN_CHUNKS)
        with pytest.raises(TypeError, match="of a mixture of rows in chunks"):
            dp.ConcentrationGibbs([alpha])
        with pytest.raises(TypeError, match="y_n_clusters is the number of clusters of rows in chunks"):
            dp.DPMixtureStep([model["y_n_clusters"]])


def test_options_of_the_other_kind_are_named():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS)
    with pytest.raises(ValueError, match="leader_sweeps are options for labels of rows in memory"):
        pm.sample(draws=2, tune=2, chains=1, dpmixture={"leader_sweeps": 1}, model=model, **RUN)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=FIVE)
    with pytest.raises(ValueError, match="chunks are options for rows of a dask array"):
        pm.sample(draws=2, tune=2, chains=1, dpmixture={"chunks": {"scanned": 3}}, model=model, **RUN)


def test_levels_that_the_looked_at_rows_lack_are_explained(monkeypatch):
    from pymc_dpgmm.models import chunked_mixture

    monkeypatch.setattr(chunked_mixture, "ROWS_LOOKED_AT", 10)
    codes = np.zeros((100, 1))
    codes[::2] = 1.0
    seen = np.random.default_rng(0).choice(100, size=10, replace=False)
    codes[np.setdiff1d(np.arange(100), seen)[40]] = 2.0
    with pm.Model(), pytest.raises(ValueError, match="codes") as raised:
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=da.from_array(codes, chunks=(50, 1)))
    assert "made from 10 of the rows" in raised.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:The effect of Potentials")
def test_prior_draws_are_refused():
    with pm.Model():
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS)
        with pytest.raises(NotImplementedError, match="some of the rows"):
            pm.sample_prior_predictive(draws=2)


BAD = {
    "columns": (lambda: da.ones((10, 4), chunks=(5, 2)), ValueError, "rechunk"),
    "unknown": (lambda: da.ones((10, 2), chunks=(5, 2))[da.ones(10, chunks=5) > 0], ValueError, "compute_chunk"),
    "infinite": (lambda: da.where(da.arange(10, chunks=5) == 8, np.inf, 1.0), ValueError, "rows 5 to 9"),
    "text": (lambda: da.from_array(np.array(["a", "b"])), TypeError, "real numbers"),
    "three": (lambda: da.ones((4, 2, 2)), ValueError, "3 dimensions"),
    "empty": (lambda: da.ones((0, 2)), ValueError, "at least one row"),
    "frame": (
        lambda: dd.from_pandas(pd.DataFrame({"a": [1.0, 2], "b": ["x", "y"]}), npartitions=1),
        TypeError,
        "b",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_named(case):
    make, error, words = BAD[case]
    with pm.Model() as model, pytest.raises(error, match=words):
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=make())
    assert not model.basic_RVs
    assert not model.potentials


@pytest.mark.parametrize(
    "argument",
    [
        {"offset": 1.0},
        {"unit": [0, 0, 1, 1, 2]},
        {"known_labels": [0, 1, -1, -1, -1]},
        {"must_link": [0, 0, -1, -1, -1]},
        {"dims": ("row", "column")},
        {"shape": (5, 2)},
        {"impute": True},
        {"initval": [0, 0, 0, 0, 0]},
        {"power": {"y": 0.5}},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_is_not_supported_is_refused(argument):
    with pm.Model() as model, pytest.raises(NotImplementedError, match=f"{next(iter(argument))}.*dask"):
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS, **argument)
    assert not model.basic_RVs


def test_groups_views_and_what_differs_between_rows_are_refused():
    with pm.Model(), pytest.raises(NotImplementedError, match="group"):
        dp.HDPMixture("y", 1.0, 1.0, BASE, observed=IN_CHUNKS, group=[0, 0, 0, 1, 1])
    with pm.Model(), pytest.raises(NotImplementedError, match="views"):
        dp.DPMixture("y", 1.0, {"a": BASE}, observed={"a": IN_CHUNKS})
    exposure = dp.GammaPoisson(1.0, 1.0, exposure=np.arange(1.0, 6.0))
    with pm.Model(), pytest.raises(NotImplementedError, match="exposure"):
        dp.DPMixture("y", 1.0, exposure, observed=da.ones(5))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scanned": -1}, "scanned"),
        ({"carvings": -1}, "carvings"),
        ({"scanned": 0, "births": 0}, "both be 0"),
        ({"rows": 3}, "unknown options"),
    ],
)
def test_bad_options_are_named(options, words):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=IN_CHUNKS)
    with pytest.raises(ValueError, match=words):
        pm.sample(draws=2, tune=2, chains=1, dpmixture={"chunks": options}, model=model, **RUN)


def test_labels_of_other_data_are_refused(sampled):
    idata, array, _ = sampled
    with pytest.raises(ValueError, match="3000 rows"):
        dp.chunked_labels(idata, "y", array[:100])
    with pytest.raises(TypeError, match="dask"):
        dp.chunked_labels(idata, "y", np.ones((3_000, 2)))
    with pytest.raises(ValueError, match="draws must be at most 30"):
        dp.chunked_labels(idata, "y", array, draws=31)
    with pytest.raises(ValueError, match="2 columns"):
        dp.chunked_labels(idata, "y", array[:, :1])
    with pytest.raises(ValueError, match="z_clusters"):
        dp.chunked_labels(idata, "z", array)


def test_dask_is_imported_where_it_is_used_only():
    code = "import sys, pymc_dpgmm; assert 'dask' not in sys.modules and 'distributed' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_replicates_and_log_likelihoods_of_rows_in_chunks_are_refused():
    """PyMC would return empty groups: its models have no such rows."""
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=da.from_array(np.arange(12.0), chunks=6))
        idata = pm.sample(5, tune=5, chains=1, cores=1, progressbar=False, compute_convergence_checks=False)
        for function in (pm.sample_posterior_predictive, pm.compute_log_likelihood):
            with pytest.raises(
                NotImplementedError, match=r"rows behind y_n_clusters are in chunks.*sample_new_rows"
            ):
                function(idata, progressbar=False)


@pytest.mark.parametrize("function", [dp.predict, dp.log_density])
def test_groups_that_rows_in_chunks_do_not_have_are_refused(sampled, function):
    idata, _, _ = sampled
    with pytest.raises(ValueError, match=r"the rows of y are in no groups: leave out group='a'"):
        function(idata, "y", np.zeros((1, 2)), group="a")
