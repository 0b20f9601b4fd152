"""Models of posteriordb whose normal effects or residuals are a Dirichlet process mixture: do they sample?

Usage: ``python benchmarks/posteriordb.py FOLDER [--only NAME ...]``, where FOLDER has files of
https://github.com/stan-dev/posteriordb, ``posterior_database/data/data/*.json.zip`` (Magnusson et al. 2025). Prints for
each model, as it is and with a mixture, seconds, divergences, the largest R-hat and the least effective draws.
"""

import argparse
import json
import logging
import time
import warnings
import zipfile
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dpgmm as dp


def effects(name, n, mixed, scale, mean=0.0):
    """Effects of groups: normal with a random scale, not centred, or a mixture of normal distributions."""
    if mixed:
        alpha, b = pm.Gamma(f"{name}_alpha", 1.0, 1.0), pm.Gamma(f"{name}_b", 2.0, 2.0 / scale**2)
        return dp.DPMixture(name, alpha, dp.NormalInverseGamma(mean, 0.2, 2.0, b), shape=n)
    return mean + pm.HalfNormal(f"{name}_sd", scale) * pm.Normal(name, shape=n)


def diamonds(data, mixed):
    y, x = np.array(data["Y"]), np.array(data["X"])[:, 1:]
    x = x - x.mean(axis=0)
    line = pt.constant(x) @ pm.Normal("b", shape=x.shape[1])
    if mixed:
        base = dp.NormalInverseGamma(pm.Normal("intercept", 8.0, 10.0), 0.05, 2.0, pm.Gamma("scale", 2.0, 10.0))
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=y, offset=line)
    else:
        pm.Normal("y", pm.Normal("intercept", 8.0, 10.0) + line, pm.HalfStudentT("sigma", 3, 10), observed=y)


def election88(data, mixed):
    d = {name: np.array(values) for name, values in data.items()}
    x = np.column_stack([d["black"], d["female"], d["v_prev_full"], d["black"] * d["female"]])
    eta = pm.Normal("mean", 0.0, 2.0) + pt.constant(x) @ pm.Normal("beta", 0.0, 2.0, shape=4)
    for name, n in (("age", 4), ("edu", 4), ("age_edu", 16), ("region_full", 5)):
        eta = eta + effects(name, n, False, 1.0)[d[name] - 1]
    eta = eta + effects("state", 51, mixed, 1.0)[d["state"] - 1]
    pm.Bernoulli("y", logit_p=eta, observed=d["y"])


def sites(data, mixed):
    alpha = effects("site", data["nsite"], mixed, 2.0, pm.Normal("mu", 0.0, 10.0))
    pm.Poisson("y", pt.exp(alpha[np.array(data["obssite"]) - 1]), observed=data["obs"])


def counts_on_a_curve(data, mixed):
    x = np.array(data["x"], dtype=float)
    rho, size = pm.Gamma("rho", 25.0, 4.0), pm.HalfNormal("size", 2.0)
    kernel = size**2 * pt.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 1e-6 * np.eye(len(x))
    f = pt.linalg.cholesky(kernel) @ pm.Normal("z", shape=len(x))
    f = f + effects("row", len(x), mixed, 0.3) if mixed else f
    pm.Poisson("y", pt.exp(f), observed=data["k"])


def item_response(data, mixed):
    y = np.array(data["y"])
    theta = effects("theta", y.shape[1], mixed, 1.0)
    a = pm.LogNormal("a", 0.0, pm.HalfNormal("a_sd", 1.0), shape=len(y))
    # The mixture has a level of its own.
    level = 0.0 if mixed else pm.Normal("mu_b", 0.0, 5.0)
    b = level + pm.HalfNormal("b_sd", 2.0) * pm.Normal("b", shape=len(y))
    pm.Bernoulli("y", logit_p=a[:, None] * (theta - b[:, None]), observed=y)


def radon(data, mixed):
    county = np.array(data["county_idx"]) - 1
    alpha = effects("county", data["J"], mixed, 0.5, pm.Normal("mu", 0.0, 3.0))
    slope = pm.Normal("slope") * np.array(data["floor_measure"])
    pm.Normal("y", alpha[county] + slope, pm.HalfNormal("sigma", 1.0), observed=data["log_radon"])


def rats(data, mixed):
    rat, x = np.array(data["rat"]) - 1, np.array(data["x"]) - data["xbar"]
    mean = pm.Normal("mean", [240.0, 6.0], [30.0, 2.0], shape=2)
    if mixed:
        psi = np.diag([200.0, 0.3])
        own = dp.DPMixture("own", 1.0, dp.NormalInverseWishart(mean, 0.2, 5.0, psi), shape=(data["N"], 2))
    else:
        spread = pm.HalfNormal("spread", [20.0, 1.0], shape=2)
        own = mean + spread * pm.Normal("own", shape=(data["N"], 2))
    pm.Normal("y", own[rat, 0] + own[rat, 1] * x, pm.HalfNormal("sigma", 10.0), observed=data["y"])


def surgical(data, mixed):
    b = effects("b", data["N"], mixed, 0.7, pm.Normal("mu", -2.0, 2.0))
    pm.Binomial("r", np.array(data["n"]), logit_p=b, observed=data["r"])


MODELS = {
    "diamonds": diamonds,
    "election88": election88,
    "GLMM_data": sites,
    "gp_pois_regr": counts_on_a_curve,
    "irt_2pl": item_response,
    "radon_all": radon,
    "rats_data": rats,
    "surgical_data": surgical,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=list(MODELS), choices=list(MODELS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for name in arguments.only:
        with zipfile.ZipFile(arguments.folder / f"{name}.json.zip") as file:
            data = json.loads(file.read(file.namelist()[0]))
        for mixed in (False, True):
            with pm.Model() as model:
                MODELS[name](data, mixed)
                begin = time.perf_counter()
                idata = pm.sample(
                    arguments.draws, chains=2, cores=1, random_seed=1, progressbar=False, nuts_sampler="pymc"
                )
            names = [rv.name for rv in model.free_RVs if rv.dtype.startswith("float")]
            r_hat, ess = az.rhat(idata, var_names=names), az.ess(idata, var_names=names)
            worst = max(names, key=lambda own: float(r_hat[own].max()))
            print(
                f"{name}, {'with a mixture' if mixed else 'as it is'}: {time.perf_counter() - begin:.0f} s, "
                f"{int(idata.sample_stats['diverging'].sum())} divergences, R-hat {float(r_hat[worst].max()):.3f} "
                f"({worst}), least effective draws {min(float(ess[own].min()) for own in names):.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
