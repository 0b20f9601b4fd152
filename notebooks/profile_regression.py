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
# # Profile regression: a response, fixed effects, and clusters of covariates
#
# Covariates that go together are hard to put into a regression one by one. Profile regression (Molitor et al.
# 2010, Biostatistics 11, 484-498; Liverani et al. 2015, Journal of Statistical Software 64, 7) lets them form
# clusters, the *profiles*, each with a risk of its own, while other covariates keep their coefficients. Response
# and profile say together which rows are alike.
#
# Here the response is whether a penguin is male, and the question is what its body mass tells of that. Heavy
# penguins are mostly Gentoos, females as well as males, so that the mass must be compared within kinds of
# penguins. The model is not told the species; bill and flipper are the profile.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp

penguins = dp.datasets.load_penguins().dropna().reset_index(drop=True)
male = (penguins["sex"] == "male").to_numpy(int)
mass = (penguins["body_mass"] - penguins["body_mass"].mean()).to_numpy() / 500.0  # in 500 g
profile = penguins[["bill_length", "bill_depth", "flipper_length"]]

# %% [markdown]
# The log odds of each row come from a Dirichlet process, by any distribution and for any likelihood. The profile
# is a `dp.CollapsedMixture` on the labels of the same process: the parameters of its clusters are integrated out.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    log_odds = dp.DirichletProcess("log_odds", alpha, pm.Normal.dist(0.0, 2.5), shape=len(male))
    base = dp.NormalInverseWishart.from_data(profile)
    dp.CollapsedMixture("profile", model["log_odds_labels"], base, observed=profile)
    slope = pm.Normal("slope", 0.0, 2.5)
    pm.Bernoulli("male", logit_p=log_odds + slope * mass, observed=male)
    idata = pm.sample(3000, tune=1000, chains=4, random_seed=1, progressbar=False)

# %% [markdown]
# `pm.sample` gives labels, log odds and the slope to one step. The slope is correlated with the log odds of the
# profiles; so the step draws it given these, and also moves it together with them.

# %%
found = dp.summary(idata, "log_odds_labels", random_seed=1)
found

# %% [markdown]
# The profiles are the species, as far as a penguin's body shows it:

# %%
partition = dp.point_partition(idata, "log_odds")
pd.crosstab(partition["labels"].to_numpy(), penguins["species"], rownames=["profile"])

# %% [markdown]
# The same regression without profiles, where the odds are the same for all penguins of a mass:

# %%
with pm.Model():
    level, alone = pm.Normal("level", 0.0, 2.5), pm.Normal("slope", 0.0, 2.5)
    pm.Bernoulli("male", logit_p=level + alone * mass, observed=male)
    pooled = pm.sample(1000, tune=1000, chains=4, random_seed=1, progressbar=False)

figure, axes = plt.subplots(figsize=(6, 3))
for label, draws in (("with profiles", idata), ("without", pooled)):
    slopes = draws["posterior"]["slope"].to_numpy().ravel()
    axes.hist(slopes, bins=np.linspace(0.0, 6.0, 90), density=True, alpha=0.7, label=label)
axes.set(xlabel="log odds ratio of being male for 500 g more", ylabel="density")
axes.legend()
figure.tight_layout()

# %% [markdown]
# Within a profile, half a kilogram tells far more of the sex than among all penguins together.

# %%
az.summary(idata, var_names=["slope", "alpha"])

# %% [markdown]
# What is the sex of three new penguins of mean mass, of which the bill is known, and of one also the flipper?
# Their log odds follow from the clusters that they may belong to:

# %%
new = pd.DataFrame(
    {
        "bill_length": [38.0, 45.0, 50.0],
        "bill_depth": [18.0, 17.5, 15.0],
        "flipper_length": [np.nan, np.nan, 220.0],
    }
)
dp.predict(idata, "log_odds", new, of="log_odds", random_seed=1, model=model).to_pandas().round(2)

# %% [markdown]
# The profile is a view like any other: it can be asked for memberships and densities of new rows. Where the
# response has a conjugate family and no fixed effects, `dp.DPMixture` with two views is the same model with
# everything integrated out, and mixes better; see [how to ask a
# table](../docs/howto/some_columns_given_others.md).
