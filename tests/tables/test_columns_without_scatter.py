"""Columns in which clusters have no scatter of their own: what the default base measure leaves out, and says."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled
from sklearn.metrics import adjusted_rand_score

import pymc_dpgmm as dp
from pymc_dpgmm.families.contract.defaults import columns_without_scatter

N = 90
GROUPS = np.repeat(np.arange(3), N // 3)
RNG = np.random.default_rng(0)
ROWS = np.array([[0.0, 0.0, 0.0], [7.0, 0.0, 0.0], [0.0, 7.0, 0.0]])[GROUPS] + RNG.normal(size=(N, 3))
X, Y, Z = ROWS.T
RARE = (np.arange(N) == 17).astype(float)
LEFT_OUT = pytest.mark.filterwarnings("ignore:columns of observed are left out:UserWarning")

# A column beside the three, and the columns that it is a combination of; nothing if almost all rows agree.
ADDED = {
    "a constant": (np.full(N, 3.0), ()),
    "a constant up to rounding": (np.full(N, 0.3) + RNG.integers(2, size=N) * 2.0**-54, ()),
    "the first again": (X, (0,)),
    "2 x + 1": (2.0 * X + 1.0, (0,)),
    "a sum": (X + Y, (0, 1)),
    "a difference, far away": (1e6 + 1e-3 * (Y - 3.0 * Z), (1, 2)),
    "rounded to tenths": (X.round(1), (0,)),
    "rounded to whole numbers": (X.round(), (0,)),
    "one 1 and 89 zeros": (RARE, ()),
    "four numbers and 86 zeros": (np.where(np.arange(N) < 4, X, 0.0), ()),
}
KEPT = {
    "repeated with an error of a third": X + 0.3 * RNG.normal(size=N),
    # A small share of the variance may be what tells clusters apart.
    "repeated with an error of a hundredth": X + 0.01 * RNG.normal(size=N),
    "five ones": (np.arange(N) % 18 == 0).astype(float),
    "the group, as a number": GROUPS.astype(float),
    "counts": RNG.poisson(1.0, size=N).astype(float),
    "noise": RNG.normal(size=N),
}


def found(*columns, full=True):
    return columns_without_scatter(np.column_stack(columns), full)


@pytest.mark.parametrize("case", ADDED)
def test_columns_without_scatter_are_found(case):
    """Whatever the units and the origins of columns are, and only where combinations of columns matter."""
    added, of = ADDED[case]
    why = found(ROWS, added)
    assert list(why) == [3]
    assert why[3].of == of
    moved = found(np.column_stack([ROWS, added]) * [1e-6, 3.0, 1e9, 0.5] + [1.0, 0.0, -1e9, 0.25])
    assert {j: own.of for j, own in moved.items()} == {3: of}
    assert list(found(ROWS, added, full=False)) == ([] if of else [3])
    with_gaps = ROWS.copy()
    with_gaps[::11, 1] = np.nan
    # A column with gaps is left out before one without.
    assert list(found(with_gaps, added)) == ([1] if 1 in of else [3])


@pytest.mark.parametrize("case", KEPT)
def test_other_columns_are_kept(case):
    assert found(ROWS, KEPT[case]) == {}


def test_tables_of_which_nothing_can_be_told():
    """Few rows fit any combination, and where no column would remain, all do."""
    rng = np.random.default_rng(1)
    for n in (1, 2, 5, 12, 20):
        assert found(rng.normal(size=(n, 15))) == {}
    assert found(np.ones((30, 3))) == {}
    assert list(found(np.ones((30, 3)), rng.normal(size=30))) == [0, 1, 2]
    assert list(found(rng.normal(size=(10_000, 2)), np.arange(10_000) < 3)) == [2]
    assert list(found(rng.normal(size=(10_000, 2)), np.arange(10_000) < 10)) == []


def drawn(observed, base=None, **arguments):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=observed, **arguments)
    return sampled.sample(model, 60, tune=200, chains=1, random_seed=1)


@pytest.fixture(scope="module")
def alone():
    """Draws for the three columns by themselves."""
    return drawn(ROWS)


@LEFT_OUT
def test_the_posterior_is_that_of_the_other_columns(alone):
    """Draw by draw; and the groups are found."""
    table = np.column_stack([ROWS, *(added for added, _ in ADDED.values())])
    labels = drawn(table).posterior["y_labels"]
    np.testing.assert_array_equal(labels, alone.posterior["y_labels"])
    found = dp.point_partition(alone, "y")["labels"]
    assert adjusted_rand_score(GROUPS, found) > 0.9


def test_a_warning_says_what_is_left_out_and_why():
    table = pd.DataFrame(ROWS, columns=["x", "y", "z"]).assign(u=3.0, v=2.0 * X + 1.0, w=RARE, s=X + Y)
    message = (
        r"columns of observed are left out of the mixture.*'u', which is 3 in all rows; 'w', which is 0 in all "
        r"rows but 1 of 90; 'v', a linear combination of \['x'\].*'s', a linear combination of \['x', 'y'\]"
    )
    with pm.Model() as model, pytest.warns(UserWarning, match=message):
        dp.DPMixture("m", 1.0, dp.NormalInverseWishart, observed=table)
    assert model.coords["m_feature"] == ("x", "y", "z")
    # Without a family, a rare value is a view of its own.
    with pm.Model() as model, pytest.warns(UserWarning, match="'u', which is 3 in all rows; 'v', a linear"):
        assert list(dp.DPMixture("m", 1.0, observed=table)) == ["numbers", "binary"]
    assert model.coords["m_numbers_feature"] == ("x", "y", "z")
    # Columns that are independent within clusters may repeat each other.
    with pm.Model() as model, pytest.warns(UserWarning, match="are left out"):
        dp.DPMixture("m", 1.0, dp.NormalInverseGamma, observed=table)
    assert model.coords["m_feature"] == ("x", "y", "z", "v", "s")
    # A base measure with numbers, and data that may change, have all columns.
    with pm.Model():
        base = dp.NormalInverseWishart(0.0, 0.1, 9.0, np.ones(7))
        assert dp.DPMixture("m", 1.0, base, observed=table).type.shape == (N, 7)
    with pm.Model() as model:
        data = pm.Data("data", np.column_stack([ROWS, X.round(1)]))
        with pytest.warns(
            UserWarning, match=r"may hide .*: 3, a linear combination of \[0\] but for 0.008 of its"
        ):
            dp.DPMixture("m", 1.0, observed=data)
    assert model.initial_point()["m_within_log__"].shape == (4,)


@LEFT_OUT
@pytest.mark.filterwarnings("ignore:columns of observed may hide:UserWarning")
def test_dims_views_and_shapes():
    with pm.Model(coords={"row": range(N), "column": list("abcd")}) as model:
        table = np.column_stack([ROWS, X])
        dp.DPMixture("y", 1.0, observed=table, dims=("row", "column"), shape=(N, 4))
        dp.DPMixture("v", 1.0, {"p": None, "q": dp.BetaBernoulli}, observed={"p": table, "q": ROWS > 0})
        assert dp.DPMixture("o", 1.0, observed=table, offset=np.zeros((N, 4))).type.shape == (N, 4)
    assert model.named_vars_to_dims["y"] == ("row", "y_feature")
    assert model.coords["y_feature"] == ("a", "b", "c")
    assert model["v_p"].type.shape == (N, 3)


@LEFT_OUT
@pytest.mark.parametrize("kind", [np.asarray, lambda rows: pd.DataFrame(rows, columns=list("abcd"))])
def test_new_rows_may_have_all_columns(alone, kind):
    table = np.column_stack([X + Y, ROWS])[:, [0, 1, 3, 2]]
    results = drawn(kind(table))
    names = results.posterior["y_feature"].to_numpy().tolist()
    assert names == ([0, 1, 2] if kind is np.asarray else ["a", "b", "c"])
    new = table[:4].copy()
    density = dp.log_density(results, "y", kind(new))["row"]
    np.testing.assert_array_equal(density, dp.log_density(results, "y", new[:, :3])["row"])
    new[:, 1] = np.nan
    predicted = dp.predict(results, "y", kind(new))
    assert predicted["column"].to_numpy().tolist() == [str(names[1])]
    with pytest.raises(ValueError, match="the mixture left it out"):
        dp.predict(results, "y", kind(new), of=3 if kind is np.asarray else "d")
    with pytest.raises(ValueError, match="must have shape"):
        dp.log_density(results, "y", np.zeros((2, 5)))


@pytest.mark.parametrize("n", [50, 190])
def test_one_column_of_normal_numbers_is_one_cluster(n):
    """By fixed numbers, 190 rows had a probability of .03."""
    rng = np.random.default_rng(n)
    single = [float((drawn(rng.normal(3.0, 2.0, size=n)).posterior["y_n_clusters"] == 1).mean()) for _ in range(3)]
    assert np.mean(single) > 0.7


def test_a_small_share_of_the_variance_may_tell_clusters_apart():
    """Strata far apart, or rows with -999 in both columns, beside which the groups are a small share."""
    rng, strata = np.random.default_rng(0), np.repeat([0, 1], 60)
    a = rng.normal(size=120) + 400.0 * strata
    b = rng.normal(0.0, 0.3, size=120) + 3.0 * np.tile(np.repeat([0, 1], 30), 2) + 400.0 * strata
    assert found(a, b) == {}
    assert found(np.append(a[:60], [-999.0] * 3), np.append(b[:60], [-999.0] * 3)) == {}


def test_gaps_do_not_make_columns_combinations_or_constants():
    rng = np.random.default_rng(0)
    a, c = rng.normal(size=(2, 60))
    b = np.append(a[:30], rng.normal(8.0, 1.0, size=30))
    assert found(a, b, np.where(np.arange(60) < 30, c, np.nan)) == {}
    few = np.full(60, np.nan)
    few[:5] = [1.0, 7.0, -3.0, 20.0, 5.0]
    assert found(a, few) == {}
