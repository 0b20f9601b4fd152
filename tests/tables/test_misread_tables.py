"""Tables in forms that could be misread without a word: the same answer as in the plain form, or an error."""

import collections
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pymc as pm
import pytest
import xarray as xr
from sampled import sample
from scipy.sparse import csr_array

import pymc_dpgmm as dp
from pymc_dpgmm.tables.names import as_text
from pymc_dpgmm.tables.reading import read_entries, read_table

pytestmark = pytest.mark.interpreted

REAL = pd.DataFrame({"x": [0.0, 1.0, 10.0, 11.0], "y": [5.0, 6.0, -5.0, -6.0]})
NIG = dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
LABELS = np.array([0, 0, 1, 1])


def density(base=NIG, observed=REAL, labels=LABELS, coords=None, **arguments):
    """Return the log density of a model with these labels, and no other variables."""
    with pm.Model(coords=coords) as model:
        dp.DPMixture("m", 1.0, base, observed=observed() if callable(observed) else observed, **arguments)
    return float(model.compile_logp()({"m_labels": labels}))


# Columns.


@pytest.mark.parametrize(
    ("entries", "kind"),
    {
        "bools": ([True, False, True], "bool"),
        "numbers": ([1.5, 2.5, 3.5], "real"),
        "dates": ([pd.Timestamp("2024-01-01"), pd.Timestamp("2025-01-01")], "date"),
    }.values(),
)
def test_objects_are_judged_by_all_entries(entries, kind):
    """Not by the first hundred, which may be missing."""
    assert read_table(pd.Series([None] * 120 + entries, dtype=object)).kinds == (kind,)
    assert read_table(pd.DataFrame({"a": pd.Series([None] * 120 + entries, dtype=object)})).kinds == (kind,)


def test_text_and_numbers_in_one_column_are_refused_wherever_they_are():
    mixed = pd.Series(["5"] * 120 + [5] * 120, dtype=object)
    with pytest.raises(TypeError, match="objects such as '5'"):
        dp.DirichletCategorical.from_data(mixed)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-01", "2025-01-01"])),
        pd.Series(pd.to_timedelta([1, None, 1, 2], unit="D")),
        pd.Series(pd.PeriodIndex(["2024-01", None, "2024-01", "2024-02"], freq="M")),
        pd.Series(pd.cut([1.0, np.nan, 1.2, 3.0], [0.0, 2.0, 4.0])).astype("interval"),
        pd.Series(["a", None, "a", 7], dtype=object),
        np.array([1j, np.nan, 1j, 2j]),
    ],
)
def test_entries_without_numbers_are_not_missing(column):
    """They have codes, so that nobody takes them for missing by mistake."""
    table = read_table(column)
    np.testing.assert_array_equal(table.values, [0.0, np.nan, 0.0, 1.0])
    assert len(table.levels[0]) == 2


@pytest.mark.parametrize("text", ["nan", "None", "<NA>"])
def test_missing_entries_that_became_text_are_refused(text):
    array = np.array(["a", text, "b", "a"])
    for read in (
        lambda: read_table(array),
        lambda: density(unit=array),
        lambda: density(known_labels=array.astype("S")),
    ):
        with pytest.raises(ValueError, match=f"text '{text}' in an array of text"):
            read()
    assert read_table(array.astype(object)).levels == (tuple(sorted({"a", "b", text})),)


def test_masks_of_a_list_of_arrays_are_kept():
    rows = [np.ma.array([1.0, 2.0], mask=[False, True]), np.ma.array([3.0, 4.0])]
    np.testing.assert_array_equal(read_table(rows).values, [[1.0, np.nan], [3.0, 4.0]])


def test_masks_of_structured_arrays_are_kept():
    dtype = [("a", float), ("b", int), ("c", "U1")]
    array = np.ma.array(
        [(1.0, 2, "a"), (3.0, 4, "b")], mask=[(False, True, False), (False, False, True)], dtype=dtype
    )
    table = read_table(array)
    np.testing.assert_array_equal(table.values, [[1.0, np.nan, 0.0], [3.0, 4.0, np.nan]])
    assert table.columns == ("a", "b", "c")


def test_dictionaries_of_arrow_may_have_gaps():
    kind = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    table = read_table(pd.Series(pa.array(["a", None, "b"]).dictionary_encode(), dtype=kind))
    np.testing.assert_array_equal(table.values, [0.0, np.nan, 1.0])


def test_levels_with_the_same_text_are_refused():
    column = pd.Series([1, 1, "1", "b"], dtype=object).astype("category")
    with pytest.raises(ValueError, match=r"has the levels \[1, '1'\]"):
        density(dp.DirichletCategorical, column)


def test_names_of_several_levels_name_units():
    of_rows = [("a", 1), ("a", 1), ("b", 1), ("b", 1)]
    x, wanted = REAL["x"], density(observed=REAL["x"], unit=[0, 0, 1, 1], labels=np.array([0, 1]))
    assert density(observed=x, unit=pd.MultiIndex.from_tuples(of_rows), labels=np.array([0, 1])) == wanted
    with pytest.raises(ValueError, match=r"unit must have shape \(4,\), one entry for every row, got \(4, 2\)"):
        density(observed=x, unit=of_rows)


