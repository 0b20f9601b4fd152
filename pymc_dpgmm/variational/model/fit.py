"""``dp.fit``: variational inference for the mixture in a model."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from pymc_dpgmm.integration.internals.bars import Bar
from pymc_dpgmm.integration.steps.hyperparameters import learnt_scales
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.tables.checks import check_count
from pymc_dpgmm.variational.ascent import Approximation, ascend
from pymc_dpgmm.variational.model.answer import ChunkedVariationalFit, VariationalFit
from pymc_dpgmm.variational.model.chunked_rows import ChunkedRows
from pymc_dpgmm.variational.model.target import FitTarget, fit_target
from pymc_dpgmm.variational.responsibilities import respond, sum_up_each, write_evidences
from pymc_dpgmm.variational.rows import RowsAnywhere
from pymc_dpgmm.variational.search import Optimum, SearchLimits, distinct, find_optimum, renewed

# Optima that hyperparameters are fitted to, at most, beside the first one.
_MOST_MAXIMIZED = 3
# Largest number of rounds that update hyperparameters and responsibilities in turn.
_MOST_ROUNDS = 200


def fit(
    model: pm.Model | None = None,
    *,
    method: str = "vb",
    max_components: int = 100,
    n_starts: int = 4,
    tol: float = 1e-7,
    max_steps: int = 2_000,
    point: Mapping[str, Any] | None = None,
    maximize: str | Sequence[str] = (),
    random_seed: Any = None,
    progressbar: bool = True,
) -> VariationalFit:
    r"""Fit a mixture by variational inference: an approximate posterior within seconds.

    The approximate posterior treats labels, weights and parameters of clusters as independent, so posterior
    correlations are lost. Several random starts lead to local optima, and the result is the one with the largest
    lower bound of the log evidence. Variances are too small, and the result describes one of several modes. Use it
    to look at data, or to start ``pm.sample``, which is exact: ``pm.sample(initvals=fit.initvals(chains=4))``.

    Parameters
    ----------
    model : pm.Model, optional
        A model with one mixture, such as :func:`DPMixture`, :func:`PYMixture` or :func:`FiniteMixture`. By default
        the model of the context.
    method : {"vb"}
        Mean-field coordinate ascent.
    max_components : int, >= 1
        Largest number of components, which bounds memory and time. Components are added as long as that raises the
        bound. There is a warning if this number kept some from being added.
    n_starts : int, >= 1
        Number of random starts. Each leads to a local optimum. The best one is the result, and all of them serve
        ``VariationalFit.initvals``.
    tol : float, > 0
        An ascent ends when a step raises the bound by less than ``tol`` times the number of rows.
    max_steps : int, >= 1
        Largest number of steps of one ascent. There is a warning if that was not enough.
    point : dict, optional
        Fixed values of other free variables, by name. The concentration may be fixed too. Otherwise, if it has a
        gamma prior, it gets an approximate posterior.
    maximize : str or sequence of str, optional
        Names of other free variables, such as parameters of the base measure, at which the bound plus their log
        prior density is maximised (empirical Bayes). The density is that of ``kappa``, say, not of its log. The
        result is that of a model in which they are fixed at these values. The variables of a base measure that
        learns its scale from the data are always among them, unless ``point`` has them.
    random_seed : int, sequence of int or numpy.random.Generator, optional
        Seed of the starts. The same seed gives the same result.
    progressbar : bool
        Whether to show the progress of the starts.

    Returns
    -------
    VariationalFit

    Raises
    ------
    TypeError
        If variational inference does not support the model. The message says why, and what to do.
    ValueError
        If an argument is outside its range, variables have neither a value nor an approximate posterior, or there
        is no maximum in the variables of ``maximize``.

    Warns
    -----
    UserWarning
        If ``max_components`` or ``max_steps`` was not enough, or hyperparameters have not converged.

    Notes
    -----
    If the rows are a dask array, every step is one pass over its chunks by dask. Births look at up to 4,000 rows
    of a component. ``responsibilities`` of the result is a dask array.

    :doc:`/variational` describes the approximate posterior, its updates and its limits. Sources: Blei and Jordan
    (2006) for the Dirichlet process, Sugiyama (2016), chapter 20, for finite mixtures, Hughes and Sudderth (2013)
    for births and merges.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     fit = dp.fit(random_seed=1, progressbar=False)
    >>> fit.n_components
    2
    >>> starts = fit.initvals(chains=2, random_seed=1)
    """
    model = pm.modelcontext(model)
    if method != "vb":
        raise ValueError(f'method must be "vb", mean-field coordinate ascent, got {method!r}')
    check_count("max_components", max_components, 1)
    check_count("n_starts", n_starts, 1)
    check_count("max_steps", max_steps, 1)
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be > 0 and finite, got {tol}")
    point = {} if point is None else point
    learnt = [rv.name for scale in learnt_scales(model).values() for rv in scale.variables if rv.name not in point]
    maximize = list(dict.fromkeys([*([maximize] if isinstance(maximize, str) else maximize), *learnt]))
    target = fit_target(model, point, maximize)
    with compiling.announced("variational inference"):
        for function in (respond, sum_up_each, write_evidences):
            function.prepare()
        rows = target.rows()
    options = SearchLimits(max_components, tol, max_steps)
    rng = np.random.default_rng(random_seed)
    bar = Bar(
        TextColumn("start {task.completed} of {task.total}"),
        BarColumn(20),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        is_shown=progressbar,
    )
    optima: list[Optimum] = []
    with bar, Threads(available_threads()) as threads:
        task = bar.add_task("", total=n_starts)

        def report(n_components: int, bound: float) -> None:
            bar.update(task, description=f"{n_components} components, bound {bound:.1f}")

        if maximize:
            # First fit hyperparameters to one start, and search at these from all starts; then fit them to each
            # of the optima, and take the best.
            first = find_optimum(rows, target.prior, rng.spawn(1)[0], options, threads, report)
            first = first._replace(state=_maximize(target, rows, first.state, options, threads))
        for child in rng.spawn(n_starts):
            optima.append(find_optimum(rows, target.prior, child, options, threads, report))
            bar.advance(task)
        if maximize:
            optima = _maximized(target, rows, first, optima, options, threads)
    answer = ChunkedVariationalFit if isinstance(rows, ChunkedRows) else VariationalFit
    result = answer(target, rows, optima, rng)
    chosen = max(optima, key=lambda optimum: optimum.state.bound)
    if chosen.is_full and max_components < min(target.prior.most, target.n):
        warnings.warn(
            f"max_components={max_components} kept components from being divided, so the result depends on it: "
            "give a larger max_components",
            stacklevel=2,
        )
    if not chosen.has_converged:
        warnings.warn(
            f"the best start had not converged after max_steps={max_steps} steps. Its bound is valid, but not the "
            "highest: give a larger max_steps",
            stacklevel=2,
        )
    return result


def _maximized(
    target: FitTarget,
    rows: RowsAnywhere,
    first: Optimum,
    optima: Sequence[Optimum],
    options: SearchLimits,
    threads: Threads,
) -> list[Optimum]:
    """Fit hyperparameters to each of the best distinct optima, and return all optima at the best of these values.

    ``first`` is the optimum that hyperparameters have been fitted to before, which takes the place of the worst if
    it is the best.
    """
    start, ordered = target.point, sorted(optima, key=lambda optimum: -optimum.state.bound)
    found = []
    for optimum in [first, *distinct(ordered)[:_MOST_MAXIMIZED]]:
        target.go_to(rows, optimum.state, start)
        state = _maximize(target, rows, optimum.state, options, threads)
        found.append((state.bound + target.log_density, optimum, state, target.point))
    _, chosen, state, point = max(found, key=lambda each: each[0])
    target.go_to(rows, state, point)
    others = [optimum for optimum in ordered if optimum is not chosen][: len(ordered) - 1]
    return [
        renewed(rows, target.prior, optimum, options, threads)
        for optimum in (chosen._replace(state=state), *others)
    ]


def _maximize(
    target: FitTarget, rows: RowsAnywhere, state: Approximation, options: SearchLimits, threads: Threads
) -> Approximation:
    """Maximise over hyperparameters and responsibilities in turn, and return the final state.

    Raises
    ------
    FloatingPointError
        If the sum of the bound and the log density of the hyperparameters falls.
    """
    total = -np.inf
    for _ in range(_MOST_ROUNDS):
        state = target.maximize(rows, state)
        state = ascend(rows, target.prior, state, threads, options.tol * rows.n, options.max_steps)
        before, total = total, state.bound + target.log_density
        if total < before - state.rounding:
            raise FloatingPointError(
                f"bound plus log density of hyperparameters fell from {before:.10g} to {total:.10g}, which means "
                "that digits were lost. Scale the columns of the data to similar spreads"
            )
        if total - before < options.tol * rows.n:
            target.check_maximum(rows, state)
            return state
    warnings.warn(
        f"hyperparameters have not converged after {_MOST_ROUNDS} rounds: give a larger tol, or values in point",
        stacklevel=3,
    )
    return state
