"""Runs of pm.sample without output, and what is asserted of their draws."""

import numpy as np
import pymc as pm


def sample(model, draws, **options):
    """Draws of a model, without progress or convergence checks."""
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    with model:
        return pm.sample(draws, **quiet, **options)


def assert_mean_matches(values, mean, n_errors=4.0):
    """Assert that a mean of draws (chains, draws) is a number within so many Monte Carlo standard errors."""
    import arviz as az

    error = values.std() / np.sqrt(float(az.ess(values, method="mean")))
    assert abs(values.mean() - mean) < n_errors * error
