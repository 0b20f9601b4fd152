"""Draws of hyperparameters by slices along coordinates, without Python: the density is a function at an address.

The density has two parts: what a graph of PyTensor tells, which also computes parameters of base measures, and the
log evidence of the clusters of mixtures at these parameters. ``draw_slice`` in ``slices.py`` is the
same draw in Python, number for number.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.families.contract.supports import DEFINITE, POSITIVE
from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.blocks import FUNCTION, INTS, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    INT,
    address_of,
    bits_of_generator,
    c_function,
    called_at,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.compiled import INTS as POINTER
from pymc_dpgmm.sampler.hyperparameters.slices import LEARNING, MOST_STEPS, SMALLEST_INTERVAL
from pymc_dpgmm.sampler.state.table import Table
from pymc_dpgmm.sampler.state.table_functions import evidence_functions
from pymc_dpgmm.sampler.state.templates import SCRATCH, SHARED, call_derive, call_evidence

# The clusters of a mixture, and what changes of the parameters of its base measure.
CLUSTERS = Block(
    table=INTS,
    evidence=FUNCTION,
    derive=FUNCTION,
    n_clusters=NUMBER,
    n_parameters=NUMBER,
    parameters=INTS,
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
    # What is subtracted, or 0.
    origin=NUMBER,
)
N_PARAMETER = len(PARAMETER)


class Density(NamedTuple):
    """A log density of numbers at fixed places.

    Parameters
    ----------
    entry, code : int
        Addresses: ``entry(code, inputs, outputs)`` computes the first part, and the parameters.
    inputs, outputs : int64 arrays
        See ``entry``. The first output is the log density.
    n_mixtures : int
    clusters : (n_mixtures * len(CLUSTERS),) int64 array
    failed : (1,) int64 array
        Set to 1 where ``entry`` has told of an error.
    """

    entry: Any
    code: Any
    inputs: Any
    outputs: Any
    n_mixtures: Any
    clusters: Any
    failed: Any


_clusters_at = CLUSTERS.reader()
_parameter_at = PARAMETER.reader()


@intrinsic
def _call_entry(typing_context, address, code, inputs, outputs):
    return called_at(INT(INT, POINTER, POINTER))


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
    shared, scratch = floats_at(of.table[SHARED]), floats_at(of.table[SCRATCH])
    for q in range(of.n_parameters):
        p = _parameter_at(shifted(of.parameters, q * N_PARAMETER))
        if not _is_supported(p, scratch):
            return False
        for i in range(p.length):
            shared[p.place + i] = p.values[i] - (floats_at(p.origin)[i] if p.origin != 0 else 0.0)
    return of.derive == 0 or call_derive(of.derive, of.table) != 0


@inlined
def _log_density(density):
    if _call_entry(density.entry, density.code, density.inputs, density.outputs) != 0:
        density.failed[0] = 1
        return -math.inf
    log_p = floats_at(density.outputs[0])[0]
    for q in range(density.n_mixtures):
        # Where the priors say that it cannot be, parameters may be no numbers.
        if not log_p > -math.inf:
            return -math.inf
        of = _clusters_at(shifted(density.clusters, q * N_CLUSTERS))
        if not _take_parameters(of):
            return -math.inf
        for k in range(of.n_clusters):
            log_p += call_evidence(of.evidence, of.table, k)
    return log_p if log_p > -math.inf else -math.inf


@inlined
def _density_at(density, numbers, place, value):
    numbers[place] = value
    return _log_density(density)


@inlined
def _draw_coordinate(density, numbers, place, width, log_p, bits):
    """Draw a number, see ``draw_slice``; return its log density, and the length of its interval."""
    before = numbers[place]
    level = log_p + math.log1p(-uniform(bits))
    left = before - width * uniform(bits)
    right = left + width
    to_left = int(MOST_STEPS * uniform(bits))
    to_right = MOST_STEPS - 1 - to_left
    while to_left > 0 and _density_at(density, numbers, place, left) > level:
        left -= width
        to_left -= 1
    while to_right > 0 and _density_at(density, numbers, place, right) > level:
        right += width
        to_right -= 1
    if not right - left < math.inf:
        # The interval has no ends.
        return _density_at(density, numbers, place, before), right - left
    while density.failed[0] == 0:
        drawn = left + (right - left) * uniform(bits)
        log_p = _density_at(density, numbers, place, drawn)
        if log_p > level:
            break
        if drawn < before:
            left = drawn
        else:
            right = drawn
        if not right - left > SMALLEST_INTERVAL * (1.0 + abs(before)):
            # Nothing but rounding is left of the interval, in which the present value lies.
            log_p = _density_at(density, numbers, place, before)
            break
    return log_p, right - left


@c_function(INT(INT, POINTER, POINTER, POINTER, INT, INT, INT, POINTER, POINTER, INT, POINTER, POINTER, INT, INT))
def draw_coordinates(
    n_variables,
    values,
    lengths,
    widths,
    learns,
    entry,
    code,
    inputs,
    outputs,
    n_mixtures,
    clusters,
    failed,
    next_double,
    bit_state,
):
    """Draw every coordinate, one after the other, given all else. Return 1 unless the density has failed.

    Nothing is drawn where the density is zero. ``values`` and ``widths`` are the addresses of the numbers of each
    variable, and of the widths of their slices, which change where ``learns`` is 1.
    """
    bits = Bits(next_double, bit_state)
    density = Density(entry, code, inputs, outputs, n_mixtures, clusters, failed)
    log_p = _log_density(density)
    if not log_p > -math.inf:
        return 1 - failed[0]
    for v in range(n_variables):
        numbers, own = floats_at(values[v]), floats_at(widths[v])
        for place in range(lengths[v]):
            log_p, length = _draw_coordinate(density, numbers, place, own[place], log_p, bits)
            if failed[0] != 0:
                return 0
            if learns != 0:
                # As ``learnt_width``.
                own[place] = (
                    own[place] + LEARNING * (length - own[place]) if length < math.inf else 0.5 * own[place]
                )
    return 1


class CoordinateSlices:
    """The memory of a density, in which coordinates are drawn.

    Parameters
    ----------
    entry, code : int
        See ``Density``.
    outputs : sequence of arrays
        What the entry writes.
    n_mixtures : int
    """

    def __init__(self, entry: int, code: int, outputs: Sequence[np.ndarray], n_mixtures: int) -> None:
        self._entry, self._code, self._results = entry, code, list(outputs)
        self._outputs = np.array([address_of(result) for result in self._results], dtype=np.int64)
        self._n_mixtures = n_mixtures
        self._clusters = np.zeros((max(n_mixtures, 1), N_CLUSTERS), dtype=np.int64)
        self._kept: list[Any] = [None] * n_mixtures
        self._failed = np.zeros(1, dtype=np.int64)

    def set_clusters(self, position: int, table: Table, n_clusters: int, names: Sequence[str], first: int) -> None:
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
        """
        kept = self._kept[position]
        if kept is None or kept[0] is not table or kept[1] is not table.origin:
            parameters = np.concatenate(
                [
                    PARAMETER.filled(values=values, **_where(table, name))
                    for name, values in zip(names, self._results[first:], strict=False)
                ]
            )
            kept = self._kept[position] = table, table.origin, parameters
        evidence, *derive = (function.address for function in evidence_functions(table.family))
        self._clusters[position] = CLUSTERS.filled(
            table=table.block,
            evidence=evidence,
            derive=sum(derive),
            n_clusters=n_clusters,
            n_parameters=len(names),
            parameters=kept[2],
        )

    def draw(
        self,
        rng: np.random.Generator,
        inputs: np.ndarray,
        values: Sequence[np.ndarray],
        widths: Sequence[np.ndarray],
        learns: bool,
    ) -> bool:
        """Draw all coordinates of ``values`` in place. Return whether the density could always be computed.

        Parameters
        ----------
        rng : numpy.random.Generator
        inputs : int64 array
            Of the entry; ``values`` are among the arrays that it points to.
        values, widths : sequences of C-contiguous float64 arrays
        learns : bool
        """
        self._failed[0] = 0
        places = [np.array([address_of(a) for a in arrays], dtype=np.int64) for arrays in (values, widths)]
        lengths = np.array([value.size for value in values], dtype=np.int64)
        arrays = places[0], lengths, places[1]
        addresses = [address_of(array) for array in arrays]
        memory = address_of(inputs), address_of(self._outputs), self._n_mixtures, address_of(self._clusters)
        of_density = self._entry, self._code, *memory, address_of(self._failed)
        is_known = draw_coordinates(len(values), *addresses, int(learns), *of_density, *bits_of_generator(rng))
        return bool(is_known)


def _where(table: Table, name: str) -> dict[str, Any]:
    """Return where a parameter goes in the memory of a table, and what it must be."""
    start, stop = table.place_of(name)
    support = table.family.parameters[name].support
    side = round(math.sqrt(stop - start)) if support == DEFINITE else 0
    origin = table.subtracted_from(name)
    return {"place": start, "length": stop - start, "support": support, "side": side} | {
        "origin": 0 if origin is None else address_of(origin)
    }