def test_the_largest_integers_are_names():
    known = pd.Series([2**63 + 5, None, 7, None], dtype="UInt64")
    np.testing.assert_array_equal(read_entries(known, "known"), [2**63 + 5, None, 7, None])
    assert read_entries(known.dropna(), "known").tolist() == [2**63 + 5, 7]
    assert np.isfinite(density(known_labels=known))


# Rows.


SHUFFLED = REAL.assign(unit=list("aabb"), w=[0.0, 5.0, 9.0, 13.0]).loc[[2, 0, 3, 1]]


def test_dims_of_data_name_its_rows():
    """Those of pm.Data are known to all arguments."""
    labels, coords = np.array([0, 1]), {"obs": SHUFFLED.index}

    def as_data():
        return pm.Data("d", SHUFFLED["x"], dims="obs")

    wanted = density(observed=SHUFFLED["x"], unit=SHUFFLED["unit"], labels=labels)
    assert density(observed=as_data, unit=SHUFFLED["unit"].sort_index(), labels=labels, coords=coords) == wanted
    known = pd.Series(["a", None, "b", None], index=SHUFFLED.index)
    wanted = density(observed=SHUFFLED["x"], known_labels=known)
    assert density(observed=as_data, known_labels=known.sort_index(), coords=coords) == wanted
    views = density({"v": NIG}, lambda: {"v": as_data()}, known_labels=known.sort_index(), coords=coords)
    assert views == wanted


def test_coordinates_name_rows_that_have_no_names():
    x, w = SHUFFLED["x"].to_numpy(), SHUFFLED["w"]
    wanted = density(observed=x, offset=w.to_numpy())
    assert density(observed=x, offset=w.sort_index(), coords={"obs": [2, 0, 3, 1]}, dims="obs") == wanted
    numbered = w.reset_index(drop=True)
    assert density(observed=x, offset=numbered, coords={"obs": list("wxyz")}, dims="obs") == wanted


def test_coordinates_in_another_order_are_refused_for_names_of_several_levels():
    index = pd.MultiIndex.from_product([["a", "b"], [1, 2]])
    with pm.Model():
        dp.DPMixture("m", 1.0, NIG, observed=pd.Series([0.0, 1.0, 2.0, 3.0], index), dims="obs")
        with pytest.raises(ValueError, match="rows in another order than the coords of the model"):
            dp.DPMixture("k", 1.0, NIG, observed=pd.Series([3.0, 2.0, 1.0, 0.0], index[::-1]), dims="obs")


def test_series_of_dask_are_matched_by_name():
    wanted = density(observed=SHUFFLED["x"], offset=SHUFFLED["w"])
    assert density(observed=SHUFFLED["x"], offset=dd.from_pandas(SHUFFLED["w"], npartitions=1)) == wanted
    known = SHUFFLED["unit"]
    wanted = density(observed=SHUFFLED["x"], known_labels=known)
    assert density(observed=SHUFFLED["x"], known_labels=dd.from_pandas(known, npartitions=1)) == wanted
    assert density(observed=SHUFFLED["x"], offset=da.from_array(SHUFFLED["w"].to_numpy())) == density(
        observed=SHUFFLED["x"], offset=SHUFFLED["w"]
    )


# Columns of arguments.


@pytest.mark.parametrize("offset", [REAL[["x"]], REAL[["y"]]])
def test_one_named_column_is_not_for_all(offset):
    with pytest.raises(ValueError, match=r"columns of offset are not those of observed: it lacks \['[xy]'\]"):
        density(offset=offset)
    assert density(offset=offset.set_axis(["other"], axis=1)) == density(offset=offset.to_numpy())


CITIES = pd.DataFrame({"p": list("abca"), "q": list("uvuu")})
DESIGN = pd.DataFrame({"one": 1.0, "x": [0.0, 1.0, 2.0, 3.0]})


def swapped(values, *names):
    """An array of two numbers, or two by two, in the other order, with its names."""
    for axis in range(np.ndim(values)):
        values = np.flip(values, axis)
    return xr.DataArray(values, dims=("u", "v")[: np.ndim(values)], coords={"u": list(names[::-1])}).assign_coords(
        {"v": list(names[::-1])} if np.ndim(values) == 2 else {}
    )


