"""What default base measures find in labelled tables, beside scikit-learn's mixtures.

    python benchmarks/defaults.py results
    python benchmarks/defaults.py results --tables wine iris --bases default --draws 300
    python benchmarks/defaults.py results --only added one
    python benchmarks/defaults.py results --only views --cases /path/to/tables

For each table and each base measure, with its scale learnt or with fixed numbers: the adjusted Rand index of the
point partition with the known groups, its number of clusters, the mean log density of a fifth of the rows that were
held out, and seconds. The last rows are scikit-learn's BayesianGaussianMixture with at most 30 components (full and
diagonal covariances), R's mclust where it is installed (the covariance model and the number of components, up to nine,
by BIC), and k-means, which is told the number of groups. Columns are standardised for these, as their
users are advised to do; base measures of the package follow the scale of columns by themselves. Means over all
tables are at the end. Writes ``defaults.json`` into the folder.

``added`` is the index of three groups in a table as it may come, by the default alone: with a column that is
constant, or repeats others, or is almost constant; and ``one`` the probability of one cluster in one column of normal
numbers. Both are of ten data sets, and go into ``added.json`` and ``one.json``.

``views`` are frames with columns of several kinds, without a base measure and with a dict of views by hand: the index
of both with the known groups, where there are any, and with each other. ``--cases`` is a folder of further tables:
R's ``kidney``, ``cpp`` (BNPmix), ``lalonde`` (MatchIt), ``paquid`` (lcmm) and BUGS's LSAT, as CSV files.
"""

import argparse
import importlib
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

import pymc_dpgmm as dp

logging.getLogger("pymc").setLevel(logging.ERROR)


def shipped(load, n_components=None):
    bunch = load()
    data = bunch.data if n_components is None else PCA(n_components).fit_transform(bunch.data)
    return data, bunch.target


def penguins():
    table = dp.datasets.load_penguins().dropna()
    numbers = table.select_dtypes("number").drop(columns="year", errors="ignore")
    return numbers.to_numpy(float), table["species"].astype("category").cat.codes.to_numpy()


def crabs():
    """200 crabs of two species and sexes, five lengths in mm (Campbell and Mahon 1974; R's ``MASS::crabs``)."""
    table = pd.read_csv(Path(__file__).parent / "data" / "crabs.csv")
    return table[["FL", "RW", "CL", "CW", "BD"]].to_numpy(float), (table["sp"] + table["sex"]).to_numpy()


def three_groups(d, n=120):
    """Three groups that are eight standard deviations apart in two columns; the others are noise."""
    rng = np.random.default_rng(d)
    labels = np.repeat(np.arange(3), n // 3)
    centres = np.zeros((3, d))
    centres[1, 0], centres[2, 1] = 8.0, 8.0
    return centres[labels] + rng.normal(size=(n, d)), labels


def correlated_groups(n, d, k, distance):
    """Groups of unequal sizes, each with a covariance of its own."""
    rng = np.random.default_rng([n, d, k])
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0)))
    roots = rng.normal(size=(k, d, d)) / np.sqrt(d) + 0.4 * np.eye(d)
    centres = distance * rng.normal(size=(k, d))
    return centres[labels] + np.einsum("nij,nj->ni", roots[labels], rng.normal(size=(n, d))), labels


TABLES = {
    "iris": lambda: shipped(datasets.load_iris),
    "penguins": penguins,
    "crabs": crabs,
    "wine": lambda: shipped(datasets.load_wine),
    "breast cancer": lambda: shipped(datasets.load_breast_cancer),
    "digits, 10 components": lambda: shipped(datasets.load_digits, 10),
    "digits, 20 components": lambda: shipped(datasets.load_digits, 20),
    "three groups, 2 columns": lambda: three_groups(2),
    "three groups, 6 columns": lambda: three_groups(6),
    "three groups, 14 columns": lambda: three_groups(14),
    "three groups, 30 columns": lambda: three_groups(30, 300),
    "500 x 4, 5 groups": lambda: correlated_groups(500, 4, 5, 2.0),
    "1000 x 10, 8 groups": lambda: correlated_groups(1_000, 10, 8, 1.2),
    "10000 x 5, 10 groups": lambda: correlated_groups(10_000, 5, 10, 2.5),
}


# Without a base measure, normal classes, all of which learn their scale, and the numbers that do not learn.
BASES = {
    "default": lambda rows: None,
    "NormalInverseGamma": lambda rows: dp.NormalInverseGamma,
    "Spherical": lambda rows: dp.SphericalNormalInverseGamma,
    "Wishart.from_data": dp.NormalInverseWishart.from_data,
    "Gamma.from_data": dp.NormalInverseGamma.from_data,
}


def fitted(make, rows, n_draws):
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), make(rows), observed=rows)
        idata = pm.sample(
            n_draws, tune=n_draws, chains=2, progressbar=False, compute_convergence_checks=False, random_seed=1
        )
    return idata


