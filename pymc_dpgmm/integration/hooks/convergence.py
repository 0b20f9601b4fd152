"""Convergence warnings of ``pm.sample`` for models with labels.

PyMC computes R-hat and the effective sample size of every free variable. For labels these are meaningless, because
the numbers of clusters change from draw to draw. They are replaced by those of statistics that do not depend on
the numbering, which the labels' step reports: number of clusters, entropy of their sizes, log joint density.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.integration.internals.pymc_internals import SamplerWarning, WarningType
from pymc_dpgmm.integration.steps.statistics import OF_CHAINS_ALONE
from pymc_dpgmm.integration.variables import LabelsRV
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names
from pymc_dpgmm.integration.variables.grouped_labels import OpenersRV
from pymc_dpgmm.integration.variables.hidden_labels import HiddenOpenersRV
from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.native.interrupts import imported

WORST_R_HAT = 1.01
# Fewest effective draws per chain without a warning.
FEWEST_DRAWS = 100
# How many entries a warning names.
_MOST_NAMED = 3
WATCHED = {
    "n_clusters": "the number of clusters",
    "entropy": "the entropy of the clusters' sizes",
    "log_joint": "the log joint density",
}


def _warnings_of_restarts(idata: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield a warning where searches ended so far below another chain's that chains began anew at its clusters."""
    statistics = dataset_of(idata, "sample_stats")
    for name in names:
        if f"{name}_restarted" in statistics:
            restarted = np.atleast_2d(statistics[f"{name}_restarted"].values)[:, -1]
            if restarted.any():
                lower, apart = (
                    np.atleast_2d(statistics[f"{name}_{key}"].values)[:, -1].max() for key in OF_CHAINS_ALONE
                )
                message = (
                    f"While tuning, {restarted.sum()} of {len(restarted)} chains found partitions of {name} that "
                    f"are far less probable than another chain's, by up to {lower:.0f} nats and up to {apart:.2f} "
                    "bits from it, and began anew at its clusters. R-hat compares them from there on, and cannot "
                    "tell of partitions that no chain has found. dpmixture={'share': False} keeps chains apart"
                )
                yield SamplerWarning(WarningType.CONVERGENCE, message, "warn", None, None, None)


def checked_without_labels(check: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return PyMC's convergence check, with statistics of the partitions in place of labels."""

    def check_convergence(idata: Any, model: pm.Model) -> list[Any]:
        of_labels = LabelsRV, OpenersRV, HiddenOpenersRV
        labels = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, of_labels)]
        in_chunks = chunked_names(model)
        if not (labels or in_chunks) or "posterior" not in idata.children:
            return check(idata, model)
        posterior = idata["posterior"].dataset
        unnamed = [*labels, *in_chunks]
        others = [rv.name for rv in model.free_RVs if rv.name not in unnamed and rv.name in posterior]
        warnings = []
        try:
            # PyMC imports it in its check.
            imported("arviz_stats")
            if others:
                without = idata.copy()
                without["posterior"] = xr.DataTree(posterior.drop_vars(unnamed, errors="ignore"))
                warnings = [_with_entries(warning) for warning in check(without, model)]
            mixtures = [name.removesuffix("_n_clusters") for name in in_chunks]
            warnings += _warnings_of_restarts(idata, labels)
            warnings += [*partition_warnings(idata, labels), *partition_warnings(idata, mixtures, "")]
            warnings += impossible_warnings(idata)
            warnings += _warnings_of_constants(posterior[others])
        except KeyboardInterrupt:
            # The draws are complete and must not be lost with the check.
            logger.warning("The check of convergence was stopped; the draws are complete.")
        return warnings

    return check_convergence


def _warnings_of_constants(drawn: xr.Dataset) -> Iterator[Any]:
    """Yield a warning if continuous variables have one value in all draws, of which R-hat says nothing."""
    still = [
        str(name)
        for name, values in drawn.items()
        if values.dtype.kind == "f"
        and values.sizes["draw"] >= FEWEST_DRAWS
        and (values == values.isel(chain=0, draw=0)).all(("chain", "draw")).any()
    ]
    if still:
        message = (
            f"{', '.join(still)} had the same value in all draws, which are no draws of its posterior: look "
            "whether its log density, and the gradient of this, are finite where chains begin"
        )
        yield SamplerWarning(WarningType.CONVERGENCE, message, "error", None, None, None)


