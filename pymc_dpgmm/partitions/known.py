"""Constraints on a partition: rows that share a cluster, and rows with known labels.

Constraints on n rows are a (2, n) int64 array. The first line has the number of each row's *block*, a set of rows
that are certainly in one cluster; blocks are numbered in order of first appearance. The second line has the known
cluster of the block, from 0 on, or -1. All rows of a known cluster are in one block, so that two blocks can share
a cluster unless both have a known one.
"""

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pymc_dpgmm.partitions.draws import draw_start
from pymc_dpgmm.partitions.labels import canonical_labels


class Blocks(NamedTuple):
    """The m blocks of constraints on n rows.

    Parameters
    ----------
    of_row : (n,) int64 array
        Block of each row.
    first : (m,) int64 array
        First row of each block.
    table : (m, 2) float64 array
        Number of rows, and known cluster, of each block.
    """

    of_row: np.ndarray
    first: np.ndarray
    table: np.ndarray


def make_constraints(n: int, known_labels: Any = None, must_link: Any = None) -> np.ndarray:
    """Return constraints on ``n`` rows: (2, n) int64 array.

    Parameters
    ----------
    n : int
    known_labels : (n,) array_like, optional
        Rows with equal labels are in one cluster, and rows with different labels are in different clusters.
        Negative numbers, None and NaN mark rows about which nothing is known.
    must_link : (n,) array_like, optional
        Rows with equal entries are in one cluster. Negative numbers, None and NaN as above.

    Raises
    ------
    TypeError, ValueError
        If there is not one entry per row, or the two arguments contradict each other.

    Examples
    --------
    Rows 0 and 2 are of one species, row 1 of another, and rows 3 and 4 belong together:

    >>> make_constraints(5, known_labels=["a", "b", "a", None, None], must_link=[-1, -1, -1, 7, 7])
    array([[ 0,  1,  0,  2,  2],
           [ 0,  1,  0, -1, -1]])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = [_codes("known_labels", known_labels, n), _codes("must_link", must_link, n)]
    # Rows and groups are the nodes of a graph, whose components are the blocks.
    rows, nodes, n_nodes = [], [], n
    for codes in groups:
        (of_group,) = np.nonzero(codes >= 0)
        rows.append(of_group)
        nodes.append(n_nodes + codes[of_group])
        n_nodes += int(codes.max(initial=-1)) + 1
    edges = np.concatenate(rows), np.concatenate(nodes)
    graph = coo_array((np.ones(len(edges[0])), edges), shape=(n_nodes, n_nodes))
    blocks = canonical_labels(connected_components(graph, directed=False)[1][:n])[0]
    known = groups[0]
    of_block = np.full(n, -1, dtype=np.int64)
    of_block[blocks[known >= 0]] = known[known >= 0]
    (contradicted,) = np.nonzero((known >= 0) & (of_block[blocks] != known))
    if len(contradicted):
        raise ValueError(
            f"must_link puts rows of two known labels into one cluster: that of row {contradicted[0]}, and another"
        )
    return np.stack([blocks, of_block[blocks]])


def _codes(name: str, groups: Any, n: int) -> np.ndarray:
    """Return the number of each row's group, -1 where it has none."""
    if groups is None:
        return np.full(n, -1, dtype=np.int64)
    if np.shape(groups) != (n,):
        raise ValueError(f"{name} must have shape ({n},), one entry per label, got {np.shape(groups)}")
    # NumPy would turn missing entries in a list of text into text.
    values = np.ma.getdata(groups) if isinstance(groups, np.ndarray) else np.array(list(groups), dtype=object)
    if values.dtype.kind not in "iufOUS":
        raise TypeError(f"{name} must be integers or names, got dtype {values.dtype}")
    unknown = np.ma.getmaskarray(groups) if isinstance(groups, np.ma.MaskedArray) else np.zeros(n, dtype=np.bool_)
    unknown = unknown | pd.isna(values)
    if values.dtype.kind in "iuf":
        unknown |= values < 0
    for i in np.flatnonzero(~unknown) if values.dtype.kind == "O" else ():
        if not isinstance(values[i], str | bytes | Real) or isinstance(values[i], bool | np.bool_):
            raise TypeError(f"{name} must be integers or names, got {values[i]!r}")
        unknown[i] = isinstance(values[i], Real) and values[i] < 0
    if any(isinstance(value, str) and not value.strip() for value in values[~unknown]):
        raise ValueError(f"{name} has empty names; where nothing is known, give None or NaN")
    codes = np.full(n, -1, dtype=np.int64)
    codes[~unknown] = pd.factorize(values[~unknown])[0]
    return codes


def blocks_of(constraints: np.ndarray) -> Blocks:
    """Return the blocks of constraints."""
    of_row, known = constraints
    _, first, counts = np.unique(of_row, return_index=True, return_counts=True)
    return Blocks(of_row, first, np.column_stack([counts, known[first]]).astype(np.float64))


def n_known(constraints: np.ndarray) -> int:
    """Return the number of known clusters."""
    return int(constraints[1].max(initial=-1)) + 1


def allow(constraints: np.ndarray, labels: np.ndarray) -> bool:
    """Tell whether labels satisfy constraints.

    Examples
    --------
    >>> together = make_constraints(3, must_link=[0, 0, -1])
    >>> allow(together, np.array([0, 0, 1])), allow(together, np.array([0, 1, 1]))
    (True, False)
    """
    blocks = blocks_of(constraints)
    labels_of_blocks = labels[blocks.first]
    known = labels_of_blocks[blocks.table[:, 1] >= 0]
    return bool(np.array_equal(labels_of_blocks[blocks.of_row], labels)) and len(np.unique(known)) == len(known)


def draw_constrained_start(
    rng: np.random.Generator, constraints: np.ndarray, most: float = math.inf
) -> np.ndarray:
    """Draw an over-dispersed start that satisfies constraints: (n,) int64 array, canonical.

    Blocks get labels from :func:`~pymc_dpgmm.partitions.draws.draw_start`, except that each known cluster gets a
    different label.

    Raises
    ------
    ValueError
        If more clusters are known than ``most``.
    """
    blocks = blocks_of(constraints)
    known = blocks.table[:, 1].astype(np.int64)
    n_least = n_known(constraints)
    if n_least > most:
        raise ValueError(
            f"{n_least} clusters are known, but there are at most {int(most)} components to begin with: give "
            f"their number an initval, or a prior, of at least {n_least}"
        )
    labels = draw_start(rng, len(blocks.first), most)
    n_labels = max(int(labels.max()) + 1, n_least)
    names = rng.permutation(n_labels)
    labels[known >= 0] = names[known[known >= 0]]
    return canonical_labels(labels[blocks.of_row])[0]
