"""Handwritten digits, 8 x 8 pixels of 0 and 1: a Dirichlet process mixture of Bernoulli pixels.

Usage: ``python examples/digits.py [FOLDER]`` (by default ``results``). Writes a picture of the clusters' mean
images.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pymc as pm

import pymc_dpgmm as dp

mpl.use("Agg")
import matplotlib.pyplot as plt
from common import RUN, point_labels, report


def main(folder: Path) -> dict[str, float]:
    """Fit, print, and draw the mean image of every cluster of the point partition."""
    pixels, digits = dp.datasets.load_digits()
    with pm.Model():
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, dp.BetaBernoulli(0.5, 0.5), observed=pixels)
        idata = pm.sample(**RUN, random_seed=1)
    labels = point_labels(idata)
    result = report(idata, labels, digits)
    sizes = np.bincount(labels)
    shown = np.argsort(-sizes)[:40]
    n_lines = -(-len(shown) // 10)
    figure, axes = plt.subplots(n_lines, 10, figsize=(10, 1.25 * n_lines), layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, k in zip(axes.flat, shown, strict=False):
        own = labels == k
        axis.imshow(pixels[own].mean(axis=0).reshape(8, 8), cmap="cividis", vmin=0, vmax=1)
        common = np.bincount(digits[own]).argmax()
        axis.set_title(f"{own.sum()} rows: {common}", fontsize=7)
    figure.suptitle(
        f"Mean images of the {len(shown)} largest of {len(sizes)} clusters; the most common digit", fontsize=10
    )
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "digits.png", dpi=110)
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