@pytest.mark.parametrize(
    ("named", "plain", "observed"),
    {
        "series": (
            lambda: dp.NormalInverseGamma(
                pd.Series({"y": 5.0, "x": 0.0}), 1.0, 2.0, pd.Series({"y": 1.0, "x": 3.0})
            ),
            lambda: dp.NormalInverseGamma([0.0, 5.0], 1.0, 2.0, [3.0, 1.0]),
            REAL,
        ),
        "frame": (
            lambda: dp.NormalInverseWishart(
                0.0, 1.0, 4.0, pd.DataFrame([[2, 0.5], [0.5, 1]], ["y", "x"], ["y", "x"])
            ),
            lambda: dp.NormalInverseWishart(0.0, 1.0, 4.0, [[1.0, 0.5], [0.5, 2.0]]),
            REAL,
        ),
        "diagonal": (
            lambda: dp.NormalInverseWishart(
                swapped([0.0, 5.0], "x", "y"), 1.0, 4.0, pd.Series({"y": 2.0, "x": 1.0})
            ),
            lambda: dp.NormalInverseWishart([0.0, 5.0], 1.0, 4.0, [1.0, 2.0]),
            REAL,
        ),
        "made from data": (
            lambda: dp.NormalInverseWishart.from_data(REAL[["y", "x"]]),
            lambda: dp.NormalInverseWishart.from_data(REAL),
            REAL,
        ),
        "view": (
            lambda: {"v": (["y", "x"], dp.NormalInverseGamma.from_data(REAL))},
            lambda: {"v": (["x", "y"], dp.NormalInverseGamma.from_data(REAL))},
            REAL,
        ),
        "levels": (
            lambda: dp.DirichletCategorical(CITIES["q"].value_counts()[["v", "u"]]),
            lambda: dp.DirichletCategorical([3.0, 1.0]),
            CITIES["q"],
        ),
        "codes": (
            lambda: dp.DirichletCategorical(pd.Series({1: 3.0, 0: 1.0})),
            lambda: dp.DirichletCategorical([1.0, 3.0]),
            [1, 1, 0, 1],
        ),
        "numbers of levels": (
            lambda: dp.DirichletCategorical.from_data(CITIES[["q", "p"]]),
            lambda: dp.DirichletCategorical.from_data(CITIES),
            CITIES,
        ),
        "covariates": (
            lambda: dp.LinearRegression(
                pd.Series({"x": 3.0, "one": 0.0}), pd.Series({"x": 2.0, "one": 0.5}), 2.0, 1.0, DESIGN
            ),
            lambda: dp.LinearRegression([0.0, 3.0], [0.5, 2.0], 2.0, 1.0, DESIGN),
            REAL["x"],
        ),
        "chunks": (
            lambda: dp.NormalInverseGamma(pd.Series({"y": 5.0, "x": 0.0}), 1.0, 2.0, 1.0),
            lambda: dp.NormalInverseGamma([0.0, 5.0], 1.0, 2.0, 1.0),
            dd.from_pandas(REAL, npartitions=1),
        ),
    }.values(),
)
def test_names_of_parameters_are_matched_with_the_data(named, plain, observed):
    if hasattr(observed, "npartitions"):
        models = []
        for base in (named, plain):
            with pm.Model() as model:
                dp.DPMixture("m", 1.0, base(), observed=observed)
            models.append(model)
        found = [model.compile_logp()(model.initial_point(random_seed=1)) for model in models]
        assert found[0] == pytest.approx(found[1])
        return
    assert density(named(), observed) == density(plain(), observed)


def test_parameters_of_other_columns_are_refused():
    with pytest.raises(ValueError, match=r"mu of NormalInverseGamma are not those of observed: it lacks \['x'\]"):
        density(dp.NormalInverseGamma(pd.Series({"y": 5.0, "z": 0.0}), 1.0, 2.0, 1.0))


def test_parameters_of_latent_columns_are_matched_with_coordinates():
    def of(mu):
        with pm.Model(coords={"row": range(3), "column": ["x", "y"]}) as model:
            u = dp.DPMixture("u", 1.0, dp.NormalInverseGamma(mu, 1.0, 2.0, 1.0), dims=("row", "column"))
            pm.Normal("z", u, 1.0, observed=np.zeros((3, 2)))
        return model.compile_logp()(model.initial_point(random_seed=1))

    assert of(pd.Series({"y": 5.0, "x": 0.0})) == of([0.0, 5.0])


def test_concentrations_are_matched_with_groups():
    def of(alpha, function):
        with pm.Model() as model:
            function("m", alpha, base=NIG, observed=REAL["x"], group=list("uuvv"))
        return float(model.compile_logp()(model.initial_point(random_seed=1)))

    def hdp(name, alpha, **others):
        return dp.HDPMixture(name, alpha, 1.0, **others)

    def finite(name, alpha, **others):
        return dp.FiniteMixture(name, alpha, 3, **others)

    for function in (hdp, finite):
        assert of(pd.Series({"v": 50.0, "u": 1.0}), function) == of([1.0, 50.0], function)
    with pytest.raises(ValueError, match=r"columns of alpha are not those of the groups: it lacks \['u'\]"):
        of(
            pd.Series({"v": 50.0, "w": 1.0}),
            lambda name, alpha, **others: dp.HDPMixture(name, alpha, 1.0, **others),
        )


@pytest.mark.parametrize(
    "columns", [pd.Index(["x", "y"]), {"y", "x"}, pd.Series(["x", "y"]), REAL.dtypes.keys(), np.array(["x", "y"])]
)
def test_columns_of_a_view_may_come_in_any_container(columns):
    assert density({"v": (columns, NIG)}) == density({"v": (["x", "y"], NIG)})


