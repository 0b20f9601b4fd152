"""What tuning learns of the rest of a model about latent rows."""

import numpy as np
import pytest

from pymc_dpgmm.sampler.latent_rows.information import LEARNT_EVERY, RowInformation

RNG = np.random.default_rng(4)
N = 5


def learnt(log_density, rows_of, n_draws=40 * LEARNT_EVERY):
    information = RowInformation()
    for _ in range(n_draws):
        information.learn(rows_of(), log_density)
    return information


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_normal_density_is_learnt_exactly(d):
    """Its mean and its precision, whichever rows it was looked at."""
    roots, means = RNG.normal(size=(N, d, d)), RNG.normal(size=(N, d))
    precisions = np.einsum("nij,nkj->nik", roots, roots) + np.eye(d)

    def log_density(rows):
        moved = rows - means
        return -0.5 * np.einsum("mni,nij,mnj->mn", moved, precisions, moved)

    information = learnt(log_density, lambda: RNG.normal(size=(N, d)), 2 * LEARNT_EVERY)
    i, j = np.tril_indices(d)
    np.testing.assert_allclose(information.known, precisions[:, i, j], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(information.seen, means, rtol=1e-6, atol=1e-6)


def test_gradient_and_curvature_are_right_on_average():
    """Of counts, at the draws."""
    counts = np.arange(N)
    information = learnt(
        lambda rows: counts * rows[:, :, 0] - np.exp(rows[:, :, 0]), lambda: RNG.normal(0.3, 0.4, (N, 1))
    )
    # The mean of a log-normal rate.
    rate = np.exp(0.3 + 0.08)
    np.testing.assert_allclose(information.known[:, 0], rate, rtol=0.15)
    np.testing.assert_allclose(information.known[:, 0] * (information.seen[:, 0] - 0.3), counts - rate, atol=0.3)


@pytest.mark.parametrize("beyond", [-np.inf, np.nan, np.inf])
def test_impossible_rows_tell_nothing(beyond):
    """Rows, and places next to them, may have no density; what is learnt stays finite."""
    information = learnt(
        lambda rows: np.where(rows[:, :, 0] > 0.2, -(rows[:, :, 0] ** 2), beyond),
        lambda: np.abs(RNG.normal(size=(N, 1))) * np.arange(-1, N - 1)[:, None],
    )
    assert np.isfinite(information.seen).all()
    assert np.all(information.known > 0.0)
    # The last rows are far from the bound most of the time.
    np.testing.assert_allclose(information.known[-1], 2.0, rtol=0.3)
