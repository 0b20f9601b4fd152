"""Tables as people have them are read as they are meant, whatever they come in, or refused before sampling."""

import datetime
import decimal
import functools
import inspect
import warnings

import arviz as az
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pymc as pm
import pytest
import xarray as xr
from sampled import sample
from scipy.sparse import csr_array
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.tables.names import plain_names

pytestmark = pytest.mark.interpreted
N = 12
RNG = np.random.default_rng(5)
REAL = pd.DataFrame({"u": RNG.normal(size=N), "v": RNG.normal(size=N)})
BOOL = pd.DataFrame({"s": RNG.random(N) < 0.4, "t": RNG.random(N) < 0.7})
TEXT = pd.DataFrame({"k": list("abcabcbbacab"), "l": list("xyxyxxyyxyxy")})
INTEGER = pd.DataFrame({"p": RNG.poisson(3.0, N), "q": RNG.poisson(2.0, N)})
LABELS = np.array([0, 1, 0, 2, 1, 1, 0, 0, 2, 2, 1, 0])


def as_record_array(frame):
    return frame.to_records(index=False)


def without_na(column):
    return [None if value is pd.NA else value for value in column]


# Containers in which columns have names.
NAMED = ("frame", "frame-of-objects", "nullable", "arrow-backed", "polars", "arrow", "arrow-batch")
CONTAINERS = {
    "frame": lambda frame: frame,
    "frame-of-objects": lambda frame: frame.astype(object),
    "nullable": lambda frame: frame.convert_dtypes(),
    "arrow-backed": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda frame: pl.DataFrame(
        {name: frame[name].astype(object).replace(pd.NA, None).to_list() for name in frame}
    ),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "arrow-batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "array": lambda frame: frame.to_numpy(),
    "fortran": lambda frame: np.asfortranarray(frame.to_numpy()),
    "strided": lambda frame: np.repeat(frame.to_numpy(), 2, axis=0)[::2],
    "array-of-objects": lambda frame: frame.to_numpy(dtype=object),
    "lists": lambda frame: frame.to_numpy().tolist(),
    "tuples": lambda frame: tuple(map(tuple, frame.to_numpy().tolist())),
    "masked": lambda frame: np.ma.masked_array(frame.to_numpy(), mask=np.zeros(frame.shape, dtype=bool)),
    "xarray": lambda frame: xr.DataArray(frame.to_numpy(), dims=("row", "column")),
    "records": as_record_array,
}
NUMBERS_ONLY = {
    "byte-order": lambda frame: frame.to_numpy(dtype=">f8"),
    "data": lambda frame: pm.Data("rows", frame.to_numpy(dtype=np.float64)),
    "sparse-columns": lambda frame: frame.astype(pd.SparseDtype(np.float64)),
}
TABLES = {"real": REAL, "bool": BOOL, "integer": INTEGER}
BASES_WITH_GAPS = {"real": dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), "bool": dp.BetaBernoulli(1.0, 2.0)}


def with_a_gap(kind):
    frame = TABLES[kind].astype(object)
    frame.iloc[3, 1] = None
    return frame


def density_at(model, labels):
    """Log density at some labels, and elsewhere where chains begin."""
    return model.compile_logp()(model.initial_point() | {"y_labels": np.asarray(labels)})


def model_of(observed, base=None):
    """A mixture, its family, the numbers that it has for the rows, and its density at some labels."""
    with pm.Model() as model:
        data = observed() if callable(observed) else observed
        y = dp.DPMixture("y", 1.0, base, observed=data)
    rows = model.rvs_to_values[y]
    values = rows.get_value() if hasattr(rows, "get_value") else rows.data
    return model, y.owner.op.layout.family_name, np.asarray(values), density_at(model, LABELS)


@functools.cache
def model_of_numbers(kind, has_names):
    """What all containers of a table are compared with: its numbers, in a frame or an array."""
    frame = TABLES[kind]
    return model_of(frame if has_names else frame.to_numpy())[1:]


@functools.cache
def model_with_a_gap(kind):
    """The same where an entry is missing."""
    return model_of(with_a_gap(kind).astype(float).to_numpy(), BASES_WITH_GAPS[kind])[2:]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("container", [*CONTAINERS, *NUMBERS_ONLY])
def test_the_values_decide_and_not_the_container(kind, container):
    frame = TABLES[kind]
    if container in NUMBERS_ONLY and kind == "bool":
        pytest.skip("it holds no bools")
    has_names = container in (*NAMED, "records", "sparse-columns")
    family, values, density = model_of_numbers(kind, has_names)
    make = (CONTAINERS | NUMBERS_ONLY)[container]
    _, own_family, own_values, own_density = model_of(lambda: make(frame))
    of_kind = {"bool": "BetaBernoulli", "integer": "GammaPoisson" if has_names else "NormalInverseWishart"}
    assert own_family == family == of_kind.get(kind, "NormalInverseWishart")
    np.testing.assert_array_equal(own_values, values)
    assert own_density == density


