"""Compiled code: found on disk, not when its sources differ; arithmetic in vector lanes; random numbers."""

import logging
import os
import subprocess
import sys
import time

import numpy as np
import pymc as pm
import pytest
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from scipy.stats import gamma, kstest, norm

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps import compilation
from pymc_dpgmm.native import blocks, compiled
from pymc_dpgmm.native.arithmetic import (
    Bits,
    fast_exp,
    fast_log,
    largest_of,
    standard_gamma,
    standard_normal,
    take_exponentials,
    take_logarithms,
    uniform,
)
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    bits_of_generator,
    c_function,
    inlined,
    shifted,
)
from pymc_dpgmm.native.lanes import LANES, add_exponentials, raise_to
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.sampler.tuning import preparation

PROGRAM = """
import sys
from pymc_dpgmm.native import compiled
if len(sys.argv) > 1:
    compiled.own_sources = lambda: (sys.argv[1],)
from pymc_dpgmm.sampler.state.all_clusters import log_joint, write_labels
compiled.compiling.n_compiled = 0
write_labels.address, log_joint.address
print(compiled.compiling.n_compiled, "compiled")
"""


def said(folder, *arguments):
    """Run Python, with a folder for compiled code, and return what it prints."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_code_is_found_on_disk_until_a_source_changes(tmp_path):
    source = tmp_path / "source.py"

    def run(*arguments):
        return said(tmp_path, "-c", PROGRAM, *arguments).strip()

    assert [run(), run()] == ["2 compiled", "0 compiled"]
    source.write_text("one = 1")
    assert [run(str(source)), run(str(source))] == ["2 compiled", "0 compiled"]
    source.write_text("one = 2")
    assert run(str(source)) == "2 compiled"


# A family without a file, as in a notebook, that calls a function of another file.
CELL = """
def update(p, n, s, x, sign):
    s.total[0] += sign * x[0]
    return 1.0

def evidence(p, n, s):
    return FACTOR * scaled(s.total[0]) + helper.SHIFT + SUMMAND

FACTOR, SUMMAND = {factor}, 0.0
if {second}:
    def evidence(p, n, s):
        return 1000.0 * s.total[0]
"""
NOTEBOOK = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from pymc_dpgmm.families import Component, Family, View, real
from pymc_dpgmm.sampler.state.cluster_table import Table
import helper
from helper import scaled

def value(**cell):
    found = dict(globals())
    exec(compile(sys.argv[2].format(**cell), "<cell>", "exec"), found)
    family = Family(
        name="OfANotebook", parameters={"m": real()}, sums={"total": ""}, update=found["update"],
        log_evidence=found["evidence"], gradient=print, component=Component({}, None, None, None),
    )
    table = Table(View(family, family.params(0.0), np.array([[1.0], [2.0], [4.0]])), 2)
    table.gather(1, np.arange(3))
    return table.log_evidence(1)

print(value(factor=1.0, second=False), value(factor=2.0, second=False), value(factor=2.0, second=True))
"""
HELPER = """
import further
from pymc_dpgmm.native.compiled import inlined
SHIFT = {shift}

@inlined
def scaled(x):
    return further.raised(x)
"""
FURTHER = """
from pymc_dpgmm.native.compiled import inlined
POWER = {power}

@inlined
def raised(x):
    return POWER * x
"""


@pytest.mark.slow
def test_changes_of_a_family_of_ones_own_are_seen_wherever_they_are(tmp_path):
    """In a cell that is run again, in a constant or function of other files, or of two that have one name."""
    (tmp_path / "lib").mkdir()

    def run(shift, power):
        (tmp_path / "lib" / "helper.py").write_text(HELPER.format(shift=shift))
        (tmp_path / "lib" / "further.py").write_text(FURTHER.format(power=power))
        told = said(tmp_path, "-B", "-c", NOTEBOOK, str(tmp_path / "lib"), CELL)
        return [float(value) for value in told.split()]

    for shift, power in [(0.0, 1.0), (0.5, 1.0), (0.5, 3.0), (0.0, 1.0)]:
        assert run(shift, power) == [7.0 * power + shift, 14.0 * power + shift, 7000.0]


