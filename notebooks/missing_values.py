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
# # How to use data with missing values: Old Faithful with gaps
#
# A third of the waiting times is removed at random, together with a few durations. A mixture with full
# covariances uses the rows that remain incomplete, and imputes what is missing.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

complete = dp.datasets.load_old_faithful()
rng = np.random.default_rng(1)
observed = complete.copy()
observed.loc[rng.random(len(observed)) < 0.33, "waiting"] = np.nan
observed.loc[rng.random(len(observed)) < 0.05, "duration"] = np.nan
observed.isna().sum()

# %% [markdown]
# Missing entries are NaN, as usual. With `NormalInverseWishart` they become unknowns of the model, in the variable
# `y_missing`. In every draw, the cluster of each incomplete row is drawn given its observed entries, and then its
# missing entries are drawn given the cluster.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    dp.DPMixture("y", alpha, dp.NormalInverseWishart.from_data(observed), observed=observed)
    idata = pm.sample(1000, tune=500, chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# `y_missing` is in the order of the rows and, within a row, of the columns. The true values are known here, so we
# can check the imputations: 80 % of the intervals should hold the true value, and the posterior means should be
# closer to it than the mean of the observed waiting times.

# %%
rows, columns = np.nonzero(observed.isna().to_numpy())
truth = complete.to_numpy()[rows, columns]
draws = idata.posterior["y_missing"].stack(sample=("chain", "draw")).to_numpy()
low, high = np.quantile(draws, [0.1, 0.9], axis=1)
waiting = columns == 1
covered = float(np.mean((low < truth) & (truth < high)))
error = np.abs(draws.mean(axis=1) - truth)[waiting].mean()
naive = np.abs(observed["waiting"].mean() - truth[waiting]).mean()
assert 0.7 < covered < 0.9
assert error < 0.6 * naive
covered, error, naive

# %%
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.errorbar(
    truth[waiting],
    draws.mean(axis=1)[waiting],
    [(draws.mean(axis=1) - low)[waiting], (high - draws.mean(axis=1))[waiting]],
    fmt="o",
    markersize=3,
    color="#0072B2",
    ecolor="0.8",
)
axes.axline((70, 70), slope=1, color="black", linewidth=0.8)
axes.set(xlabel="true waiting time", ylabel="imputed: mean and 80 % interval")
plt.show()
