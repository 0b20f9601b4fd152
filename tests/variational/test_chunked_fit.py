"""Variational inference for rows of a dask array: the answer of rows in memory, pass by pass."""

import dask
import dask.array as da
import numpy as np
import pymc as pm
import pytest
from family_cases import CASES

import pymc_dpgmm as dp
from pymc_dpgmm.chunked.dask_rows import DaskRows, Reader
from pymc_dpgmm.families import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.model.chunked_rows import ChunkedRows
from pymc_dpgmm.variational.rows import Components, RowsInMemory

QUIET = {"progressbar": False, "random_seed": 1}
ONE = Threads(1)
# Those without anything given beside the rows.
ALIKE = [case for case, (base, values, d, _) in CASES.items() if base.family.expected and values.shape[1] == d]


def both(case, chunk):
    """The rows of a case in memory and in chunks, with one origin."""
    base, values, d, _ = CASES[case]
    values = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    params = base.numbers(d)
    _, origin = base.family.represent(params, values)
    rows = DaskRows(da.from_array(values, chunks=(chunk, -1)))
    rows.read_with(Reader(base), values.shape[1])
    view = View(base.family, params, values, origin=origin)
    return RowsInMemory([view]), ChunkedRows(rows, view._replace(values=np.empty((0, values.shape[1]))))


@pytest.mark.parametrize("case", CASES)
def test_parts_of_the_rows_about_one_origin_are_those_of_all_rows(case):
    """Whatever the form is that a family makes of rows."""
    base, values, d, _ = CASES[case]
    params = base.numbers(d)
    for family in (base.family, base.family.incomplete):
        if family is None:
            continue
        rows, origin = family.represent(params, values)
        if origin is None:
            continue
        parts = [family.represent(params, part, origin) for part in (values[:3], values[3:])]
        np.testing.assert_allclose(np.concatenate([part for part, _ in parts]), rows, rtol=1e-12, atol=1e-12)
        assert all(own is origin for _, own in parts)


