"""Clusters that each have a regression of their own: dose and response with three kinds of responders.

Usage: ``python examples/regressions.py [FOLDER]`` (by default ``results``). Writes a picture of the lines. The
truth is simulated.
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

TRUE = np.array([[1.0, 2.0], [4.0, 0.0], [6.0, -1.5]])


def simulate(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return doses, responses and kinds of 240 patients."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, size=240, p=[0.5, 0.3, 0.2])
    dose = rng.uniform(0.0, 4.0, size=240)
    return dose, TRUE[truth, 0] + TRUE[truth, 1] * dose + 0.25 * rng.normal(size=240), truth


def main(folder: Path) -> dict[str, float]:
    """Fit, print, and draw the least squares line of every cluster of the point partition."""
    dose, response, truth = simulate()
    design = np.column_stack([np.ones_like(dose), dose])
    with pm.Model():
        dp.DPMixture(
            "y",
            pm.Gamma("alpha", 1.0, 1.0),
            dp.LinearRegression(mu=0.0, precision=0.05, a=2.0, b=0.5, covariates=design),
            observed=response,
        )
        idata = pm.sample(**RUN, random_seed=1)
    labels = point_labels(idata)
    result = report(idata, labels, truth)
    figure, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    for k in np.unique(labels):
        own = labels == k
        look = {"color": COLORS[k % len(COLORS)]}
        axis.scatter(
            dose[own], response[own], s=16, marker=MARKERS[k % len(MARKERS)], label=f"{own.sum()} rows", **look
        )
        if own.sum() > 2:
            line = np.linalg.lstsq(design[own], response[own], rcond=None)[0]
            axis.plot([0.0, 4.0], line[0] + line[1] * np.array([0.0, 4.0]), lw=1.5, **look)
    axis.set(xlabel="dose", ylabel="response", title="Point partition, and lines of its clusters")
    axis.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "regressions.png", dpi=110)
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
