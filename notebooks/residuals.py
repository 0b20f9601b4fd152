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
# # How to fit a regression with residuals of unknown shape: Old Faithful
#
# How long is the wait for the next eruption, given the length of the last one? Long eruptions are followed by long
# waits. The residuals of this regression need not be normal, so we give them a Dirichlet process mixture.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

data = dp.datasets.load_old_faithful()
duration = (data["duration"] - data["duration"].mean()).to_numpy()
waiting = data["waiting"].to_numpy()

# %% [markdown]
# `offset` is subtracted from the data before the rows are clustered. It may be any expression of the model;
# `pm.sample` draws `slope` with the labels, by slices of the mixture's density. There is no intercept, because the
# mean of the mixture plays its role.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    slope = pm.Normal("slope", 10.0, 5.0)
    scale = pm.LogNormal("scale", np.log(6.0), 0.3)
    base = dp.NormalInverseGamma(mu=70.0, kappa=0.1, a=5.0, b=4.0 * scale**2)
    dp.DPMixture("y", alpha, base, observed=waiting, offset=slope * duration)
    idata = pm.sample(2_000, chains=4, random_seed=1, progressbar=False)

# %%
az.summary(idata, var_names=["alpha", "slope", "scale", "y_n_clusters"])

# %% [markdown]
# The slope is in minutes of waiting per minute of eruption. Least squares estimates 10.7 with a standard error of
# 0.3.

# %%
slopes = idata.posterior["slope"].to_numpy().ravel()
residual = waiting - slopes.mean() * duration
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.hist(slopes, bins=40, color="#0072B2")
left.set(xlabel="slope (min per min)")
right.hist(residual, bins=30, color="#D55E00")
right.set(xlabel="residual plus intercept (min)")
least_squares = np.polyfit(duration, waiting, 1)[0]
assert abs(slopes.mean() - least_squares) < 4 * slopes.std()
least_squares, slopes.mean(), slopes.std()
