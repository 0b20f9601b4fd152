"""Compiled code in the on-disk cache, beside classes of other projects."""

import os
import subprocess
import sys

import pytest

FAMILY = """
from typing import NamedTuple

class Stats(NamedTuple):
    number: float
"""

# The signature of count_clusters holds the class of the state's statistics.
PROGRAM = """
import numpy as np
from pymc_dpgmm.kernels.state import State, count_clusters
{imports}
numbers = np.array([0, 2, 1, 0])
state = State(np.zeros((3, 1)), numbers, numbers, numbers, numbers, np.zeros(3), {stats}, {stats})
assert count_clusters(state) == 2
print(sum(count_clusters.stats.cache_hits.values()), "found")
"""


@pytest.mark.parametrize("order", ["elsewhere-first", "here-first"])
def test_a_family_of_another_project_keeps_nobody_from_the_cache(order, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "my_family.py").write_text(FAMILY)

    def run(elsewhere):
        path = os.pathsep.join([os.getcwd(), *([str(tmp_path / "elsewhere")] if elsewhere else [])])
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}
        imports, stats = ("from my_family import Stats", "Stats(1.0)") if elsewhere else ("", "(1.0,)")
        program = PROGRAM.format(imports=imports, stats=stats)
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    kinds = [True, False] if order == "elsewhere-first" else [False, True]
    assert [run(kind) for kind in kinds] == ["0 found", "0 found"]
    assert [run(kind) for kind in kinds] == ["1 found", "1 found"]