def test_columns_of_a_view_are_named_once():
    for columns in (["x", "x"], []):
        with pytest.raises(ValueError, match="must be named once each"):
            density({"v": (columns, NIG)})


# New rows.


Z = np.repeat([0, 1], 20)
REFERENCE = Z


@pytest.fixture(scope="module")
def fits():
    """Draws of mixtures: of numbers, of numbers and categories, of columns without text, and of a regression."""
    rng = np.random.default_rng(0)
    dates = np.where(Z == 0, pd.Timestamp("2024-01-01"), pd.Timestamp("2025-01-01"))
    table = pd.DataFrame(
        {
            "h": rng.normal(10.0 * Z, 1.0),
            "w": rng.normal(100.0 + 50.0 * Z, 2.0),
            "k": np.where(Z == 0, "a", "b"),
            "m": pd.Categorical(dates),
        }
    )
    numbers, design = table[["h", "w"]], pd.DataFrame({"one": 1.0, "x": rng.normal(size=40)})
    numbered = table[["h", "w", "k"]].set_axis([0, 1, 2], axis=1)
    drawn = {"table": table}
    for name, bases, observed in (
        ("numbers", dp.NormalInverseGamma, numbers),
        (
            "kinds",
            {"num": (["h", "w"], dp.NormalInverseGamma), "cat": (["k", "m"], dp.DirichletCategorical)},
            table,
        ),
        ("numbered", {"num": ([0, 1], dp.NormalInverseGamma), "cat": (2, dp.DirichletCategorical)}, numbered),
        (
            "regression",
            dp.LinearRegression(0.0, 0.01, 2.0, 0.1, covariates=design),
            design["x"] * 5.0 + 20.0 * Z + rng.normal(0.0, 0.1, 40),
        ),
    ):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, bases, observed=observed)
        drawn[name] = sample(model, 20, tune=20, chains=1, random_seed=1)
    return drawn


def test_categories_of_new_rows_that_are_dates(fits):
    """They are matched with the levels, and those that are no level are refused, not missing."""
    wanted = np.array([0.0, 10.0])

    def mean(frame):
        return dp.predict(fits["kinds"], "y", frame, of="h", random_seed=1)["mean"].to_numpy()

    dates = pd.to_datetime(["2024-01-01", "2025-01-01"])
    for column in (
        dates,
        pd.Categorical(dates),
        dates.astype(object),
        ["2024-01-01 00:00:00", "2025-01-01 00:00:00"],
    ):
        np.testing.assert_allclose(mean(pd.DataFrame({"m": column})), wanted, atol=1.5)
    assert mean(fits["table"].iloc[25][["m"]]) == pytest.approx(10.0, abs=1.5)
    for frame in (
        pd.DataFrame({"m": pd.to_datetime(["2024-01-01", "2023-01-01"])}),
        pd.DataFrame({"k": ["a", "b", 7]}),
        pd.DataFrame({"k": pd.cut([1.0, 2.0], [0.0, 1.5, 4.0])}),
    ):
        with pytest.raises(ValueError, match="has the categories"):
            mean(frame)


def test_codes_of_new_rows_are_numbers(fits):
    with pm.Model() as model:
        dp.DPMixture("c", 1.0, dp.DirichletCategorical, observed=[0, 0, 1, 1])
    idata = sample(model, 5, tune=5, chains=1, random_seed=1)
    for rows in (pd.to_datetime(["2024-01-01"]), [["a"]]):
        with pytest.raises(ValueError, match="has codes, but there are"):
            dp.density(idata, "c", rows, random_seed=1)


def test_one_named_row_is_matched_by_name(fits):
    rows = {
        "frame": pd.DataFrame({"h": [10.0], "w": [150.0]}),
        "series": pd.Series({"w": 150.0, "h": 10.0}),
        "xarray": xr.DataArray([150.0, 10.0], dims="y_feature", coords={"y_feature": ["w", "h"]}),
    }
    found = {
        how: (
            dp.density(fits["numbers"], "y", row, random_seed=1)["mean"].item(),
            dp.membership(fits["numbers"], "y", row, REFERENCE)["log_density"].item(),
        )
        for how, row in rows.items()
    }
    for how in ("series", "xarray"):
        assert found[how] == pytest.approx(found["frame"])


