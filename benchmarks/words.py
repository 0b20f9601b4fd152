"""Topic models beside others: tokens per second, and held-out log likelihood against seconds.

Usage: ``python benchmarks/words.py FOLDER [--topics 20 100] [--seconds 1 3 10]``, or with ``--scaling``. With ``--topics 0``,
hierarchical Dirichlet processes are compared. The others are measured where they
are installed: ``lda`` (collapsed Gibbs in C), ``tomotopy`` (one worker), scikit-learn and gensim (variational). None
of them is needed by the package. The data are the Reuters sample of ``lda`` and the news of gensim's test data.

All models have alpha = 0.1 for each topic and eta = 0.01. One document in ten is held out. Its log likelihood per
word is estimated for all in the same way, left to right with the words' probabilities that a method returns, and
alpha. What draws from the posterior, and goes on where it was, is judged by the mean of the likelihoods of up to ten
draws of the second half, and in brackets by the last draw alone. Compilation is timed apart.
"""

import argparse
import json
import logging
import os
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import pandas as pd

ALPHA, ETA = 0.1, 0.01
for name in ("gensim", "lda"):
    logging.getLogger(name).setLevel(logging.ERROR)


def reuters():
    import lda.datasets

    return pd.DataFrame(lda.datasets.load_reuters(), columns=lda.datasets.load_reuters_vocab())


def news():
    import gensim
    from gensim.parsing.preprocessing import STOPWORDS
    from gensim.utils import simple_preprocess

    path = Path(gensim.__file__).parent / "test" / "test_data" / "lee_background.cor"
    documents = [[w for w in simple_preprocess(line) if w not in STOPWORDS] for line in path.open()]
    counts = pd.crosstab(
        np.repeat(np.arange(len(documents)), [len(d) for d in documents]), np.concatenate(documents)
    )
    return counts.loc[:, (counts > 0).sum() > 1]


class Corpus:
    def __init__(self, counts):
        held = np.arange(len(counts)) % 10 == 3
        self.train = counts[~held]
        self.train = self.train.loc[:, self.train.sum() > 0]
        test = counts[held][self.train.columns].to_numpy()
        self.matrix = self.train.to_numpy()
        self.documents = [np.repeat(np.arange(len(row)), row) for row in self.matrix]
        held_out = [np.repeat(np.arange(len(row)), row) for row in test]
        self.words = np.concatenate(held_out).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum([len(d) for d in held_out])]).astype(np.int64)
        self.n = int(self.matrix.sum())

    def score(self, draws):
        """Held-out log likelihood per word, of the last draw and of the mean over draws.

        A draw is the words' probabilities in all topics, or these and the Dirichlet parameters of documents.
        """
        from pymc_dpgmm.posterior.arrays.topics import estimate_documents

        rng = np.random.default_rng(0)
        found = []
        for draw in draws:
            topics, pulls = draw if isinstance(draw, tuple) else (draw, np.full(len(draw), ALPHA))
            estimates = estimate_documents(rng, self.words, self.starts, topics, pulls, 10)
            found.append(estimates.log_probability)
        mean = np.logaddexp.reduce(found, axis=0) - np.log(len(found))
        return float(found[-1].sum() / len(self.words)), float(mean.sum() / len(self.words))


class Ours:
    """Scans through the package's own step, as ``pm.sample`` runs it, without storing draws."""

    def __init__(self, corpus, n_topics):
        import pymc as pm

        import pymc_dpgmm as dp

        self.corpus = corpus
        with pm.Model() as model:
            dp.LDA("w", n_topics, ALPHA, ETA, observed=corpus.train)
            self.step = dp.DPMixtureStep(n_sweeps=1)
        self.point = model.initial_point(random_seed=1)
        self.step.setup_chain(np.random.default_rng(1), 0, 1)
        self.sums, self.n_sums = 0.0, 0

    def train(self, n):
        for _ in range(n):
            self.point, _ = self.step.step(self.point)

    def topics(self):
        words = self.step.kept[0].state.words
        counts = np.zeros((words.n_topics, self.corpus.matrix.shape[1]))
        np.add.at(counts, (words.labels, words.words), 1)
        return (counts + ETA) / (counts.sum(axis=1, keepdims=True) + ETA * counts.shape[1])


class Tomotopy:
    def __init__(self, corpus, n_topics):
        import tomotopy

        self.model = tomotopy.LDAModel(k=n_topics, alpha=ALPHA, eta=ETA, seed=1)
        for words in corpus.documents:
            self.model.add_doc([str(w) for w in words])
        self.model.optim_interval = 0
        self.n_words = corpus.matrix.shape[1]

    def train(self, n):
        self.model.train(n, workers=1)

    def topics(self):
        order = [int(w) for w in self.model.used_vocabs]
        found = np.zeros((self.model.k, self.n_words))
        for k in range(self.model.k):
            found[k, order] = self.model.get_topic_word_dist(k)
        return found


