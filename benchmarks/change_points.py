"""Change points of the Turing Change Point Dataset beside PELT: covering and F1 by annotations of five people.

Usage: ``python benchmarks/change_points.py [FOLDER] --tcpd PATH [--only NAME ...]``. PATH is a checkout of
https://github.com/alan-turing-institute/TCPD (van den Burg and Williams 2020), whose series of one column are taken as
far as they are there. The model is that of who names nothing: the default base measure, and p ~ Beta(1, 100). PELT is
that of ruptures, where it is installed, with its normal cost and the penalty of BIC. Covering and F1, with a margin of
five rows, are those of the paper (sections 4.1 and 4.2). Prints a table and writes ``FOLDER/change_points.json``.
"""

import argparse
import itertools
import json
import logging
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dpgmm as dp

MARGIN = 5


def series_of(folder):
    """Values (n,) by name, of all series of one column, and the annotations of each."""
    annotations = json.loads((folder / "annotations.json").read_text())
    for path in sorted(folder.glob("datasets/*/*.json")):
        stored = json.loads(path.read_text())
        if stored["n_dim"] == 1 and stored["name"] in annotations:
            values = np.array([np.nan if v is None else v for v in stored["series"][0]["raw"]], dtype=float)
            yield stored["name"], values, list(annotations[stored["name"]].values())


def segments_of(places, n):
    """Sets of rows between changes."""
    ends = [0, *sorted(set(places) - {0}), n]
    return [set(range(a, b)) for a, b in itertools.pairwise(ends) if b > a]


def covering(found, annotations, n):
    """How much of each annotator's segments the found ones cover, on average."""
    own = segments_of(found, n)
    each = []
    for places in annotations:
        theirs = segments_of(places, n)
        each.append(sum(len(a) * max(len(a & b) / len(a | b) for b in own) for a in theirs) / n)
    return float(np.mean(each))


def f1(found, annotations):
    """Precision of all annotators together, recall of each; the first row counts as a change of all."""
    own = {0, *found}

    def hits(places):
        left, n_hits = sorted(own), 0
        for place in sorted({0, *places}):
            near = [x for x in left if abs(x - place) <= MARGIN]
            if near:
                n_hits += 1
                left.remove(min(near, key=lambda x: abs(x - place)))
        return n_hits

    every = set().union(*map(set, annotations))
    precision = hits(every) / len(own)
    recall = np.mean([hits(places) / len({0, *places}) for places in annotations])
    return float(2.0 * precision * recall / (precision + recall))


def by_this_package(values, seed):
    with pm.Model():
        dp.ChangePoints("y", pm.Beta("p", 1.0, 100.0), observed=values)
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, random_seed=seed, progressbar=False, compute_convergence_checks=False
        )
    return np.flatnonzero(np.diff(dp.change_points(idata, "y")["segment"].to_numpy())) + 1


def by_pelt(values, seed):
    import ruptures

    known = np.flatnonzero(np.isfinite(values))
    x = (values[known] - values[known].mean()) / values[known].std()
    penalty = 3.0 * np.log(len(x))
    return known[ruptures.Pelt(model="normal", min_size=2, jump=1).fit(x[:, None]).predict(pen=penalty)[:-1]]


def by_nothing(values, seed):
    return np.zeros(0, dtype=int)


METHODS = {"this package": by_this_package, "PELT (ruptures)": by_pelt, "no change": by_nothing}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--tcpd", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    results = {}
    for name, values, annotations in series_of(arguments.tcpd):
        if arguments.only and name not in arguments.only:
            continue
        for method, find in METHODS.items():
            begin = time.perf_counter()
            try:
                found = find(values, arguments.seed)
            except ImportError:
                continue
            results.setdefault(name, {})[method] = {
                "covering": covering(found, annotations, len(values)),
                "f1": f1(found.tolist(), annotations),
                "n_changes": len(found),
                "seconds": time.perf_counter() - begin,
            }
        told = "; ".join(
            f"{method} {own['covering']:.2f} {own['f1']:.2f} ({own['n_changes']}, {own['seconds']:.1f} s)"
            for method, own in results[name].items()
        )
        print(f"{name} ({len(values)}): {told}", flush=True)
    for method in METHODS:
        of_method = [own[method] for own in results.values() if method in own]
        if of_method:
            means = (np.mean([own[key] for own in of_method]) for key in ("covering", "f1", "seconds"))
            print("{}: covering {:.3f}, F1 {:.3f}, {:.1f} s".format(method, *means))
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "change_points.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
