"""Clonal read counts: variant reads out of all reads, in two samples of a tumour.

Usage: ``python examples/clonal_reads.py [FOLDER]`` (by default ``results``). Mutations of one clone share a
fraction of variant reads in each sample. Writes a picture. The truth is simulated.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

mpl.use("Agg")
import matplotlib.pyplot as plt
from common import COLORS, MARKERS, RUN, point_labels, report

FRACTIONS = np.array([[0.48, 0.47], [0.30, 0.05], [0.12, 0.35], [0.05, 0.20], [0.22, 0.22]])


def simulate(seed: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return variant reads and depths (250, 2), and clones of 250 mutations."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(5, size=250, p=[0.4, 0.2, 0.2, 0.1, 0.1])
    depth = rng.poisson(100, size=(250, 2))
    return rng.binomial(depth, FRACTIONS[truth]), depth, truth


def main(folder: Path) -> dict[str, float]:
    """Fit with a mixture of finite mixtures, print, and draw."""
    variant, depth, truth = simulate()
    with pm.Model():
        dp.MFMixture("y", 1.0, dp.BetaBinomial(1.0, 1.0, trials=depth), observed=variant)
        idata = pm.sample(**RUN, random_seed=1)
    labels = point_labels(idata)
    result = report(idata, labels, truth)
    fraction = variant / depth
    figure, axis = plt.subplots(figsize=(5.5, 5.0), layout="constrained")
    for k in np.unique(labels):
        own = labels == k
        axis.scatter(
            *fraction[own].T,
            s=18,
            color=COLORS[k % len(COLORS)],
            marker=MARKERS[k % len(MARKERS)],
            label=f"{own.sum()} mutations",
        )
    axis.scatter(*FRACTIONS.T, s=90, facecolors="none", edgecolors="black", label="true fractions")
    axis.set(
        xlabel="fraction of variant reads, sample 1",
        ylabel="fraction of variant reads, sample 2",
        title="Point partition",
    )
    axis.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "clonal_reads.png", dpi=110)
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
