"""A short version of ``make calibration``: ranks of the truth among posterior draws of larger models.

Twenty replicates see gross faults only: a posterior off by one standard deviation fails once in three times. What
is finer is for the full run, and for ``test_geweke.py``.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

PATH = Path(__file__).parents[2] / "benchmarks" / "calibration.py"
SPEC = importlib.util.spec_from_file_location("calibration", PATH)
calibration = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(calibration)

N_REPLICATES = 20


def p_values(name, **options):
    ranks = calibration.joined(calibration.replicates(name, N_REPLICATES, 7, tune=300, thin=6, **options))
    return {key: calibration.p_value(own, n_bins=4) for key, own in ranks.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # single replicates may diverge
@pytest.mark.parametrize("name", calibration.MODELS)
def test_ranks_of_the_truth_are_uniform(name):
    """Five published models, simulated and fitted again and again: priors, steps and predictions agree."""
    p = p_values(name)
    assert {"alpha", "n_clusters", "together", "log_joint"} < set(p)
    # With up to eight quantities in three models, chance alone goes below once in 500 runs.
    assert min(p.values()) > 1e-4


def too_many(observed):
    """As ``two_views``, but for a prior of alpha with mean 20 in place of 2."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 0.1)
        mu = pm.Normal("mu", 0.0, 2.0)
        labels = dp.CRP("y_labels", alpha, 30)
        data = {key: pm.Data(f"{key}_data", observed[key]) for key in ("y_a", "y_b")}
        first = dp.NormalInverseGamma(mu, 0.2, 2.0, 1.0)
        dp.CollapsedMixture("y_a", labels, first, observed=data["y_a"])
        dp.CollapsedMixture("y_b", labels, dp.BetaBernoulli(0.6, 0.6), observed=data["y_b"])
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_wrong_prior_is_seen():
    """The calibration can fail."""
    assert p_values("two_views", fitted=too_many)["alpha"] < 1e-4


def test_the_uniform_passes_and_others_do_not():
    rng = np.random.default_rng(0)
    assert calibration.p_value(rng.integers(100, size=300)) > 1e-3
    assert calibration.p_value(rng.integers(80, size=300)) < 1e-6


def test_what_truths_explain_is_no_fault():
    """Truths that happen to be small, and ranks that follow them; and ranks that are off beyond that."""
    rng = np.random.default_rng(1)
    quantiles = rng.beta(1.0, 1.3, size=400)
    ranks = 99.0 * np.clip(quantiles + 0.05 * rng.normal(size=400), 0.0, 1.0)
    for bias in (0.0, 3.0):
        mean, error = calibration.less_explained(ranks + bias, quantiles)
        assert abs(mean - 49.5 - bias) < 4.0 * error
        assert error < 0.7 < np.std(ranks) / 20.0