def test_covariates_of_new_rows_are_matched_by_name(fits):
    idata = fits["regression"]

    def mean(covariates, m=2):
        given = {"covariates": covariates}
        return dp.sample_new_rows(idata, "y", m, given=given, random_seed=1)["y"].mean().item()

    columns = {"one": [1.0, 1.0], "x": [100.0, 100.0]}
    wanted = mean(pd.DataFrame(columns))
    assert wanted == pytest.approx(510.0, abs=5.0)
    for given in (columns, dict(reversed(columns.items()))):
        assert mean(given) == wanted
        assert dp.predict(idata, "y", of="y", given={"covariates": given}, random_seed=1)["mean"].shape == (2,)
    for line in (pd.Series({"x": 100.0, "one": 1.0}), [1.0, 100.0], pd.Series([1.0, 100.0])):
        assert mean(line) == wanted
        assert dp.predict(idata, "y", of="y", given={"covariates": line}, random_seed=1)["mean"].shape == (1,)
    with pytest.raises(ValueError, match=r"columns of covariates are not those of the data: it lacks \['one'\]"):
        mean(pd.DataFrame({"x": [100.0, 100.0]}))
    with pytest.raises(ValueError, match=r"must have 2 columns, as the data has, got 1: \['one', 'x'\]"):
        mean(np.full(3, 100.0), 3)
    rows = pd.Series([500.0, 500.0])
    with pytest.raises(ValueError, match="must have 2 columns, as the data has, got 1"):
        dp.membership(idata, "y", rows, REFERENCE, given={"covariates": [[100.0], [100.0]]})


def test_covariates_may_be_a_dict_of_columns():
    x = np.random.default_rng(0).normal(size=4)
    columns = {"one": np.ones(4), "x": x}
    by_dict, by_frame = (
        density(dp.LinearRegression(0.0, 0.01, 2.0, 0.1, covariates=own), x**2)
        for own in (columns, pd.DataFrame(columns))
    )
    assert by_dict == by_frame


def test_integers_name_columns(fits):
    numbered, kinds = fits["numbered"], fits["kinds"]
    table = fits["table"][["h", "w", "k"]]
    rows = table.iloc[[0, 25]]
    own = rows.set_axis([0, 1, 2], axis=1)
    np.testing.assert_allclose(
        dp.membership(numbered, "y", own, REFERENCE)["probability"],
        dp.membership(kinds, "y", rows, REFERENCE)["probability"],
        atol=0.05,
    )
    mean = dp.predict(numbered, "y", own[[2]], of=1, random_seed=1)["mean"]
    np.testing.assert_allclose(mean, [100.0, 150.0], atol=8.0)
    likely = dp.predict(numbered, "y", own[[0]], of=2, kind="probability", random_seed=1)
    assert likely["category"].to_numpy().tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "names",
    [
        [1, 2],
        [0.5, 2.0],
        pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]),
        pd.date_range("2024-01-01", periods=2),
    ],
    ids=["integers", "reals", "tuples", "dates"],
)
def test_names_of_any_kind_choose_columns(names, fits):
    """Where names are numbers, a number is never a position: it would be another column."""
    table = fits["table"][["h", "w"]].set_axis(names, axis=1)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=table)
    idata = sample(model, 20, tune=20, chains=1, random_seed=1)
    rows = table.iloc[[0, 25]]
    first, second = table.columns
    for of in (second, [second]):
        mean = dp.predict(idata, "y", rows, of=of, random_seed=1)["mean"]
        np.testing.assert_allclose(np.ravel(mean), [100.0, 150.0], atol=8.0)
    mean = dp.predict(idata, "y", rows, of=first, random_seed=1)["mean"]
    np.testing.assert_allclose(mean, [0.0, 10.0], atol=2.0)
    (axes,) = dp.plot_density(idata, "y", columns=second, random_seed=1).axes
    across, density = axes.lines[0].get_data()
    assert across.min() > 50.0
    assert np.trapezoid(density, across) == pytest.approx(1.0, abs=0.1)
    (axes,) = dp.plot_predict(idata, "y", first, of=second, random_seed=1).axes
    assert axes.get_xlabel() == as_text(first)
    np.testing.assert_allclose(np.interp([0.0, 10.0], *axes.lines[0].get_data()), [100.0, 150.0], atol=8.0)
    if isinstance(first, int | float):
        for chosen in (0, [0]):
            with pytest.raises(ValueError, match="there is no column 0"):
                dp.predict(idata, "y", rows, of=chosen)


@pytest.mark.parametrize("fit", ["numbers", "kinds"])
def test_rows_of_which_nothing_is_known(fits, fit):
    """Memberships are the weights of the clusters."""
    unknown = pd.DataFrame({"h": [np.nan, 0.0], "w": [np.nan, 100.0]})
    both = dp.membership(fits[fit], "y", unknown, REFERENCE)["probability"]
    alone = dp.membership(fits[fit], "y", unknown.iloc[:1], REFERENCE)["probability"]
    np.testing.assert_allclose(alone[0], both[0])
    np.testing.assert_allclose(alone[0], 0.5, atol=0.1)
    assert np.isnan(dp.log_density(fits[fit], "y", unknown.iloc[:1])["entry"]).all()


def test_rows_of_one_view_in_any_container(fits):
    frame = pd.DataFrame({"w": [150.0], "h": [10.0]})
    wanted = dp.membership(fits["kinds"], "y", {"num": frame}, REFERENCE)["probability"]
    found = dp.membership(fits["kinds"], "y", {"num": pa.Table.from_pandas(frame)}, REFERENCE)["probability"]
    np.testing.assert_array_equal(found, wanted)
    with pytest.warns(UserWarning, match=r"the columns \['weight'\] of the new rows are not used"):
        dp.membership(fits["kinds"], "y", {"num": frame.rename(columns={"w": "weight"})}, REFERENCE)


