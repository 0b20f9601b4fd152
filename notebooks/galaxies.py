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
# # Galaxies: a density estimate, and how many modes to believe in
#
# Velocities of 82 galaxies in the Corona Borealis region, in thousands of km/s (Postman, Huchra and Geller 1986;
# Roeder 1990). Galaxies cluster, so the density of velocities has bumps. Which of them are there? A mixture that
# is not truncated estimates the density with its uncertainty; its clusters are a means here, not an end.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

velocity = dp.datasets.load_galaxies()
velocity.describe()

# %% [markdown]
# Normal clusters, with a default base measure from the data. Its scale matters: the prior mean of a cluster's
# variance is a tenth of the data's, so let that be unknown within a factor of a few, and the posterior decide.
# `pm.sample` gives the labels and alpha to an exact sampler, and the scale to NUTS.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    scale = pm.LogNormal("scale", np.log(0.05 * velocity.var()), 1.0)
    base = dp.NormalInverseGamma(mu=velocity.mean(), kappa=0.05, a=2.0, b=scale)
    dp.DPMixture("velocity", alpha, base, observed=velocity)
    idata = pm.sample(chains=4, random_seed=3, progressbar=False)

# %% [markdown]
# `dp.summary` is the table to look at first: numbers that do not depend on names of clusters, with R-hat, and
# then the clusters of one partition.

# %%
dp.summary(idata, "velocity", random_seed=1)

# %% [markdown]
# ## The density
#
# The line is the posterior predictive density of one more galaxy. The band is that of the density itself,
# weights and parameters of all clusters being drawn, those without galaxies too.

# %%
figure = dp.plot_density(idata, "velocity", random_seed=1)
figure.axes[0].set_xlabel("velocity (1,000 km/s)")

# %% [markdown]
# How many modes does it have? The mean density has some; to see how sure they are, count the modes of densities
# drawn from the posterior. `dp.component_draws` with `ragged=True` has all clusters of all draws. (Of the weight
# of clusters without galaxies, about one part in a hundred, this leaves out the bumps.)

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

# %% [markdown]
# ## What the prior has to do with it
#
# The number of clusters is not the number of modes, and it owes much to the prior.

# %%
with model:
    idata.update(pm.sample_prior_predictive(1_000, random_seed=2))
dp.plot_n_clusters(idata, "velocity")

# %% [markdown]
# ## Checks
#
# Replicates of the data, from the clusters that each draw has, should look like the data.

# %%
with model:
    idata.update(pm.sample_posterior_predictive(idata, progressbar=False, random_seed=4))
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
# Is the mixture better than one normal distribution at predicting a galaxy that was left out?
# `dp.log_likelihood` writes what `az.loo` and `az.compare` need: the density of every galaxy, labels summed out.

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
# A galaxy that is observed later: which cluster would it join? At 10 and 20 it would be one of many; at 28,
# where there are none, that is open, and it may be one of a new kind.

# %%
members = dp.membership(idata, "velocity", [10.0, 20.0, 28.0], random_seed=1)
members["probability"].to_pandas().assign(new=members["new_cluster"].to_numpy()).round(3)
