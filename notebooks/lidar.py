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
# # How to predict some columns given others: regression by a mixture
#
# A mixture is a joint model of all columns of a table. So a fitted mixture can be asked for some of them given the
# others: a regression, without a formula, whose curve, spread and shape follow the data (Müller, Erkanli and West
# 1996). The example is LIDAR: how much light of a laser comes back from which distance. The curve falls, and the
# scatter grows.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

lidar = dp.datasets.load_lidar()
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    dp.DPMixture("y", alpha, observed=lidar)
    idata = pm.sample(chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# Nothing in the model says which column is the response. `dp.plot_predict` takes one column along the other. The
# line is the expected log ratio. The dark band is where the line itself may be, and the light one is where nine in
# ten new measurements fall.

# %%
figure = dp.plot_predict(idata, "y", "range", of="logratio", random_seed=1)

# %% [markdown]
# `dp.predict` has the numbers. Rows to be predicted are a table without the columns that are asked for.

# %%
new = lidar[["range"]].iloc[[20, 110, 180]]
found = dp.predict(idata, "y", new, of="logratio", random_seed=1)
found[["mean", "lower", "upper"]].to_dataframe().round(3)

# %%
spread = dp.predict(idata, "y", new, of="logratio", kind="quantiles", random_seed=1)
spread["quantiles"].to_pandas().round(3)

# %% [markdown]
# The whole density of the log ratio at three distances: it is narrow where all light comes back and wide where
# little does. Bands are for the density itself.

# %%
densities = dp.predict(idata, "y", new, of="logratio", kind="density", random_seed=1)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for row, color in zip(densities["new_row"].to_numpy(), ["C0", "C1", "C2"], strict=True):
    own = densities.sel(new_row=row)
    axes.fill_between(own["x"], own["lower"], own["upper"], color=color, alpha=0.25, lw=0)
    axes.plot(own["x"], own["mean"], color=color, label=f"range {lidar['range'][row]}")
axes.set(xlabel="logratio", ylabel="density")
legend = axes.legend(frameon=False)

# %% [markdown]
# ## Are the intervals right?
#
# Fit every second row, and predict the others. About nine in ten of them should be inside their 90 % interval.

# %%
with pm.Model():
    dp.DPMixture("half", pm.Gamma("alpha", 1.0, 1.0), observed=lidar.iloc[::2])
    half = pm.sample(chains=4, random_seed=2, progressbar=False)
rest = lidar.iloc[1::2]
tails = [0.05, 0.95]
limits = dp.predict(half, "half", rest, of="logratio", kind="quantiles", quantiles=tails, random_seed=1)
low, high = limits["quantiles"].to_numpy()
inside = np.mean((rest["logratio"] > low) & (rest["logratio"] < high))
print(f"{inside:.0%} of {len(rest)} held-out measurements are inside their 90 % interval")

# %% [markdown]
# ## The other direction
#
# The same fit predicts the distance from the log ratio, and tells how surprising a measurement is given its
# distance: the cells that look wrong. The least likely log ratios, as log densities:

# %%
surprise = dp.log_density(idata, "y", lidar)["entry"].sel(column="logratio").to_pandas()
lidar.assign(surprise=surprise).nsmallest(3, "surprise").round(2)

# %%
figure = dp.plot_predict(idata, "y", "logratio", of="range", random_seed=1)

# %% [markdown]
# ## When is this the right tool?
#
# A mixture of normals spends clusters on the covariates too. It is at its best with few of them, where their joint
# distribution is of interest, where entries are missing, or where the response has several branches. With a line
# in each cluster, use a view of the covariates and `dp.LinearRegression` for the response: [some columns given
# others](../docs/howto/some_columns_given_others.md). With dozens of covariates and one response, a regression
# model is the better choice.