def test_chunks_of_xarray_have_names_of_columns():
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(10.0 * Z, 1.0), rng.normal(100.0 + 50.0 * Z, 2.0)])
    array = xr.DataArray(values, dims=("row", "what"), coords={"what": ["h", "w"]}).chunk({"row": 20})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=array)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    rows = pd.DataFrame({"h": [10.0], "w": [150.0]})
    wanted = dp.density(idata, "y", rows, random_seed=1)["mean"].item()
    assert dp.density(idata, "y", rows[["w", "h"]], random_seed=1)["mean"].item() == wanted > 1e-3


def test_chunks_with_repeated_columns_are_refused():
    frame = pd.DataFrame(np.arange(8.0).reshape(4, 2), columns=["h", "h"])
    with pm.Model(), pytest.raises(ValueError, match=r"several columns named \['h'\]"):
        dp.DPMixture("y", 1.0, observed=dd.from_pandas(frame, npartitions=1))


@pytest.mark.parametrize("years", [[2019, 2020, 2019], [0, 2019, 2020, 2019]])
def test_numbers_that_are_hardly_codes_are_told_of(years):
    """Two levels of two thousand are there, whether or not one of them is zero."""
    with pytest.warns(UserWarning, match="If the numbers are names, as years are"):
        dp.DirichletCategorical.from_data(years)


def test_density_of_sparse_rows():
    """The same as of the rows written out."""
    rows = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 1.0, 1.0]])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial(np.ones(3)), observed=csr_array(rows))
    idata = sample(model, 5, tune=5, chains=1, random_seed=1)
    found = [dp.density(idata, "y", x, random_seed=1)["mean"].to_numpy() for x in (csr_array(rows), rows)]
    np.testing.assert_allclose(*found)


# Dicts from rows to their entries, and one row by itself.

NAMED = REAL.set_axis(list("abcd"))


@pytest.mark.parametrize("what", ["known_labels", "must_link", "initval", "group", "unit"])
def test_a_dict_is_matched_by_the_names_of_rows(what):
    entries = {"d": 1, "c": 1, "a": 0, "b": 0}
    wanted, found = [], []
    for value, to in ((pd.Series(entries), wanted), (entries, found)):
        with pm.Model() as model:
            if what == "group":
                dp.HDPMixture("m", 1.0, 1.0, base=NIG, observed=NAMED, group=value)
                to.append(model.coords["m_group"])
            else:
                dp.DPMixture("m", 1.0, NIG, observed=NAMED, **{what: value})
        if what == "initval":
            to.append(model.initial_point()["m_labels"].tolist())
        elif what != "group":
            n = 2 if what == "unit" else 4
            logp = model.compile_logp()
            to.append([float(logp({"m_labels": np.array(labels)})) for labels in ([0] * n, [0] * (n - 1) + [1])])
    assert wanted == found


@pytest.mark.parametrize("what", ["known_labels", "unit", "must_link"])
def test_sets_and_other_rows_in_dicts_are_refused(what):
    with pm.Model(), pytest.raises(TypeError, match=f"{what} is a set, which has no order"):
        dp.DPMixture("m", 1.0, NIG, observed=NAMED, **{what: {"p", "q", "r", "s"}})
    with pm.Model(), pytest.raises(ValueError, match=what):
        dp.DPMixture("m", 1.0, NIG, observed=NAMED, **{what: {"a": 0, "b": 0, "c": 1, "e": 1}})


def test_documents_of_words_and_references_may_be_dicts():
    words, of_word = pd.Series(list("xyxy"), index=list("abcd")), {"d": "two", "b": "one", "a": "one", "c": "two"}
    with pm.Model() as model:
        dp.LDA("w", 2, 1.0, 1.0, observed=words, group=of_word)
    assert list(model.coords["w_group"]) == ["one", "two"]
    idata = sample(model_of_names(), 5, tune=5, chains=1, random_seed=1)
    reference = {"d": 1, "c": 1, "a": 0, "b": 0}
    assert dp.component_draws(idata, "m", reference=reference).sizes["cluster"] == 2


def model_of_names():
    with pm.Model() as model:
        dp.DPMixture("m", 1.0, NIG, observed=NAMED)
    return model


@pytest.mark.parametrize("as_data", [False, True])
def test_entries_of_numbered_units_are_matched_by_their_numbers(as_data):
    """Units in pm.Data are numbers too, from 0 on, whatever their number may become."""
    unit = np.array([0, 0, 1, 1, 2, 2])
    rows = np.array([0.0, 0.1, 5.0, 5.1, -3.0, -3.1])
    with pm.Model() as model:
        known = pd.Series({2: "b", 1: "a", 0: "a"})
        units = pm.Data("unit", unit) if as_data else unit
        dp.DPMixture("m", 1.0, NIG, observed=rows, unit=units, known_labels=known)
    logp = model.compile_logp()
    p = [float(logp({"m_labels": np.array(labels)})) for labels in ([0, 0, 1], [0, 1, 0], [0, 1, 1])]
    assert np.isfinite(p).tolist() == [True, False, False]