class CollapsedC:
    """The package lda begins anew whenever it is fitted."""

    def __init__(self, corpus, n_topics):
        import lda

        self.make = lambda n: lda.LDA(n_topics, n_iter=n, alpha=ALPHA, eta=ETA, random_state=1, refresh=10**9)
        self.corpus, self.n = corpus, 0

    def train(self, n):
        self.n += n
        self.model = self.make(self.n)
        self.model.fit(self.corpus.matrix.astype(np.intc))

    def topics(self):
        return self.model.topic_word_


class ScikitLearn:
    def __init__(self, corpus, n_topics):
        from sklearn.decomposition import LatentDirichletAllocation

        self.model = LatentDirichletAllocation(
            n_topics, doc_topic_prior=ALPHA, topic_word_prior=ETA, learning_method="batch", random_state=1
        )
        self.corpus, self.n_topics = corpus, n_topics

    def train(self, n):
        # Batches of all documents: partial_fit would weigh them as one of many.
        if not hasattr(self.model, "components_"):
            self.model.max_iter = 1
            self.model.fit(self.corpus.matrix.astype(float))
            n -= 1
        for _ in range(n):
            self.model._em_step(self.corpus.matrix.astype(float), len(self.corpus.matrix), batch_update=True)

    def topics(self):
        return self.model.components_ / self.model.components_.sum(axis=1, keepdims=True)


class Gensim:
    def __init__(self, corpus, n_topics):
        from gensim.models import LdaModel

        self.documents = [
            [(int(w), int(c)) for w, c in zip(*np.unique(d, return_counts=True), strict=True)]
            for d in corpus.documents
        ]
        names = {w: str(w) for w in range(corpus.matrix.shape[1])}
        self.model = LdaModel(
            num_topics=n_topics,
            id2word=names,
            alpha=[ALPHA] * n_topics,
            eta=ETA,
            random_state=1,
            passes=1,
            eval_every=None,
        )

    def train(self, n):
        self.model.update(self.documents, passes=n)

    def topics(self):
        found = self.model.get_topics().astype(float)
        return found / found.sum(axis=1, keepdims=True)


class OursHDP:
    """A hierarchical Dirichlet process with alpha = gamma = 1 and eta = 0.05."""

    def __init__(self, corpus, n_topics):
        import pymc as pm

        import pymc_dpgmm as dp

        self.corpus, tokens = corpus, dp.as_tokens(corpus.train)
        eta = np.full(corpus.matrix.shape[1], 0.05)
        with pm.Model() as model:
            base = dp.DirichletCategorical(eta)
            dp.HDPMixture("w", 1.0, 1.0, base, group=tokens["document"], observed=tokens["word"])
            self.step = dp.DPMixtureStep(n_sweeps=1)
        self.point = model.initial_point(random_seed=1)
        self.step.setup_chain(np.random.default_rng(1), 10**9, 1)

    def train(self, n):
        for _ in range(n):
            self.point, _ = self.step.step(self.point)

    def topics(self):
        labels, openers = self.point["w_labels"], self.point["w_openers"]
        words = self.step.kept[0].state.tables[0].rows[:, 0].astype(int)
        counts = np.zeros((labels.max() + 2, self.corpus.matrix.shape[1]))
        np.add.at(counts, (labels, words), 1)
        tables = np.append(np.bincount(labels[openers == 1]), 1.0)
        counts += 0.05
        return counts / counts.sum(axis=1, keepdims=True), tables / tables.sum()


class TomotopyHDP:
    """The same; the shares of topics, which it does not tell, are those of the tokens."""

    def __init__(self, corpus, n_topics):
        import tomotopy

        self.model = tomotopy.HDPModel(initial_k=20, alpha=1.0, gamma=1.0, eta=0.05, seed=1)
        for words in corpus.documents:
            self.model.add_doc([str(w) for w in words])
        self.n_words = corpus.matrix.shape[1]
        self.model.optim_interval = 0

    def train(self, n):
        self.model.train(n, workers=1)

    def topics(self):
        order = [int(w) for w in self.model.used_vocabs]
        live = [k for k in range(self.model.k) if self.model.is_live_topic(k)]
        found = np.zeros((len(live), self.n_words))
        for place, k in enumerate(live):
            found[place, order] = self.model.get_topic_word_dist(k)
        shares = np.array(self.model.get_count_by_topics(), dtype=float)[live]
        return found, shares / shares.sum()


