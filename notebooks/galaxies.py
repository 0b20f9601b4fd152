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
# # How to estimate a density: galaxies
#
# The data are the velocities of 82 galaxies in the Corona Borealis region, in thousands of km/s (Postman, Huchra
# and Geller 1986; Roeder 1990). Galaxies form clusters, so the density of the velocities has bumps. Which of the
# bumps are real? A mixture without truncation estimates the density together with its uncertainty. The clusters
# are only a means to that end.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

velocity = dp.datasets.load_galaxies()
velocity.describe()

# %% [markdown]
# The clusters are normal distributions. The prior of their scale matters: `from_data` expects the variance of a
# cluster to be about a tenth of that of the data. Here the scale has a prior of its own, which is vague within a
# factor of a few. `pm.sample` gives the labels and `alpha` to an exact sampler, and the scale to NUTS.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    scale = pm.LogNormal("scale", np.log(0.05 * velocity.var()), 1.0)
    base = dp.NormalInverseGamma(mu=velocity.mean(), kappa=0.05, a=2.0, b=scale)
    dp.DPMixture("velocity", alpha, base, observed=velocity)
    idata = pm.sample(chains=4, random_seed=3, progressbar=False)

# %% [markdown]
# `dp.summary` is the table to look at first. It has the quantities that do not depend on how clusters are
# numbered, with their R-hat, and then the clusters of the point partition.

# %%
dp.summary(idata, "velocity", random_seed=1)

# %% [markdown]
# ## The density
#
# The line is the posterior predictive density of one more galaxy. The band is a 95 % credible band of the density
# itself, from draws of the weights and parameters of all clusters, including clusters that have no galaxies yet.

# %%
figure = dp.plot_density(idata, "velocity", random_seed=1)
figure.axes[0].set_xlabel("velocity (1,000 km/s)")
plt.show()

# %% [markdown]
# How many modes does the density have? To answer with uncertainty, count the modes of densities that are drawn
# from the posterior. `dp.component_draws` with `ragged=True` returns all clusters of all draws. (It leaves out
# clusters without galaxies, which have about one hundredth of the weight.)

# %%
x = np.linspace(5, 40, 400)
components = dp.component_draws(idata, "velocity", ragged=True, random_seed=1)
index = components["component_chain"] * idata.posterior.sizes["draw"] + components["component_draw"]
deviation = np.sqrt(components["variance"].to_numpy())
standard = (x - components["mean"].to_numpy()[:, None]) / deviation[:, None]
curves = components["weight"].to_numpy()[:, None] * np.exp(-0.5 * standard**2) / deviation[:, None]
densities = np.zeros((int(index.max()) + 1, len(x)))
np.add.at(densities, index.to_numpy(), curves)
n_modes = np.sum((densities[:, 1:-1] > densities[:, :-2]) & (densities[:, 1:-1] > densities[:, 2:]), axis=1)
values, counts = np.unique(n_modes, return_counts=True)
dict(zip(values.tolist(), (counts / counts.sum()).round(3).tolist(), strict=True))

# %%
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for curve in densities[::100]:
    axes.plot(x, curve / np.sqrt(2 * np.pi), color="#0072B2", lw=0.5, alpha=0.5)
axes.set(xlabel="velocity (1,000 km/s)", ylabel="density", title="40 densities drawn from the posterior")
plt.show()

# %% [markdown]
# ## The influence of the prior
#
# The number of clusters is not the number of modes, and it depends strongly on the prior.

# %%
with model:
    idata.update(pm.sample_prior_predictive(1_000, random_seed=2))
figure = dp.plot_n_clusters(idata, "velocity")

# %% [markdown]
# ## Checks
#
# Replicates of the data, of galaxies that choose their clusters anew by the weights, should look like the data.
# The numbers are posterior predictive p-values; values near 0 or 1 would point to a misfit.

# %%
dp.sample_replicates(idata, "velocity", random_seed=4)
replicated = idata.posterior_predictive["velocity"].to_numpy().reshape(-1, len(velocity))
statistics = {
    "sd": lambda values: values.std(axis=-1),
    "minimum": lambda values: values.min(axis=-1),
    "largest gap": lambda values: np.diff(np.sort(values)).max(axis=-1),
}
p_values = {key: float(np.mean(of(replicated) >= of(velocity.to_numpy()))) for key, of in statistics.items()}
assert all(0.01 < p < 0.99 for p in p_values.values())
p_values

# %% [markdown]
# Does the mixture predict a galaxy that was left out better than a single normal distribution does?
# `dp.log_likelihood` writes what `az.loo` and `az.compare` need: the density of every galaxy with its label
# summed out.

# %%
with pm.Model():
    one = pm.Normal("m", 20.0, 10.0)
    pm.Normal("velocity", one, pm.HalfNormal("s", 10.0), observed=velocity)
    single = pm.sample(chains=4, random_seed=5, progressbar=False)
    pm.compute_log_likelihood(single, progressbar=False)
dp.log_likelihood(idata, "velocity", random_seed=6)
comparison = az.compare({"mixture": idata, "one normal": single}, var_name="velocity")
assert comparison.index[0] == "mixture"
comparison

# %% [markdown]
# Which cluster would a galaxy that is observed later join? At a velocity of 10 or 20 it would join one of the
# large clusters. At 28, where no galaxies are, the answer is open, and it may be the first of a new cluster.

# %%
members = dp.membership(idata, "velocity", [10.0, 20.0, 28.0], random_seed=1)
members["probability"].to_pandas().assign(new=members["new_cluster"].to_numpy()).round(3)