@pytest.mark.parametrize("as_data", [False, True])
def test_a_table_of_units_is_matched_by_their_numbers(as_data):
    unit = np.array([0, 0, 1, 1, 2, 2])
    visits, subjects = np.array([0.0, 0.1, 5.0, 5.1, -3.0, -3.1]), pd.Series([90.0, 10.0, 50.0], index=[2, 0, 1])

    def joint(subjects, as_data):
        with pm.Model() as model:
            units = {"visits": pm.Data("unit", unit) if as_data else unit}
            observed = {"visits": visits, "subjects": subjects}
            dp.DPMixture("m", 1.0, dict.fromkeys(observed, NIG), observed=observed, unit=units)
        return float(model.compile_logp()({"m_labels": np.array([0, 1, 1])}))

    assert joint(subjects, as_data) == pytest.approx(joint(subjects.sort_index().to_numpy(), False))


def test_units_that_are_alike_as_text_are_refused():
    with pm.Model(), pytest.raises(ValueError, match="several units have the name '1'"):
        dp.DPMixture("m", 1.0, NIG, observed=REAL, unit=[1, 1, "1", "1"])


COORDS = {"row": range(4), "column": ["x", "y"]}


@pytest.mark.parametrize(
    "observed",
    [lambda: REAL, lambda: REAL.to_numpy(), lambda: pm.Data("data", REAL, dims=("row", "column"))],
    ids=["frame", "array", "data"],
)
def test_columns_with_names_in_coords_are_matched_by_them(observed):
    dims = {"dims": ("row", "column"), "coords": COORDS}
    for given in (
        {"base": dp.NormalInverseGamma(pd.Series({"y": 5.0, "x": 0.0}), 1.0, 2.0, 1.0)},
        {"offset": pd.DataFrame({"y": [1.0, 2.0, 3.0, 4.0], "x": np.zeros(4)})},
    ):
        assert density(observed=observed, **given, **dims) == pytest.approx(density(**given))
    with pm.Model(coords=COORDS) as model:
        labels = dp.CRP("m_labels", 1.0, 4)
        base = dp.NormalInverseGamma(pd.Series({"y": 5.0, "x": 0.0}), 1.0, 2.0, 1.0)
        dp.CollapsedMixture("m", labels, base, observed=observed(), dims=("row", "column"))
    wanted = density(dp.NormalInverseGamma(np.array([0.0, 5.0]), 1.0, 2.0, 1.0))
    assert float(model.compile_logp()({"m_labels": LABELS})) == pytest.approx(wanted)


def test_one_row_with_names_and_structured_rows_are_matched_by_name():
    idata = sample(model_of_names(), 5, tune=5, chains=1, random_seed=1)
    wanted = dp.log_density(idata, "m", pd.DataFrame({"x": [10.0], "y": [0.0]}))
    row = collections.namedtuple("row", ["y", "x"])(0.0, 10.0)
    records = pd.DataFrame({"y": [0.0], "x": [10.0]}).to_records(index=False)
    for new in (row, [row], {"y": 0.0, "x": 10.0}, records, records[0]):
        xr.testing.assert_allclose(dp.log_density(idata, "m", new), wanted)


def test_draws_of_categories_are_new_rows_in_any_order_of_their_columns():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"size": rng.choice(["s", "m"], 30), "hue": rng.choice(["r", "g", "b"], 30)})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=frame)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    drawn = dp.sample_new_rows(idata, "y", 6, random_seed=1)["y"].isel(chain=0, draw=0)
    wanted = dp.log_density(idata, "y", drawn)
    for other in (drawn.isel(y_feature=[1, 0]), drawn.transpose(), drawn.sortby("y_feature")):
        xr.testing.assert_equal(dp.log_density(idata, "y", other), wanted)
    with pytest.raises(ValueError, match=r"no columns \['hue'\]"):
        dp.log_density(idata, "y", drawn.sel(y_feature=["size"]))


def test_columns_of_arrow_without_entries_and_missing_levels():
    frame = pd.DataFrame({"x": [0.0, 1.0], "nothing": pd.array([None, None], dtype=pd.ArrowDtype(pa.null()))})
    table = read_table(frame)
    assert table.kinds == ("real", "real")
    assert np.isnan(table.values[:, 1]).all()
    levels = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["a", None, "b"]))
    table = read_table(levels)
    assert table.levels == (("a", "b"),)
    np.testing.assert_array_equal(table.values, [0.0, np.nan, 1.0, 0.0])


