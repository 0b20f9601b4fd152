"""Owners of memory: what Python sets is in the block, lives on, and is found again in copies."""

import copy
import gc
import pickle

import numpy as np
import pytest

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, address_of, c_function, float_of
from pymc_dpgmm.native.memory import Memory

OWN = blocks.Block(
    n=blocks.NUMBER,
    next_double=blocks.NUMBER,
    bit_state=blocks.NUMBER,
    sizes=blocks.INTS,
    names=blocks.SMALL_INTS,
    weights=blocks.FLOATS,
    flags=blocks.BYTES,
    power=blocks.NUMBER,
    other=blocks.INTS,
    added=INT(INTS, INT),
)
own_at = OWN.reader()


@c_function(OWN.signature("added"))
def added(block, by):
    s = own_at(block)
    s.n += by
    return s.n


@c_function(FLOAT(INTS))
def total(block):
    s = own_at(block)
    found = float_of(s.power)
    for i in range(s.n):
        found += s.sizes[i] * s.weights[i]
    if s.has_other:
        found += 1000.0 * own_at(s.other).n
    return found


class Own(Memory, block=OWN):
    pass


def made(n=2, **more):
    sizes, weights = np.arange(1, n + 1), np.full(n, 0.25)
    return Own(n=n, sizes=sizes, weights=weights, power=0.5, added=added, **more)


def test_what_is_set_is_in_the_block():
    owner = made()
    assert total(owner.address) == 0.5 + 0.75
    owner.weights = np.full(2, 2.0)
    gc.collect()
    assert total(owner.address) == 0.5 + 6.0
    assert owner.block[OWN.place("weights")] == address_of(owner.weights)
    owner.other = made(3)
    assert total(owner.address) == 3006.5
    owner.other = None
    assert owner.other is None
    assert total(owner.address) == 6.5


def test_numbers_are_those_of_compiled_code():
    owner = made()
    assert added(owner.address, 5) == 7
    assert owner.n == 7
    owner.n = np.int64(1)
    assert (owner.n, owner.power, owner.added) == (1, 0.5, added)
    with pytest.raises(AttributeError, match="Own has no attribute 'm'"):
        owner.m  # noqa: B018
    with pytest.raises(TypeError, match="the block of Own has the fields n, next_double,"):
        Own(m=1)
    # An array whose field becomes a number is let go.
    owner.weights = 0
    assert owner.weights == 0


def test_a_generator():
    owner, rng = made(), np.random.default_rng(1)
    owner.draw_from(rng)
    assert owner.next_double != 0
    assert owner.bit_state == rng.bit_generator.ctypes.state_address


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))])
def test_copies_have_blocks_of_their_own(copied):
    owner = made(other=made(3))
    other = copied(owner)
    assert total(other.address) == total(owner.address) == 3001.25
    assert added(other.address, -1) == 1
    assert owner.n == 2
    assert other.block[OWN.place("weights")] == address_of(other.weights)
    if copied is not copy.copy:
        other.weights[:] = 0.0
        assert total(owner.address) == 3001.25
        assert total(other.address) == 3000.5


def test_a_copy_shares_what_is_not_named():
    owner = made()
    other = owner._sharing("weights")
    other.weights[:] = 1.0
    other.sizes[:] = 5
    other.n = 1
    assert total(other.address) == 5.5
    assert total(owner.address) == 0.5 + 10 * 0.25


def test_a_block_lies_in_other_memory():
    owner, rows = made(), np.zeros((3, len(OWN)), dtype=np.int64)
    owner.lie_in(rows[1])
    assert total(address_of(rows[1])) == 1.25
    owner.n = 1
    assert total(owner.address) == total(address_of(rows[1])) == 0.75


def test_arrays_have_the_types_that_are_declared():
    owner = made()
    owner._make(sizes=3, names=(2, 2), weights=1, flags=4)
    assert [getattr(owner, name).dtype for name in OWN.arrays[:4]] == [np.int64, np.int32, np.float64, np.uint8]
    assert owner.names.shape == (2, 2)
    owner.weights[:] = 2.5
    owner._make_longer(weights=3, other=1)
    assert owner.weights.tolist() == [2.5, 0.0, 0.0]
    assert owner.other.tolist() == [0]
