"""A table of counts, most of them 0: documents of five topics as a sparse matrix.

Usage: ``python examples/counts.py``. The truth is simulated: 400 documents of 20 to 80 words out of 3,000.
"""

import numpy as np
import pymc as pm
from common import RUN, point_labels, report
from scipy.sparse import csr_array

import pymc_dpgmm as dp


def simulate(seed: int = 5) -> tuple[csr_array, np.ndarray]:
    """Return counts (400, 3000) and the documents' topics; one document is empty."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(3_000, 0.05), size=5)
    truth = rng.choice(5, size=400, p=[0.35, 0.25, 0.2, 0.15, 0.05])
    counts = np.stack(
        [rng.multinomial(total, topics[k]) for total, k in zip(rng.integers(20, 80, 400), truth, strict=True)]
    )
    counts[17] = 0
    return csr_array(counts), truth


def main() -> dict[str, float]:
    """Fit with the Dirichlet parameter under a prior, and print."""
    counts, truth = simulate()
    with pm.Model():
        a = pm.Gamma("a", 1.0, 2.0)
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), dp.DirichletMultinomial(a), observed=counts)
        idata = pm.sample(**RUN, random_seed=1)
    print(f"a = {float(idata.posterior['a'].mean()):.3f}, 0.05 in the simulation")
    return report(idata, point_labels(idata), truth)


if __name__ == "__main__":
    main()
