"""Rows of a unit that are weighed together: their density given a cluster, for every family."""

import numpy as np
import pytest
from family_cases import CASES

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.compiled import address_of
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import weigh_in_views

UNIT = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4])
# Of few rows in many columns, each is weighed given those before it.
WIDE = dp.NormalInverseWishart(0.1, 0.3, 32.0, np.eye(30)), np.random.default_rng(4).normal(size=(9, 30)), 30, None


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize("name", [*CASES, "wide"])
def test_density_of_a_unit_is_that_of_its_rows_one_after_the_other(name, power):
    base, values, d, _ = (CASES | {"wide": WIDE})[name]
    view = View(base.family, base.numbers(d), values, UNIT, power=power)
    state = State([view], np.array([0, 0, 1, 1, 1]))
    state.set_prior(chinese_restaurant(1.0))
    for unit, own in ((0, 1), (3, 2)):
        found = np.zeros(3)
        arrays = [np.array(numbers) for numbers in ([unit], [0, 1, 2], [own])]
        rows, slots, owns = map(address_of, arrays)
        weigh_in_views(state.address, rows, 1, slots, 3, owns, 1, address_of(found))
        assert np.isnan(found[own])
        for slot in (0, 3 - own):
            members = np.flatnonzero(np.isin(UNIT, np.flatnonzero(state.slots == slot)))
            single = State([View(base.family, base.numbers(d), values, power=power)], np.zeros(9, dtype=int))
            table, expected = single.tables[0], 0.0
            table.resize(4)
            for i in np.flatnonzero(unit == UNIT):
                table.gather(2, members)
                expected += table.log_predictives(2)[i]
                members = np.append(members, i)
            assert found[slot] == pytest.approx(expected, rel=1e-9, abs=1e-9)
