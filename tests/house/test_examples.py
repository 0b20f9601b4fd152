"""Examples and the documented family of one's own run, and recover known truth."""

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pymc_dpgmm.families.contract.family import KNOWN
from pymc_dpgmm.testing import check_family

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    # As an import would: compiled code in the cache refers to modules by name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_family_of_ones_own_keeps_the_contract():
    """The guide's family passes all checks of check_family."""
    own = load(ROOT / "docs" / "waiting_times.py")
    check_family(own.WaitingTimes(1.3, 0.4), own.TIMES, own.slow_log_marginal)
    with pytest.raises(AssertionError):
        check_family(
            own.WaitingTimes(1.3, 0.4),
            own.TIMES,
            lambda values, a, b: own.slow_log_marginal(values, a, 1.1 * b),
        )


def in_a_cell(change=("", "")):
    """The same as a notebook defines it, where no other process can import it from."""
    source = (ROOT / "docs" / "waiting_times.py").read_text().split("\nif __name__")[0]
    own = {"__name__": "__main__"}
    exec(compile(source.replace(*change), "a cell", "exec"), own)
    return own["WaitingTimes"].family


def test_a_family_of_a_notebook_gets_to_other_processes():
    other = in_a_cell(("value -= (p.a[j] + n)", "value -= 2.0 * (p.a[j] + n)"))
    family = in_a_cell()
    told = pickle.dumps((family, family.params(np.ones(1), np.ones(1))))
    assert pickle.loads(told)[0] is family
    # A process that knows no family of this name, or one that was defined before.
    for before in ({}, {family.name: other}):
        KNOWN.pop(family.name)
        KNOWN.update(before)
        again, numbers = pickle.loads(told)
        assert again is not family
        assert again is not other
        assert again.stamp == family.stamp != other.stamp
        assert isinstance(numbers, again.params)
        assert again.component.bounds == family.component.bounds
    KNOWN[family.name] = family


@pytest.mark.slow
def test_the_documented_family_as_a_program():
    """The guide's code runs as it is printed."""
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "waiting_times.py"], capture_output=True, text=True, check=True
    )
    assert "agrees with the enumeration" in done.stdout


# Least adjusted Rand index with the truth, most clusters, and by how many the medians of chains may differ. Those
# of digits stay at modes of 24 to 27 clusters whose log joint densities are 40 apart, also after longer tuning.
RECOVERED = {
    "digits": (0.4, 40, 3),
    "counts": (0.95, 6, 1),
    "mixed_table": (0.75, 8, 1),
    "regressions": (0.7, 5, 1),
    "clonal_reads": (0.95, 7, 1),
}


# What is held here is the truth recovered, as users run it. PyMC's own check at the end of a fit looks at single
# labels, and ArviZ warns of those that are constant.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECOVERED)
def test_example_recovers_the_truth(name, tmp_path, monkeypatch):
    """Every example program finds what its data were simulated with."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    module = load(ROOT / "examples" / f"{name}.py")
    draws_a_picture = name in ("digits", "regressions", "clonal_reads")
    result = module.main(tmp_path) if draws_a_picture else module.main()
    agreement, most, apart = RECOVERED[name]
    assert result["adjusted_rand_index"] > agreement
    assert result["n_clusters"] < most
    assert np.ptp(result["n_clusters_by_chain"]) <= apart
    assert (tmp_path / f"{name}.png").exists() == draws_a_picture
