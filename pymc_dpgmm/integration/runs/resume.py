"""Runs that can be interrupted, saved, and continued from their state."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pymc as pm
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pymc_dpgmm.integration.internals import pymc_internals
from pymc_dpgmm.integration.internals.bars import Bar
from pymc_dpgmm.integration.internals.pymc_internals import (
    CompoundStep,
    MultiTrace,
    NDArray,
    log_convergence,
    make_initial_point_fns_per_chain,
)
from pymc_dpgmm.integration.runs.checkpoints import Checkpoint
from pymc_dpgmm.integration.variables.models import digests_of
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.native.interrupts import is_interrupt

# Number of draws of one chain before the next chain continues.
_BLOCK = 25


class ResumableRun:
    """Sampling in one process that keeps the state of every chain, so that it can be continued later.

    ``pm.sample`` returns the draws of an interrupted run, but not the state of its step methods. This class uses
    the same step methods, keeps their state, and continues exactly: a run that is interrupted, saved, loaded in
    another process and continued gives bit for bit the draws of a run that was never interrupted.

    Parameters
    ----------
    model : pm.Model
        The model to sample.
    chains : int, >= 1
        Number of chains.
    tune : int, >= 0
        Number of tuning draws of each chain, which are not kept.
    random_seed : int, optional
        Seed of all chains.
    initvals : dict, optional
        Starting values by name, as for ``pm.sample``.
    **step_options : dict
        Options of step methods by their names, as for ``pm.sample``: ``dpmixture={"gibbs": {...}}``.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    >>> run = dp.ResumableRun(model, chains=1, tune=20, random_seed=1)
    >>> idata = run.sample(20, progressbar=False)  # may be stopped at any time
    >>> idata = run.sample(20, progressbar=False)  # all draws: the first 20 and 20 more
    >>> idata.posterior.sizes["draw"]
    40

    With a checkpoint, the run survives the end of the process::

        idata = run.sample(1000, checkpoint="run.pickle")

        run = dp.ResumableRun.load("run.pickle", model)  # later, in another process
        idata = run.sample(1000)  # all draws: the old ones and 1000 more
    """

    def __init__(
        self,
        model: pm.Model,
        *,
        chains: int = 4,
        tune: int = 1000,
        random_seed: int | None = None,
        initvals: Mapping[str, Any] | None = None,
        **step_options: dict[str, Any],
    ) -> None:
        if chains < 1 or tune < 0:
            raise ValueError(f"chains must be at least 1 and tune at least 0, got {chains} and {tune}")
        self._model, self._tune = model, tune
        self._options = step_options
        # Files to which the run has been saved, by absolute path.
        self._files: dict[Path, Checkpoint] = {}
        rngs = np.random.default_rng(random_seed).spawn(chains)
        seeds = [rng.integers(2**30) for rng in rngs]
        starts = make_initial_point_fns_per_chain(
            model=model, overrides=dict(initvals or {}), jitter_rvs=set(), chains=chains
        )
        points = [start(seed) for start, seed in zip(starts, seeds, strict=True)]
        self._step = self._make_step(points[0])
        fresh = self._step.sampling_state
        self._chains: list[dict[str, Any]] = []
        for rng, point in zip(rngs, points, strict=True):
            self._step.sampling_state = fresh
            self._step.setup_chain(rng, tune, 0)
            state = self._step.sampling_state
            self._chains.append({"point": point, "state": state, "done": 0, "draws": []})

    def _make_step(self, point: Any) -> Any:
        _, selected = pymc_internals.assign_step_methods(self._model)
        step = pymc_internals.instantiate_steppers(
            self._model, [], selected, step_kwargs=self._options, initial_point=point, compile_kwargs={}
        )
        return CompoundStep(step) if isinstance(step, list) else step

    def __repr__(self) -> str:
        done = self._described([chain["done"] for chain in self._chains])
        return f"<ResumableRun of {len(self._chains)} chains: {done}>"

    def sample(
        self,
        draws: int,
        *,
        checkpoint: str | Path | None = None,
        every: float = 60.0,
        progressbar: bool = True,
    ) -> Any:
        """Draw until every chain has ``draws`` more kept draws; Ctrl-C stops early and keeps the draws so far.

        At the end, the elapsed time and the convergence warnings of ``pm.sample`` are logged.

        Parameters
        ----------
        draws : int, >= 1
            Number of further draws to keep in every chain.
        checkpoint : str or Path, optional
            A file to which the run is saved at intervals and at the end, as by :meth:`save`: new draws are
            appended. A process that is killed loses its draws since the last checkpoint; :meth:`load` reports how
            far the run had come.
        every : float, >= 0
            Seconds between two checkpoints.
        progressbar : bool
            Whether to show the number of draws of all chains together, including tuning.

        Returns
        -------
        DataTree or None
            All kept draws so far, including those of earlier calls. None, with a line in the log, if the run was
            stopped while a chain was tuning: :meth:`save` then keeps the state, and calling this method again
            continues.

        Raises
        ------
        FileExistsError
            If the checkpoint exists, and this run has neither written it nor been loaded from it: the file may
            hold another run.
        """
        if draws < 1:
            raise ValueError(f"draws must be at least 1, got {draws}")
        if checkpoint is not None and Path(checkpoint).absolute() not in self._files and Path(checkpoint).exists():
            raise FileExistsError(
                f"{checkpoint} exists already, and may hold another run: continue that run with "
                "dp.ResumableRun.load(checkpoint, model), or delete the file, or give another name"
            )
        target = self._tune + min(len(chain["draws"]) for chain in self._chains) + draws
        began = saved = time.monotonic()
        try:
            with _progress(progressbar) as progress:
                task = progress.add_task("", total=target * len(self._chains), phase="")
                while any(chain["done"] < target for chain in self._chains):
                    for chain in self._chains:
                        self._advance(chain, min(_BLOCK, target - chain["done"]))
                        done = [chain["done"] for chain in self._chains]
                        phase = "tuning" if min(done) < self._tune else "sampling"
                        progress.update(task, completed=sum(done), phase=phase)
                        if checkpoint is not None and time.monotonic() - saved >= every:
                            self.save(checkpoint)
                            saved = time.monotonic()
            if checkpoint is not None:
                self.save(checkpoint)
        except (KeyboardInterrupt, SystemError) as error:
            if not is_interrupt(error):
                raise
            if checkpoint is not None:
                self.save(checkpoint)
            if min(len(chain["draws"]) for chain in self._chains) == 0:
                done = min(chain["done"] for chain in self._chains)
                logger.warning(
                    "Stopped while tuning, after %d of %d tuning draws: there are no draws to return. Call "
                    "sample() to go on, or save() to go on later.",
                    min(done, self._tune),
                    self._tune,
                )
                return None
            done = [len(chain["draws"]) for chain in self._chains]
            logger.warning(
                "Stopped after %s of %d draws of each chain. Call sample() to go on, or save() to go on later.",
                _span(done),
                target - self._tune,
            )
            return self.draws()
        idata = self.draws()
        logger.info(
            "%d chains have %d tuning draws and %d draws each; the last %d of these took %.0f seconds.",
            len(self._chains),
            self._tune,
            target - self._tune,
            draws,
            time.monotonic() - began,
        )
        log_convergence(idata, self._model)
        return idata

    def _advance(self, chain: dict[str, Any], n_draws: int) -> None:
        if n_draws <= 0:
            return
        self._step.sampling_state = chain["state"]
        # A block of draws counts only when it is complete, so that an interruption loses at most one block and
        # leaves point, state and draws consistent.
        point, done, new_draws = chain["point"], chain["done"], []
        for _ in range(n_draws):
            if done == self._tune:
                self._step.stop_tuning()
            point, stats = self._step.step(point)
            done += 1
            if done > self._tune:
                new_draws.append((point, stats))
        state = self._step.sampling_state
        chain.update(point=point, done=done, state=state, draws=chain["draws"] + new_draws)

    def draws(self) -> Any:
        """Return all kept draws as a DataTree, up to the length of the shortest chain.

        Raises
        ------
        ValueError
            If there are no draws after tuning yet.
        """
        length = min(len(chain["draws"]) for chain in self._chains)
        if length == 0:
            raise ValueError("there are no draws after tuning yet")
        traces = []
        for position, chain in enumerate(self._chains):
            trace = NDArray(model=self._model, test_point=chain["point"])
            trace.setup(length, position, self._step.stats_dtypes)
            for point, stats in chain["draws"][:length]:
                trace.record(point, [dict(one) for one in stats], in_warmup=False)
            trace.close()
            traces.append(trace)
        return pm.to_inference_data(MultiTrace(traces), model=self._model)

    def save(self, path: str | Path) -> None:
        """Write draws and states to a file (made of pickles: load only files that you trust).

        If the run has been saved to the file before, new draws are appended, and an interruption leaves the
        earlier content intact. Any other file of that name is replaced once the new one is complete.
        """
        path = Path(path).absolute()
        if path not in self._files:
            what = {"tune": self._tune, "options": self._options, "numbers": digests_of(self._model)}
            self._files[path] = Checkpoint(path, what)
        self._files[path].save(self._chains)

    @classmethod
    def load(cls, path: str | Path, model: pm.Model) -> Self:
        """Return a saved run of the same model, ready to be continued.

        Parameters
        ----------
        path : str or Path
            A file written by :meth:`save`. Load only files that you trust.
        model : pm.Model
            The model of the run, built anew by the same code.

        Raises
        ------
        ValueError
            If the model differs from that of the saved run in its variables, its data or numbers in its priors; or
            if the file is no checkpoint.
        """
        file, content, is_cut = Checkpoint.load(Path(path).absolute())
        saved = set(content["chains"][0]["point"])
        present = {value.name for value in model.value_vars}
        if saved != present:
            raise ValueError(f"the saved run has variables {sorted(saved)}, the model has {sorted(present)}")
        numbers = digests_of(model)
        for here, other, what in (
            (content["numbers"], numbers, "saved run"),
            (numbers, content["numbers"], "model"),
        ):
            more = sorted(set(here) - set(other))
            if more:
                raise ValueError(
                    f"only the {what} has {', '.join(more)}: draws of two posteriors cannot go into one run; "
                    "build the model as it was, or begin a new run"
                )
        differing = sorted(name for name, digest in content["numbers"].items() if digest != numbers[name])
        if differing:
            raise ValueError(
                f"the model is not that of the saved run: the data of {', '.join(differing)}, or numbers in its "
                "prior, differ. Draws of two posteriors cannot go into one run; build the model as it was, or "
                "begin a new run"
            )
        run = cls.__new__(cls)
        run._model, run._tune, run._options = model, content["tune"], content["options"]
        run._chains = content["chains"]
        run._files = {Path(path).absolute(): file}
        run._step = run._make_step(run._chains[0]["point"])
        done = [chain["done"] for chain in run._chains]
        if is_cut:
            logger.warning("The last write to %s was interrupted: the run goes on from the write before it.", path)
        logger.info("%s holds %s of each chain; sample() goes on from there.", path, run._described(done))
        return run

    def _described(self, done: Sequence[int]) -> str:
        """Return a text that says how many draws the chains have made."""
        n_tuning, n_kept = [min(d, self._tune) for d in done], [max(d - self._tune, 0) for d in done]
        if not any(n_kept):
            return f"{_span(n_tuning)} of {self._tune} tuning draws"
        return f"{_span(n_kept)} draws after tuning"


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _progress(is_shown: bool) -> Bar:
    """Return a progress bar that fits into 80 columns."""
    return Bar(
        TextColumn("{task.fields[phase]:8}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("draws"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        is_shown=is_shown,
    )
