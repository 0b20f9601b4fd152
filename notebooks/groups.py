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
# # How to find clusters that groups share: cells of patients
#
# A flow cytometer measures two markers on cells of eight patients. All patients have the same kinds of cells, in
# other proportions, and one kind is rare in most of them. The data are simulated, so that we know the answer.

# %%
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp

rng = np.random.default_rng(3)
means = np.array([[1.0, 1.0], [4.0, 1.2], [1.2, 4.0], [4.2, 4.1], [2.6, 2.6]])
covariances = np.array(
    [
        [[0.15, 0.0], [0.0, 0.1]],
        [[0.2, 0.12], [0.12, 0.2]],
        [[0.1, 0.0], [0.0, 0.3]],
        [[0.2, -0.1], [-0.1, 0.2]],
        [[0.08, 0.0], [0.0, 0.08]],
    ]
)
truth = rng.dirichlet([2.0, 1.0, 1.0, 1.0, 0.3], size=8)
kind = np.array([rng.choice(5, size=150, p=weights) for weights in truth])
cells = np.array([rng.multivariate_normal(means[k], covariances[k]) for k in kind.ravel()])
cells = pd.DataFrame(cells, columns=["CD4", "CD8"])
patient = np.repeat([f"patient {j + 1}" for j in range(8)], 150)

# %% [markdown]
# `dp.HDPMixture` is a mixture like `dp.DPMixture`, with one argument more: the group of each row. `alpha` says how
# alike the patients' proportions are, and `gamma` how many kinds of cells there are.

# %%
with pm.Model() as model:
    alpha, gamma = pm.Gamma("alpha", 1.0, 0.2), pm.Gamma("gamma", 1.0, 1.0)
    dp.HDPMixture("y", alpha, gamma, group=patient, observed=cells)
    idata = pm.sample(1000, tune=500, chains=4, random_seed=1, progressbar=False)

# %%
dp.summary(idata, "y", random_seed=1)

# %% [markdown]
# Five kinds of cells are found. The point partition agrees with the truth:

# %%
partition = dp.point_partition(idata, "y")
agreement = pd.crosstab(partition["labels"].to_numpy(), kind.ravel(), rownames=["cluster"], colnames=["truth"])
agreement

# %%
figure = dp.plot_groups(idata, "y", partition)

# %% [markdown]
# The weights within patients, and the largest difference from the proportions that the data were drawn from:

# %%
weights = dp.group_weights(idata, "y", partition)
figure = dp.plot_group_weights(idata, "y", partition)

# %%
order = agreement.to_numpy().argmax(axis=1)
float(np.abs(weights["weight"].to_numpy() - truth[:, order]).max().round(3))

# %% [markdown]
# A new patient has the clusters' shares over all patients for a start; each of those in the study has their own
# density. At the place of the rare kind:

# %%
figure = dp.plot_density(idata, "y", columns=["CD4"], group="patient 5", random_seed=1)

# %%
rare = [[2.6, 2.6]]
names = ["patient 1", "patient 3", None]
pd.Series(
    {
        name or "a new patient": float(dp.density(idata, "y", rare, group=name, random_seed=1)["mean"][0])
        for name in names
    },
    name="density",
).round(3)
