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
# # How to give random effects an unknown distribution: rat tumours
#
# In 71 groups of untreated rats, the number of rats with a tumour was counted. The groups differ in size, from 10
# to 52 rats, and in their rate of tumours (Tarone 1982). A hierarchical model needs a distribution of the rates
# over groups. Instead of assuming that the logits of the rates are normal, we give them a Dirichlet process
# mixture.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

data = dp.datasets.load_rat_tumors()
rats, tumors = data["rats"].to_numpy(), data["tumors"].to_numpy()
(tumors / rats).min(), (tumors / rats).max()

# %% [markdown]
# Without `observed`, the mixture is latent: `logit` is an ordinary unknown of the model. Each logit is drawn
# together with its label. The mean of the clusters' means is a hyperparameter, which the same step draws. The base
# measure expects a standard deviation of the logits of 0.5 within a cluster, `sqrt(b / (a - 1))`.

# %%
with pm.Model(coords={"group": data.index}) as model:
    alpha = pm.Gamma("alpha", 2.0, 2.0)
    mean = pm.Normal("mean", -2.0, 1.0)
    base = dp.NormalInverseGamma(mu=mean, kappa=0.5, a=5.0, b=1.0)
    logit = dp.DPMixture("logit", alpha, base, shape=(len(data),), dims="group")
    pm.Binomial("y", n=rats, logit_p=logit, observed=tumors, dims="group")
    idata = pm.sample(1_500, tune=500, chains=4, random_seed=1, progressbar=False)

# %%
az.summary(idata, var_names=["alpha", "mean", "logit_n_clusters"])

# %% [markdown]
# The rate of each group is shrunk towards those of similar groups, more strongly for small groups than for large
# ones.

# %%
rate = 1 / (1 + np.exp(-idata.posterior["logit"]))
estimate = rate.mean(("chain", "draw")).to_numpy()
low, high = np.quantile(rate, [0.1, 0.9], axis=(0, 1))
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.errorbar(tumors / rats, estimate, [estimate - low, high - estimate], fmt="none", color="0.8")
axes.scatter(tumors / rats, estimate, s=rats, alpha=0.6, color="#0072B2")
axes.axline((0, 0), slope=1, color="black", linewidth=0.8)
axes.set(xlabel="observed share of rats with a tumour", ylabel="posterior mean and 80 % interval")
plt.show()

# %% [markdown]
# The last group, with 4 tumours in 14 rats, is the current experiment. *Bayesian Data Analysis* (section 5.3)
# assumes a beta distribution of the rates and reports a posterior mean near 0.21. Here the mean is about the
# same, although no shape of the distribution was assumed.

# %% [markdown]
# A new group, of which only its counts are known, 3 tumours in 20 rats, needs no other fit: `dp.new_units` draws
# its effect given the log likelihood of its counts. A Pareto k below 0.7 says that the draws can be trusted.


# %%
def of_a_new_group(logit, posterior):
    return 3 * logit - 20 * np.logaddexp(0, logit)


new = dp.new_units(idata, "logit", log_likelihood=of_a_new_group, random_seed=1)
new_rate = 1 / (1 + np.exp(-new["logit"]))
print(f"rate {float(new_rate.mean()):.3f}, Pareto k {float(new['pareto_k'].max()):.2f}")

# %%
current = float(rate.isel(group=-1).mean())
assert 0.16 < current < 0.26
# Groups without any tumour are drawn up, those with the most down.
assert estimate[0] > 0.02
assert estimate[66] < (tumors / rats)[66]
current
