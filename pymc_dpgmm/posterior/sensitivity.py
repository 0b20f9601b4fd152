"""Sensitivity of the partition to hyperparameters, by refitting the model."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.posterior.diagnostics import partition_diagnostics
from pymc_dpgmm.posterior.point_partition import point_partition
from pymc_dpgmm.posterior.refits import refits


def sensitivity(
    make_model: Callable[..., pm.Model],
    name: str,
    baseline: Mapping[str, Any],
    variations: Mapping[str, Sequence[Any]],
    *,
    loss: str = "vi",
    with_labels: bool = False,
    random_seed: Any = None,
    progressbar: bool = True,
    **sample: Any,
) -> xr.Dataset:
    """Refit a model with other hyperparameters, one at a time, and report how the partition changes.

    Parameters
    ----------
    make_model : callable
        A function that takes hyperparameters by name and returns a model.
    name : str
        Name of the mixture in that model, or of its labels.
    baseline : dict
        All hyperparameters by name, such as ``{"alpha": 1.0, "kappa": 0.01, "psi": 1.0}``.
    variations : dict
        Other values for some of them. Each value is fitted with all others as in the baseline.
    loss : {"vi", "binder"}
        Loss of the point partitions, see :func:`point_partition`.
    with_labels : bool
        Whether the labels of the point partitions are in the result.
    random_seed : int or numpy.random.Generator, optional
        Seed of all fits and searches.
    progressbar : bool
        Whether to show the number of finished fits.
    **sample
        Further arguments of ``pm.sample``.

    Returns
    -------
    Dataset
        For each ``setting``, with the baseline first: the ``parameter`` that is varied and its ``value``; the
        posterior ``mean`` and ``sd`` of the number of clusters; ``point_n_clusters`` of the point partition and,
        ``with_labels``, its ``labels`` (setting, n); its ``distance`` from that of the baseline, the variation of
        information in bits; ``largest_share``, the mean share of the rows in the largest cluster; and ``r_hat``,
        the largest R-hat of the distances (see :func:`partition_diagnostics`). If ``r_hat`` is not near 1, the
        chains have not converged, and differences between settings may be due to that. The attributes
        ``baseline_alpha`` and so on are the baseline values of the hyperparameters that are varied.

    Raises
    ------
    TypeError, ValueError
        If a varied hyperparameter is not in the baseline or not a number, or its values are not a sequence.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> def make_model(alpha):
    ...     with pm.Model() as model:
    ...         dp.DPMixture("y", alpha, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     return model
    >>> run = {"draws": 50, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False}
    >>> report = dp.sensitivity(make_model, "y", {"alpha": 1.0}, {"alpha": [0.1, 2.0]}, **run)
    >>> report["value"].to_numpy()
    array([nan, 0.1, 2. ])
    """
    unknown = sorted(set(variations) - set(baseline))
    if unknown:
        raise ValueError(f"variations must be of {sorted(baseline)}, the names in baseline, got {unknown}")
    for key, values in variations.items():
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise TypeError(f"variations[{key!r}] must be a sequence of values, got {values!r}")
        for value in (baseline[key], *values):
            if isinstance(value, bool) or not isinstance(value, int | float | np.number):
                raise TypeError(f"{key} is varied, so it must be a number in every fit, got {value!r}")
    settings = [("baseline", np.nan, dict(baseline))]
    settings += [(key, value, {**baseline, key: value}) for key, values in variations.items() for value in values]
    makers = [partial(make_model, **numbers) for _, _, numbers in settings]
    fits: list[dict[str, Any]] = []
    row, coords = "row", {}
    for _, idata, seed in refits(makers, random_seed, progressbar, sample):
        point = point_partition(idata, name, loss=loss, random_seed=seed)
        row, coords = str(point["labels"].dims[0]), dict(point.coords)
        diagnostics = partition_diagnostics(idata, name, warn=False)
        counts = diagnostics["n_clusters"].to_numpy()
        fits.append(
            {
                "mean": counts.mean(),
                "sd": counts.std(),
                "point_n_clusters": int(point["n_clusters"]),
                "labels": point["labels"].to_numpy(),
                "largest_share": float(diagnostics["share"].isel(largest=0).mean()),
                "r_hat": diagnostics.attrs.get("distance_r_hat", np.nan),
            }
        )
    columns = {key: np.array([fit[key] for fit in fits]) for key in fits[0]}
    labels = columns.pop("labels")
    with Threads(available_threads()) as threads:
        distances = losses_between(threads, labels[:1], labels, "vi")[0]
    found: dict[str, Any] = {key: ("setting", values) for key, values in columns.items()}
    found["distance"] = ("setting", distances)
    if with_labels:
        found["labels"] = (("setting", row), labels)
    return xr.Dataset(
        found,
        coords=(coords if with_labels else {})
        | {
            "parameter": ("setting", [parameter for parameter, _, _ in settings]),
            "value": ("setting", np.array([value for _, value, _ in settings], dtype=np.float64)),
        },
        attrs={f"baseline_{key}": float(baseline[key]) for key in variations},
    )
