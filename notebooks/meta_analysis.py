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
# # Meta-analysis: 48 trials with rare events
#
# In 48 trials of rosiglitazone, a drug for diabetes, patients had myocardial infarctions: few or none in most
# trials (Nissen and Wolski 2007). What does the drug change? Trials differ in their patients, and so in risk.
# The distribution of the risks is not of interest itself, but a wrong one may bias what is. Instead of assuming
# that the log odds of the trials are normal, we give them a Dirichlet process mixture, and ask it what the next
# trial would be like.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy.special import expit, logit

import pymc_dpgmm as dp

# The last trial is larger and of another kind.
trials = dp.datasets.load_rosiglitazone().iloc[:48]
arms = {name: trials[name].to_numpy() for name in trials}
(trials[["treated_infarctions", "control_infarctions"]] == 0).mean()

# %% [markdown]
# The counts of both arms are binomial, with log odds that differ by one `effect` in all trials. Trials without any
# infarction stay in: they are informative of the risk, and no correction of zeros is needed.


# %%
def arms_of_trials(baseline):
    effect = pm.Normal("effect", 0.0, 1.0)
    pm.Binomial("control", arms["control"], logit_p=baseline, observed=arms["control_infarctions"])
    pm.Binomial("treated", arms["treated"], logit_p=baseline + effect, observed=arms["treated_infarctions"])


with pm.Model(coords={"trial": trials.index}):
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    mean = pm.Normal("mean", -5.0, 1.5)
    base = dp.NormalInverseGamma(mean, kappa=0.3, a=3.0, b=1.0)
    arms_of_trials(dp.DPMixture("baseline", alpha, base, shape=48, dims="trial"))
    idata = pm.sample(2_000, tune=1_000, chains=4, random_seed=1, progressbar=False)

with pm.Model(coords={"trial": trials.index}):
    mean, sd = pm.Normal("mean", -5.0, 1.5), pm.HalfNormal("sd", 1.5)
    arms_of_trials(pm.Normal("baseline", mean, sd, dims="trial"))
    normal = pm.sample(2_000, tune=1_000, chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# The effect is about the same, whatever the distribution of the trials: an odds ratio of 1.3, and an interval that
# just includes 1.

# %%
az.summary(idata, var_names=["alpha", "mean", "effect", "baseline_n_clusters"])

# %%
for name, found in {"Dirichlet process": idata, "normal": normal}.items():
    ratio = np.exp(found.posterior["effect"].to_numpy())
    low, middle, high = np.quantile(ratio, [0.025, 0.5, 0.975])
    print(f"{name:18s} odds ratio {middle:.2f} ({low:.2f}, {high:.2f}), P(ratio > 1) = {(ratio > 1).mean():.3f}")

# %% [markdown]
# So are the distributions of the risks: with so few infarctions, the data hardly tell them apart, and the normal
# distribution has done no harm here. The band is for the density of the trials' log odds; the dashed line is the
# normal distribution of the other model.

# %%
density = dp.density(idata, "baseline", np.linspace(-9.0, -2.5, 200), random_seed=1)
figure, axes = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
axes.fill_between(density["x"], density["lower"], density["upper"], alpha=0.25, label="95% band")
axes.plot(density["x"], density["mean"], label="Dirichlet process mixture")
centre, spread = (normal.posterior[name].to_numpy().ravel()[:, None] for name in ("mean", "sd"))
x = density["x"].to_numpy()
curve = np.exp(-0.5 * ((x - centre) / spread) ** 2) / spread / np.sqrt(2.0 * np.pi)
axes.plot(x, curve.mean(axis=0), "k--", label="normal")
ticks = np.array([0.0002, 0.001, 0.005, 0.02, 0.05])
axes.set_xticks(logit(ticks), [f"{tick:g}" for tick in ticks])
axes.set(xlabel="risk of an infarction in the control group", ylabel="density of log odds")
axes.legend(frameon=False)

# %% [markdown]
# Each trial's risk is shrunk towards those of similar trials. Small trials, drawn as small points, move most.

# %%
pooled = (arms["control_infarctions"] + arms["treated_infarctions"]) / (arms["control"] + arms["treated"])
shrunk = expit(idata.posterior["baseline"]).mean(["chain", "draw"]).to_numpy()
figure, axes = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
axes.scatter(100 * pooled, 100 * shrunk, s=(arms["control"] + arms["treated"]) / 20, alpha=0.5)
axes.axline((0, 0), slope=1, color="0.6", lw=1)
axes.set(xlabel="infarctions in both arms, %", ylabel="posterior mean of the control group's risk, %")

# %% [markdown]
# **What would the next trial find?** `dp.sample_new_rows` draws the log odds of a new trial, which may be like
# those of a cluster, or unlike all. From each draw, a trial with 200 patients in each arm:

# %%
rng = np.random.default_rng(1)
new = dp.sample_new_rows(idata, "baseline", random_seed=1)["baseline"].isel(new_row=0)
control = rng.binomial(200, expit(new.to_numpy()))
treated = rng.binomial(200, expit((new + idata.posterior["effect"]).to_numpy()))
print(f"no infarction in either arm: {np.mean((control == 0) & (treated == 0)):.2f}")
print(f"more in the treated arm: {np.mean(treated > control):.2f}")
print(f"more in the control group: {np.mean(treated < control):.2f}")

# %% [markdown]
# Of one trial of this size nothing follows, which is why 48 of them are put together.
