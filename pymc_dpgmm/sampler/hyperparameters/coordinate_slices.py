"""Draws of hyperparameters by slices along coordinates of a density at an address.

The density has two parts: what a graph of PyTensor tells, which also computes parameters of base measures, and the
log evidence of the clusters of mixtures at these parameters. Where Python computes all of it, there is no second
part.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.families.contract.supports import DEFINITE, POSITIVE
from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.array_calls import Entry, are_same, call_entry, words_of
from pymc_dpgmm.native.blocks import FUNCTION, INTS, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    INT,
    address_of,
    bits_of_generator,
    c_function,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.compiled import INTS as POINTER
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections
from pymc_dpgmm.sampler.hyperparameters.slices import (
    ALONG,
    FAILURES,
    call_density,
    draw_along,
    draw_number,
    filled_along,
    is_possible,
    learnt,
    place_along,
)
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.table_functions import evidence_functions, sum_up_function
from pymc_dpgmm.sampler.state.templates import VIEW, view_at

# The clusters of a mixture, and what changes of the parameters of its base measure.
CLUSTERS = Block(
    table=INTS,
    evidence=VIEW.signature("evidence_anew"),
    derive=VIEW.signature("derive"),
    n_clusters=NUMBER,
    n_parameters=NUMBER,
    parameters=INTS,
    # Where rows move: sums up a cluster, 0 where they stay; the numbers of all rows as the graph writes them,
    # where they go, and what is subtracted; and the rows of one cluster after the other, with how many each has.
    sum_up=VIEW.signature("sum_up"),
    n_numbers=NUMBER,
    moved=blocks.FLOATS,
    numbers=blocks.FLOATS,
    subtracted=blocks.FLOATS,
    members=INTS,
    sizes=INTS,
)
N_CLUSTERS = len(CLUSTERS)
# One of these: numbers that the graph writes, and where they go.
PARAMETER = Block(
    values=blocks.FLOATS,
    place=NUMBER,
    length=NUMBER,
    support=NUMBER,
    # Of a matrix.
    side=NUMBER,
    # What is subtracted, if anything is.
    origin=blocks.FLOATS,
)
N_PARAMETER = len(PARAMETER)


# A log density of numbers at fixed places.
DENSITY = Block(
    # Computes the first part, and the parameters: see Entry. The first output is the log density.
    entry=FUNCTION,
    code=NUMBER,
    inputs=INTS,
    outputs=INTS,
    n_mixtures=NUMBER,
    clusters=INTS,
    **FAILURES,
    # Numbers some of which rows depend on. Where there is no direction, rows stay.
    **ALONG,
)
FAILED, WHICH = DENSITY.places("failed", "which")
NO_DIRECTIONS = LearntDirections(0)

_density_at = DENSITY.reader()
_clusters_at = CLUSTERS.reader()
_parameter_at = PARAMETER.reader()


@inlined
def _is_definite(matrix, side, factor):
    """Tell whether a symmetric matrix (side, side) is positive definite; ``factor`` is written to."""
    for i in range(side):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            other = j * (j + 1) // 2
            total = matrix[i * side + j]
            for q in range(j):
                total -= factor[row + q] * factor[other + q]
            if j < i:
                factor[row + j] = total / factor[other + j]
            elif total > 0.0:
                factor[row + j] = math.sqrt(total)
            else:
                return False
    return True


@inlined
def _is_supported(p, scratch):
    for i in range(p.length):
        value = p.values[i]
        if not -math.inf < value < math.inf or (p.support == POSITIVE and not value > 0.0):
            return False
    return p.support != DEFINITE or _is_definite(p.values, p.side, scratch)


@inlined
def _take_parameters(of):
    """Write parameters and what follows from them to a view's memory; tell whether they are in their support."""
    shared, scratch = view_at(of.table).shared, view_at(of.table).scratch
    for q in range(of.n_parameters):
        p = _parameter_at(shifted(of.parameters, q * N_PARAMETER))
        if not _is_supported(p, scratch):
            return False
        for i in range(p.length):
            shared[p.place + i] = p.values[i] - (p.origin[i] if p.has_origin else 0.0)
    return not of.has_derive or of.derive(of.table) != 0


