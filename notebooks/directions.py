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
# # How to cluster directions
#
# 76 turtles were watched after they had laid their eggs (Stephens 1969). Most went to the sea, some the other
# way. A direction is an angle: 350 and 10 degrees are close to each other, so that clusters must be von Mises
# distributions and not normal ones. Here every cluster has a concentration of its own, which has no closed form,
# so `dp.DirichletProcess` takes PyMC's distribution. Where one concentration serves all clusters, `dp.VonMises` is
# the faster family; it is the last model of this page.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

degrees = dp.datasets.load_turtles().to_numpy()
angle = np.angle(np.exp(1j * np.radians(degrees)))  # from -pi to pi

# %% [markdown]
# Each turtle has a direction and a concentration, and turtles share them in pairs: a dict of distributions ties
# parameters together. `directions` says that results are to average `mu` as a direction.

# %%
with pm.Model() as model:
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    base = {"mu": pm.Uniform.dist(-np.pi, np.pi), "kappa": pm.Gamma.dist(2.0, 0.5)}
    turtle = dp.DirichletProcess("turtle", alpha, base, shape=len(angle), directions=["mu"])
    pm.VonMises("angle", turtle["mu"], turtle["kappa"], observed=angle)
    idata = pm.sample(3000, tune=1000, chains=4, random_seed=1, progressbar=False)

# %%
found = dp.summary(idata, "turtle", random_seed=1)
found

# %% [markdown]
# Two clusters lie opposite each other. In degrees from north, they point to

# %%
np.degrees(found.clusters["mu"]).round() % 360

# %% [markdown]
# The density of a new turtle's direction, with its band, around the compass:

# %%
around = np.linspace(-np.pi, np.pi, 200)
density = dp.density(idata, "turtle", around, random_seed=1, model=model)

figure, axes = plt.subplots(figsize=(5, 5), subplot_kw={"projection": "polar"})
axes.set_theta_zero_location("N")
axes.set_theta_direction(-1)
counts, edges = np.histogram(angle, bins=24, range=(-np.pi, np.pi), density=True)
axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color="0.85", label="data")
axes.fill_between(around, density["lower"], density["upper"], alpha=0.3, lw=0, label="90% band")
axes.plot(around, density["mean"], lw=2, label="posterior mean")
axes.set_yticklabels([])
axes.legend(loc="lower left", bbox_to_anchor=(-0.15, -0.12), frameon=False)
figure

# %% [markdown]
# The parameter `mu` may lie anywhere between -pi and pi, and moves there by Hamiltonian dynamics of a transformed
# value. It cannot step from pi to -pi. Where a cluster points there, turn the angles first.

# %% [markdown]
# ## One concentration for all clusters
#
# The mean directions then integrate out. Summaries average them as directions, also where a cluster points to pi.

# %%
with pm.Model():
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    concentration = pm.Gamma("concentration", 2.0, 0.5)
    dp.DPMixture("angle", alpha, dp.VonMises(0.0, 0.01, concentration), observed=angle)
    shared = pm.sample(1000, tune=1000, chains=4, random_seed=1, progressbar=False)

table = dp.summary(shared, "angle", random_seed=1)
table

# %%
np.degrees(table.clusters["direction"]).round() % 360
