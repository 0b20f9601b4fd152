"""Draws of hyperparameters by slices along coordinates of a density at an address.

The density has two parts: what a graph of PyTensor tells, which also computes parameters of base measures, and the
log evidence of the clusters of mixtures at these parameters. Where Python computes all of it, there is no second
part.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
from pymc_dpgmm.sampler.state.table import Table
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
N_CLUSTERS, OF_CLUSTERS = len(CLUSTERS), CLUSTERS.place("n_clusters")
# One of these: numbers that the graph writes, and where they go.
PARAMETER = Block(
    values=blocks.FLOATS,
    place=NUMBER,
    length=NUMBER,
    support=NUMBER,
    # Of a matrix.
    side=NUMBER,
    # What is subtracted, or 0.
    origin=NUMBER,
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
FAILED, IMPOSSIBLE, WHICH = DENSITY.places("failed", "impossible", "which")
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
            shared[p.place + i] = p.values[i] - (floats_at(p.origin)[i] if p.origin != 0 else 0.0)
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
        block[FAILED] = 1
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
        self._kept: list[Any] = [None] * n_mixtures
        # What the block of the density was made for, and that block with what else a draw is called with.
        self._made: tuple[list[np.ndarray], tuple[Any, ...]] | None = None

    def set_clusters(
        self,
        position: int,
        table: Table,
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
        table : Table
        n_clusters : int
        names : sequence of str
            The parameters that the entry writes: its outputs from ``first`` on.
        first : int
        rows : RowsOfClusters, optional
            Where rows move: the output after these parameters is (n, d).
        """
        kept = self._kept[position]
        if kept is not None and kept[0] is table and kept[1] is table.origin and kept[2] is rows is None:
            self._clusters[position, OF_CLUSTERS] = n_clusters
            return
        # There are none where an offset alone changes.
        parameters = np.zeros((len(names), N_PARAMETER), dtype=np.int64)
        for q, (name, values) in enumerate(zip(names, self._results[first:], strict=False)):
            parameters[q] = PARAMETER.filled(values=values, **_where(table, name))
        self._kept[position] = table, table.origin, rows, parameters
        evidence, *derive = (function.address for function in evidence_functions(table.family))
        self._clusters[position] = CLUSTERS.filled(
            table=table.block,
            evidence=evidence,
            derive=sum(derive),
            n_clusters=n_clusters,
            n_parameters=len(names),
            parameters=parameters,
            **self._moved(table, rows, first + len(names)),
        )

    def _moved(self, table: Table, rows: RowsOfClusters | None, output: int) -> dict[str, Any]:
        """Return what the block tells of rows that move."""
        if rows is None:
            return dict.fromkeys(("sum_up", "n_numbers", "moved", "numbers", "subtracted", "members", "sizes"), 0)
        return {
            "sum_up": sum_up_function(table.family).address,
            "n_numbers": table.rows.size,
            "moved": self._results[output],
            "numbers": table.rows,
            "subtracted": rows.subtracted,
            "members": rows.members,
            "sizes": rows.sizes,
        }

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
            made = self._made = given, self._make(inputs, values, widths, moving, directions)
        block, lengths, places = made[1][:3]
        block[FAILED] = block[IMPOSSIBLE] = 0
        arrays = (address_of(array) for array in (places[0], lengths, places[1]))
        of_density = log_density.address, address_of(block)
        is_drawn = draw_coordinates(len(lengths), *arrays, int(learns), *of_density, *bits_of_generator(rng))
        return int(block[IMPOSSIBLE]) if is_drawn else None

    def _make(
        self,
        inputs: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        widths: Sequence[np.ndarray],
        moving: Sequence[np.ndarray],
        directions: LearntDirections,
    ) -> tuple[Any, ...]:
        """Return the block of the density, lengths and addresses of the values, and what else must live on."""
        places = [np.array([address_of(a) for a in arrays], dtype=np.int64) for arrays in (values, widths)]
        lengths = np.array([value.size for value in values], dtype=np.int64)
        words, along = words_of(inputs, self._entry.kinds), filled_along(moving, directions)
        block = DENSITY.filled(
            entry=self._entry.address,
            code=self._entry.code,
            inputs=words,
            outputs=self._outputs,
            n_mixtures=self._n_mixtures,
            clusters=self._clusters,
            failed=0,
            impossible=0,
            **along,
        )
        return block, lengths, places, words, along


def _where(table: Table, name: str) -> dict[str, Any]:
    """Return where a parameter goes in the memory of a table, and what it must be."""
    start, stop = table.place_of(name)
    support = table.family.parameters[name].support
    side = round(math.sqrt(stop - start)) if support == DEFINITE else 0
    origin = table.subtracted_from(name)
    return {"place": start, "length": stop - start, "support": support, "side": side} | {
        "origin": 0 if origin is None else address_of(origin)
    }
