# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How to use any likelihood: censored survival
#
# The families of the package have closed forms, and survival times with censoring have none. Here the patients'
# scales of survival get a Dirichlet process for their prior, and the likelihood is written with PyMC. The data
# are 69 patients after a heart transplant (Miller 1976); 24 were alive at the end of the study, so that we only
# know that they survived longer.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

patients = dp.datasets.load_heart_transplants()
days, died = patients["days"].to_numpy(dtype=float), patients["died"].to_numpy() == 1
patients.head()

# %% [markdown]
# Survival of a patient is Weibull, with a shape that all patients share and a scale of the patient's own,
# `exp(theta)`. Nobody believes in 69 different scales. A Dirichlet process lets patients share them, without
# saying how many there are:
#
# $$\theta_i \mid G \sim G, \qquad G \sim \mathrm{DP}(\alpha, \mathrm{Normal}(m, 2))$$
#
# `pm.sample` draws the labels and the scales with a step of the package, which moves the shape and the mean `m` of
# the base along with the scales.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    m = pm.Normal("m", 5.0, 2.0)
    shape = pm.Gamma("shape", 4.0, 3.0)
    theta = dp.DirichletProcess("theta", alpha, base=pm.Normal.dist(m, 2.0), shape=len(days))
    life = pm.Weibull.dist(alpha=shape, beta=pm.math.exp(theta))
    pm.Censored("days", life, lower=None, upper=np.where(died, np.inf, days), observed=days)
    idata = pm.sample(3000, tune=1000, chains=4, target_accept=0.99, random_seed=1, progressbar=False)

# %%
dp.summary(idata, "theta", random_seed=1)

# %% [markdown]
# The point partition is cautious: the posterior is not sure which patients belong together, and says so by a low
# certainty. The survival of a new patient needs no partition. `dp.sample_new_rows` draws a new patient's
# parameter in every draw: that of a cluster, or a new one from the base.

# %%
new = dp.sample_new_rows(idata, "theta", 20, random_seed=1, model=model)
time = np.linspace(1.0, 1800.0, 150)
scale = np.exp(new["theta"].to_numpy())[..., None]
curves = np.exp(-((time / scale) ** idata.posterior["shape"].to_numpy()[:, :, None, None])).mean(axis=2)
curves = curves.reshape(-1, len(time))

# The Kaplan-Meier estimate, for comparison.
order = np.argsort(days)
at_risk = len(days) - np.arange(len(days))
kaplan_meier = np.cumprod(1.0 - died[order] / at_risk)

figure, axes = plt.subplots(figsize=(7, 4))
low, high = np.quantile(curves, [0.05, 0.95], axis=0)
axes.fill_between(time, low, high, alpha=0.3, lw=0, label="90% band")
axes.plot(time, curves.mean(axis=0), lw=2, label="posterior mean")
axes.step(days[order], kaplan_meier, where="post", color="0.3", lw=1, label="Kaplan-Meier")
axes.set(xlabel="days after the transplant", ylabel="probability of surviving", ylim=(0, 1))
axes.legend(frameon=False)
figure

# %% [markdown]
# The curve follows the steep fall of the first weeks and the flat tail, which no single Weibull distribution
# does. How much better it predicts than one Weibull for all is a matter of leave-one-out cross-validation. For
# each patient the log likelihood is given the parameters of all *others*, not the patient's own:

# %%
dp.log_likelihood(idata, "theta", random_seed=1, model=model)

with pm.Model():
    shape = pm.Gamma("shape", 4.0, 3.0)
    log_scale = pm.Normal("log_scale", 5.0, 2.8)
    life = pm.Weibull.dist(alpha=shape, beta=pm.math.exp(log_scale))
    pm.Censored("days", life, lower=None, upper=np.where(died, np.inf, days), observed=days)
    single = pm.sample(1000, tune=1000, chains=4, random_seed=1, progressbar=False)
    pm.compute_log_likelihood(single, progressbar=False)

# %%
import arviz as az

az.compare({"process": idata, "one Weibull": single}, var_name="days")

# %% [markdown]
# ## Where clusters are exponential, there is a closed form
#
# With the shape 1, times within a cluster are exponential, and a gamma prior of their rate integrates out. The
# family `dp.GammaExponential` takes censored times: `events` is 0 where a time is censored. The density of a time
# without an event is the probability of surviving it, so `dp.density` with `events` of 0 is the survival function,
# with its band.

# %%
with pm.Model():
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    base = dp.GammaExponential(a=0.5, b=50.0, events=died)
    dp.DPMixture("days", alpha, base, observed=days)
    collapsed = pm.sample(3000, tune=1000, chains=4, random_seed=1, progressbar=False)

survival = dp.density(collapsed, "days", time, given={"events": np.zeros(len(time))}, random_seed=1)

figure, axes = plt.subplots(figsize=(7, 4))
axes.fill_between(time, survival["lower"], survival["upper"], alpha=0.3, lw=0, label="band")
axes.plot(time, survival["mean"], lw=2, label="exponential clusters")
axes.plot(time, curves.mean(axis=0), "--", lw=1, label="Weibull clusters")
axes.step(days[order], kaplan_meier, where="post", color="0.3", lw=1, label="Kaplan-Meier")
axes.set(xlabel="days after the transplant", ylabel="probability of surviving", ylim=(0, 1))
axes.legend(frameon=False)
figure

# %% [markdown]
# A draw takes a tenth of the time of a Dirichlet process over rates, and the answers are the same ([a
# comparison](../docs/performance.md#a-closed-form-beside-a-dirichlet-process-of-parameters)).
#
# The likelihood may be any that PyMC has, with covariates, several observed variables or several rows per unit,
# as long as each row depends on the parameters of one row or unit. See [any
# likelihood](../docs/any_likelihood.md).
