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
# # How to use the order of rows
#
# The 272 eruptions of Old Faithful are mostly shown as a cloud of two clusters. But they came one after the
# other: a short eruption leaves hot water behind, and is followed by a long one. A mixture knows nothing of that;
# a hidden Markov model does, and says what comes next.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

eruptions = dp.datasets.load_old_faithful()
mean, scatter = eruptions.mean().to_numpy(), np.cov(eruptions.T)
base = dp.NormalInverseWishart(mean, 0.1, 6.0, 0.3 * scatter)

# %% [markdown]
# The model has no `kappa`: nothing says beforehand that a state is followed by itself.

# %%
with pm.Model() as model:
    alpha, gamma = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("gamma", 1.0, 1.0)
    dp.HDPHMM("y", alpha, gamma, base, observed=eruptions)
    idata = pm.sample(2000, tune=500, random_seed=1, progressbar=False)

found = dp.hidden_states(idata, "y")
dp.plot_states(idata, "y", "duration", reference=found["labels"])
# %% [markdown]
# ## What follows what
#
# The transitions between the two large states: after a short eruption a long one is almost certain.

# %%
drawn = dp.transitions(idata, "y", found["labels"], random_seed=1)
large = drawn["size"].to_numpy() > 20
az.summary(drawn["transition"][:, :, large, large], kind="stats")

# %% [markdown]
# A mixture of the same rows predicts the next eruption as it predicts any: with both kinds. Here, the last
# eruption was a long one, and the next is a draw from what follows long ones.

# %%
with pm.Model():
    dp.DPMixture("x", pm.Gamma("alpha", 1.0, 1.0), base, observed=eruptions)
    unordered = pm.sample(random_seed=1, progressbar=False)

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for of, name, label in ((unordered, "x", "any eruption"), (idata, "y", "the next one")):
    rows = dp.sample_new_rows(of, name, 1, random_seed=1)[name].to_numpy()[..., 0, 0].ravel()
    axes.hist(rows, bins=np.linspace(1.0, 6.0, 51), density=True, histtype="step", lw=1.5, label=label)
axes.set_xlabel("duration, minutes")
axes.legend(frameon=False)
axes.set_yticks([])

# %% [markdown]
# More on these models is in [hidden states](../docs/howto/hidden_states.md); where states do not return, in
# [change points](../docs/howto/change_points.md).
