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
# # Tutorial: Old Faithful, from the data to a figure
#
# Old Faithful is a geyser in Yellowstone National Park. For 272 eruptions we know how long each lasted and how
# long the wait for the next one was, in minutes. How many kinds of eruption are there, and which eruptions belong
# together? This tutorial fits a Dirichlet process mixture, checks that the sampler has converged, looks at the
# clusters and their uncertainty, and ends with a figure for a paper.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

data = dp.datasets.load_old_faithful()
data.describe().round(2)

# %% [markdown]
# ## The model
#
# A Dirichlet process mixture has two ingredients.
#
# - The *concentration* `alpha` governs how many clusters are expected before the data is seen. A Gamma(1, 1) prior
#   is a common choice.
# - The *base measure* is the prior of the mean and the covariance of every cluster. `from_data` makes a weakly
#   informative one, in which a cluster is about three times narrower than the data.
#
# Give the mixture a name, here `"y"`. It adds three variables to the model: the data `y`, the labels of its rows
# `y_labels`, and the number of clusters `y_n_clusters`.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    base = dp.NormalInverseWishart.from_data(data)
    dp.DPMixture("y", alpha=alpha, base=base, observed=data)

model.basic_RVs

# %% [markdown]
# `pm.sample` finds the labels and gives them a sampler of their own, which also draws `alpha` and other
# hyperparameters. NUTS samples what else is in a model. Each chain starts from a different random partition.

# %%
with model:
    idata = pm.sample(chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# ## Has it converged?
#
# Do not run `az.summary` on everything: it has a line for the label of each row, and the numbers of the clusters
# change from draw to draw. `dp.summary` is the table to look at first. Its upper part describes quantities that
# do not depend on how clusters are numbered: the number of clusters, the entropy and the largest shares of their
# sizes, the log joint density, and `alpha`. An R-hat near 1 says that chains which started from different
# partitions agree.

# %%
point = dp.point_partition(idata, "y", random_seed=1)
summary = dp.summary(idata, "y", point, random_seed=1)
assert summary.scalars["r_hat"].astype(float).max() < 1.05
summary

# %% [markdown]
# ## The clusters
#
# The lower part of the table describes the *point partition*: the clustering with the smallest expected distance
# to all draws of the posterior. There are two large clusters. Short eruptions are followed by short waits, long
# eruptions by long waits.
#
# The column `certainty` is the mean probability that two eruptions of the cluster share a cluster in a draw. One
# eruption is left over as a cluster of its own, which the note below the table names. It is seldom alone in a
# draw: it lies between the two kinds, and the posterior is undecided about it.

# %%
figure = dp.plot_clusters(idata, "y", point, random_seed=1)

# %% [markdown]
# The ellipses hold 90 % of a normal distribution with the posterior mean and covariance of each cluster.
#
# ## How certain is the clustering?
#
# The posterior has several answers to the number of clusters, and `dp.plot_n_clusters` compares them with the
# prior.

# %%
with model:
    idata.update(pm.sample_prior_predictive(500, random_seed=2))
figure = dp.plot_n_clusters(idata, "y")

# %% [markdown]
# The number of clusters depends on the prior as much as on the data. What the data determines much better is which
# rows belong together. The co-clustering matrix shows the probability that two eruptions share a cluster.

# %%
figure = dp.plot_co_clustering(idata, "y", point)

# %%
together = dp.co_clustering(idata, "y")
assert together[0, 2] > 0.5 > together[0, 1]
{pair: round(float(together[pair]), 3) for pair in ((0, 1), (0, 2))}

# %% [markdown]
# `dp.certainty` summarises this matrix for each row. The eruptions with the lowest certainty are those between the
# two kinds.

# %%
certain = dp.certainty(idata, "y", point).to_dataframe()
data.join(certain).sort_values("certainty").head(5).round(2)

# %% [markdown]
# The credible ball says how far the posterior extends around the point partition, and which partitions lie at its
# edge. The two vertical bounds have the fewest and the most clusters.

# %%
ball = dp.credible_ball(idata, "y", point)
ball[["n_clusters", "distance"]].to_dataframe().round(2)

# %% [markdown]
# ## New eruptions
#
# Suppose somebody waited 50 minutes for an eruption and wants to know how long the previous one was.
# `dp.membership` takes rows with missing entries, and returns the probability of each cluster.

# %%
members = dp.membership(idata, "y", [[np.nan, 50.0], [np.nan, 65.0], [np.nan, 80.0]], point)
members["probability"].to_pandas().assign(new_cluster=members["new_cluster"].to_numpy()).round(3)

# %% [markdown]
# ## A figure for a paper
#
# The plotting functions take `ax=`, so they can be combined into a figure of your own. Here the clusters stand
# beside the marginal density of the durations, with its 95 % band.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
dp.plot_clusters(idata, "y", point, random_seed=1, ax=left)
dp.plot_density(idata, "y", columns="duration", random_seed=1, ax=right)
left.set(xlabel="duration of an eruption (min)", ylabel="wait for the next eruption (min)", title="(a)")
right.set(xlabel="duration of an eruption (min)", title="(b)")
plt.show()

# %% [markdown]
# Save it with `figure.savefig("old_faithful.pdf")`. In the text you would report the sampler and its checks: *We
# fitted a Dirichlet process mixture of normal distributions with four chains of 1,000 draws; R-hat of the number
# of clusters, the entropy of their sizes and the log joint density was at most 1.01.* Save the draws with
# `idata.to_netcdf("old_faithful.nc")`; every function of this tutorial works on the file that is read again,
# without the model.
#
# ## Where to go next
#
# - [How to choose a prior](../docs/howto/choosing_a_prior.md), and see what it does to this result
# - [The other how-to guides](../docs/howto/index.md)
# - [After sampling](../docs/posterior.md): every function that was used here, in detail
