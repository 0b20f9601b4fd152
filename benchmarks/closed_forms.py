"""Families with a closed form beside the same model under a Dirichlet process of parameters.

    python benchmarks/closed_forms.py results

Censored survival of 69 patients after a heart transplant (exponential clusters), 22 trials of beta blockers (normal
with known variances) and 76 directions of turtles (von Mises of concentration 4). For each: seconds of ``pm.sample``
with two chains in a second run, effective draws of the number of clusters and of alpha per second, and the largest
difference of the densities or survival functions at nine points. Writes ``closed_forms.json`` into the folder.
"""

import json
import logging
import sys
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

logging.getLogger("pymc").setLevel(logging.ERROR)
RUN = {"draws": 2_000, "tune": 1_000, "chains": 2, "random_seed": 1, "progressbar": False}


def survival():
    table = dp.datasets.load_heart_transplants()
    days, died = table["days"].to_numpy(float), table["died"].to_numpy() == 1
    days = np.maximum(days, 0.5)
    points = np.linspace(1.0, 1_800.0, 9)

    def collapsed(alpha):
        dp.DPMixture("x", alpha, dp.GammaExponential(0.5, 50.0, events=died), observed=days)

    def process(alpha):
        rate = dp.DirichletProcess("x", alpha, base=pm.Gamma.dist(0.5, 50.0), shape=len(days))
        ends = np.where(died, np.inf, days)
        pm.Censored("seen", pm.Exponential.dist(rate), lower=None, upper=ends, observed=days)

    def of_collapsed(idata):
        return dp.density(idata, "x", points, given={"events": np.zeros(9)}, random_seed=1)["mean"].to_numpy()

    return collapsed, process, of_collapsed, lambda rates: np.exp(-rates[..., None] * points)


def trials():
    table = dp.datasets.load_beta_blockers()
    treated, control = table["treated_deaths"], table["control_deaths"]
    alive, others = table["treated"] - treated, table["control"] - control
    effects = (np.log(treated / alive) - np.log(control / others)).to_numpy()
    variance = (1 / treated + 1 / alive + 1 / control + 1 / others).to_numpy()
    points, width = np.linspace(-1.0, 0.5, 9), 0.1

    def collapsed(alpha):
        dp.DPMixture("x", alpha, dp.NormalKnownVariance(-0.2, 0.25, variance), observed=effects)

    def process(alpha):
        effect = dp.DirichletProcess("x", alpha, base=pm.Normal.dist(-0.2, 0.5), shape=len(effects))
        pm.Normal("seen", effect, np.sqrt(variance), observed=effects)

    def of_collapsed(idata):
        given = {"variance": np.full(9, width**2)}
        return dp.density(idata, "x", points, given=given, random_seed=1)["mean"].to_numpy()

    def of_atoms(atoms):
        return np.exp(-0.5 * ((atoms[..., None] - points) / width) ** 2) / (width * np.sqrt(2.0 * np.pi))

    return collapsed, process, of_collapsed, of_atoms


def turtles():
    angles = np.angle(np.exp(1j * np.radians(dp.datasets.load_turtles().to_numpy())))
    points = np.linspace(-3.0, 3.0, 9)

    def collapsed(alpha):
        dp.DPMixture("x", alpha, dp.VonMises(0.0, 0.05, 4.0), observed=angles)

    def process(alpha):
        direction = dp.DirichletProcess("x", alpha, base=pm.VonMises.dist(0.0, 0.2), shape=len(angles))
        pm.VonMises("seen", direction, 4.0, observed=angles)

    def of_collapsed(idata):
        return dp.density(idata, "x", points, random_seed=1)["mean"].to_numpy()

    def of_atoms(atoms):
        return np.exp(4.0 * np.cos(atoms[..., None] - points)) / (2.0 * np.pi * np.i0(4.0))

    return collapsed, process, of_collapsed, of_atoms


def measured(build):
    for _ in range(2):
        begin = time.perf_counter()
        with pm.Model() as model:
            build(pm.Gamma("alpha", 1.0, 1.0))
            idata = pm.sample(**RUN)
        seconds = time.perf_counter() - begin
    posterior = idata.posterior
    sizes = {name: float(az.ess(posterior[name].to_numpy())) / seconds for name in ("alpha", "x_n_clusters")}
    return model, idata, {"seconds": seconds, "effective_per_second": sizes}


def main(folder):
    results = {}
    for make in (survival, trials, turtles):
        collapsed, process, of_collapsed, of_atoms = make()
        _, idata, first = measured(collapsed)
        model, atoms, second = measured(process)
        new = dp.sample_new_rows(atoms, "x", 20, random_seed=1, model=model)["x"].to_numpy()
        curves = of_collapsed(idata), of_atoms(new).mean(axis=(0, 1, 2))
        difference = float(np.abs(curves[0] - curves[1]).max() / curves[0].max())
        results[make.__name__] = {"closed form": first, "process": second, "difference": difference}
        print(f"{make.__name__}: curves differ by {difference:.4f} of the largest")
        for who in ("closed form", "process"):
            found = results[make.__name__][who]
            rates = ", ".join(f"{key} {value:.0f}" for key, value in found["effective_per_second"].items())
            print(f"  {who:12s} {found['seconds']:6.1f} s, effective draws per second: {rates}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "closed_forms.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
