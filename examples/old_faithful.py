"""Old Faithful with default settings: fits, prints a summary, and writes a NetCDF file and two pictures.

Usage: ``python examples/old_faithful.py [FOLDER]`` (by default ``results``).
"""

import sys
from pathlib import Path

import arviz as az
import matplotlib as mpl
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_dpgmm as dp

mpl.use("Agg")


def fit(data: pd.DataFrame) -> tuple[pm.Model, xr.DataTree]:
    """Sample a Dirichlet process mixture of Gaussians with four chains."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha=alpha, base=dp.NormalInverseWishart.from_data(data), observed=data)
        idata = pm.sample(chains=4, random_seed=20130805)
    return model, idata


def main(folder: Path) -> None:
    """Run the example and write its results to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = dp.datasets.load_old_faithful()
    _, idata = fit(data)
    print(az.summary(idata, var_names=["alpha", "y_n_clusters"]))
    point = dp.point_partition(idata, "y", random_seed=1)
    print(f"\npoint partition: {int(point['n_clusters'])} clusters, ", end="")
    print(f"expected variation of information {float(point['expected_loss']):.2f} bits\n")
    print(dp.summary(idata, "y", point, random_seed=1))
    idata.to_netcdf(folder / "old_faithful.nc")
    dp.plot_clusters(idata, "y", point, random_seed=1).savefig(folder / "old_faithful.png", dpi=120)
    density = dp.plot_density(idata, "y", columns="duration", random_seed=1)
    density.axes[0].set_xlabel("duration of an eruption (min)")
    density.savefig(folder / "old_faithful_density.png", dpi=120)
    print(f"\nwrote old_faithful.nc, old_faithful.png and old_faithful_density.png to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