def state_of(rows):
    """Sums and log weights of three components."""
    sums = rows.of_single(np.array([0, rows.n // 2, rows.n - 1]))
    return sums, np.log([0.5, 0.3, 0.2])


def assert_equal_sums(found, wanted):
    np.testing.assert_allclose(found.sizes, wanted.sizes, rtol=1e-12, atol=1e-12)
    for own, other in zip(found.views, wanted.views, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ALIKE)
def test_a_pass_over_chunks_is_a_pass_over_all_rows(case):
    here, there = both(case, 3)
    source = state_of(here)
    with dask.config.set(scheduler="synchronous"):
        (found, entropy), (wanted, expected) = (rows.respond(*source, ONE) for rows in (there, here))
        assert_equal_sums(found, wanted)
        assert entropy == pytest.approx(expected, rel=1e-10, abs=1e-12)
        np.testing.assert_allclose(there.log_evidences(found), here.log_evidences(wanted), rtol=1e-10)
        pairs = np.array([0, 0, 1]), np.array([1, 2, 2])
        np.testing.assert_allclose(
            there.lost_entropies(*source, *pairs), here.lost_entropies(*source, *pairs), rtol=1e-9, atol=1e-12
        )
        own = np.concatenate([block.T.copy() for _, block in here.blocks_of_responsibilities(*source)])
        np.testing.assert_allclose(there.responsibilities(*source).compute(), own, rtol=1e-10)
        # All members are looked at where they are few.
        groups = [
            [members.n for members in rows.members(*source, wanted.sizes, 4_000, np.random.default_rng(0))]
            for rows in (here, there)
        ]
        assert groups[0] == groups[1]


def test_draws_follow_the_responsibilities():
    here, there = both("niw", 4)
    source = state_of(here)
    with dask.config.set(scheduler="synchronous"):
        sums = there.drawn_sums(*source, 4_000, np.random.default_rng(2))
    sizes = np.array([own[:, 0].sum() for own in sums])
    assert np.all(sizes == here.n)
    own = np.concatenate([block.T.copy() for _, block in here.blocks_of_responsibilities(*source)])
    # Numbers of clusters, against labels drawn by other code.
    rng = np.random.default_rng(3)
    labels = np.array([[rng.choice(3, p=p) for p in own] for _ in range(4_000)])
    wanted = np.array([len(np.unique(row)) for row in labels])
    found = np.array([len(own) for own in sums])
    error = np.sqrt((wanted.var() + found.var()) / 4_000) + 1e-12
    assert abs(wanted.mean() - found.mean()) < 4.0 * error
    squares = np.mean([np.sum(own[:, 0] ** 2) for own in sums])
    assert squares == pytest.approx(np.mean([np.sum(np.bincount(row) ** 2) for row in labels]), rel=0.02)


def test_members_are_chosen_with_equal_probabilities():
    here, there = both("niw", 4)
    source = state_of(here)
    sizes = here.respond(*source, ONE)[0].sizes
    rng = np.random.default_rng(4)
    with dask.config.set(scheduler="synchronous"):
        found = np.mean([[m.n for m in there.members(*source, sizes, 2, rng)] for _ in range(500)], axis=0)
    wanted = np.array([m.n for m in here.members(*source, sizes, 100, rng)]) * 2.0 / np.maximum(sizes, 2.0)
    np.testing.assert_allclose(found, wanted, atol=4.0 * np.sqrt(wanted.max() / 500))


def three_clusters(n=9_000):
    rng = np.random.default_rng(5)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def fitted(observed, rows, mixture=dp.DPMixture, arguments=(), **options):
    with pm.Model():
        alpha = arguments or (pm.Gamma("alpha", 1.0, 1.0),)
        mixture("y", *alpha, base=dp.NormalInverseWishart.from_data(rows), observed=observed)
        return dp.fit(n_starts=2, **QUIET, **options)


@pytest.mark.parametrize(
    ("mixture", "arguments"),
    [(dp.DPMixture, ()), (dp.PYMixture, (0.5, 0.3)), (dp.FiniteMixture, (1.0, 5))],
    ids=["process", "pitman-yor", "finite"],
)
def test_fit_is_that_of_rows_in_memory(mixture, arguments):
    rows = three_clusters()
    array = da.from_array(rows, chunks=(2_000, 2))
    ours, theirs = (fitted(own, rows, mixture, arguments) for own in (array, rows))
    assert ours.n_components == theirs.n_components == 3
    assert ours.bounds[0] == pytest.approx(theirs.bounds[0], rel=1e-7)
    np.testing.assert_allclose(np.sort(ours.sizes)[-3:], np.sort(theirs.sizes)[-3:], rtol=1e-3)
    r = ours.responsibilities()
    assert r.chunks[0] == array.chunks[0]
    np.testing.assert_allclose(r.sum(axis=0).compute(), ours.sizes, rtol=1e-3, atol=0.1)
    assert np.diff(ours.elbo).min() > -1e-6 * abs(ours.elbo[-1])


def test_draws_take_the_functions_of_results():
    rows = three_clusters()
    fit = fitted(da.from_array(rows, chunks=(3_000, 2)), rows)
    idata = fit.to_datatree(draws=30, random_seed=3)
    assert idata["posterior"].dataset["y_n_clusters"].to_numpy().min() == 3
    shape, rate = fit.alpha
    assert idata["posterior"].dataset["alpha"].mean() == pytest.approx(shape / rate, rel=0.5)
    drawn = dp.component_draws(idata, "y", ragged=True, random_seed=1)
    assert drawn["size"].to_numpy().reshape(30, -1).sum(axis=1).tolist() == [9_000] * 30
    points = np.array([[0.0, 0.0], [3.0, 3.0], [30.0, 30.0]])
    density = dp.density(idata, "y", points)["mean"].to_numpy()
    assert density[0] > 10.0 * density[1] > 10.0 * density[2]
    with pytest.raises(ValueError, match="responsibilities"):
        dp.chunked_labels(idata, "y", da.from_array(rows, chunks=(3_000, 2)))
    assert "pm.sample()" in repr(fit)


def test_same_seed_same_answer_on_any_scheduler():
    rows = three_clusters()
    array = da.from_array(rows, chunks=(1_700, 2))
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(fitted(array, rows))
    np.testing.assert_array_equal(found[0].elbo, found[1].elbo)


def test_hyperparameters_are_maximised_as_in_memory():
    rows = three_clusters()

    def best(observed):
        with pm.Model():
            kappa = pm.Gamma("kappa", 2.0, 2.0)
            dp.DPMixture("y", 1.0, dp.NormalInverseWishart(0.0, kappa, 4.0, np.eye(2)), observed=observed)
            return dp.fit(maximize="kappa", n_starts=1, **QUIET)

    ours, theirs = best(da.from_array(rows, chunks=(4_000, 2))), best(rows)
    assert ours.point["kappa"] == pytest.approx(theirs.point["kappa"], rel=1e-4)
    assert ours.bounds[0] == pytest.approx(theirs.bounds[0], rel=1e-8)


def test_few_rows_and_one_column():
    rows = dp.datasets.load_galaxies()
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=da.from_array(np.asarray(rows), chunks=30))
        fit = dp.fit(n_starts=2, **QUIET)
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma.from_data(np.asarray(rows)), observed=np.asarray(rows))
        other = dp.fit(n_starts=2, **QUIET)
    assert fit.bounds[0] == pytest.approx(other.bounds[0], abs=1.0)


def test_counts_with_totals_beside_them():
    rng = np.random.default_rng(6)
    rates = np.array([[8.0, 1.0, 1.0], [1.0, 1.0, 8.0]])
    rows = rng.poisson(rates[rng.integers(2, size=300)])
    bounds = []
    for observed in (rows, da.from_array(rows, chunks=(70, 3))):
        with pm.Model():
            dp.DPMixture("y", 1.0, dp.DirichletMultinomial(np.ones(3)), observed=observed)
            bounds.append(dp.fit(n_starts=2, **QUIET).bounds[0])
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


@pytest.mark.interpreted
def test_what_needs_labels_is_refused_in_words():
    rows = three_clusters()
    fit = fitted(da.from_array(rows, chunks=(5_000, 2)), rows)
    with pytest.raises(NotImplementedError, match="searches for starting clusters"):
        fit.initvals()
    with pytest.raises(NotImplementedError, match="a random sample of the rows"):
        fit.check()
    with pm.Model():
        dp.MFMixture("y", 1.0, observed=da.from_array(rows, chunks=(5_000, 2)))
        with pytest.raises(TypeError, match="finite mixtures"):
            dp.fit(**QUIET)


def test_sums_of_chunks_do_not_depend_on_how_they_are_united():
    """As of a tree of many chunks."""
    here, there = both("niw", 1)
    source = state_of(here)
    with dask.config.set(scheduler="synchronous"):
        found, _ = there.respond(*source, ONE)
    wanted, _ = here.respond(*source, ONE)
    assert_equal_sums(found, wanted)
    assert isinstance(there, Components)