@pytest.mark.parametrize("kind", ["real", "bool"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_missing_entries_are_missing_in_every_container(kind, container):
    frame = with_a_gap(kind)
    if container in ("frame-of-objects", "array", "lists", "tuples", "array-of-objects"):
        holds = frame
    else:
        holds = frame.astype({"u": "Float64", "v": "Float64"} if kind == "real" else "boolean")
    if container in ("fortran", "strided", "masked", "xarray", "records"):
        holds = frame.astype(float)
    values, density = model_with_a_gap(kind)
    assert np.isnan(values).sum() == 1
    _, _, own_values, own_density = model_of(CONTAINERS[container](holds), BASES_WITH_GAPS[kind])
    np.testing.assert_array_equal(own_values, values)
    assert own_density == density


CATEGORIES = {
    "text": lambda frame: frame,
    "text-objects": lambda frame: frame.astype(object),
    "categorical": lambda frame: frame.astype("category"),
    "string": lambda frame: frame.astype("string"),
    "arrow-backed": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda frame: pl.DataFrame({name: frame[name].to_list() for name in frame}),
    "polars-categorical": lambda frame: pl.DataFrame(
        {name: pl.Series(frame[name].to_list(), dtype=pl.Categorical) for name in frame}
    ),
    "polars-enum": lambda frame: pl.DataFrame(
        {name: pl.Series(frame[name].to_list(), dtype=pl.Enum(sorted(set(frame[name])))) for name in frame}
    ),
    "arrow": lambda frame: pa.Table.from_pandas(frame.astype("category"), preserve_index=False),
    "array": lambda frame: frame.to_numpy(dtype=str),
    "array-of-objects": lambda frame: frame.to_numpy(dtype=object),
    "lists": lambda frame: frame.to_numpy().tolist(),
    "codes": lambda frame: np.column_stack([frame[name].astype("category").cat.codes for name in frame]),
    "codes-from-one": lambda frame: 1 + np.column_stack([frame[c].astype("category").cat.codes for c in frame]),
}


@functools.cache
def model_of_categories():
    return model_of(TEXT, dp.DirichletCategorical)[2:]


@pytest.mark.parametrize("container", CATEGORIES)
def test_categories_are_the_same_in_every_container(container):
    values, density = model_of_categories()
    _, family, own_values, own_density = model_of(CATEGORIES[container](TEXT), dp.DirichletCategorical)
    assert family == "DirichletCategorical"
    np.testing.assert_array_equal(own_values, values)
    assert own_density == density


def draws_of(observed):
    model = model_of(observed)[0]
    return sample(model, 20, tune=20, chains=1, random_seed=3)["posterior"]["y_labels"].to_numpy()


@functools.cache
def draws_of_numbers(kind):
    return draws_of(TABLES[kind].to_numpy())


@pytest.mark.parametrize("container", ["frame", "polars", "arrow", "nullable", "lists", "xarray"])
def test_the_same_values_give_the_same_draws(container):
    for kind in ("real", "bool"):
        np.testing.assert_array_equal(draws_of(CONTAINERS[container](TABLES[kind])), draws_of_numbers(kind))


def test_a_category_is_one_whatever_its_values():
    numbers = pd.Series([3, 7, 3, 7, 5] * 2 + [3, 3], dtype="category")
    _, family, values, _ = model_of(numbers)
    assert family == "DirichletCategorical"
    np.testing.assert_array_equal(values[:5], [0, 2, 0, 2, 1])
    with pytest.raises(TypeError, match="but it is categories: categories are taken by dp"):
        model_of(numbers, dp.NormalInverseGamma)
    model_of(numbers.astype(float), dp.NormalInverseGamma)
    # Levels that no row has are part of the model, in every container of categories, and are told of.
    own = pd.Categorical(list("abab"), ["c", "b", "a"])
    for held in (
        own,
        pd.Series(own),
        pd.DataFrame({"x": own}),
        pa.array(own),
        pl.Series(list(own), dtype=pl.Enum("cba")),
    ):
        with pm.Model() as model, pytest.warns(UserWarning, match=r"no row has 1 of the 3 levels .*: \['c'\]"):
            y = dp.DPMixture("y", 1.0, observed=held)
        assert y.owner.inputs[3].type.shape == (1, 3)
        del model


def test_codes_begin_at_zero_or_at_one():
    for codes, n_levels in (([0, 1, 2], 3), ([1, 2, 3], 3), ([0, 2], 3), ([1, 1], 1)):
        assert dp.DirichletCategorical.from_data(codes).parameters["levels"] == n_levels
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletCategorical(1.0, 3), observed=[1, 2, 3, 1])
    idata = sample(model, 5, tune=5, chains=1, random_seed=1)
    np.testing.assert_array_equal(idata["observed_data"]["y"], [0, 1, 2, 0])
    # New rows have the same codes.
    found = dp.membership(idata, "y", [1, 3], [0, 0, 0, 0])
    assert found["log_density"][0] > found["log_density"][1]
    with pytest.raises(ValueError, match=r"has the categories \[1, 2, 3\], but there are \[0"):
        dp.membership(idata, "y", [0], [0, 0, 0, 0])
    with pm.Model(), pytest.raises(ValueError, match=r"must have codes 0\.\.2"):
        dp.DPMixture("y", 1.0, dp.DirichletCategorical(1.0, 3), observed=[0, 2, 3])


DATES = pd.date_range("2024-01-01", periods=N, freq="D")
NO_NUMBERS = {
    "dates": (DATES, lambda t: (pd.to_datetime(t) - t.min()) / pd.Timedelta("1D"), "dates become numbers as days"),
    "zoned": (
        DATES.tz_localize("UTC"),
        lambda t: (t - t.min()) / pd.Timedelta("1D"),
        "dates become numbers as days",
    ),
    "date-objects": (
        pd.Index([datetime.date(2024, 1, 1 + i) for i in range(N)]),
        lambda x: (pd.to_datetime(x) - pd.to_datetime(x).min()) / pd.Timedelta("1D"),
        "dates become numbers as days",
    ),
    "periods": (
        DATES.to_period("M"),
        lambda x: (x.dt.to_timestamp() - x.dt.to_timestamp().min()) / pd.Timedelta("1D"),
        "periods become numbers as days",
    ),
    "durations": (DATES - DATES[0], lambda x: x / pd.Timedelta("1h"), "durations become numbers with x / "),
    "numbers-as-text": (
        pd.Index([str(i) for i in range(N)]),
        pd.to_numeric,
        "become numbers with pandas.to_numeric",
    ),
}
FAMILIES = {
    "default": None,
    "NormalInverseGamma": dp.NormalInverseGamma,
    "NormalInverseWishart": dp.NormalInverseWishart,
    "SphericalNormalInverseGamma": dp.SphericalNormalInverseGamma,
    "GammaPoisson": dp.GammaPoisson(1.0, 1.0),
    "BetaBinomial": dp.BetaBinomial(1.0, 1.0, 10_000),
    "DirichletMultinomial": dp.DirichletMultinomial(1.0),
    "BetaBernoulli": dp.BetaBernoulli(1.0, 1.0),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_is_no_number_is_refused_with_what_to_do(kind, family):
    """The message is the same for all families, names the column, and what it says works."""
    index, mend, advice = NO_NUMBERS[kind]
    frame = pd.DataFrame({"size": np.arange(N) % 2, "when": index.to_series(index=range(N))})
    with pm.Model() as model, pytest.raises(TypeError, match=rf"the column \['when'\] is .*{advice}"):
        dp.DPMixture("y", 1.0, FAMILIES[family], observed=frame)
    assert not model.named_vars
    if family != "BetaBernoulli":
        with pm.Model(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            dp.DPMixture("y", 1.0, FAMILIES[family], observed=frame.assign(when=mend(frame["when"])))


def test_columns_of_several_kinds_are_views():
    frame = pd.concat([REAL, BOOL["s"], TEXT["k"].astype("category"), INTEGER["p"]], axis=1)
    with pm.Model() as model:
        mixtures = dp.DPMixture("y", 1.0, observed=frame)
    assert list(mixtures) == ["numbers", "counts", "binary", "categories"]
    assert {"y_numbers", "y_counts", "y_binary", "y_categories"} <= set(model.named_vars)
    # The views that the function returns are these; they can be given, and changed.
    with pm.Model() as given:
        dp.DPMixture("y", 1.0, dp.default_views(frame), observed=frame)
    assert density_at(given, LABELS) == density_at(model, LABELS)
    # Whoever asks for one family gets it.
    assert model_of(frame.drop(columns="k"), dp.NormalInverseGamma)[1] == "NormalInverseGamma"
    with pm.Model(), pytest.raises(TypeError, match=r"which makes a view for each kind .* dp.default_views"):
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=frame)


def test_what_is_no_table_is_refused():
    refused = [
        ({"a": [1.0, 2.0]}, TypeError, "make it a frame with pandas.DataFrame"),
        ([[1.0, 2.0], [1.0]], ValueError, "rows of equal lengths"),
        (xr.Dataset({"a": ("x", [1.0])}), TypeError, "dataset.to_dataframe"),
        (pl.DataFrame({"a": [1.0]}).lazy(), TypeError, "pass what its .collect"),
        (pd.DataFrame({"a": []}), ValueError, "at least one row"),
        (pd.Series([[1], [2]]), TypeError, "but it is objects"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), ValueError, r"several columns named \['a'\]"),
        (pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]), ValueError, r"several columns named \['1'\]"),
        (np.array([1 + 1j]), TypeError, "complex"),
    ]
    for observed, error, match in refused:
        with pm.Model() as model, pytest.raises(error, match=match):
            dp.DPMixture("y", 1.0, observed=observed)
        assert not model.named_vars


# Rows and their names.

