"""Data sets for examples and tests.

``old_faithful.csv``
    272 eruptions of Old Faithful: duration and waiting time to the next, in minutes. From R's
    ``datasets::faithful`` (Azzalini and Bowman 1990, Applied Statistics 39, 357-365).
``galaxies.csv``
    Velocities of 82 galaxies in the Corona Borealis region, in 1000 km/s. From R's ``MASS::galaxies`` / 1000
    (Roeder 1990, JASA 85, 617-624), kept as distributed there: its 26.69 is 26.96 in the paper.
"""

from importlib.resources import files

import pandas as pd


def load_old_faithful() -> pd.DataFrame:
    """Return the Old Faithful eruptions: 272 rows, columns ``duration`` and ``waiting`` in minutes."""
    with (files(__package__) / "old_faithful.csv").open() as source:
        return pd.read_csv(source, header=None, names=["duration", "waiting"])


def load_galaxies() -> pd.Series:
    """Return the velocities of 82 galaxies, named ``velocity``, in 1000 km/s."""
    with (files(__package__) / "galaxies.csv").open() as source:
        return pd.read_csv(source, header=None, names=["velocity"])["velocity"]
