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
# # How to find the topics of documents: news stories
#
# What are 395 news stories about, and which words belong to a subject? In a topic model, every story mixes topics
# in its own proportions, and every topic has its own probabilities of words. The data are a table of counts: one
# row for each story, one column for each word.

# %%
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp

counts = dp.datasets.load_reuters()
held_out = np.arange(len(counts)) % 10 == 0
new, counts = counts[held_out], counts[~held_out]
counts = counts.loc[:, counts.sum() > 0]
counts.iloc[:5].T.loc[["church", "pope", "royal", "police", "film"]]

# %% [markdown]
# ## A given number of topics
#
# `dp.LDA` takes the table as it is. `alpha` is the Dirichlet parameter of each topic within a story: with 0.1, a
# story is about a few topics. `eta` is that of each word within a topic. Both may also be variables of the model.

# %%
options = {"random_seed": 1, "compute_convergence_checks": False, "progressbar": False}
with pm.Model() as model:
    dp.LDA("words", n_topics=20, alpha=0.1, eta=0.05, observed=counts)
    idata = pm.sample(200, tune=400, chains=2, **options)

# %% [markdown]
# PyMC's check of convergence is left out, because these runs are too short for it. The posterior of topics of
# real text has many modes, which differ in how they divide overlapping subjects. While they tune, chains
# compare what they have found, and may begin anew at the topics of a better one. Before you interpret single
# topics, look at the log joint density of the chains, at `restarted`, which tells of chains that have begun
# anew, and at `overlap` below.

# %%
pd.DataFrame(
    {
        "log_joint": idata.sample_stats["words_labels_log_joint"].mean("draw").round(-2).to_series(),
        "restarted": idata.sample_stats["words_labels_restarted"].isel(draw=-1).to_series(),
    }
)

# %% [markdown]
# The topics of all draws are matched to those of the best draw. `overlap` is the share of a topic's words that the
# matching topics of the other draws hold: topics with a high overlap are found in every draw, others come and go.

# %%
topics = dp.topics(idata, "words", n_words=6, relevance=0.6)
table = topics[["share", "overlap"]].to_dataframe().round(2)
table["words"] = [" ".join(words) for words in topics["top_word"].to_numpy()]
table.head(8)

# %%
figure = dp.plot_topics(idata, "words", n_topics=8, n_words=6)

# %% [markdown]
# The weights of topics in every story, and how uncertain they are:

# %%
weights = dp.group_weights(idata, "words")
story = weights.isel(words_group=0)
table = pd.DataFrame({name: story[name] for name in ("weight", "lower", "upper")})
table.nlargest(3, "weight").round(2)

# %%
figure = dp.plot_group_weights(idata, "words")

# %% [markdown]
# ## How many topics?
#
# The stories that were held out tell. Their log probability is estimated without plugging anything in; higher is
# better, and the perplexity is lower. A word that no story of the training data has is left out.

# %%
new = new[counts.columns]
found = {}
for n_topics in (5, 20):
    with pm.Model():
        dp.LDA("words", n_topics=n_topics, alpha=0.1, eta=0.05, observed=counts)
        run = pm.sample(
            100, tune=250, chains=1, random_seed=1, compute_convergence_checks=False, progressbar=False
        )
    held = dp.held_out_log_likelihood(run, "words", new, n_draws=5, n_particles=5, random_seed=1)
    found[n_topics] = held.attrs["perplexity"]
pd.Series(found, name="perplexity").round(0)

# %% [markdown]
# Or let the number be a part of what is inferred: a hierarchical Dirichlet process has no fixed number of topics.
# It takes the words one by one, each with the story that it is from.

# %%
tokens = dp.as_tokens(counts)
with pm.Model():
    alpha, gamma = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("gamma", 1.0, 1.0)
    eta = np.full(counts.shape[1], 0.1)
    dp.HDPMixture(
        "words", alpha, gamma, dp.DirichletCategorical(eta), group=tokens["document"], observed=tokens["word"]
    )
    run = pm.sample(100, tune=250, chains=1, **options)
held = dp.held_out_log_likelihood(run, "words", new, n_draws=5, n_particles=5, random_seed=1)
run.posterior["words_n_clusters"].to_series().describe()[["min", "50%", "max"]], round(held.attrs["perplexity"])
