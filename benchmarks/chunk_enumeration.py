"""Draws of rows in chunks against enumeration of all partitions, in one long chain.

    python benchmarks/chunk_enumeration.py niw crp --draws 1000000

Five rows are in chunks of two and three. Every draw opens and closes clusters, scans two rows, and scans rows of
small clusters, each of them through passes over the chunks. What is printed is the total variation distance of the
frequencies of the 52 partitions from their probabilities, beside its 99.9 % quantile for independent draws, as many
as the chain's effective size. A draw takes about 1.5 ms, since each is made of several passes.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import chunked
from small_posteriors import CASES, PRIORS, posterior
from test_chunks import SCHEMES, SETS, partition_of

from pymc_dpgmm import testing
from pymc_dpgmm.partitions.labels import canonical_labels

# Partitions between two lines of progress.
REPORTED = 100_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[case for case, _ in SETS])
    parser.add_argument("prior", choices=[prior for _, prior in SETS])
    parser.add_argument("--scheme", choices=list(SCHEMES), default="all of it")
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    all_labels, p = posterior([arguments.case], arguments.prior)
    rng = np.random.default_rng(arguments.seed)
    partition, rows = partition_of(arguments.case)
    start = all_labels[rng.choice(len(p), p=p)]
    chunked.begin_at(partition, np.asarray(CASES[arguments.case][2], dtype=float), start)
    prior, scheme = PRIORS[arguments.prior][0], SCHEMES[arguments.scheme]
    found, begin = np.empty((arguments.draws, 5), dtype=np.int64), time.perf_counter()
    for t in range(arguments.draws):
        partition.draw(rng, prior, scheme)
        found[t] = canonical_labels(rows.labels(partition))[0]
        if (t + 1) % REPORTED == 0 or t + 1 == arguments.draws:
            drawn = testing.codes(found[: t + 1])
            effective = testing.effective_size(drawn, all_labels, p)
            distance = testing.total_variation(testing.frequencies(drawn, all_labels), p)
            bound = testing.total_variation_bound(p, effective)
            print(
                f"{arguments.case} {arguments.prior}, {arguments.scheme}: {t + 1:,} draws, {effective:,.0f} effective, "
                f"total variation {distance:.5f}, bound {bound:.5f}, {time.perf_counter() - begin:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
