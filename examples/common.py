"""What the examples share: agreement with a truth, a partition to show, colours."""

import numpy as np
import xarray as xr

import pymc_dpgmm as dp

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"]
MARKERS = ["o", "^", "s", "D", "v", "P", "X", "*"]
# Short runs: each chain starts from its own random partition, and the search of the tuning does the rest.
RUN = {"draws": 500, "tune": 300, "chains": 2, "cores": 1, "compute_convergence_checks": False}


def adjusted_rand_index(labels: np.ndarray, truth: np.ndarray) -> float:
    """Agreement of two partitions: 1 if they are the same, 0 on average by chance (Hubert and Arabie 1985)."""
    table = np.zeros((labels.max() + 1, truth.max() + 1))
    np.add.at(table, (labels, truth), 1)

    def pairs(counts: np.ndarray) -> float:
        return float(np.sum(counts * (counts - 1) / 2))

    together, n = pairs(table), len(labels)
    expected = pairs(table.sum(axis=0)) * pairs(table.sum(axis=1)) / (n * (n - 1) / 2)
    largest = (pairs(table.sum(axis=0)) + pairs(table.sum(axis=1))) / 2
    return (together - expected) / (largest - expected)


def point_labels(idata: xr.DataTree, name: str = "y") -> np.ndarray:
    """Labels of the point partition."""
    return dp.point_partition(idata, name, random_seed=1)["labels"].to_numpy()


def report(idata: xr.DataTree, labels: np.ndarray, truth: np.ndarray, name: str = "y") -> dict[str, float]:
    """Print and return the numbers of clusters by chain, and the agreement of a partition with the truth."""
    counts = idata.posterior[f"{name}_n_clusters"]
    result = {
        "n_clusters": float(counts.mean()),
        "n_clusters_true": float(truth.max() + 1),
        "n_clusters_by_chain": [round(float(mean), 1) for mean in counts.mean("draw")],
        "adjusted_rand_index": adjusted_rand_index(labels, truth),
    }
    print(
        f"clusters {result['n_clusters']:.1f} (by chain {result['n_clusters_by_chain']}), "
        f"true {result['n_clusters_true']:.0f}; adjusted Rand index {result['adjusted_rand_index']:.3f}"
    )
    return result
