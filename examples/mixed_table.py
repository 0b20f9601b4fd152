"""A table with columns of three types, as one mixture: measurements, a category, and counts.

Usage: ``python examples/mixed_table.py``. The truth is simulated; no block of columns tells all groups apart.
"""

import numpy as np
import pandas as pd
import pymc as pm
from common import RUN, point_labels, report

import pymc_dpgmm as dp


def simulate(seed: int = 2) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table of 300 patients and their groups."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(4, size=300, p=[0.4, 0.3, 0.2, 0.1])
    centres = np.array([[120.0, 80.0], [120.0, 80.0], [165.0, 105.0], [165.0, 105.0]])
    pressure = centres[truth] + rng.normal(size=(300, 2)) @ np.array([[9.0, 4.0], [0.0, 5.0]])
    region = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])[truth]
    table = pd.DataFrame(
        {
            "systolic": pressure[:, 0],
            "diastolic": pressure[:, 1],
            "region": pd.Categorical.from_codes(
                (rng.random((300, 1)) > region.cumsum(axis=1)).sum(axis=1).clip(max=2), ["north", "south", "west"]
            ),
            "visits": rng.poisson(np.array([2.0, 9.0, 2.0, 9.0])[truth]),
        }
    )
    return table, truth


def main() -> dict[str, float]:
    """Fit and print."""
    table, truth = simulate()
    with pm.Model():
        dp.DPMixture(
            "y",
            pm.Gamma("alpha", 1.0, 1.0),
            {
                "pressure": (["systolic", "diastolic"], dp.NormalInverseWishart),
                "region": (["region"], dp.DirichletCategorical),
                "visits": ("visits", dp.GammaPoisson(1.0, 0.2)),
            },
            observed=table,
        )
        idata = pm.sample(**RUN, random_seed=1)
    return report(idata, point_labels(idata), truth)


if __name__ == "__main__":
    main()
