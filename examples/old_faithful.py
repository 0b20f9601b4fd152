"""Old Faithful with default settings: fits, prints a summary, and writes a NetCDF file and a picture.

Usage: ``python examples/old_faithful.py [FOLDER]`` (by default ``results``).
"""

import sys
from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_dpgmm as dp

mpl.use("Agg")
import matplotlib.pyplot as plt
from common import COLORS, MARKERS


def fit(data: pd.DataFrame) -> tuple[pm.Model, xr.DataTree]:
    """Sample a Dirichlet process mixture of Gaussians with four chains."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha=alpha, base=dp.NormalInverseWishart.from_data(data), observed=data)
        idata = pm.sample(chains=4, random_seed=20130805)
    return model, idata


def draw_picture(data: pd.DataFrame, idata: xr.DataTree) -> plt.Figure:
    """Traces of the number of clusters and alpha, and the data in the clusters of the best kept draw."""
    figure, (counts, alphas, scatter) = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained")
    for chain in idata.posterior["chain"].to_numpy():
        color = COLORS[chain % len(COLORS)]
        one = idata.posterior.sel(chain=chain)
        counts.plot(one["draw"], one["y_n_clusters"], color=color, lw=0.7, alpha=0.8, label=f"chain {chain}")
        alphas.plot(one["draw"], one["alpha"], color=color, lw=0.7, alpha=0.8)
    counts.set(xlabel="draw", ylabel="number of clusters", title="Number of clusters")
    counts.legend(fontsize=8, loc="upper right")
    alphas.set(xlabel="draw", ylabel="alpha", title="Concentration")

    log_joint = idata.sample_stats["y_labels_log_joint"]
    chain, draw = np.unravel_index(np.argmax(log_joint.to_numpy()), log_joint.shape)
    labels = idata.posterior["y_labels"].isel(chain=chain, draw=draw).to_numpy()
    for k in np.unique(labels):
        own = data[labels == k]
        scatter.scatter(
            own["duration"],
            own["waiting"],
            s=22,
            color=COLORS[k % len(COLORS)],
            marker=MARKERS[k % len(MARKERS)],
            edgecolors="white",
            linewidths=0.4,
            label=f"cluster {k}: {len(own)} eruptions",
        )
    scatter.set(
        xlabel="duration (min)",
        ylabel="waiting time (min)",
        title="Kept draw with the highest log joint",
    )
    scatter.legend(fontsize=8, loc="lower right")
    return figure


def main(folder: Path) -> None:
    """Run the example and write its results to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = dp.datasets.load_old_faithful()
    _, idata = fit(data)
    print(az.summary(idata, var_names=["alpha", "y_n_clusters"]))
    idata.to_netcdf(folder / "old_faithful.nc")
    draw_picture(data, idata).savefig(folder / "old_faithful.png", dpi=120)
    print(f"wrote {folder / 'old_faithful.nc'} and {folder / 'old_faithful.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