# Functions whose arguments are matched in the default suite; others share their code.
MATCHED_BY_DEFAULT = "ChangePoints", "DPMixture", "CollapsedMixture", "CRP", "HDPHMM", "HDPMixture"
NAMES = pd.Index([f"r{i}" for i in range(N)])
ORDER = np.random.default_rng(8).permutation(N)
TRIALS = np.full(N, 9)
KNOWN = np.array([0, 1, 0, *[-1] * (N - 3)])
UNITS = np.repeat(np.arange(N // 2), 2)
REGRESSION = {"mu": 0.0, "precision": 1.0, "a": 2.0, "b": 1.0}


def mixture(frame=REAL["u"], function=dp.DPMixture, base=None, **arguments):
    own = {
        dp.HDPMixture: (1.0, 1.0),
        dp.PYMixture: (1.0, 0.2),
        dp.FiniteMixture: (1.0, 4),
        dp.ChangePoints: (0.2,),
        dp.HDPHMM: (1.0, 1.0),
    }
    function("y", *own.get(function, (1.0,)), base, observed=frame.set_axis(NAMES), **arguments)


def prior(function, *parameters):
    def build(key, value):
        function("y_labels", *parameters, dims="row", **{key: value})

    return build


def process(key, value):
    dp.DirichletProcess("y", 1.0, base=pm.Normal.dist(), dims="row", **{key: value})


NORMAL = dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
MIXTURES = (dp.DPMixture, dp.PYMixture, dp.FiniteMixture, dp.MFMixture, dp.HDPMixture)
PRIORS = {"CRP": prior(dp.CRP, 1.0, N), "PitmanYor": prior(dp.PitmanYor, 1.0, 0.2, N)}
PRIORS |= {"FiniteDirichlet": prior(dp.FiniteDirichlet, 1.0, 4, N), "MFM": prior(dp.MFM, 1.0, N)}
# Every argument of a public function that has one entry for each row: what builds a model with it, and its value.
ROW_ARGUMENTS = {}
for own in MIXTURES:
    also = {"group": UNITS} if own is dp.HDPMixture else {}
    for key, value in {"offset": np.arange(N) / 3, "initval": LABELS}.items():
        ROW_ARGUMENTS[own.__name__, key] = (
            lambda v, own=own, key=key, also=also: mixture(function=own, base=NORMAL, **{key: v}, **also),
            value,
        )
    if own is not dp.HDPMixture:
        for key, value in {"unit": UNITS, "known_labels": KNOWN, "must_link": KNOWN}.items():
            ROW_ARGUMENTS[own.__name__, key] = (
                lambda v, own=own, key=key: mixture(function=own, base=NORMAL, **{key: v}),
                value,
            )
for own in (dp.HDPMixture, dp.FiniteMixture):
    ROW_ARGUMENTS[own.__name__, "group"] = (
        lambda v, own=own: mixture(function=own, base=NORMAL, group=v),
        UNITS,
    )
for own in (dp.ChangePoints, dp.HDPHMM):
    also = {"initval": LABELS, "known_labels": KNOWN} if own is dp.HDPHMM else {}
    of_order = {"sequence": UNITS, "order": 1.5 * np.arange(N), "offset": np.arange(N) / 3}
    for key, value in (of_order | also).items():
        ROW_ARGUMENTS[own.__name__, key] = (
            lambda v, own=own, key=key: mixture(function=own, base=NORMAL, **{key: v}),
            value,
        )
for name, build in (PRIORS | {"DirichletProcess": process}).items():
    for key, value in {"known_labels": KNOWN, "must_link": KNOWN, "initval": LABELS % 4}.items():
        ROW_ARGUMENTS[name, key] = (lambda v, build=build, key=key: build(key, v), value)
ROW_ARGUMENTS |= {
    ("LinearRegression", "covariates"): (
        lambda v: mixture(base=dp.LinearRegression(**REGRESSION, covariates=v)),
        np.arange(N) / 3,
    ),
    ("GammaPoisson", "exposure"): (
        lambda v: mixture(INTEGER["p"], base=dp.GammaPoisson(1.0, 1.0, exposure=v)),
        np.arange(1.0, N + 1),
    ),
    ("BetaBinomial", "trials"): (
        lambda v: mixture(INTEGER["p"], base=dp.BetaBinomial(1.0, 1.0, trials=v)),
        np.arange(9, N + 9),
    ),
    ("NormalKnownVariance", "variance"): (
        lambda v: mixture(base=dp.NormalKnownVariance(0.0, 1.0, variance=v)),
        np.arange(1.0, N + 1),
    ),
    ("NormalKnownCovariance", "covariance"): (
        lambda v: mixture(REAL[["u"]], base=dp.NormalKnownCovariance(0.0, [1.0], covariance=v)),
        np.arange(1.0, N + 1),
    ),
    ("GammaExponential", "events"): (
        lambda v: mixture(INTEGER["p"], base=dp.GammaExponential(1.0, 1.0, events=v)),
        np.arange(N) % 2,
    ),
    ("GammaGamma", "shape"): (
        lambda v: mixture(INTEGER["p"] + 1, base=dp.GammaGamma(1.0, 1.0, shape=v)),
        np.arange(1.0, N + 1),
    ),
    ("BetaNegativeBinomial", "size"): (
        lambda v: mixture(INTEGER["p"], base=dp.BetaNegativeBinomial(1.0, 1.0, size=v)),
        np.arange(1.0, N + 1),
    ),
    ("CollapsedMixture", "offset"): (
        lambda v: dp.CollapsedMixture(
            "y", dp.CRP("y_labels", 1.0, N), dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0),
            observed=REAL["u"].set_axis(NAMES), offset=v,
        ),
        np.arange(N) / 3,
    ),
    ("CollapsedMixture", "observed"): (
        lambda v: dp.CollapsedMixture(
            "y", dp.CRP("y_labels", 1.0, N, known_labels=pd.Series(KNOWN, NAMES)),
            dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=v,
        ),
        np.arange(N) / 3,
    ),
    ("LDA", "group"): (
        lambda v: dp.LDA("y", 2, 0.5, 0.5, observed=TEXT["k"].set_axis(NAMES), group=v),
        UNITS,
    ),
    **{
        (own.__name__, "observed"): (
            lambda v, own=own: own(
                "y", *{dp.PYMixture: (1.0, 0.2), dp.FiniteMixture: (1.0, 4)}.get(own, (1.0,)),
                {"a": dp.NormalInverseGamma, "b": dp.NormalInverseGamma},
                observed={"a": REAL["u"].set_axis(NAMES), "b": v},
            ),
            np.arange(N) / 3,
        )
        for own in MIXTURES
        if own is not dp.HDPMixture
    },
}  # fmt: skip
# Parameters of public functions that have no entry for each row, or are read through those above.
OTHERS = """
name alpha gamma discount base n_components components n shape dims impute n_topics eta words labels a b mu
kappa nu psi scale levels precision vars model rng compile_kwargs blocked initial_point n_scans n_sweeps
n_auxiliary hamiltonian split_merge sequential random search given parameters prior every target rows optima
chains tune random_seed initvals step_options data idata loss costs max_clusters n_starts reference partition
probability most_bytes round_to ax columns bins n_largest warn n_draws n_particles n_words relevance ragged
distance extend_inferencedata method max_components tol max_steps point maximize progressbar make_model
baseline variations sample found groups draws n_rows args kwargs
p column along of kind quantiles n_draws what at below m with_labels max_columns power tau2
covariance_of_means concentration directions n_states first every
"""
NO_ROWS = set(OTHERS.split())
# Those after sampling that have entries for rows: `x`, `given`, `group`, `reference`, `partition` and `observed`.
AFTERWARDS = {
    "membership": {"x", "given", "group", "unit", "reference"},
    "density": {"x", "known", "given", "group"},
    "plot_density": {"x", "given", "group"},
    "sample_new_rows": {"known", "given", "group", "unit"},
    "new_units": {"known", "given", "group", "unit", "log_likelihood"},
    "component_draws": {"group"},
    "predict": {"new", "given", "group", "unit"},
    "plot_predict": {"new", "given", "group"},
    "log_density": {"new", "given", "group", "unit"},
    "contrast": {"baseline", "changed", "given", "given_changed", "group"},
    "dependence": {"group"},
    "relevance": {"group"},
    "plot_changes": {"sequence"},
    "plot_states": {"sequence"},
    "plot_relevance": {"group"},
    "functional": {"given", "group"},
    "held_out_log_likelihood": {"observed", "group", "reference"},
    "leave_future_out": {"rows", "group"},
    "as_tokens": {"observed"},
    "chunked_labels": {"observed"},
    "chunked_membership": {"observed"},
}


def test_no_argument_with_rows_is_forgotten():
    for name in dp.__all__:
        public = getattr(dp, name)
        if not callable(public) or name in ("DPMixtureStep", "DirichletProcessStep"):
            continue
        for key in inspect.signature(public).parameters:
            covered = (name, key) in ROW_ARGUMENTS or key in AFTERWARDS.get(name, ())
            is_table = key == "observed" and name not in AFTERWARDS
            assert covered or is_table or key in NO_ROWS or (name, key) in [
                ("HDPMixture", "unit"), ("HDPMixture", "known_labels"), ("HDPMixture", "must_link"),
                *(("ChangePoints", refused) for refused in ("unit", "known_labels", "must_link")),
                ("HDPHMM", "unit"), ("HDPHMM", "must_link"),
                ("ChangePoints", "initval"),
                ("LDA", "initval"), ("SplitMerge", "others"), ("predict", "x"), ("SharedCovariance", "covariance"),
            ], (name, key)  # fmt: skip


def density_with(build, value):
    """What a model says at some labels, or where chains start."""
    with pm.Model(coords={"row": NAMES}) as model:
        build(value)
    point = model.initial_point(random_seed=1)
    numbers = model.compile_logp(sum=False)(point)
    start = [np.asarray(own) for own in point.values()]
    constants = [np.asarray(own.data).tolist() for own in model.data_vars if hasattr(own, "data")]
    return [np.asarray(own).tolist() for own in (*numbers, *start)], [str(c) for c in constants]


def in_other_containers(value):
    series = pd.Series(value, NAMES)
    yield "series", series
    yield "shuffled", series.iloc[ORDER]
    yield "xarray", xr.DataArray(value, dims="row", coords={"row": NAMES}).isel(row=ORDER)
    yield "arrow-backed", series.convert_dtypes(dtype_backend="pyarrow").iloc[ORDER]
    yield "polars", pl.Series(value)
    yield "arrow", pa.array(value)
    yield "list", value.tolist()


@pytest.mark.parametrize(
    "argument", slow_but(ROW_ARGUMENTS, lambda own: own[0] in MATCHED_BY_DEFAULT), ids="-".join
)
def test_rows_are_matched_by_name(argument):
    """Rows in another order, with their names, give the same density; rows without names must not."""
    build, value = ROW_ARGUMENTS[argument]
    expected = density_with(build, value)
    for container, own in in_other_containers(value):
        assert density_with(build, own) == expected, container
    # Where names decide, the order of what has none must matter, or the test could not fail.
    with pm.Model(coords={"row": NAMES}) as model:
        build(value[ORDER])
    assert model is not None
    if argument[1] not in ("initval",):
        try:
            shuffled = density_with(build, value[ORDER])
        except (ValueError, TypeError):
            shuffled = None
        assert shuffled != expected


@pytest.mark.parametrize("argument", ROW_ARGUMENTS, ids="-".join)
def test_other_names_are_refused(argument):
    build, value = ROW_ARGUMENTS[argument]
    if argument[0] in (*PRIORS, "DirichletProcess"):
        # There are no rows yet that have names of their own, only those of coordinates.
        return
    others = {
        r"lacks the rows \['r0', 'r1', 'r2', and 9 more\]": pd.Series(value),
        r"lacks the rows \['r0'\].* and has the rows \['s'\]": pd.Series(value, ["s", *NAMES[1:]]),
        r"several rows named \['r1'\]": pd.Series(value, ["r1", *NAMES[1:]]),
        r"has the rows \['s'\]": pd.Series([*value, value[0]], [*NAMES, "s"]),
    }
    for match, other in others.items():
        with pm.Model(coords={"row": NAMES}) as model, pytest.raises(ValueError, match=match):
            build(other)
        assert "y" not in model.named_vars


def test_a_shuffled_table_and_what_is_known_of_its_rows():
    """Two rows that are known to share a cluster do so in all draws, in whatever order the table is."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": np.r_[rng.normal(-4, 1, 20), rng.normal(4, 1, 20)]})
    known = pd.Series(np.nan, frame.index)
    known[[3, 30]] = 1.0
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame.sample(frac=1, random_state=1), known_labels=known)
    labels = sample(model, 50, tune=20, chains=1, random_seed=1)["posterior"]["y_labels"]
    assert (labels.sel(y_obs=3) == labels.sel(y_obs=30)).all()


def test_names_of_units():
    sizes = pd.Series([1.0, 5.0, 2.0], index=["c", "a", "b"])
    visits = pd.DataFrame({"who": list("aabbcc"), "value": np.arange(6.0)})
    known = pd.Series([0, 1], index=["b", "a"]).reindex(["c", "b", "a"])
    bases = {"size": dp.NormalInverseGamma, "visit": dp.NormalInverseGamma}
    with pm.Model() as model:
        observed = {"size": sizes, "visit": visits["value"]}
        dp.DPMixture("y", 1.0, bases, observed=observed, unit={"visit": visits["who"]}, known_labels=known)
    assert model.coords["y_unit"] == ("a", "b", "c")
    np.testing.assert_array_equal(model.rvs_to_values[model["y_size"]].data, [5.0, 2.0, 1.0])
    logp, point = model.compile_logp(), model.initial_point()
    assert logp(point | {"y_labels": np.array([0, 0, 1])}) == -np.inf
    assert np.isfinite(logp(point | {"y_labels": np.array([0, 1, 1])}))


def test_columns_are_matched_by_name():
    trials = pd.DataFrame({"q": np.full(N, 9), "p": np.full(N, 12)}, index=NAMES[::-1])
    counts = INTEGER.set_axis(NAMES)
    wanted = model_of(counts, dp.BetaBinomial(1.0, 1.0, trials=trials[["p", "q"]].to_numpy()))[3]
    assert model_of(counts, dp.BetaBinomial(1.0, 1.0, trials=trials))[3] == wanted
    # Other names altogether go by position; some of them are a mistake.
    renamed = trials[["p", "q"]].set_axis(["n_p", "n_q"], axis=1)
    assert model_of(counts, dp.BetaBinomial(1.0, 1.0, trials=renamed))[3] == wanted
    with pm.Model(), pytest.raises(ValueError, match=r"it lacks \['p'\]; it has \['other'\] besides"):
        dp.DPMixture("y", 1.0, dp.BetaBinomial(1, 1, trials.rename(columns={"p": "other"})), observed=counts)
    # Covariates of new rows are taken by the names that those of the data have.
    covariates = pd.DataFrame({"one": 1.0, "x": REAL["v"]})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.LinearRegression(**REGRESSION, covariates=covariates), observed=REAL["u"])
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    new, rows = pd.Series([0.3, -0.4], ["a", "b"]), covariates.iloc[:2].set_axis(["a", "b"])
    given = [rows.to_numpy(), rows, rows[["x", "one"]], rows.iloc[::-1]]
    found = [dp.membership(idata, "y", new, LABELS, given={"covariates": own}) for own in given]
    for own in found:
        xr.testing.assert_identical(own, found[0])
    xr.testing.assert_identical(
        dp.membership(idata, "y", new, LABELS, given={"y": {"covariates": rows}}), found[0]
    )
    with pytest.raises(ValueError, match=r"covariates has the index of other rows than new rows of y"):
        dp.membership(idata, "y", new, LABELS, given={"covariates": rows.set_axis([0, 1])})
    densities = [dp.density(idata, "y", new, given={"covariates": own}, random_seed=1)["mean"] for own in given]
    for own in densities:
        np.testing.assert_array_equal(own, densities[0])
    drawn = [
        dp.sample_new_rows(idata, "y", 2, given={"covariates": own}, random_seed=1)["y"]
        for own in (rows, rows[["x", "one"]])
    ]
    np.testing.assert_array_equal(*drawn)


def test_new_rows_in_every_container():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=REAL)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    new = REAL.iloc[[4, 2]]
    wanted = dp.membership(idata, "y", new.to_numpy(), LABELS)["probability"].to_numpy()
    dim = "y_feature"
    for own in (
        new,
        new[["v", "u"]],
        new.astype(object),
        new.convert_dtypes(),
        new.convert_dtypes(dtype_backend="pyarrow")[["v", "u"]],
        pl.DataFrame({"v": new["v"].to_list(), "u": new["u"].to_list()}),
        pa.Table.from_pandas(new[["v", "u"]]),
        new.to_numpy().tolist(),
        xr.DataArray(new.to_numpy().T, dims=(dim, "row"), coords={dim: ["u", "v"]}),
    ):
        found = dp.membership(idata, "y", own, LABELS)["probability"].to_numpy()
        np.testing.assert_array_equal(found, wanted)
        means = dp.density(idata, "y", own, random_seed=1)["mean"]
        np.testing.assert_allclose(means, dp.density(idata, "y", new, random_seed=1)["mean"])
    missing = new.astype("Float64")
    missing.iloc[0, 1] = pd.NA
    np.testing.assert_array_equal(
        dp.membership(idata, "y", missing, LABELS)["probability"],
        dp.membership(idata, "y", missing.to_numpy(float, na_value=np.nan), LABELS)["probability"],
    )


def test_dimensions_of_xarray_are_matched_by_name():
    array = xr.DataArray(REAL.to_numpy(), dims=("city", "what"), coords={"city": NAMES, "what": ["u", "v"]})
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=array)
    assert model.named_vars_to_dims["y"] == ("city", "what")
    assert model.coords["city"] == tuple(NAMES)
    with pm.Model(), pytest.raises(ValueError, match=r"transpose it, as by observed.transpose\('city', 'what'\)"):
        dp.DPMixture("y", 1.0, observed=array.T, dims=("city", "what"))
    with (
        pm.Model(coords={"city": NAMES[ORDER]}),
        pytest.raises(ValueError, match="in another order than the coords"),
    ):
        dp.DPMixture("y", 1.0, observed=array, dims=("city", "what"))
    with pm.Model(coords={"feature": ["v", "u"]}), pytest.raises(ValueError, match="its columns in another order"):
        dp.DPMixture("y", 1.0, observed=REAL, dims=("row", "feature"))
    # Coordinates that are other names of the rows are labels, as everywhere in PyMC.
    with pm.Model(coords={"city": NAMES}) as model:
        dp.DPMixture("y", 1.0, observed=REAL, dims=("city", "feature"), known_labels=pd.Series(KNOWN, NAMES))


INDICES = {
    "range": pd.RangeIndex(N),
    "integers": pd.Index(range(100, 100 + N)),
    "reals": pd.Index(np.arange(N) + 0.5),
    "text": NAMES,
    "levels": pd.MultiIndex.from_product([list("abc"), range(4)]),
    "dates": DATES,
    "zoned": DATES.tz_localize("Europe/Paris"),
    "date objects": pd.Index([datetime.date(2024, 1, 1 + i) for i in range(N)]),
    "periods": pd.period_range("2024-01", periods=N, freq="M"),
    "intervals": pd.interval_range(0, N),
    "durations": pd.to_timedelta(np.arange(N), unit="h"),
    "decimals": pd.Index([decimal.Decimal(i) / 4 for i in range(N)]),
    "bytes": pd.Index([f"r{i}".encode() for i in range(N)]),
    "tuples": pd.Index([("a", i) for i in range(N)], tupleize_cols=False),
    "with None": pd.Index([None, *range(1, N)], dtype=object),
    "categories": pd.CategoricalIndex(NAMES),
    "numbers as categories": pd.CategoricalIndex(range(N)),
    "nullable": pd.Index([*range(N - 1), None], dtype="Int64"),
    "arrow": NAMES.astype("string[pyarrow]"),
    "doubled": pd.Index(["a", "b"] * (N // 2)),
}


@pytest.mark.parametrize("kind", slow_but(INDICES, "reals", "levels", "dates", "with None", "doubled"))
def test_every_index_survives_saving(kind, tmp_path):
    """Names of rows of any type come back from a file, and are found in new rows and labels."""
    frame = REAL.set_axis(INDICES[kind])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame)
    before = sample(model, 10, tune=10, chains=1, random_seed=1)
    before.to_netcdf(tmp_path / "idata.nc")
    idata = az.from_netcdf(tmp_path / "idata.nc")
    names = idata["posterior"]["y_obs"].to_numpy()
    assert len(set(names.tolist())) == len(set(INDICES[kind]))
    np.testing.assert_array_equal(names, before["posterior"]["y_obs"].to_numpy())
    assert "cluster" in str(dp.summary(idata, "y", random_seed=1))
    found = dp.membership(idata, "y", frame.iloc[[3, 1]])
    shown = [str(name) for name in plain_names(found["new_row"].to_index())]
    assert shown == [str(plain_names(frame.index)[i]) for i in (3, 1)]
    assert dp.density(idata, "y", frame.iloc[:2], random_seed=1)["mean"].shape == (2,)
    found.to_netcdf(tmp_path / "found.nc")
    # What was named as the rows are is put into their order again.
    labels = pd.Series(LABELS, frame.index)
    if labels.index.is_unique:
        shuffled = dp.membership(idata, "y", REAL, labels.iloc[ORDER])["reference"]
        np.testing.assert_array_equal(shuffled, dp.membership(idata, "y", REAL, LABELS)["reference"])


@pytest.mark.parametrize("names", [["a", 1], [("a", 1), ("a", 2)], [b"u", None], [1.5, 2.5], [DATES[0], DATES[1]]])
def test_every_name_of_columns_survives_saving(names, tmp_path):
    frame = REAL.copy()
    frame.columns = (
        pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else pd.Index(names, dtype=object)
    )
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame)
    sample(model, 10, tune=10, chains=1, random_seed=1).to_netcdf(tmp_path / "idata.nc")
    idata = az.from_netcdf(tmp_path / "idata.nc")
    swapped = dp.membership(idata, "y", frame.iloc[:3, [1, 0]], LABELS)
    xr.testing.assert_identical(swapped, dp.membership(idata, "y", frame.iloc[:3], LABELS))
    str(dp.summary(idata, "y", random_seed=1))
    # Where names are numbers, a position is none.
    second = names[1] if isinstance(names[1], float) else 1
    dp.density(idata, "y", columns=second, random_seed=1).to_netcdf(tmp_path / "density.nc")


def test_coordinates_that_would_lose_the_draws_are_refused():
    with pm.Model(coords={"row": pd.MultiIndex.from_product([list("abc"), range(4)])}) as model:
        with pytest.raises(ValueError, match=r"coords of dimension 'row' have entries .* such as \('a', 0\)"):
            dp.DPMixture("y", 1.0, observed=REAL, dims=("row", "column"))
        assert not model.named_vars


@pytest.mark.parametrize("names", [[3, 1], ["b", "a"], [2.0, 1.0], [True, False], [DATES[1], DATES[0]]])
def test_groups_keep_their_names(names, tmp_path):
    group = pd.Series(np.array(names, dtype=object)[UNITS % 2], NAMES)
    with pm.Model() as model:
        base = dp.NormalInverseGamma.from_data(REAL["u"])
        dp.HDPMixture("y", 1.0, 1.0, base, group=group, observed=REAL["u"].set_axis(NAMES))
    sample(model, 10, tune=10, chains=1, random_seed=1).to_netcdf(tmp_path / "idata.nc")
    idata = az.from_netcdf(tmp_path / "idata.nc")
    weights = dp.group_weights(idata, "y", LABELS, random_seed=1)["weight"]
    found = weights["y_group"].to_numpy()
    if isinstance(names[0], str | int | float):
        assert found.tolist() == sorted(names)
        assert isinstance(found.tolist()[0], type(names[0]) if names[0] != 2.0 else int | float)
        assert weights.sel(y_group=names[0]).shape == (3,)
    for name in names:
        dp.density(idata, "y", [0.0], group=name, random_seed=1)


def test_names_of_the_data_are_those_of_new_rows():
    """Names that are numbers are names, and so are levels that look like numbers."""
    years = REAL.set_axis([2020, 2021], axis=1)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=years)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    wanted = dp.membership(idata, "y", years.iloc[:2], LABELS)["probability"]
    for own in (years[[2021, 2020]], years.set_axis(["2020", "2021"], axis=1)[["2021", "2020"]]):
        np.testing.assert_array_equal(dp.membership(idata, "y", own.iloc[:2], LABELS)["probability"], wanted)
    for names in (["foo", "bar"], [2030, 2031]):
        with pytest.raises(ValueError, match=r"have none of the columns \['2020', '2021'\]"):
            dp.membership(idata, "y", years.set_axis(names, axis=1), LABELS)
    with pm.Model() as model:
        dp.DPMixture(
            "q", 1.0, dp.DirichletCategorical, observed=pd.DataFrame({"x": list("122331"), "z": list("ababab")})
        )
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    texts, numbers = pd.DataFrame({"x": ["2"], "z": ["b"]}), pd.DataFrame({"x": [2], "z": ["b"]})
    xr.testing.assert_identical(*(dp.membership(idata, "q", own, LABELS[:6]) for own in (texts, numbers)))
    assert dp.density(idata, "q", columns="x", random_seed=1)["mean"].sum() == pytest.approx(1.0)


def test_draws_of_categories_can_be_saved(tmp_path):
    with pm.Model() as model:
        frame = pd.DataFrame({"c": list("uvwu") * 3, "d": list("xy") * 6})
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=frame)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    drawn = dp.sample_new_rows(idata, "y", 2, random_seed=1)
    assert set(drawn["y"].sel(y_feature="c").to_numpy().ravel()) <= {"u", "v", "w"}
    drawn.to_netcdf(tmp_path / "drawn.nc")


@pytest.mark.parametrize(
    ("base", "observed", "dtype", "values"),
    {
        "codes": (lambda: dp.DirichletCategorical(np.ones(3)), [1, 2, 3, 1], "i", {1, 2, 3}),
        "text": (lambda: dp.DirichletCategorical(np.ones(2)), ["u", "v", "u", "u"], "O", {"u", "v"}),
        "bools": (lambda: dp.BetaBernoulli(1.0, 1.0), [True, False, True, True], "b", {True, False}),
        "zeros and ones": (lambda: dp.BetaBernoulli(1.0, 1.0), [1, 0, 1, 1], "i", {0, 1}),
        "counts": (lambda: dp.GammaPoisson(1.0, 1.0), [1, 0, 5, 2], "i", None),
        "successes": (lambda: dp.BetaBinomial(1.0, 1.0, trials=5), [1, 0, 5, 2], "i", set(range(6))),
        "numbers": (lambda: dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), [1, 0, 5, 2], "f", None),
    }.values(),
)
def test_draws_are_of_the_type_of_the_data(base, observed, dtype, values):
    """New rows and predictions have what the data had, which can be asked of again."""
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, base(), observed=observed)
    idata = sample(model, 20, tune=10, chains=1, random_seed=1)
    rows = dp.sample_new_rows(idata, "y", 5, random_seed=1)["y"]
    drawn = dp.predict(idata, "y", of=0, kind="draws", random_seed=1)["y"]
    for found in (rows, drawn):
        assert found.dtype.kind == dtype
        assert values is None or set(found.to_numpy().ravel().tolist()) <= values
    given = {"trials": np.full(5, 5)} if "trials" in str(base().given) else None
    again = dp.log_density(idata, "y", rows.isel(chain=0, draw=0).to_numpy(), given=given)
    assert np.isfinite(again["row"]).all()


def test_a_default_grid_has_all_levels():
    levels = pd.Series(pd.Categorical(list("uv") * 6, ["u", "v", "w"]))
    with pm.Model() as model, pytest.warns(UserWarning, match="no row has 1 of the 3 levels"):
        dp.DPMixture("y", 1.0, observed=levels)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    assert float(dp.density(idata, "y", random_seed=1)["mean"].sum()) == pytest.approx(1.0)


def test_rows_without_names_are_named_by_position():
    """A numbered Series beside an array goes by position; shuffled, it is refused, and so are other names."""
    known = pd.Series(KNOWN)
    wanted = density_with(lambda v: dp.DPMixture("y", 1.0, observed=REAL.to_numpy(), known_labels=v), KNOWN)
    for make in (lambda: REAL.to_numpy(), lambda: pl.DataFrame(REAL.to_dict("list")), lambda: pm.Data("d", REAL)):

        def build(value, make=make):
            dp.DPMixture("y", 1.0, observed=make(), known_labels=value)

        assert density_with(build, known)[0] == wanted[0]
        # Whether the array was made of the shuffled table or of the table before cannot be known.
        with (
            pm.Model(),
            pytest.raises(ValueError, match="numbers rows in another order, and observed has no index"),
        ):
            build(known.iloc[ORDER])
        with (
            pm.Model(),
            pytest.raises(ValueError, match=r"known_labels has the index of other rows .* pass it as an array"),
        ):
            build(pd.Series(KNOWN, pd.Index([f"s{i}" for i in range(N)])))


def test_an_offset_of_xarray_is_turned_by_its_dimensions():
    array = xr.DataArray(REAL.to_numpy(), dims=("city", "what"), coords={"city": NAMES, "what": ["u", "v"]})
    offset, base = array / 3.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
    wanted = density_with(lambda v: dp.DPMixture("y", 1.0, base, observed=array, offset=v), offset)
    for own in (offset.T, offset.T.isel(city=ORDER), offset.isel(what=[1, 0])):
        assert density_with(lambda v: dp.DPMixture("y", 1.0, base, observed=array, offset=v), own) == wanted


def test_rows_of_names_are_matched_by_these():
    """Named tuples, dicts and the rows of a frame have names for their entries."""
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=list(REAL.itertuples(index=False)))
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    assert list(model.coords["y_feature"]) == ["u", "v"]
    turned = REAL[["v", "u"]].iloc[:2]
    wanted = dp.membership(idata, "y", REAL.iloc[:2], LABELS)["probability"]
    for own in (
        list(turned.itertuples(index=False)),
        turned.to_dict("records"),
        [row for _, row in turned.iterrows()],
    ):
        np.testing.assert_array_equal(dp.membership(idata, "y", own, LABELS)["probability"], wanted)
    one = dp.membership(idata, "y", turned.iloc[0].to_dict(), LABELS)["probability"]
    np.testing.assert_allclose(one, wanted[:1])
    unnamed = xr.DataArray(turned.to_numpy(), dims=("row", "other"))
    with pytest.raises(
        ValueError, match=r"must have the dimension of the columns, 'y_feature', .* rename one, as in x.rename\("
    ):
        dp.membership(idata, "y", unnamed, LABELS)
    named = unnamed.assign_coords(other=["v", "u"])
    np.testing.assert_array_equal(dp.membership(idata, "y", named, LABELS)["probability"], wanted)


@pytest.mark.parametrize("levels", [[3, 5], ["u", "v"], [1.5, 2.0]])
def test_drawn_rows_of_categories_can_be_asked_about(levels):
    """They have the levels of the data."""
    data = pd.Series(pd.Categorical.from_codes([0, 0, 0, 1, 1, 1] * 2, levels))
    for observed in (data, pd.DataFrame({"k": data, "l": data.iloc[::-1].reset_index(drop=True)})):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, observed=observed)
        idata = sample(model, 10, tune=10, chains=1, random_seed=1)
        drawn = dp.sample_new_rows(idata, "y", 3, random_seed=1)["y"].isel(chain=0, draw=0)
        found = dp.membership(idata, "y", drawn, LABELS)["probability"]
        names = pd.DataFrame(drawn.to_numpy().reshape(3, -1), columns=getattr(observed, "columns", ["x"]))
        own = names if observed.ndim == 2 else names["x"]
        np.testing.assert_array_equal(found, dp.membership(idata, "y", own, LABELS)["probability"])


def test_units_of_any_integers_and_dates():
    for names in ([101, 7, 33], [DATES[2], DATES[0], DATES[1]]):
        unit = pd.Series(names).repeat(4).reset_index(drop=True)
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, observed=REAL, unit=unit)
        assert list(pd.Index(model.coords["y_unit"])) == sorted(names)


@pytest.mark.parametrize(
    "names",
    [
        pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin"),
        pd.period_range("2024-01", periods=3, freq="M"),
        pd.Index([datetime.date(2024, 1, 1 + i) for i in range(3)]),
        pd.Index([("a", 1), ("a", 2), ("b", 1)], tupleize_cols=False),
        pd.Index([decimal.Decimal(i) for i in range(3)]),
        [True, False],
    ],
    ids=["zoned", "periods", "dates", "tuples", "decimals", "bools"],
)
def test_units_of_any_names_can_be_saved(names, tmp_path):
    unit = pd.Series(names).repeat(N // len(names)).reset_index(drop=True)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=REAL, unit=unit)
    idata = sample(model, 5, tune=5, chains=1, random_seed=1)
    idata.to_netcdf(tmp_path / "units.nc")
    loaded = az.from_netcdf(tmp_path / "units.nc")
    assert loaded["posterior"]["y_labels"].sizes["y_unit"] == len(names)


def test_columns_with_the_names_of_a_density():
    """As an aggregated table has them."""
    frame = REAL.set_axis(["mean", "lower"], axis=1)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=frame)
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    found = dp.density(idata, "y", frame.iloc[:3], random_seed=1)
    np.testing.assert_array_equal(found["y_mean"], frame["mean"].iloc[:3])
    assert set(dp.density(idata, "y", random_seed=1)["mean"].dims) == {"y_mean", "y_lower"}
    dp.plot_density(idata, "y", random_seed=1)


def test_dims_take_the_names_of_a_table():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=REAL.set_axis(NAMES), dims=("city", "what"))
    assert (model.coords["city"], model.coords["what"]) == (tuple(NAMES), ("u", "v"))
    with pm.Model(), pytest.raises(ValueError, match="the model has no dimension 'city': give it coordinates"):
        dp.DPMixture("y", 1.0, observed=REAL.to_numpy(), dims=("city", "what"))


def test_covariates_lend_their_names_to_coefficients():
    covariates = REAL[["v"]].assign(constant=1.0)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.LinearRegression(**REGRESSION, covariates=covariates), observed=REAL["u"])
    idata = sample(model, 10, tune=10, chains=1, random_seed=1)
    assert list(dp.component_draws(idata, "y", random_seed=1)["y_covariate"]) == ["v", "constant"]


def test_zeros_and_ones_that_are_integers_are_told_of():
    """In an array, whose columns are of one kind; in a frame they are binary."""
    with pm.Model(), pytest.warns(UserWarning, match="give base=dp.BetaBernoulli, or make them bools"):
        dp.DPMixture("y", 1.0, observed=BOOL.to_numpy(dtype=int))
    with pm.Model(), pytest.warns(UserWarning, match=r"the columns \[1\] of observed hold only 0 and 1"):
        dp.DPMixture("y", 1.0, observed=np.column_stack([REAL["u"], BOOL["s"]]))
    assert model_of(BOOL.astype(int))[1] == "BetaBernoulli"
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.DPMixture("y", 1.0, dp.BetaBernoulli, observed=BOOL.astype(int))
        dp.DPMixture("z", 1.0, observed=REAL)


GAPS = REAL["v"].where(REAL.index != 3).set_axis(NAMES)
ROWS_OF_GAPS = r"in the rows \['" + NAMES[3] + r"'\]"
TOLD = {
    "a superset": (
        lambda: mixture(known_labels=pd.Series([*KNOWN, 0], pd.Index([*NAMES, "more"]))),
        r"the rows \['more'\] besides those of observed. Select the rows .*known_labels.loc\[observed.index\]",
    ),
    "the name of a column": (lambda: mixture(unit="who"), r"pass the column, as in frame\['who'\]"),
    "the name of a column of numbers": (lambda: mixture(offset="who"), r"pass the column, as in frame\['who'\]"),
    "missing offset": (lambda: mixture(offset=GAPS), ROWS_OF_GAPS),
    "missing covariates": (
        lambda: mixture(base=dp.LinearRegression(**REGRESSION, covariates=pd.concat([GAPS, GAPS], axis=1))),
        "several columns named",
    ),
    "missing covariate": (
        lambda: mixture(base=dp.LinearRegression(**REGRESSION, covariates=GAPS.to_frame().assign(one=1.0))),
        ROWS_OF_GAPS,
    ),
    "missing unit": (lambda: mixture(unit=GAPS.astype(str).where(GAPS.notna())), ROWS_OF_GAPS),
    "covariates of text": (
        lambda: mixture(base=dp.LinearRegression(**REGRESSION, covariates=TEXT)),
        r"pandas.get_dummies\(x, drop_first=True, dtype=float\)",
    ),
    "objects": (
        lambda: dp.DPMixture("y", 1.0, observed=pd.DataFrame({"a": [1, "few", 3.0], "b": [1.0, 2.0, 3.0]})),
        r"\['a'\] is objects such as 'few': .*pandas.to_numeric\(x, errors='coerce'\)",
    ),
    "nothing": (
        lambda: dp.DPMixture("y", 1.0, observed=REAL.assign(w=None)),
        "all entries of column 'w' of observed are missing",
    ),
    "tiny numbers": (lambda: dp.DPMixture("y", 1.0, observed=REAL * 1e-200), "whose squares are 0 .* rescale"),
    "documents with names in a column": (
        lambda: dp.LDA("w", 2, 0.5, 0.5, observed=pd.DataFrame({"id": ["d", "e"], "cat": [1, 2], "dog": [0, 1]})),
        r"make them the index, observed.set_index\('id'\)",
    ),
    "documents with gaps": (
        lambda: dp.LDA("w", 2, 0.5, 0.5, observed=pd.DataFrame({"cat": [1, None], "dog": [0, 1]})),
        r"observed.fillna\(0\)",
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_message_says_what_to_do_next(case):
    build, message = TOLD[case]
    with pm.Model() as model, pytest.raises((TypeError, ValueError), match=message):
        build()
    assert not model.named_vars
    assert not model.coords


# Documents.

COUNTS = np.random.default_rng(4).poisson(1.0, (6, 4))
WORDS = ["cat", "dog", "law", "tax"]


def test_words_of_topics_have_names():
    named = pd.DataFrame(COUNTS, columns=WORDS)
    built = [
        (named, {}, {}),
        (csr_array(COUNTS), {"words": WORDS}, {}),
        (COUNTS, {"words": np.array(WORDS)}, {}),
        (csr_array(COUNTS), {"dims": ("document", "word")}, {"document": range(6), "word": WORDS}),
        (named.astype(pd.SparseDtype(int, 0)), {}, {}),
        (pl.DataFrame({w: COUNTS[:, j] for j, w in enumerate(WORDS)}), {}, {}),
    ]
    for observed, arguments, coords in built:
        with pm.Model(coords=coords) as model:
            dp.LDA("w", 2, 0.5, 0.5, observed=observed, **arguments)
        idata = sample(model, 5, tune=5, chains=1, random_seed=1)
        assert sorted(set(dp.topics(idata, "w", n_words=4)["word"].to_numpy().ravel())) == WORDS
        assert idata["posterior"]["w_labels"].sizes["w_token"] == COUNTS.sum()
        held = dp.held_out_log_likelihood(idata, "w", csr_array(COUNTS[:2]), random_seed=1)
        np.testing.assert_array_equal(held["n_words"], COUNTS[:2].sum(axis=1))
    with pm.Model(), pytest.raises(ValueError, match="words must name the 4 columns of observed, got 2"):
        dp.LDA("w", 2, 0.5, 0.5, observed=COUNTS, words=["a", "b"])


def test_texts_are_refused_with_the_lines_that_make_counts():
    texts = ["the cat sat", "the dog barked", "tax law", "law of tax"]
    lists = [text.split() for text in texts]
    for observed, name in ((texts, "texts"), (lists, "lists"), (pd.Series(texts), "texts")):
        with pm.Model(), pytest.raises(TypeError, match="must be counts of words, got") as raised:
            dp.LDA("w", 2, 0.5, 0.5, observed=observed)
        lines = str(raised.value).partition(": ")[2].partition("; and then ")
        there = {name: observed}
        exec(lines[0], there)
        with pm.Model() as model:
            arguments = eval(f"dict({lines[2].partition('. ')[0]})", there)
            dp.LDA("w", 2, 0.5, 0.5, **arguments)
        assert "w_labels" in model.named_vars


# Data that changes, and variables in lists.


def test_variables_in_a_list():
    with pm.Model() as model:
        m1, m2 = pm.Normal("m1"), pm.Normal("m2")
        base = dp.NormalInverseWishart(mu=[m1, m2], kappa=0.5, nu=4.0, psi=[[1.0, 0.0], [0.0, m1**2 + 1.0]])
        dp.DPMixture("y", 1.0, base, observed=REAL)
    point = {"y_labels": LABELS, "m1": np.array(0.3), "m2": np.array(-0.2)}
    fixed = dp.NormalInverseWishart(mu=[0.3, -0.2], kappa=0.5, nu=4.0, psi=[[1.0, 0.0], [0.0, 1.09]])
    densities = model.point_logps(point, round_vals=10)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, fixed, observed=REAL)
    assert densities["y"] == pytest.approx(model.point_logps({"y_labels": LABELS}, round_vals=10)["y"])


def rows_data(length=N):
    return REAL["u"].to_numpy()[:length]


CHANGES = {
    "covariates": lambda d: {
        "base": dp.LinearRegression(**REGRESSION, covariates=pm.Data("other", np.ones((N, 2)))),
    },
    "offset": lambda d: {"offset": pm.Data("other", np.ones(N)), "base": dp.NormalInverseGamma(0, 1, 1, 1)},
    "unit": lambda d: {"unit": pm.Data("other", UNITS)},
    "known_labels": lambda d: {"known_labels": KNOWN},
    "must_link": lambda d: {"must_link": KNOWN},
    "initval": lambda d: {"initval": LABELS},
}  # fmt: skip


@pytest.mark.parametrize("argument", CHANGES)
def test_data_of_another_length_is_told_by_the_name_of_the_argument(argument):
    with pm.Model() as model:
        data = pm.Data("rows", rows_data())
        dp.DPMixture("y", 1.0, observed=data, **CHANGES[argument](data))
        pm.set_data({"rows": rows_data(8)})
    cure = "pm.set_data" if argument in ("covariates", "offset", "unit") else "build it again with the new rows"
    with pytest.raises(ValueError, match=rf"\(the data 'rows'\) has 8 rows, but {argument} .*has 12: .*{cure}"):
        sample(model, 2, tune=2, chains=1)


def test_data_of_another_length_for_groups_views_and_processes():
    with pm.Model() as model:
        dp.HDPMixture("y", 1.0, 1.0, observed=pm.Data("rows", rows_data()), group=UNITS)
        pm.set_data({"rows": rows_data(8)})
    with pytest.raises(ValueError, match="but group has 12: group cannot change"):
        sample(model, 2, tune=2, chains=1)
    with pm.Model() as model:
        both = {"a": pm.Data("rows", rows_data()), "b": pm.Data("more", rows_data())}
        dp.DPMixture("y", 1.0, dict.fromkeys("ab", dp.NormalInverseGamma), observed=both)
        pm.set_data({"rows": rows_data(8)})
    with pytest.raises(ValueError, match=r"observed of y_b \(the data 'more'\) has 12"):
        sample(model, 2, tune=2, chains=1)
    with pm.Model() as model:
        x = pm.Data("x", rows_data())
        theta = dp.DirichletProcess("theta", 1.0, base=pm.Normal.dist(), shape=N)
        pm.Normal("z", theta + x, 1.0, observed=rows_data())
        pm.set_data({"x": rows_data(8)})
    with pytest.raises(ValueError, match=r"theta has 12 rows, .* data \['x of shape \(8,\)'\]. Set data of 12"):
        sample(model, 2, tune=2, chains=1)


@pytest.mark.parametrize(("kind", "family"), [("real", "NormalInverseWishart"), ("bool", "BetaBernoulli")])
def test_chunks_are_read_as_arrays_are(kind, family):
    frame = TABLES[kind]
    for observed in (
        dask.array.from_array(frame.to_numpy(), chunks=(5, 2)),
        dask.dataframe.from_pandas(frame, npartitions=2),
        dask.dataframe.from_pandas(frame.convert_dtypes(), npartitions=2),
        dask.dataframe.from_pandas(frame.convert_dtypes(dtype_backend="pyarrow"), npartitions=2),
    ):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, observed=observed)
        assert any(family in str(own.data.tobytes()) for own in model.data_vars if hasattr(own, "data"))
    mixed = dask.dataframe.from_pandas(pd.concat([REAL, BOOL], axis=1), npartitions=2)
    with pm.Model(), pytest.raises(TypeError, match="columns of several kinds"):
        dp.DPMixture("y", 1.0, observed=mixed)
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=mixed)


def test_codes_in_chunks_begin_at_zero():
    codes = dask.array.from_array(1 + UNITS % 3, chunks=5)
    with pm.Model(), pytest.warns(UserWarning, match="no row of observed has the code 0"):
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=codes)


def test_codes_of_one_column_in_chunks_that_begin_at_one():
    codes = dask.array.from_array(np.column_stack([1 + UNITS % 3, UNITS % 3]), chunks=(5, 2))
    with pm.Model(), pytest.warns(UserWarning, match=r"no row of observed has the code 0 in the columns \[0\]"):
        dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=codes)


@pytest.mark.parametrize("n_looked_at", [12, 1_000])
@pytest.mark.parametrize(
    ("columns", "base", "told"),
    [
        (["smokes"], None, "all entries of observed are 0 or 1"),
        (["x", "smokes"], None, r"the columns \[1\] of observed hold only 0 and 1"),
        (["id", "x"], None, r"the columns \[0\] of observed number the rows"),
        (["year"], dp.DirichletCategorical, "are taken for codes of 2020 levels"),
    ],
)
def test_columns_in_chunks_that_are_hardly_data_are_told_of(columns, base, told, n_looked_at, monkeypatch):
    monkeypatch.setattr("pymc_dpgmm.models.chunked_mixture.ROWS_LOOKED_AT", n_looked_at)
    table = numbered(200).assign(year=np.arange(200) % 2 * 2_019)
    observed = dask.array.from_array(table[columns].to_numpy(dtype=float), chunks=(50, -1))
    with pm.Model(), pytest.warns(UserWarning, match=told):
        dp.DPMixture("y", 1.0, base, observed=observed)


@pytest.mark.parametrize("n_looked_at", [12, 1_000])
def test_columns_in_chunks_that_are_data_are_not_told_of(n_looked_at, monkeypatch):
    """Nor does a number of single precision overflow where it is compared with the largest one."""
    monkeypatch.setattr("pymc_dpgmm.models.chunked_mixture.ROWS_LOOKED_AT", n_looked_at)
    rng = np.random.default_rng(1)
    counts = rng.permutation(1_000)[:200]
    for dtype in (np.float64, np.float32):
        rows = np.column_stack([rng.normal(size=200), counts]).astype(dtype)
        with pm.Model():
            dp.DPMixture("y", 1.0, observed=dask.array.from_array(rows, chunks=(50, 2)))


def numbered(n=20):
    rng = np.random.default_rng(1)
    unit = [f"s{i // 2}" for i in range(n)]
    return pd.DataFrame(
        {
            "id": rng.permutation(n) + 1000,
            "x": rng.normal(size=n),
            "smokes": rng.permutation(np.arange(n) % 2),
            "unit": unit,
            "number": np.arange(n) // 2,
            "earned": np.where(np.arange(n) % 4 == 0, 0.0, rng.gamma(2.0, size=n)),
        }
    )


@pytest.mark.parametrize(
    ("columns", "arguments", "told"),
    [
        (["id", "x"], {}, r"the columns \['id'\] of observed number the rows"),
        (["x", "earned"], {}, r"between others that differ \(\['earned is 0 in 5 of 20 rows'\]"),
        ("earned", {}, r"between others that differ \(\['0 in 5 of 20 rows'\]"),
        (["x", "number"], {"unit": "number"}, "column 'number' of observed is the same as unit"),
        (["x", "number"], {"group": "number"}, "column 'number' of observed is the same as group"),
        (
            ["x", "unit"],
            {"unit": "unit", "base": {"a": ("x", dp.NormalInverseGamma), "b": ("unit", dp.DirichletCategorical)}},
            "'unit' of observed is the same as unit",
        ),
    ],
)
def test_columns_that_are_hardly_data_are_told_of(columns, arguments, told):
    table = numbered()
    own = {key: table[of] if isinstance(of, str) else of for key, of in arguments.items()}
    mixture = dp.HDPMixture if "group" in own else dp.DPMixture
    concentrations = (1.0, 1.0) if "group" in own else (1.0,)
    with pm.Model(), pytest.warns(UserWarning, match=told):
        mixture("y", *concentrations, observed=table[columns], **own)


def test_columns_that_are_data_are_not_told_of():
    table = numbered()
    table["counts"] = np.random.default_rng(2).poisson(3.0, len(table))
    # Rounded numbers repeat as well, and so do the others.
    table["rounded"] = np.random.default_rng(3).normal(size=len(table)).round(1)
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=table[["x", "counts", "rounded"]], unit=table["number"])
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseWishart, observed=table[["id", "x", "smokes"]])


def test_labels_of_some_rows_can_be_filled_up():
    """The line of the message makes what is known of some rows known labels."""
    table = pd.DataFrame({"x": RNG.normal(size=N)}, index=NAMES)
    known = pd.Series([1, 2, 1], NAMES[[0, 5, 7]])
    with pm.Model(), pytest.raises(ValueError, match=r"lacks the rows .*known_labels.reindex\(observed.index\)"):
        dp.DPMixture("y", 1.0, observed=table, known_labels=known)
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=table, known_labels=known.reindex(table.index))
    labels = model.initial_point()["y_labels"]
    assert labels[0] == labels[7] != labels[5]
