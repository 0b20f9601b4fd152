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
# `dp.summary` is the table to look at first. R-hat near 1 says that chains which started from different
# partitions agree; then come the clusters of the point partition, the one with the least expected distance to
# all draws.

# %%
point = dp.point_partition(idata, "y", random_seed=1)
summary = dp.summary(idata, "y", point, random_seed=1)
assert summary.scalars["r_hat"].astype(float).max() < 1.05
summary

# %%
dp.plot_clusters(idata, "y", point, random_seed=1)

# %% [markdown]
# Short eruptions are followed by short waits, long ones by long waits. A few eruptions lie between; some draws
# give them a cluster of their own. The probabilities that pairs of eruptions share a cluster show how certain
# that is.

# %%
dp.plot_co_clustering(idata, "y", point)

# %%
together = dp.co_clustering(idata, "y")
assert together[0, 2] > 0.5 > together[0, 1]
{pair: float(together[pair]) for pair in ((0, 1), (0, 2))}

# %% [markdown]
# The joint density, and what a wait of 50 minutes says of the eruption before it: the probabilities of the
# clusters, of rows of which only the waiting time is known.

# %%
dp.plot_density(idata, "y", random_seed=1)

# %%
members = dp.membership(idata, "y", [[np.nan, 50.0], [np.nan, 65.0], [np.nan, 80.0]], point)
members["probability"].to_pandas().assign(new=members["new_cluster"].to_numpy()).round(3)