def _with_entries(warning: Any) -> Any:
    """Return a warning of PyMC, which tells of some parameters, with the names of the worst entries."""
    if warning.kind is not WarningType.CONVERGENCE or not isinstance(warning.extra, xr.Dataset | xr.DataTree):
        return warning
    is_r_hat = warning.message.startswith("The rhat")
    found = [
        (float(value), str(name) + (f"[{', '.join(map(str, place))}]" if values.ndim else ""))
        for name, values in warning.extra.data_vars.items()
        for place, value in zip(_places(values), values.to_numpy().ravel(), strict=True)
        if (value > WORST_R_HAT if is_r_hat else value < np.inf)
    ]
    worst = sorted(found, reverse=is_r_hat)[:_MOST_NAMED]
    if not worst:
        return warning
    told = ", ".join(f"{name} ({value:.{3 if is_r_hat else 0}f})" for value, name in worst)
    what = "R-hat is largest" if is_r_hat else "Effective draws of all chains are fewest"
    return replace(warning, message=f"{what} for {told}. {warning.message}")


def _places(values: xr.DataArray) -> Iterator[tuple[Any, ...]]:
    """Return coordinates of all entries in order of memory, or their positions on axes without coordinates."""
    axes = [
        values[dim].to_numpy().tolist() if dim in values.coords else range(values.sizes[dim])
        for dim in values.dims
    ]
    return itertools.product(*axes)


def impossible_warnings(idata: Any) -> Iterator[Any]:
    """Yield a warning if moves met values at which a log density is +inf or NaN."""
    statistics = dataset_of(idata, "sample_stats")
    names = [str(name) for name in statistics if str(name).endswith("_impossible") and statistics[name].any()]
    if names:
        most = max(int(statistics[name].sum()) for name in names)
        message = (
            f"The log density of {', '.join(name.removesuffix('_impossible') for name in names)} was +inf or NaN "
            f"at {most} values that were tried, which are taken to be impossible. Look at extreme values of these "
            "variables: where the density of what depends on them has too few digits, bound them"
        )
        yield SamplerWarning(WarningType.BAD_ENERGY, message, "warn", None, None, None)


_WHAT_TELLS = "; dp.partition_diagnostics tells whether the chains are at the same partitions"


def partition_warnings(idata: Any, labels: list[str], what_tells: str = _WHAT_TELLS) -> Iterator[Any]:
    """Yield a warning for every vector of labels whose chains disagree, or have few effective draws."""
    array_stats = imported("arviz_stats.base").array_stats
    statistics = dataset_of(idata, "sample_stats")
    for name in labels:
        worst, fewest = (1.0, ""), (np.inf, "")
        for statistic, words in WATCHED.items():
            if f"{name}_{statistic}" not in statistics:
                continue
            values = statistics[f"{name}_{statistic}"].transpose("chain", "draw").to_numpy().astype(np.float64)
            n_chains, n_draws = values.shape
            if n_draws < FEWEST_DRAWS or not np.isfinite(values).all():
                continue
            if np.ptp(values) == 0.0:
                logger.info(
                    f"{name}: {words} was the same in every draw, so that R-hat tells nothing of it. Either "
                    "nothing else is probable, or moves that would change it are not accepted"
                )
                continue
            fewest = min(fewest, (float(array_stats.ess(values)) / n_chains, words))
            if n_chains > 1:
                still = np.ptp(values, axis=1).max() == 0.0
                worst = max(worst, (np.inf if still else float(array_stats.rhat(values)), words))
        problems = []
        if worst[0] > WORST_R_HAT:
            # Rounded up, since what is told of is above the limit.
            problems.append(f"R-hat of {worst[1]} is {np.ceil(worst[0] * 1e3) / 1e3:.3f}, above {WORST_R_HAT}")
        if fewest[0] < FEWEST_DRAWS:
            problems.append(f"{fewest[1]} has {fewest[0]:.0f} effective draws a chain, fewer than {FEWEST_DRAWS}")
        if problems:
            message = f"{name}: {', and '.join(problems)}. Run longer{what_tells}"
            yield SamplerWarning(WarningType.CONVERGENCE, message, "warn", None, None, None)