@pytest.fixture(scope="module")
def two_lengths():
    """Two views that have different columns of one name; one of them is named like a column of the other."""
    rng = np.random.default_rng(0)
    z = np.arange(40) % 2
    sepal = pd.DataFrame({"length": 9.0 * z, "width": 9.0 * z}) + rng.normal(size=(40, 2))
    petal = pd.DataFrame({"length": 9.0 * (1 - z), "sepal": 9.0 * z}) + rng.normal(size=(40, 2))
    with pm.Model() as model:
        bases = {"sepal": dp.NormalInverseGamma, "petal": dp.NormalInverseGamma}
        dp.DPMixture("y", 1.0, bases, observed={"sepal": sepal, "petal": petal})
    return sample(model, 30, tune=30, chains=1, random_seed=1)


def test_a_name_of_different_columns_of_two_views_is_refused(two_lengths):
    rows = pd.DataFrame({"length": [9.0], "width": [9.0]})
    for ask in (dp.log_density, dp.membership, partial(dp.predict, of="width")):
        with pytest.raises(
            ValueError, match=r"\['sepal', 'petal'\] each have a column 'length', which is not the same"
        ):
            ask(two_lengths, "y", rows)
    found = dp.predict(two_lengths, "y", {"sepal": rows[["length"]]}, of="width", random_seed=1)["mean"]
    np.testing.assert_allclose(found, 9.0, atol=2.0)


def test_a_view_that_is_named_like_a_column_of_another_is_told_apart(two_lengths):
    with pytest.raises(ValueError, match="'sepal' is a view, and a column of the view 'petal'"):
        dp.predict(two_lengths, "y", {"sepal": [9.0]}, of="width")
    with pytest.raises(ValueError, match="'sepal' is a view, and a column of another one"):
        dp.predict(two_lengths, "y", {"petal": pd.DataFrame({"length": [9.0]})}, of="sepal")
    found = dp.predict(two_lengths, "y", {"petal": pd.DataFrame({"sepal": [9.0]})}, of="width", random_seed=1)
    np.testing.assert_allclose(found["mean"], 9.0, atol=2.0)


def test_one_column_in_two_views_is_known_in_both():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.normal(size=30), "c": rng.normal(size=30)})
    bases = {"one": (["a", "b"], dp.NormalInverseGamma), "two": (["b", "c"], dp.NormalInverseGamma)}
    with pm.Model() as model, pytest.warns(UserWarning, match="'b' is in the views"):
        dp.DPMixture("y", 1.0, bases, observed=frame)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    rows = {"one": frame[["a", "b"]].iloc[:2], "two": frame[["b", "c"]].iloc[:2]}
    xr.testing.assert_allclose(dp.log_density(idata, "y", frame.iloc[:2]), dp.log_density(idata, "y", rows))


def test_groups_of_one_name_as_text_are_refused():
    group = np.array([1] * 5 + ["1"] * 5, dtype=object)
    for mixture, arguments in ((dp.HDPMixture, (1.0, 1.0)), (dp.FiniteMixture, (1.0, 3))):
        with (
            pm.Model(),
            pytest.raises(ValueError, match="several groups have the name '1', as text and as a number"),
        ):
            mixture("y", *arguments, dp.NormalInverseGamma, observed=np.arange(10.0) ** 2, group=group)


def test_a_view_that_is_named_like_its_own_column_is_told_apart():
    """One-dimensional entries under such a name are the column, as they are under any other column's name."""
    z = np.arange(40) % 2
    table = pd.DataFrame({"x": 9.0 * z, "z": 5.0 * z}) + np.random.default_rng(0).normal(size=(40, 2))
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, {"x": dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)}, observed={"x": table})
    idata = sample(model, 30, tune=30, chains=1, random_seed=1)
    of_column = dp.log_density(idata, "y", pd.DataFrame({"x": [0.0, 9.0]}))
    for rows in ({"x": [0.0, 9.0]}, {"x": pd.Series([0.0, 9.0])}, {"x": np.array([0.0, 9.0])}):
        xr.testing.assert_identical(dp.log_density(idata, "y", rows), of_column)
    assert dp.log_density(idata, "y", {"x": 9.0}).sizes["new_row"] == 1
    whole = dp.log_density(idata, "y", table.iloc[:1])
    for rows in ({"x": table.iloc[:1]}, {"x": table.to_numpy()[:1]}):
        np.testing.assert_array_equal(dp.log_density(idata, "y", rows)["row"], whole["row"])


def test_advice_on_names_of_two_meanings_works(two_lengths):
    """What the messages say to do instead is taken."""
    found = dp.predict(two_lengths, "y", {"y_sepal": pd.DataFrame({"length": [9.0]})}, of="width", random_seed=1)
    np.testing.assert_allclose(found["mean"], 9.0, atol=2.0)
    with pytest.raises(ValueError, match=r"call the view 'y_sepal'.*by name='y_petal'"):
        dp.predict(two_lengths, "y", {"petal": pd.DataFrame({"length": [9.0]})}, of="sepal")
    assert (
        dp.predict(two_lengths, "y", {"petal": pd.DataFrame({"length": [9.0]})}, of="y_sepal").sizes["column"] == 2
    )
    assert dp.predict(two_lengths, "y_petal", pd.DataFrame({"length": [9.0]}), of="sepal").sizes["new_row"] == 1