@inlined
def _take_rows(of):
    """Sum up the clusters of the rows as they are now."""
    for entry in range(of.n_numbers):
        of.numbers[entry] = of.moved[entry] - of.subtracted[entry]
    first = 0
    for k in range(of.n_clusters):
        of.sum_up(of.table, k, shifted(of.members, first), of.sizes[k])
        first += of.sizes[k]


@c_function(FLOAT(POINTER))
def log_density(block):
    """Return the log density of the numbers as they are; see :data:`DENSITY`."""
    density = _density_at(block)
    place_along(density)
    if call_entry(density.entry, density.code, density.inputs, density.outputs) != 0:
        density.failed = 1
        return -math.inf
    log_p = floats_at(density.outputs[0])[0]
    for q in range(density.n_mixtures):
        # Where the priors say that it cannot be, parameters may be no numbers.
        if not -math.inf < log_p < math.inf:
            return log_p
        of = _clusters_at(shifted(density.clusters, q * N_CLUSTERS))
        if not _take_parameters(of):
            return -math.inf
        if density.which >= 0 and of.has_sum_up:
            _take_rows(of)
        for k in range(of.n_clusters):
            log_p += of.evidence(of.table, k)
    return log_p


@c_function(INT(INT, POINTER, POINTER, POINTER, INT, INT, POINTER, INT, INT))
def draw_coordinates(n_variables, values, lengths, widths, learns, log_density, density, next_double, bit_state):
    """Draw every coordinate, one after the other, given all else, and then numbers that rows depend on.

    Returns 1 unless the density has failed.

    Nothing is drawn where the density is zero. ``values`` and ``widths`` are the addresses of the numbers of each
    variable, and of the widths of their slices, which change where ``learns`` is 1. ``log_density`` is the address
    of the function here.
    """
    bits, failed, given = Bits(next_double, bit_state), shifted(density, FAILED), _density_at(density)
    log_p = call_density(log_density, density)
    if not is_possible(log_p, failed):
        return 1 - failed[0]
    for v in range(n_variables):
        numbers, own = floats_at(values[v]), floats_at(widths[v])
        for place in range(lengths[v]):
            log_p, length = draw_number(log_density, density, failed, numbers, place, own[place], log_p, bits)
            if failed[0] != 0:
                return 0
            if learns != 0:
                own[place] = learnt(own[place], length)
    draw_along(log_density, density, given, shifted(density, WHICH), failed, learns, log_p, bits)
    return 1 - failed[0]


KERNELS = (log_density, draw_coordinates)


class RowsOfClusters(NamedTuple):
    """The rows of the clusters of a mixture, where numbers that are drawn move them.

    Parameters
    ----------
    subtracted : C-contiguous (n, d) float64 array
        What the family subtracts from rows.
    members : (n,) int64 array
        Rows of one cluster after the other.
    sizes : (K,) int64 array
    """

    subtracted: np.ndarray
    members: np.ndarray
    sizes: np.ndarray


class _Density(Memory, block=DENSITY):
    impossible: int


class _Clusters(Memory, block=CLUSTERS):
    """The clusters of a mixture, with the origin of their table, and where they move the rows."""

    origin: np.ndarray | None
    rows: RowsOfClusters | None


class _Parameter(Memory, block=PARAMETER):
    """A parameter of a base measure."""