def of_base(make, train, held_out, groups, n_draws):
    begin = time.perf_counter()
    idata = fitted(make, train, n_draws)
    seconds = time.perf_counter() - begin
    found = dp.point_partition(idata, "y")["labels"].to_numpy()
    some = idata.isel(draw=slice(None, None, max(n_draws // 50, 1)))
    density = dp.density(some, "y", held_out)["mean"].to_numpy()
    return report(groups, found, float(np.log(density).mean()), seconds)


# What a table may hold beside three groups of 30 rows in three columns, 7 standard deviations apart.
ADDED = {
    "nothing": lambda x: x,
    "a constant": lambda x: np.column_stack([x, np.full(90, 3.0)]),
    "a column again": lambda x: np.column_stack([x, x[:, 0]]),
    "2 x + 1": lambda x: np.column_stack([x, 2.0 * x[:, 0] + 1.0]),
    "a sum of two columns": lambda x: np.column_stack([x, x[:, 0] + x[:, 1]]),
    "a column rounded to tenths": lambda x: np.column_stack([x, x[:, 0].round(1)]),
    "one 1 and 89 zeros": lambda x: np.column_stack([x, np.arange(90) == 17]),
}


def of_added(n_draws):
    found = {}
    for name, add in ADDED.items():
        found[name] = []
        for seed in range(10):
            rng, groups = np.random.default_rng(seed), np.repeat(np.arange(3), 30)
            rows = np.array([[0.0, 0.0, 0.0], [7.0, 0.0, 0.0], [0.0, 7.0, 0.0]])[groups] + rng.normal(size=(90, 3))
            labels = dp.point_partition(fitted(lambda rows: None, add(rows), n_draws), "y")["labels"].to_numpy()
            found[name].append(float(adjusted_rand_score(groups, labels)))
        print(f"  {name:32s} rand {np.mean(found[name]):5.2f}, least {min(found[name]):5.2f}", flush=True)
    return found


def of_one(n_draws):
    found = {}
    for n in (50, 190, 1_000):
        found[n] = []
        for seed in range(10):
            rows = np.random.default_rng([n, seed]).normal(3.0, 2.0, size=n)
            n_clusters = fitted(lambda rows: None, rows, n_draws).posterior["y_n_clusters"]
            found[n].append(float((n_clusters == 1).mean()))
        print(f"  {n:5d} rows: one cluster {np.mean(found[n]):.2f}, least {min(found[n]):.2f}", flush=True)
    return found


def of_frame(load):
    bunch = load(as_frame=True)
    return bunch.data, bunch.target.to_numpy()


def all_of_penguins():
    table = dp.datasets.load_penguins().dropna()
    return table.drop(columns="species"), table["species"].to_numpy()


def patients():
    sys.path.append(str(Path(__file__).parent.parent / "examples"))
    return importlib.import_module("mixed_table").simulate()


def lsat(folder):
    table = pd.read_csv(folder / "lsat.csv")
    return table.loc[np.repeat(table.index, table["count"])].drop(columns="count").reset_index(drop=True), None


NUMBERS, CODES, BITS = dp.NormalInverseWishart, dp.DirichletCategorical, dp.BetaBernoulli(1.0, 1.0)
# Frames with their groups, and views by hand.
FRAMES = {
    "wine": (lambda folder: of_frame(datasets.load_wine), NUMBERS),
    "iris": (lambda folder: of_frame(datasets.load_iris), NUMBERS),
    "penguins": (
        lambda folder: all_of_penguins(),
        {
            "lengths": (["bill_length", "bill_depth", "flipper_length", "body_mass"], NUMBERS),
            "codes": (["island", "sex"], CODES),
        },
    ),
    "patients": (
        lambda folder: patients(),
        {
            "pressure": (["systolic", "diastolic"], NUMBERS),
            "region": (["region"], CODES),
            "visits": ("visits", dp.GammaPoisson(1.0, 0.2)),
        },
    ),
    "lsat": (lsat, BITS),
    "kidney": (
        lambda folder: (pd.read_csv(folder / "kidney.csv").drop(columns="patient"), None),
        {"numbers": (["t", "age"], NUMBERS), "disease": (["disease"], CODES), "bits": (["sex", "event"], BITS)},
    ),
    "births": (
        lambda folder: (pd.read_csv(folder / "cpp.csv").astype({"hosp": "category"}), None),
        {"numbers": (["gest", "dde", "weight"], NUMBERS), "codes": (["hosp", "smoke"], CODES)},
    ),
    "lalonde": (
        lambda folder: (pd.read_csv(folder / "lalonde.tab", sep=r"\s+"), None),
        {
            "numbers": (["age", "educ", "re74", "re75", "re78"], NUMBERS),
            "race": (["race"], CODES),
            "bits": (["treat", "married", "nodegree"], BITS),
        },
    ),
    "paquid": (
        lambda folder: (pd.read_csv(folder / "paquid.csv").groupby("ID").first().drop(columns="agedem"), None),
        {
            "numbers": (["MMSE", "normMMSE", "age65", "age_init"], NUMBERS),
            "bits": (["CEP", "male", "dem"], BITS),
        },
    ),
}


OF_CASES = "lsat", "kidney", "births", "lalonde", "paquid"


def of_views(n_draws, folder):
    results = {}
    for name, (load, by_hand) in FRAMES.items():
        if folder is None and name in OF_CASES:
            continue
        table, groups = load(folder)
        found = {
            who: dp.point_partition(fitted(lambda rows, base=base: base, table, n_draws), "y")["labels"].to_numpy()
            for who, base in (("default", None), ("by hand", by_hand))
        }
        rand = {
            who: float("nan") if groups is None else adjusted_rand_score(groups, own) for who, own in found.items()
        }
        rand["both"] = adjusted_rand_score(*found.values())
        results[name] = rand | {f"{who}, clusters": len(np.unique(own)) for who, own in found.items()}
        print(
            f"  {name:12s}", "  ".join(f"{key} {value:5.2f}" for key, value in results[name].items()), flush=True
        )
    return results


def report(groups, found, log_density, seconds):
    return {
        "rand": float(adjusted_rand_score(groups, found)),
        "n_clusters": len(np.unique(found)),
        "log_density": log_density,
        "seconds": seconds,
    }


def peers(train, held_out, groups):
    mean, scale = train.mean(axis=0), train.std(axis=0)
    rows, others = (train - mean) / scale, (held_out - mean) / scale
    for kind in ("full", "diag"):
        begin = time.perf_counter()
        model = BayesianGaussianMixture(n_components=30, covariance_type=kind, max_iter=2_000, random_state=0).fit(
            rows
        )
        log_density = float(model.score_samples(others).mean() - np.log(scale).sum())
        yield f"sklearn, {kind}", report(groups, model.predict(rows), log_density, time.perf_counter() - begin)
    if shutil.which("Rscript"):
        found, log_density, seconds = by_mclust(rows, others)
        yield "mclust", report(groups, found, log_density - float(np.log(scale).sum()), seconds)
    begin = time.perf_counter()
    found = KMeans(len(np.unique(groups)), n_init=10, random_state=0).fit_predict(rows)
    yield "k-means, told the number", report(groups, found, float("nan"), time.perf_counter() - begin)


MCLUST = """
suppressMessages(library(mclust))
train <- as.matrix(read.csv("train.csv", header = FALSE))
others <- as.matrix(read.csv("others.csv", header = FALSE))
begin <- proc.time()[["elapsed"]]
fit <- Mclust(train, verbose = FALSE)
seconds <- proc.time()[["elapsed"]] - begin
of_others <- dens(data = others, modelName = fit$modelName, parameters = fit$parameters, logarithm = TRUE)
cat(seconds, mean(of_others), fit$classification, sep = "\\n")
"""


def by_mclust(rows, others):
    """Return the classes of rows, the mean log density of others, and seconds without the start of R."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder) / "train.csv", rows, delimiter=",")
        np.savetxt(Path(folder) / "others.csv", others, delimiter=",")
        said = subprocess.run(
            ["Rscript", "-e", MCLUST], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.split()
    return np.array(said[2:], dtype=int), float(said[1]), float(said[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--bases", nargs="+", choices=BASES, default=list(BASES))
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=["tables", "added", "one", "views"],
        default=["tables", "added", "one", "views"],
    )
    parser.add_argument("--cases", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, of in (("added", of_added), ("one", of_one)):
        if name in arguments.only:
            print(name)
            (arguments.folder / f"{name}.json").write_text(json.dumps(of(arguments.draws), indent=1))
    if "views" in arguments.only:
        print("views")
        found = of_views(arguments.draws, arguments.cases)
        (arguments.folder / "views.json").write_text(json.dumps(found, indent=1))
    if "tables" in arguments.only:
        compare(arguments)


def compare(arguments):
    results = {}
    for name in arguments.tables:
        rows, groups = TABLES[name]()
        order = np.random.default_rng(0).permutation(len(rows))
        out, kept = np.split(order, [len(rows) // 5])
        train, held_out, known = rows[kept], rows[out], groups[kept]
        results[name] = {}
        for base in arguments.bases:
            results[name][base] = of_base(BASES[base], train, held_out, known, arguments.draws)
        results[name] |= dict(peers(train, held_out, known))
        print(f"{name}: {len(rows)} x {rows.shape[1]}, {len(np.unique(groups))} groups")
        for who, found in results[name].items():
            print(
                f"  {who:32s} rand {found['rand']:5.2f}  {found['n_clusters']:4d} clusters  "
                f"log density {found['log_density']:9.2f}  {found['seconds']:6.1f} s",
                flush=True,
            )
    print(f"all {len(results)} tables")
    for who in [who for who in next(iter(results.values())) if all(who in of for of in results.values())]:
        means = [
            np.mean([of[who][what] for of in results.values()]) for what in ("rand", "log_density", "seconds")
        ]
        print(f"  {who:32s} rand {means[0]:5.2f}  log density {means[1]:9.2f}  {means[2]:6.1f} s")
    (arguments.folder / "defaults.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
