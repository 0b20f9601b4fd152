"""Data sets for examples and tests.

``old_faithful.csv``
    272 eruptions of Old Faithful: duration and waiting time to the next, in minutes. From R's
    ``datasets::faithful`` (Azzalini and Bowman 1990, Applied Statistics 39, 357-365).
"""

from importlib.resources import files

import pandas as pd


def load_old_faithful() -> pd.DataFrame:
    """Return the Old Faithful eruptions: 272 rows, columns ``duration`` and ``waiting`` in minutes."""
    with (files(__package__) / "old_faithful.csv").open() as source:
        return pd.read_csv(source, header=None, names=["duration", "waiting"])
