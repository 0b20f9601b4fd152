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
# # Old Faithful: from data to summary
#
# 272 eruptions of a geyser: how long each lasted, and how long the wait for the next one was. How many kinds of
# eruption are there? A Dirichlet process mixture does not need to be told.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

data = dp.datasets.load_old_faithful()
data.describe()

# %% [markdown]
# The concentration alpha governs how many clusters are expected a priori; its prior here is Gamma(1, 1). The base
# measure is the prior of every cluster's mean and covariance; `from_data` makes a weakly informative one.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    dp.DPMixture("y", alpha=alpha, base=dp.NormalInverseWishart.from_data(data), observed=data)
    idata = pm.sample(chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# `y_labels` has one label per row, named after the data frame's index. Look at the number of clusters first: R-hat
# near 1 says that chains which started from different partitions agree.

# %%
az.summary(idata, var_names=["alpha", "y_n_clusters"])

# %%
counts = idata.posterior["y_n_clusters"].to_numpy().ravel()
values, frequencies = np.unique(counts, return_counts=True)
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.bar(values, frequencies / len(counts), color="#0072B2")
axes.set(xlabel="number of clusters", ylabel="posterior probability")

# %% [markdown]
# How often do two eruptions share a cluster? The first two differ in kind; the first and the third do not.

# %%
labels = idata.posterior["y_labels"].stack(sample=("chain", "draw")).transpose("sample", "y_obs").to_numpy()
together = {(i, j): float((labels[:, i] == labels[:, j]).mean()) for i, j in ((0, 1), (0, 2))}
assert together[0, 2] > 0.5 > together[0, 1]
together
