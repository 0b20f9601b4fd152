"""Coverage of all intervals that the package gives, on data sets drawn from the prior.

Usage: ``python benchmarks/intervals.py [FOLDER] [--data-sets 200] [--kinds mixture groups ...]``. A random measure is
simulated by stick-breaking, with NumPy alone, and rows from it; the model of the package is fitted to the rows, and
asked. Intervals of 95 % are to contain the truth in 95 % of the data sets, and probabilities are to be right on
average. Prints a table, and writes ``FOLDER/intervals.json``.

The clusters of draws have no names of their own. What is asked about one cluster is therefore asked about that of
the first row, by a reference partition in which this row is alone. Only weights of groups and words of topics are
matched to the true partition, of clusters that lie far apart.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import dask.array
import numpy as np
import pymc as pm
from calibration import assigned_steps
from scipy.stats import invwishart, norm

import pymc_dpgmm as dp

DRAWS, TUNE = 1_000, 400
POINTS = np.array([-3.0, 0.0, 2.0])
# Probability of all intervals.
LEVEL = 0.95
MU, KAPPA, A, B = 0.0, 0.1, 3.0, 2.0
PAIR_NU, PAIR_PSI = 5.0, 2.0
# Groups whose clusters lie far apart, so that draws can be matched to the truth.
KAPPA_APART = 0.001
N, N_GROUPS, PER_GROUP = 30, 3, 15
N_TOPICS, N_WORDS, N_DOCUMENTS, PER_DOCUMENT = 3, 12, 8, 40


# The truth, by code of its own.


def sticks(rng, alpha, left=1e-9):
    """Weights of a Dirichlet process, until so little of the stick is left."""
    weights, rest = [], 1.0
    while rest > left:
        piece = rng.beta(1.0, alpha)
        weights.append(rest * piece)
        rest *= 1.0 - piece
    return np.array(weights) / (1.0 - rest)


def atoms(rng, n, kappa):
    """Means and standard deviations of normal clusters from a normal-inverse-gamma base."""
    variances = B / rng.gamma(A, size=n)
    return rng.normal(MU, np.sqrt(variances / kappa)), np.sqrt(variances)


def truth_of_mixture(rng, concentration=None, kappa=KAPPA):
    """One data set of rows, its random measure, and a row that comes after them."""
    alpha = rng.gamma(2.0) if concentration is None else concentration
    weights = sticks(rng, alpha)
    means, sds = atoms(rng, len(weights), kappa)
    of_rows = rng.choice(len(weights), N + 1, p=weights)
    rows = rng.normal(means[of_rows], sds[of_rows])
    return {
        "alpha": alpha,
        "weights": weights,
        "means": means,
        "sds": sds,
        "labels": of_rows[:-1],
        "y": rows[:-1],
        "new": rows[-1],
        "new_label": of_rows[-1],
    }


def truth_of_pairs(rng):
    """Rows of two columns, from clusters with full covariances."""
    weights = sticks(rng, rng.gamma(2.0))
    covariances = invwishart(PAIR_NU, PAIR_PSI * np.eye(2)).rvs(len(weights), random_state=rng).reshape(-1, 2, 2)
    noise = rng.standard_normal((len(weights), 2))
    means = np.array([np.linalg.cholesky(c / KAPPA) @ z for c, z in zip(covariances, noise, strict=True)])
    of_rows = rng.choice(len(weights), N + 1, p=weights)
    rows = np.array([rng.multivariate_normal(means[k], covariances[k]) for k in of_rows])
    return {"weights": weights, "means": means, "covariances": covariances, "y": rows[:-1], "new": rows[-1]}


def second_given_first(truth, x):
    """Mean of the second column where the first is x, and its density at 0."""
    covariances, means = truth["covariances"], truth["means"]
    known = truth["weights"] * norm.pdf(x, means[:, 0], np.sqrt(covariances[:, 0, 0]))
    slopes = covariances[:, 0, 1] / covariances[:, 0, 0]
    lines = means[:, 1] + slopes * (x - means[:, 0])
    sds = np.sqrt(covariances[:, 1, 1] - slopes * covariances[:, 0, 1])
    return known @ lines / known.sum(), known @ norm.pdf(0.0, lines, sds) / known.sum()


def truth_of_groups(rng):
    """Groups with weights of their own for shared clusters, far apart."""
    alpha, gamma = 2.0, 1.5
    shared = sticks(rng, gamma, 1e-6)
    means, sds = atoms(rng, len(shared), KAPPA_APART)
    weights = np.array([rng.dirichlet(alpha * shared + 1e-300) for _ in range(N_GROUPS)])
    labels = np.concatenate([rng.choice(len(shared), PER_GROUP, p=own) for own in weights])
    return {
        "weights": weights,
        "means": means,
        "sds": sds,
        "labels": labels,
        "y": rng.normal(means[labels], sds[labels]),
    }


def truth_of_process(rng):
    """Means of rows from a Dirichlet process, and rows around them."""
    weights = sticks(rng, 2.0)
    means = rng.normal(0.0, 3.0, len(weights))
    of_rows = rng.choice(len(weights), N + 1, p=weights)
    rows = rng.normal(means[of_rows], 0.7)
    return {"weights": weights, "means": means, "y": rows[:-1], "new": means[of_rows[-1]]}


def truth_of_topics(rng):
    """Documents of topics whose words hardly overlap."""
    base = np.full((N_TOPICS, N_WORDS), 0.15)
    topics = np.array([rng.dirichlet(own) for own in base])
    shares = rng.dirichlet(np.full(N_TOPICS, 0.5), N_DOCUMENTS)
    labels = np.array([rng.choice(N_TOPICS, PER_DOCUMENT, p=own) for own in shares])
    words = np.array([[rng.choice(N_WORDS, p=topics[k]) for k in own] for own in labels])
    return {"topics": topics, "shares": shares, "labels": labels.ravel(), "words": words.ravel()}


def density(truth, points=POINTS, weights=None):
    """Density of a true measure at points."""
    weights = truth["weights"] if weights is None else weights
    sds = truth.get("sds", 0.7)
    return norm.pdf(points[:, None], truth["means"], sds) @ weights


# What is asked, as pairs: whether an interval holds the truth, or a probability and whether it came true.


def inside(lower, value, upper):
    return float(lower <= value <= upper)


def within(draws, value):
    return inside(*np.quantile(draws, [0.025]), value, *np.quantile(draws, [0.975]))


def densities(found, truth, weights=None):
    wanted = density(truth, weights=weights)
    return [inside(low, own, high) for low, own, high in zip(found["lower"], wanted, found["upper"], strict=True)]


def ask_mixture(idata, truth):
    n = len(truth["y"])
    first = np.ones(n, dtype=int)
    first[0] = 0
    pair = np.ones(n, dtype=int)
    pair[:2] = 0
    component = dp.component_draws(idata, "y", first, random_seed=1).sel(cluster=0)
    own = truth["labels"][0]
    members = dp.membership(idata, "y", [truth["new"]], first)
    labels = idata["posterior"]["y_labels"].to_numpy().reshape(-1, n)
    counts = [len(np.unique(draw)) for draw in labels]
    drawn = dp.sample_new_rows(idata, "y", random_seed=1)["y"]
    certain = dp.certainty(idata, "y", pair)["certainty"].to_numpy()[0]
    return {
        "density": densities(dp.density(idata, "y", POINTS, probability=LEVEL, random_seed=1), truth),
        "component: weight": [within(component["weight"], truth["weights"][own])],
        "component: mean": [within(component["mean"], truth["means"][own])],
        "number of clusters": [within(counts, len(np.unique(truth["labels"])))],
        "new row": [within(drawn, truth["new"])],
        "membership: new cluster": (
            float(members["new_cluster"][0]),
            float(truth["new_label"] not in truth["labels"]),
        ),
        "certainty": (float(certain), float(truth["labels"][0] == truth["labels"][1])),
    }


def ask_pairs(idata, truth):
    new = np.column_stack([POINTS, np.full(len(POINTS), np.nan)])
    lines = dp.predict(idata, "y", new, probability=LEVEL, random_seed=1, of=1)
    heights = dp.predict(idata, "y", new, probability=LEVEL, random_seed=1, of=1, kind="density", x=[0.0])
    row = dp.predict(
        idata, "y", truth["new"][None], random_seed=1, of=1, kind="quantiles", quantiles=[0.025, 0.975]
    )
    wanted = np.array([second_given_first(truth, x) for x in POINTS])
    cells = zip(lines["lower"].to_numpy(), wanted[:, 0], lines["upper"].to_numpy(), strict=True)
    tall = zip(heights["lower"].to_numpy()[:, 0], wanted[:, 1], heights["upper"].to_numpy()[:, 0], strict=True)
    low, high = row["quantiles"].to_numpy()[:, 0]
    return {
        "mean of a column given another": [inside(*cell) for cell in cells],
        "density of a column given another": [inside(*cell) for cell in tall],
        "new entry given another": [inside(low, truth["new"][1], high)],
    }


def ask_groups(idata, truth):
    _, reference = np.unique(truth["labels"], return_inverse=True)
    names = np.unique(truth["labels"])
    found = dp.group_weights(idata, "y", reference, probability=LEVEL, random_seed=1)
    wanted = truth["weights"][:, names]
    cells = zip(found["lower"].to_numpy().ravel(), wanted.ravel(), found["upper"].to_numpy().ravel(), strict=True)
    own = dp.density(idata, "y", POINTS, group=0, probability=LEVEL, random_seed=1)
    first = np.ones(len(reference), dtype=int)
    first[0] = 0
    component = dp.component_draws(idata, "y", first, group=0, random_seed=1).sel(cluster=0)
    return {
        "weights of groups": [inside(*cell) for cell in cells],
        "density of a group": densities(own, truth, truth["weights"][0]),
        "component: weight in a group": [within(component["weight"], truth["weights"][0, truth["labels"][0]])],
    }


def ask_process(idata, truth, model):
    drawn = dp.sample_new_rows(idata, "theta", random_seed=1, model=model)["theta"]
    return {
        "density": densities(
            dp.density(idata, "theta", POINTS, probability=LEVEL, random_seed=1, model=model), truth
        ),
        "new row's parameter": [within(drawn, truth["new"])],
    }


def ask_topics(idata, truth):
    names, reference = np.unique(truth["labels"], return_inverse=True)
    found = dp.topics(idata, "w", reference=reference).sortby("topic")
    weights = dp.group_weights(idata, "w", reference, probability=LEVEL, random_seed=1)
    mean, sd = found["probability"].to_numpy(), found["sd"].to_numpy()
    words = found["word"].to_numpy() if "word" in found.coords else np.arange(N_WORDS)
    wanted = truth["topics"][names][:, np.asarray(words, dtype=int)]
    shares = truth["shares"][:, names]
    cells = zip(
        weights["lower"].to_numpy().ravel(), shares.ravel(), weights["upper"].to_numpy().ravel(), strict=True
    )
    return {
        "words of topics, mean +- 1.96 sd": list((np.abs(mean - wanted) <= 1.96 * sd).ravel().astype(float)),
        "topics of documents": [inside(*cell) for cell in cells],
    }


# Models, fitted.


def base(kappa=KAPPA):
    return dp.NormalInverseGamma(MU, kappa, A, B)


def sampled(step, rng):
    return pm.sample(
        DRAWS,
        tune=TUNE,
        step=step,
        chains=1,
        cores=1,
        random_seed=rng,
        progressbar=False,
        compute_convergence_checks=False,
    )


def refitted(build, truth_of, ask):
    """Return a function that answers about one data set after the other, with steps that are compiled once."""

    def run(n, seed):
        rng = np.random.default_rng(seed)
        model, step, fresh = None, None, None
        for _ in range(n):
            truth = truth_of(rng)
            if model is None:
                model = build(truth)
                with model:
                    step = assigned_steps(model)
                fresh = step.sampling_state
            with model:
                pm.set_data({"data": truth["y"]})
                step.sampling_state = fresh
                idata = sampled(step, rng)
            yield ask(idata, truth, model)

    return run


def mixture(truth):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 1.0), base(), observed=pm.Data("data", truth["y"]))
    return model


def pairs(truth):
    with pm.Model() as model:
        of_pairs = dp.NormalInverseWishart(0.0, KAPPA, PAIR_NU, PAIR_PSI * np.eye(2))
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 1.0), of_pairs, observed=pm.Data("data", truth["y"]))
    return model


def groups(truth):
    with pm.Model() as model:
        group = np.repeat(np.arange(N_GROUPS), PER_GROUP)
        dp.HDPMixture("y", 2.0, 1.5, base(KAPPA_APART), group=group, observed=pm.Data("data", truth["y"]))
    return model


def process(truth):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 2.0, pm.Normal.dist(0.0, 3.0), shape=N)
        pm.Normal("x", theta, 0.7, observed=pm.Data("data", truth["y"]))
    return model


def anew(build, truth_of, ask, sample=None):
    """The same for models that are built for each data set."""

    def run(n, seed):
        rng = np.random.default_rng(seed)
        for _ in range(n):
            truth = truth_of(rng)
            with build(truth) as model:
                idata = sampled(None, rng) if sample is None else sample(model, rng)
            yield ask(idata, truth, model)

    return run


def topics(truth):
    with pm.Model() as model:
        document = np.repeat(np.arange(N_DOCUMENTS), PER_DOCUMENT)
        words = [f"{word:02d}" for word in truth["words"]]
        dp.LDA("w", N_TOPICS, 0.5, 0.15, observed=words, group=document)
    return model


def fixed_alpha(observed):
    with pm.Model() as model:
        dp.DPMixture("y", 1.5, base(), observed=observed)
    return model


def fitted(model, rng):
    return dp.fit(model=model, random_seed=rng, progressbar=False).to_datatree(DRAWS, random_seed=rng)


def without_model(ask):
    return lambda idata, truth, model: ask(idata, truth)


def ask_chunks(idata, truth, model):
    drawn = dp.sample_new_rows(idata, "y", random_seed=1)["y"]
    counts = idata["posterior"]["y_n_clusters"].to_numpy().ravel()
    return {
        "density": densities(dp.density(idata, "y", POINTS, probability=LEVEL, random_seed=1), truth),
        "number of clusters": [within(counts, len(np.unique(truth["labels"])))],
        "new row": [within(drawn, truth["new"])],
    }


def ask_fit(idata, truth, model):
    return {key: value for key, value in ask_mixture(idata, truth).items() if key != "number of clusters"}


fixed_truth = partial(truth_of_mixture, concentration=1.5)
KINDS = {
    "mixture": refitted(mixture, truth_of_mixture, without_model(ask_mixture)),
    "pairs": refitted(pairs, truth_of_pairs, without_model(ask_pairs)),
    "groups": refitted(groups, truth_of_groups, without_model(ask_groups)),
    "process": refitted(process, truth_of_process, ask_process),
    "topics": anew(topics, truth_of_topics, without_model(ask_topics)),
    "fit": anew(lambda truth: fixed_alpha(truth["y"]), fixed_truth, ask_fit, fitted),
    "chunks": anew(
        lambda truth: fixed_alpha(dask.array.from_array(truth["y"], chunks=10)), fixed_truth, ask_chunks
    ),
}


def answers(kind, n, seed):
    """Answers about n data sets of a kind."""
    warnings.simplefilter("ignore")
    return list(KINDS[kind](n, seed))


def summarised(found):
    """Coverage with its standard error, or mean error of probabilities, by what was asked."""
    table = {}
    for key in found[0]:
        own = [answer[key] for answer in found]
        if isinstance(own[0], tuple):
            errors = np.array([probability - came for probability, came in own])
            table[key] = {
                "said": float(np.mean([p for p, _ in own])),
                "found": float(np.mean([c for _, c in own])),
                "error": float(errors.std() / np.sqrt(len(errors))),
            }
        else:
            shares = np.array([np.mean(values) for values in own])
            table[key] = {
                "said": LEVEL,
                "found": float(shares.mean()),
                "error": float(shares.std() / np.sqrt(len(shares))),
            }
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="results", type=Path)
    parser.add_argument("--data-sets", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    per, begin, tables = given.data_sets // given.processes, time.perf_counter(), {}
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for kind in given.kinds:
            found = [pool.submit(answers, kind, per, given.seed + seed) for seed in range(given.processes)]
            tables[kind] = summarised([answer for part in found for answer in part.result()])
            for key, own in tables[kind].items():
                print(
                    f"{kind:10s} {key:34s} said {own['said']:.3f}  found {own['found']:.3f} +- {own['error']:.3f}"
                )
            given.folder.mkdir(parents=True, exist_ok=True)
            (given.folder / "intervals.json").write_text(json.dumps(tables, indent=1))
    print(f"{given.data_sets} data sets of each kind, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