RENAMED = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
from pymc_dpgmm.native.compiled import FLOAT, compiling, specialized

def template(x):
    return of_a_user(x)

doubled = importlib.import_module(sys.argv[2]).doubled
function = specialized(template, "of_a_renamed_file", {"of_a_user": doubled}, FLOAT(FLOAT), (doubled,), (id, (0,)))
print(function(4.0), compiling.n_compiled)
"""


@pytest.mark.slow
def test_code_of_a_file_that_was_renamed_is_compiled_anew(tmp_path):
    """What is on disk looks for the modules that it was made from."""
    (tmp_path / "program.py").write_text(RENAMED)
    lines = ["from pymc_dpgmm.native.compiled import inlined", "@inlined", "def doubled(x):", "    return 2.0 * x"]
    (tmp_path / "first.py").write_text("\n".join(lines))

    def run(module):
        return said(tmp_path, "-B", str(tmp_path / "program.py"), str(tmp_path), module).split()

    assert [run("first"), run("first")] == [["8.0", "1"], ["8.0", "0"]]
    (tmp_path / "first.py").rename(tmp_path / "second.py")
    assert run("second") == ["8.0", "1"]


def test_a_user_is_told_of_compilation_once(caplog, monkeypatch):
    @c_function(INT(INT))
    def twice(x):
        return 2 * x

    def nowhere(function, stamp):
        raise RuntimeError

    # Nothing is kept on disk, where an earlier run might have left it.
    monkeypatch.setattr(compiled, "_kept", nowhere)
    # PyMC's logger has a handler of its own, and passes nothing on.
    monkeypatch.setattr(logging.getLogger("pymc"), "propagate", True)
    with caplog.at_level("INFO", logger="pymc.dpgmm"):
        with compiled.compiling.announced("a test"):
            assert twice(4) == 8
        with compiled.compiling.announced("a test"):
            assert twice(4) == 8
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("Compiling a test")
    assert told[1].startswith("Compiled in ")
    assert len(told) == 2


def test_private_interfaces_of_numba_are_what_they_were():
    """What compiled.py takes from numba beyond its public names."""
    codegen = cpu_target.target_context.codegen()
    assert codegen._library_class is JITCodeLibrary
    assert callable(codegen.set_env)
    assert "set_env" not in vars(codegen)
    for name in ("finalize", "get_pointer_to_function", "_get_module_for_linking"):
        assert callable(getattr(JITCodeLibrary, name))
    for name in ("_compile_uncached", "compile"):
        assert callable(getattr(CFunc, name))
    kept = compiled._kept(fast_exp, "stamp")
    assert isinstance(kept, FunctionCache)
    assert isinstance(kept._cache_file, IndexDataCacheFile)
    assert kept._cache_file._source_stamp == "stamp"


@inlined
def part(x):
    return x + 1.0


@c_function(FLOAT(FLOAT))
def whole(x):
    return part(x) * part(2.0 * x)


def test_where_numba_has_another_inside_code_is_compiled_as_it_does(monkeypatch):
    """Optimised part by part, which takes longer and computes the same."""
    monkeypatch.setattr(compiled, "_PARTS_ARE_KNOWN", False)
    monkeypatch.delattr(compiled, "_Part")

    def twice(x):
        return part(x) * part(2.0 * x)

    plain = c_function(FLOAT(FLOAT))(twice)
    assert plain(3.0) == 28.0


def test_parts_serve_python_too_and_have_no_machine_code_of_their_own():
    assert whole(3.0) == 28.0
    assert part(3.0) == 4.0
    assert whole.__wrapped__(3.0) == 28.0
    listing = whole._compiled.inspect_llvm() if not whole._compiled.cache_hits else "define call"
    assert listing.count("define ") <= 2


BLOCK = blocks.Block(
    n=blocks.NUMBER,
    next_double=blocks.NUMBER,
    bit_state=blocks.NUMBER,
    lengths=3,
    counts=blocks.SMALL_INTS,
    sizes=blocks.INTS,
    weights=blocks.FLOATS,
    flags=blocks.BYTES,
)
block_at = BLOCK.reader(masses="weights")


class OfBlock(Memory, block=BLOCK):
    pass


@c_function(FLOAT(INTS, FLOATS))
def read_block(head, found):
    s = block_at(head)
    head[0] += 1
    found[0], found[1], found[2], found[3] = s.counts[1], s.sizes[0], s.masses[1], s.flags[2]
    found[4], found[5] = uniform(s.bits), s.head[3]
    return s.n


def test_fields_of_a_block_are_read_where_they_are_asked_for():
    """Of all types, by other names too, and numbers as they are now."""
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    next_double, bit_state = bits_of_generator(rng)
    owner = OfBlock(
        n=6,
        next_double=next_double,
        bit_state=bit_state,
        lengths=11,
        counts=(counts := np.array([1, -2], dtype=np.int32)),
        sizes=(sizes := np.array([5, 6])),
        weights=(weights := np.array([0.25, 0.75])),
        flags=(flags := np.array([0, 0, 1], dtype=np.uint8)),
    )
    found = np.empty(6)
    assert read_block(owner.address, address_of(found)) == 7.0
    assert found.tolist() == [counts[1], sizes[0], weights[1], flags[2], twin.random(), 11.0]


SCALED = FLOAT(INTS, FLOAT, INT)
CALLING = blocks.Block(n=blocks.NUMBER, masses=blocks.FLOATS, scaled=SCALED, counted=NOTHING(INTS), other=SCALED)
calling_at = CALLING.reader()


class OfCalling(Memory, block=CALLING):
    pass


@c_function(SCALED)
def scaled(head, y, k):
    return y * k + calling_at(head).masses[0]


@c_function(CALLING.signature("counted"))
def counted(head):
    s = calling_at(head)
    s.n += 100


@c_function(FLOAT(INTS))
def call_fields(head):
    s = calling_at(head)
    s.n -= 3
    s.counted(head)
    if s.has_other or not s.has_masses:
        return -1.0
    return s.scaled(head, 2.5, s.n) + s.scaled(s.head, 1, 2)


def test_fields_of_a_block_are_set_and_called():
    """Numbers change in the block, arguments are converted, and what has no address is told."""
    masses = np.array([0.25])
    owner = OfCalling(n=7, masses=masses, scaled=scaled, counted=counted)
    assert call_fields(owner.address) == 2.5 * 104 + 2 + 2 * 0.25
    assert owner.n == 104
    owner.n, owner.masses = 3, np.array([2.0])
    assert call_fields(owner.address) == 2.5 * 100 + 2 + 2 * 2.0
    owner.other = scaled
    assert call_fields(owner.address) == -1.0


def test_a_field_is_called_with_as_many_arguments_as_it_takes():
    def wrong(head):
        return calling_at(head).scaled(head, 1.0)

    with pytest.raises(TypeError):
        c_function(FLOAT(INTS))(wrong).prepare()


def test_a_field_that_a_block_does_not_have_is_an_error():
    def wrong(head):
        return block_at(head).sises[0]

    with pytest.raises(TypeError, match="sises"):
        c_function(INT(INTS))(wrong).prepare()


@c_function(NOTHING(FLOATS, FLOATS, INT, INT))
def fill_fast(x, y, n, kind):
    if kind == 0:
        for i in range(n):
            y[i] = fast_exp(x[i])
    elif kind == 1:
        for i in range(n):
            y[i] = fast_log(x[i])
    else:
        for i in range(n):
            y[i] = x[i]
        if kind == 2:
            take_exponentials(y, n, 0.0)
        else:
            take_logarithms(y, n)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_exponentials_and_logarithms_in_lanes(kind):
    rng, is_exp = np.random.default_rng(0), kind % 2 == 0
    wide = rng.uniform(0.0, 700.0, size=100_000)
    x = -wide if is_exp else np.exp(wide - 350.0)
    x = np.concatenate([x, -rng.random(1000) * 1e-9 if is_exp else 1.0 + rng.normal(size=1000) * 1e-5])
    y = np.empty_like(x)
    fill_fast(x.ctypes.data, y.ctypes.data, len(x), kind)
    exact = np.exp(x.astype(np.longdouble)) if is_exp else np.log(x.astype(np.longdouble))
    error = np.abs((y - exact) / exact)
    assert error.max() < 4.5e-16
    slow = fast_exp if is_exp else fast_log
    np.testing.assert_allclose(y[:100], [slow(value) for value in x[:100]], rtol=4.5e-16)


@pytest.mark.parametrize("kind", [0, 2])
def test_special_values(kind):
    x = np.array([-np.inf, -1e300, -709.0, 0.0, np.nan, -745.0, -1.0, -2.0])
    y = np.empty_like(x)
    fill_fast(x.ctypes.data, y.ctypes.data, len(x), kind)
    np.testing.assert_array_equal(y[[0, 1, 2, 3, 5]], [0.0, 0.0, 0.0, 1.0, 0.0])
    fill_fast(x.ctypes.data, y.ctypes.data, len(x), kind + 1)
    assert np.isnan(y).all()


@c_function(FLOAT(FLOATS, INT))
def find_largest(x, n):
    return largest_of(x, n)


@c_function(NOTHING(FLOATS, FLOATS, FLOATS, INT))
def add_up_lanes(x, largest, sums, n):
    for start in range(0, n, LANES):
        raise_to(largest, shifted(x, start))
    before = sums
    for start in range(0, n, LANES):
        add_exponentials(shifted(sums, start + LANES), before, shifted(x, start), largest)
        before = shifted(sums, start + LANES)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 31])
def test_largest_of_some_numbers(n):
    x = np.random.default_rng(n).normal(size=40)
    assert find_largest(x.ctypes.data, n) == x[:n].max()
    x[:n] = -np.inf
    assert find_largest(x.ctypes.data, n) == -np.inf


def test_sums_in_lanes():
    """A lane with NaN loses nothing but its own numbers."""
    x = np.random.default_rng(1).normal(size=(5, LANES)) * 100.0
    x[2, 3] = np.nan
    x[:4, 5] = -np.inf
    largest, sums = np.full(LANES, -np.inf), np.zeros((6, LANES))
    add_up_lanes(x.ctypes.data, largest.ctypes.data, sums.ctypes.data, x.size)
    others = np.arange(LANES) != 3
    np.testing.assert_array_equal(largest[others], x.max(axis=0)[others])
    expected = np.cumsum(np.exp(x - x.max(axis=0)), axis=0)
    np.testing.assert_allclose(sums[1:, others], expected[:, others], rtol=1e-15)


@c_function(NOTHING(INT, INT, INT, FLOAT, FLOATS, INT))
def fill_random(next_double, state, kind, shape, found, n):
    bits = Bits(next_double, state)
    for i in range(n):
        if kind == 0:
            found[i] = uniform(bits)
        elif kind == 1:
            found[i] = standard_normal(bits)
        else:
            found[i] = standard_gamma(bits, shape)


def drawn(kind, shape=1.0, n=200_000):
    rng, found = np.random.default_rng(5), np.empty(n)
    fill_random(*bits_of_generator(rng), kind, shape, found.ctypes.data, n)
    return found


def test_uniform_numbers_are_those_of_numpy():
    np.testing.assert_array_equal(drawn(0, n=100), np.random.default_rng(5).random(100))


def test_normal_numbers():
    assert kstest(drawn(1), norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.05, 0.7, 1.0, 3.5, 2e4])
def test_gamma_numbers(shape):
    assert kstest(drawn(2, shape), gamma(shape).cdf).pvalue > 1e-3
    assert kstest(drawn(2, shape), gamma(1.02 * shape + 0.01).cdf).pvalue < 1e-3


@pytest.mark.parametrize(("n_clusters", "n"), [(1, 1), (3, 82), (40, 1_000_000)])
def test_the_concentration_has_its_conditional_distribution(n_clusters, n):
    """Given the number of clusters, alpha is its gamma prior times alpha^K Gamma(alpha) / Gamma(alpha + n)."""
    from scipy.special import gammaln

    # The generator must live as long as its memory is used.
    rng = np.random.default_rng(3)
    shape, rate, bits = 1.5, 0.7, bits_of_generator(rng)
    alpha, found = 1.0, np.empty(60_000)
    for t in range(len(found)):
        alpha = drawn_concentration(*bits, alpha, n_clusters, float(n), shape, rate)
        found[t] = alpha
    grid = np.geomspace(1e-8, 200.0, 40_001)
    log_p = (shape - 1 + n_clusters) * np.log(grid) - rate * grid + gammaln(grid) - gammaln(grid + n)
    weight = np.exp(log_p - log_p.max()) * grid
    cdf = np.cumsum(weight) / weight.sum()
    assert kstest(found[::12], lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


class Noted:
    """What is compiled, if it were: notes in a file which process was asked to."""

    def __init__(self, path, number, parent, child_dies=False):
        self.path, self.number, self.parent, self.child_dies = path, number, parent, child_dies

    def is_at_hand(self):
        return False

    def prepare(self):
        is_child = os.getpid() != self.parent
        if is_child and self.child_dies:
            os._exit(1)
        with self.path.open("a") as file:
            file.write(f"{self.number} {int(is_child)}\n")
        # The other process has its turn.
        time.sleep(0.05)


# Elsewhere one process compiles everything, because libraries of the system do not survive a fork.
@pytest.mark.skipif(sys.platform != "linux", reason="one process compiles everything on this system")
@pytest.mark.parametrize("child_dies", [False, True])
def test_two_processes_compile_from_the_two_ends(tmp_path, monkeypatch, child_dies):
    # They take turns where there is one core.
    monkeypatch.setattr(preparation, "available_cores", lambda: 2)
    path = tmp_path / "noted"
    functions = [Noted(path, number, os.getpid(), child_dies) for number in range(12)]
    preparation.begin(functions, [])
    # What the other process compiles meanwhile is not waited for.
    time.sleep(0.12)
    preparation.begin(functions, [])
    preparation.finish()
    told = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
    parents = [number for number, is_child in told if not is_child]
    children = [number for number, is_child in told if is_child]
    # In the end this process has all of them, also what another one that died was at.
    assert parents[-12:] == list(range(12))
    assert parents[:-12] == list(range(len(parents) - 12))
    assert children == list(range(11, 11 - len(children), -1))
    assert len(parents) + len(children) == (12 + 12 if not child_dies else 11 + 12)
    assert len(children) >= (0 if child_dies else 2)
    assert len(parents) - 12 < len(children) or child_dies


def test_what_is_begun_later_is_finished_too(tmp_path):
    path = tmp_path / "noted"
    functions = [Noted(path, number, os.getpid()) for number in range(7)]
    preparation.begin(functions[:5], [])
    preparation.begin(functions[3:], [])
    preparation.finish()
    assert {int(line.split()[0]) for line in path.read_text().splitlines()} == set(range(7))
    before = path.read_text()
    preparation.finish()
    assert path.read_text() == before


def test_topics_begin_no_compilation(monkeypatch):
    """They have functions of their own; those of mixtures would take seconds for nothing."""
    begun = []
    monkeypatch.setattr(compilation, "begin", lambda functions, families: begun.append(families))
    with pm.Model() as model:
        dp.LDA("w", 2, 1.0, np.full(3, 0.1), observed=np.array([0, 1, 2, 2]), group=np.array([0, 0, 1, 1]))
    compilation.begin_to_compile(model)
    assert not begun
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=[1.0, 2.0, 4.0])
    compilation.begin_to_compile(model)
    assert [family.name for family in begun[0]] == ["NormalInverseGamma"]


def test_a_failure_to_compile_is_told(tmp_path):
    class Failing(Noted):
        def prepare(self):
            raise TypeError("cannot be compiled")

    path = tmp_path / "noted"
    functions = [Failing(path, 0, os.getpid()), *(Noted(path, number, os.getpid()) for number in range(1, 6))]
    preparation.begin(functions, [])
    with pytest.raises(TypeError, match="cannot be compiled"):
        preparation.finish()
    # Nothing is left of it.
    preparation.finish()
