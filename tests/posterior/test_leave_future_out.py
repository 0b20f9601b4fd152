"""Leave-future-out cross-validation beside sums over all segmentations."""

import itertools

import arviz as az
import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import logsumexp

import pymc_dpgmm as dp

COUNTS, P, SHAPE, RATE = np.array([2, 1, 3, 12, 9, 11, 0]), 0.3, 1.4, 0.3
RUN = {"draws": 1_500, "tune": 5, "chains": 2, "cores": 1, "progressbar": False}


def segments_of(rows):
    with pm.Model() as model:
        dp.ChangePoints("y", P, dp.GammaPoisson(SHAPE, RATE), observed=rows)
    return model


def log_evidence(rows):
    """Of all segmentations together."""
    values, found = np.column_stack([rows, np.ones(len(rows))]), []
    for changes in itertools.product([False, True], repeat=len(rows) - 1):
        parts = np.split(values, np.flatnonzero(changes) + 1)
        log_p = sum(exact.gamma_poisson_log_marginal(part, SHAPE, RATE) for part in parts)
        found.append(log_p + np.sum(np.where(changes, np.log(P), np.log1p(-P))))
    return logsumexp(found)


@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, lambda rows: pd.DataFrame({"counts": rows})])
def test_next_rows_beside_enumeration(kind):
    """Each row has its density given the rows before it."""
    found = dp.leave_future_out(segments_of, "y", kind(COUNTS), 3, every=2, random_seed=1, **RUN)
    expected = [log_evidence(COUNTS[: row + 1]) - log_evidence(COUNTS[:row]) for row in (3, 5)]
    np.testing.assert_allclose(found.elpd_i, expected, atol=0.04)
    assert found.elpd == pytest.approx(float(found.elpd_i.sum()))
    assert found.elpd_i["row"].to_numpy().tolist() == [3, 5]


def test_models_are_compared():
    """az.compare takes the results, and prefers segments to one rate for all rows."""

    def one_rate(rows):
        with pm.Model() as model:
            dp.ChangePoints("y", 1e-9, dp.GammaPoisson(SHAPE, RATE), observed=rows)
        return model

    counts = np.repeat([2, 30, 4], 4)
    options = RUN | {"draws": 300, "random_seed": 1}
    found = {
        "segments": dp.leave_future_out(segments_of, "y", counts, 6, **options),
        "one rate": dp.leave_future_out(one_rate, "y", counts, 6, **options),
    }
    assert az.compare(found).index[0] == "segments"
    assert "6" in str(found["segments"])


@pytest.mark.parametrize(("first", "every"), [(0, 1), (7, 1), (3, 0)])
def test_what_is_refused(first, every):
    with pytest.raises(ValueError, match=r"first must lie in 1\.\.n-1 = 1\.\.6"):
        dp.leave_future_out(segments_of, "y", COUNTS, first, every=every)