METHODS = {
    "pymc_dpgmm": Ours,
    "tomotopy": Tomotopy,
    "lda": CollapsedC,
    "scikit-learn": ScikitLearn,
    "gensim": Gensim,
}
# What goes on where it was draws from the posterior, whose densities can be averaged.
SAMPLERS = (Ours, Tomotopy, OursHDP, TomotopyHDP)
PROCESSES = {"HDPMixture": OursHDP, "tomotopy HDP": TomotopyHDP}
DATA = {"Reuters": reuters, "news": news}


def measure(kind, corpus, n_topics, budgets):
    """Tokens per second, and held-out log likelihood at budgets of seconds of training."""
    begin = time.perf_counter()
    method = kind(corpus, n_topics)
    method.train(1)
    first = time.perf_counter() - begin
    spent, rounds, scores, chunk, draws = 0.0, 0, [], 1, []
    for budget in budgets:
        while spent < budget:
            if isinstance(method, CollapsedC):
                # Fitted once, for as long as the budget lasts.
                method.n = 0
                rate = max(spent / rounds, 1e-4) if rounds else None
                chunk = 5 if rate is None else max(int(budget / rate), 1)
                begin = time.perf_counter()
                method.train(chunk)
                spent, rounds = time.perf_counter() - begin, chunk
                if rate is not None:
                    break
                continue
            begin = time.perf_counter()
            method.train(chunk)
            spent += time.perf_counter() - begin
            rounds += chunk
            chunk = int(np.clip(budget / 20 / (spent / rounds), 1, 200))
            if spent > budget / 2 and kind in SAMPLERS:
                draws.append(method.topics())
        scores.append((spent, *corpus.score(draws[-10:] or [method.topics()])))
        draws = []
    return {"first": first, "tokens_per_second": corpus.n * rounds / spent, "rounds": rounds, "scores": scores}


def scaling():
    """Time of a scan, and memory, against tokens, topics and documents; topics and words as simulated text has them."""
    from pymc_dpgmm.partitions.grouped import Groups
    from pymc_dpgmm.sampler.topics.words import Words

    print("    tokens  documents  topics   ns/token   MB", flush=True)
    for n, n_documents, n_topics in (
        (10**5, 500, 100),
        (10**6, 5_000, 20),
        (10**6, 5_000, 100),
        (10**6, 5_000, 500),
        (10**6, 500, 100),
        (10**6, 50_000, 100),
    ):
        rng = np.random.default_rng(0)
        zipf = 1.0 / np.arange(1, 20_001)
        truth = np.array([rng.permutation(20_000)[:2_000] for _ in range(50)])
        share = np.cumsum(zipf[:2_000] / zipf[:2_000].sum())
        document = np.sort(rng.integers(n_documents, size=n))
        weights = np.cumsum(rng.dirichlet(np.full(50, 0.1), n_documents), axis=1)
        topic = (rng.random(n)[:, None] > weights[document]).sum(axis=1).clip(max=49)
        given = truth[topic, np.searchsorted(share, rng.random(n)).clip(max=1_999)]
        words = Words(given, Groups(document, n_documents), np.full(20_000, 0.01))
        words.set_labels(rng.integers(n_topics, size=n), n_topics)
        ones, alpha = np.ones(n_documents), np.full(n_topics, ALPHA)
        for _ in range(30):
            words.scan(rng, ones, alpha)
        begin = time.perf_counter()
        for _ in range(5):
            words.scan(rng, ones, alpha)
        spent = (time.perf_counter() - begin) / 5 / n * 1e9
        held = sum(value.nbytes for value in vars(words).values() if isinstance(value, np.ndarray))
        held += sum(value.nbytes for value in vars(words.groups).values())
        print(f"{n:10,d} {n_documents:10,d} {n_topics:7d} {spent:10.1f} {held / 2**20:6.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topics", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 3.0, 10.0])
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--scaling", action="store_true", help="time and memory of a scan instead")
    arguments = parser.parse_args()
    if arguments.scaling:
        scaling()
        return
    found = []
    for data in arguments.data:
        corpus = Corpus(DATA[data]())
        shape = corpus.matrix.shape
        print(
            f"{data}: {shape[0]} documents, {shape[1]} words, {corpus.n} tokens; {len(corpus.words)} held out",
            flush=True,
        )
        for n_topics in arguments.topics:
            for name, kind in (METHODS if n_topics else PROCESSES).items():
                try:
                    result = measure(kind, corpus, n_topics, arguments.seconds)
                except ImportError:
                    print(f"  {name} is not installed")
                    continue
                shown = "  ".join(f"{mean:8.4f} ({last:.4f}) at {s:4.1f} s" for s, last, mean in result["scores"])
                speed = result["tokens_per_second"] / 1e6
                print(f"  K = {n_topics:4d}  {name:13s} {speed:6.2f} million tokens/s  {shown}", flush=True)
                found.append({"data": data, "n_topics": n_topics, "method": name, **result})
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "words.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
