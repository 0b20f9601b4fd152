"""Families whose rows may have gaps, over which the model integrates: a gap says nothing of its column."""

from dataclasses import replace

import numpy as np

from pymc_dpgmm.families.contract.family import Family


def taking_gaps(family: Family) -> Family:
    """Return a family whose functions take missing entries (NaN), together with that for rows that have some."""
    return replace(family, incomplete=replace(family, name=f"Incomplete{family.name}", takes_missing=True))


def missing_as_nothing(values: np.ndarray) -> np.ndarray:
    """Return entries, and what is given with each of them, with 0 of 0 where entries are missing (NaN)."""
    entries, given = np.hsplit(values, 2)
    missing = np.isnan(entries)
    return np.hstack([np.where(missing, 0.0, entries), np.where(missing, 0.0, given)])


def with_missing(family: Family, allowed: float = 0.0) -> Family:
    """Return a family of entries with something given for each, together with that for rows with missing entries.

    No counts of no exposure, or out of no trials, have probability 1 whatever the parameters are. ``allowed`` is
    an entry that may stand for a missing one where values are checked.
    """
    incomplete = replace(
        family,
        name=f"Incomplete{family.name}",
        check_values=lambda params, values: family.check_values(params, np.nan_to_num(values, nan=allowed)),
        represent=lambda params, values, *origin: family.represent(params, missing_as_nothing(values), *origin),
        takes_missing=True,
    )
    return replace(family, incomplete=incomplete)