class CoordinateSlices:
    """The memory of a density, in which coordinates are drawn.

    Parameters
    ----------
    entry : Entry
        See :data:`DENSITY`.
    outputs : sequence of arrays
        What the entry writes.
    n_mixtures : int
    """

    def __init__(self, entry: Entry, outputs: Sequence[np.ndarray], n_mixtures: int) -> None:
        self._entry, self._results = entry, list(outputs)
        self._outputs = np.array([address_of(result) for result in self._results], dtype=np.int64)
        self._n_mixtures = n_mixtures
        self._clusters = np.zeros((max(n_mixtures, 1), N_CLUSTERS), dtype=np.int64)
        self._kept: list[_Clusters | None] = [None] * n_mixtures
        # What the density was made for, the density, and what else a draw is called with.
        self._made: tuple[list[np.ndarray], _Density, np.ndarray, list[np.ndarray]] | None = None

    def set_clusters(
        self,
        position: int,
        table: ClusterTable,
        n_clusters: int,
        names: Sequence[str],
        first: int,
        rows: RowsOfClusters | None = None,
    ) -> None:
        """Take the clusters of a mixture: slots 0 to K - 1 of a table.

        Parameters
        ----------
        position : int
            Of the mixture among all.
        table : ClusterTable
        n_clusters : int
        names : sequence of str
            The parameters that the entry writes: its outputs from ``first`` on.
        first : int
        rows : RowsOfClusters, optional
            Where rows move: the output after these parameters is (n, d).
        """
        kept = self._kept[position]
        if kept is not None and kept.table is table and kept.origin is table.origin and kept.rows is rows is None:
            kept.n_clusters = n_clusters
            return
        kept = self._kept[position] = _Clusters(table=table, n_clusters=n_clusters, n_parameters=len(names))
        kept.origin, kept.rows = table.origin, rows
        kept.evidence, *derive = evidence_functions(table.family)
        if derive:
            (kept.derive,) = derive
        # There are none where an offset alone changes.
        kept.parameters = np.zeros((len(names), N_PARAMETER), dtype=np.int64)
        for words, name, values in zip(kept.parameters, names, self._results[first:], strict=False):
            _parameter(table, name, values).lie_in(words)
        if rows is not None:
            kept.sum_up, kept.n_numbers = sum_up_function(table.family), table.rows.size
            kept.moved, kept.numbers = self._results[first + len(names)], table.rows
            kept.subtracted, kept.members, kept.sizes = rows
        kept.lie_in(self._clusters[position])

    def draw(
        self,
        rng: np.random.Generator,
        inputs: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        widths: Sequence[np.ndarray],
        learns: bool,
        moving: Sequence[np.ndarray] = (),
        directions: LearntDirections | None = None,
    ) -> int | None:
        """Draw all coordinates in place.

        Returns at how many numbers the log density was +inf or NaN, None where it could not be computed. Where the
        arrays are those of the last draw, nothing is prepared anew.

        Parameters
        ----------
        rng : numpy.random.Generator
        inputs : sequence of C-contiguous arrays
            Of the entry; ``values`` and ``moving`` are among them.
        values, widths : sequences of C-contiguous float64 arrays
        learns : bool
        moving : sequence of C-contiguous float64 arrays
            Numbers that are drawn along directions, of which some move rows; they may be among ``values`` too.
        directions : LearntDirections, optional
        """
        directions = NO_DIRECTIONS if directions is None else directions
        given = [*inputs, *widths, directions.directions, directions.widths]
        made = self._made
        if made is None or not are_same(made[0], given):
            made = self._made = given, *self._make(inputs, values, widths, moving, directions)
        _, density, lengths, places = made
        density.failed = density.impossible = 0
        arrays = (address_of(array) for array in (places[0], lengths, places[1]))
        of_density = log_density.address, density.address
        is_drawn = draw_coordinates(len(lengths), *arrays, int(learns), *of_density, *bits_of_generator(rng))
        return density.impossible if is_drawn else None

    def _make(
        self,
        inputs: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        widths: Sequence[np.ndarray],
        moving: Sequence[np.ndarray],
        directions: LearntDirections,
    ) -> tuple[_Density, np.ndarray, list[np.ndarray]]:
        """Return the density, and lengths and addresses of the values and their widths."""
        places = [np.array([address_of(a) for a in arrays], dtype=np.int64) for arrays in (values, widths)]
        lengths = np.array([value.size for value in values], dtype=np.int64)
        density = _Density(entry=self._entry, code=self._entry.code, outputs=self._outputs)
        density.inputs = words_of(inputs, self._entry.kinds)
        density.n_mixtures, density.clusters = self._n_mixtures, self._clusters
        for name, value in filled_along(moving, directions).items():
            setattr(density, name, value)
        return density, lengths, places


def _parameter(table: ClusterTable, name: str, values: np.ndarray) -> _Parameter:
    """Return where values of a parameter go in the memory of a table, and what they must be."""
    start, stop = table.place_of(name)
    support = table.family.parameters[name].support
    side = round(math.sqrt(stop - start)) if support == DEFINITE else 0
    origin = table.subtracted_from(name)
    return _Parameter(values=values, place=start, length=stop - start, support=support, side=side, origin=origin)
