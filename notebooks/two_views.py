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
# # How to cluster a table with several types of columns: penguins
#
# 344 penguins were measured, and the island on which each of them lives was noted. Which kinds of penguins are
# there? The table has two types of columns, so a cluster is described by two things: a normal distribution of the
# measurements with a full covariance, and the shares of the islands. Two penguins were not measured.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp

penguins = dp.datasets.load_penguins()
measured = ["bill_length", "bill_depth", "flipper_length", "body_mass"]
penguins[["species", "island"]].value_counts(sort=False).unstack(fill_value=0)

# %% [markdown]
# The base is a dict with one entry for each type of columns, called a *view*: the columns, and a base measure for
# them. A class stands for its default, `from_data`. The species and the sex are withheld.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    dp.DPMixture(
        "y",
        alpha,
        {"body": (measured, dp.NormalInverseWishart), "island": (["island"], dp.DirichletCategorical)},
        observed=penguins,
    )
    idata = pm.sample(1000, tune=1000, chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# The table shows how species and sex are distributed over the clusters of the draw with the highest density. The
# clusters correspond to the species, except for one female Chinstrap penguin that is alone: her bill of 58 mm is
# longer than that of any other.

# %%
n_clusters = idata.posterior["y_n_clusters"]
log_joint = idata.sample_stats["y_labels_log_joint"]
best = log_joint.argmax(...)
labels = idata.posterior["y_labels"].isel(best).to_numpy()
named = [penguins["species"], penguins["sex"].fillna("not recorded")]
print(n_clusters.to_series().value_counts(normalize=True).round(2).to_dict())
table = pd.crosstab(labels, named)
table

# %% [markdown]
# How probable is it that two penguins share a cluster, if they are of the same species and if they are not?

# %%
together = dp.co_clustering(idata, "y").to_numpy()
same_species = penguins["species"].to_numpy()[:, None] == penguins["species"].to_numpy()
across = together[~same_species].mean()
within = together[same_species].mean()
assert across < 0.05 < within
across, within

# %% [markdown]
# The two penguins that were not measured live on Torgersen and on Biscoe. They follow the penguins of their
# islands: on Torgersen there are only Adelie penguins, on Biscoe there are 124 Gentoo and 44 Adelie penguins.
# Their measurements are unknowns of the model.

# %%
unmeasured = penguins.index[penguins[measured].isna().all(axis=1)]
company = pd.DataFrame(
    {
        f"{row}, {penguins['island'][row]}": pd.Series(together[row]).groupby(penguins["species"]).mean()
        for row in unmeasured
    }
)
imputed = idata.posterior["y_body_missing"].mean(["chain", "draw"]).to_numpy().reshape(len(unmeasured), -1)
company.round(3), pd.DataFrame(imputed, index=company.columns, columns=measured).round(1)

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
colours = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442"]
for k in range(labels.max() + 1):
    own = penguins[labels == k]
    axes[0].plot(own["bill_length"], own["bill_depth"], ".", color=colours[k % 8], label=f"{len(own)} rows")
axes[0].set(xlabel="bill length (mm)", ylabel="bill depth (mm)", title="one draw of the clusters")
axes[0].legend(fontsize=8)
order = np.lexsort((labels, penguins["sex"].fillna("").to_numpy(), penguins["species"].to_numpy()))
shown = axes[1].imshow(together[np.ix_(order, order)], cmap="Blues", vmin=0, vmax=1)
ends = penguins["species"].value_counts(sort=False).sort_index().cumsum().to_numpy()
axes[1].set_yticks(ends - np.diff(ends, prepend=0) / 2, sorted(penguins["species"].unique()))
axes[1].set(xticks=[], title="probability of being in one cluster")
figure.colorbar(shown, ax=axes[1])
plt.show()
