"""The step methods of labels: read the point, call a kernel, write the point. No numerics."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    CompoundStep,
    StepMethodState,
    chain_of_process,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.assignment import drawn_with_labels
from pymc_dpgmm.integration.steps.atoms import AtomOptions, DirichletProcessStep
from pymc_dpgmm.integration.steps.chunked import ChunkedStep, ChunkOptions
from pymc_dpgmm.integration.steps.concentration import Concentration, ConcentrationGibbs, concentration_of
from pymc_dpgmm.integration.steps.grouped import GroupedTarget, TopicsTarget, is_grouped, is_openers, is_topics
from pymc_dpgmm.integration.steps.hyperparameters import (
    check_hyperparameters,
    hyperparameters_of_processes,
    hyperparameters_of_step,
)
from pymc_dpgmm.integration.steps.hyperparameters import hyperparameters as hyperparameters_of
from pymc_dpgmm.integration.steps.latent_rows import (
    Anchor,
    LatentRows,
    check_latent_rows,
    chosen_latent_rows,
    labels_of_rows,
)
from pymc_dpgmm.integration.steps.latent_rows import latent_rows as latent_rows_of
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, MoveStatistics, of_partition
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared, is_labels, is_missing, labels_of_missing
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.integration.variables.chunked_partition import is_chunked_clusters
from pymc_dpgmm.integration.variables.records import is_gamma
from pymc_dpgmm.sampler.amounts import SWEEPS_ALONE, SWEEPS_BESIDE_OTHERS
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.tuning.corrected import CorrectedSchedule
from pymc_dpgmm.sampler.tuning.exchange import Exchange
from pymc_dpgmm.sampler.tuning.preparation import begin, finish, functions_of
from pymc_dpgmm.sampler.tuning.schedule import Drawn, Options, Schedule, TopicSchedule, no_tally
from pymc_dpgmm.tables.checks import check_count

# How labels are moved: those on which other variables depend, topics that keep their names, and all others.
type LabelsSchedule = CorrectedSchedule | TopicSchedule | Schedule


@dataclass_state
class LabelsStepState(StepMethodState):
    """Sampling state of a labels step: the kept states make a repeated draw equal to the last bit."""

    tune: bool
    prepared: list[Any]
    schedules: list[LabelsSchedule]
    widths: dict[str, Any]
    anchors: dict[str, Any]


# Shape and rate where a concentration is not drawn with its labels.
_NO_LAW = (0.0, 0.0)


def _rv_of(model: pm.Model, value: Variable) -> Variable:
    return model.values_to_rvs[value]


def _target_of(model: pm.Model, value: Variable) -> Any:
    rv = _rv_of(model, value)
    kind = TopicsTarget if is_topics(rv) else GroupedTarget if is_grouped(rv) else LabelsTarget
    return kind(model, value)


def _refuse_atoms(model: pm.Model, values: Sequence[Variable]) -> None:
    """Raise TypeError for labels that cannot change without the parameters of their rows."""
    for rv in model.free_RVs:
        if is_atoms(rv) and model.rvs_to_values[atoms_inputs(rv)[0]] in values:
            raise TypeError(
                f"{atoms_inputs(rv)[0].name} are the labels of a dp.DirichletProcess, which are sampled together "
                f"with {rv.name}: use dp.DirichletProcessStep, or leave the step to pm.sample"
            )


def _latent_rows_of(
    model: pm.Model, targets: Sequence[LabelsTarget], rows: Sequence[Variable], compile_kwargs: Any
) -> list[list[LatentRows]]:
    """Return the latent rows of each target, among value variables; several mixtures may be on the same labels.

    Raises
    ------
    ValueError
        If there are rows of other labels.
    """
    names = [target.name for target in targets]
    latent: list[list[LatentRows]] = [[] for _ in targets]
    for rv in (_rv_of(model, value) for value in rows):
        labels = model.rvs_to_values[labels_of_rows(rv)].name
        if labels not in names:
            raise ValueError(
                f"{rv.name} can be drawn here together with {labels} only: give these too, or leave the rows to "
                "another step"
            )
        position = names.index(labels)
        latent[position].append(LatentRows(model, targets[position], rv, compile_kwargs))
    return latent


def _refuse_options(targets: Sequence[LabelsTarget], options: Options) -> None:
    """Raise NotImplementedError for options that some targets cannot have."""
    named = [t.name for t in targets if isinstance(t, TopicsTarget)]
    if named and options.n_scans == 0:
        raise NotImplementedError(
            f"{', '.join(named)} are topics with names, for which there are no split and merge moves; leave "
            "the step to pm.sample, or use dp.CollapsedGibbs"
        )
    without = [t.name for t in targets if not t.takes_leaders]
    if options.leader_sweeps and without:
        raise NotImplementedError(
            f"there are no leader sweeps for {', '.join(without)}: they are for labels of rows that are in no "
            "groups and no units, of which no clusters are known, and on which mixtures alone depend; leave "
            "out leader_sweeps"
        )


class LabelsStep(PartitionStep):
    """Samples labels by moves each of which leaves their posterior invariant, except while tuning.

    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``; ``largest_share``, the share of
    rows in the largest cluster; ``entropy`` of the clusters' shares, in nats; ``n_moved``, relocations of single
    rows; ``log_joint``, the log density of labels and data given everything else, before hyperparameters are
    drawn; ``searching``, whether the draw was a search; ``restarted``, whether the chain's search had ended so far
    below another one's that it began anew at the clusters of that; ``seconds`` that the draw of the labels took;
    for each latent mixture that is drawn with them, ``<its name>_accepted``, the share of accepted proposals; and
    for each kind of split and merge move, prefixed by its name: ``splits_tried``, ``splits`` (accepted),
    ``split_size`` (mean rows in the smaller halves, NaN where none was accepted), and the same for merges.
    """

    _state_class = LabelsStepState
    # Set while chains sample that can tell each other what they have found.
    exchange: Exchange | None = None

    def _n_rows(self, target: LabelsTarget) -> int:
        return target.n_rows

    def _setup(
        self,
        vars: Sequence[Any] | None,
        model: pm.Model,
        options: Options,
        rng: Any,
        compile_kwargs: dict[str, Any] | None,
        concentrations: Sequence[Variable] = (),
        imputed: Sequence[Variable] = (),
        hyperparameters: Sequence[Variable] = (),
        rows: Sequence[Variable] = (),
    ) -> None:
        labels = [rv for rv in model.free_RVs if is_labels(rv)] if vars is None else vars
        self.vars = [v for v in get_value_vars_from_user_vars(labels, model) if not is_openers(_rv_of(model, v))]
        _refuse_atoms(model, self.vars)
        targets = [_target_of(model, value) for value in self.vars]
        self._of_moves = MoveStatistics()
        # Of a draw in which labels wait.
        self._nothing = Drawn(0, -np.inf, no_tally(), False)
        statistics = OF_PARTITIONS | {"searching": np.bool_, "restarted": np.bool_} | self._of_moves.dtypes
        self.latent = _latent_rows_of(model, targets, rows, compile_kwargs)
        of_targets = {
            target.name: {latent.statistic: np.float64 for latent in of_target}
            for target, of_target in zip(targets, self.latent, strict=True)
        }
        self._set_targets(targets, statistics, rng, compile_kwargs, of_targets)
        _refuse_options(targets, options)
        openers = [t.openers for t in self.targets if isinstance(t, GroupedTarget) and t.openers is not None]
        self.vars += [*openers, *concentrations, *imputed, *hyperparameters, *rows]
        self.hyperparameters = hyperparameters_of_step(model, hyperparameters, targets, compile_kwargs)
        self.widths: dict[str, np.ndarray] = {}
        self.anchors: dict[str, Anchor] = {}
        self.imputed = [value.name for value in imputed]
        mixtures = [mixture for target in self.targets for mixture in target.mixtures]
        drawn_missing = [m.family for m in mixtures if m.missing is not None and m.missing.name in self.imputed]
        if not all(isinstance(target, TopicsTarget) for target in self.targets):
            others = dict.fromkeys(kernel for of in self.latent for one in of for kernel in one.kernels)
            others |= dict.fromkeys(kernel for group in self.hyperparameters for kernel in group.kernels)
            families = [m.sampled_family for m in mixtures]
            begin(functions_of(families, options, drawn_missing, list(others)), families)
        drawn = [Concentration(model, value) for value in concentrations]
        strangers = [c.name for c in drawn if c.labels not in {t.name for t in self.targets}]
        if strangers:
            raise ValueError(
                f"{', '.join(strangers)} can be drawn here together with its own labels only; use "
                "dp.ConcentrationGibbs for a concentration alone"
            )
        self.concentrations = [{c.role: c for c in drawn if c.labels == target.name} for target in self.targets]
        self.options = options
        is_alone = set(model.value_vars) == set(self.vars)
        self.sweeps = SWEEPS_ALONE if is_alone else SWEEPS_BESIDE_OTHERS
        self.prepared: list[Prepared | None] = [None] * len(self.targets)
        self.schedules = self._new_schedules(0)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain: its own random numbers, and nothing kept from the last one."""
        finish()
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.prepared = [None] * len(self.targets)
        self.schedules = self._new_schedules(tune)
        self.widths = {}
        self.anchors = {}

    def stop_tuning(self) -> None:
        """End tuning; a chain whose search has not come to its end has nothing to tell others."""
        super().stop_tuning()
        for schedule in self.schedules:
            if isinstance(schedule, Schedule) and schedule.others is not None:
                schedule.others.tell(None)

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the labels, and the hyperparameters that go with them, given everything else in the point."""
        point, statistics = super().step(point)
        states = [None if prepared is None else prepared.state for prepared in self.prepared]
        for group in self.hyperparameters:
            group.draw(self.rng, point, states, self.widths, self.tune)
        return point, statistics

    def _new_schedules(self, tune: int) -> list[LabelsSchedule]:
        exchange = self.exchange
        chain = chain_of_process() if exchange is None or exchange.chain is None else exchange.chain
        return [
            CorrectedSchedule(self.options)
            if target.dependents is not None
            else TopicSchedule(self.options)
            if isinstance(target, TopicsTarget)
            else Schedule(
                self.options._replace(search=self.options.search and target.may_search),
                tune,
                self.sweeps,
                None if exchange is None or chain is None else exchange.place(chain, position),
            )
            for position, target in enumerate(self.targets)
        ]

    def _draw(self, position: int, target: LabelsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        concentrations, schedule = self.concentrations[position], self.schedules[position]
        prior = target.prior(point)
        prepared = None if prior is None else target.state(point, prior, self.prepared[position])
        drawn = self._nothing
        accepted = dict.fromkeys((latent.statistic for latent in self.latent[position]), math.nan)
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if prepared is not None and prior is not None:
            laws = {role: concentration.law(point) for role, concentration in concentrations.items()}
            if not isinstance(target, TopicsTarget):
                prepared.state.set_prior(prior, laws.get("alpha", _NO_LAW))
            for latent in self.latent[position]:
                anchor = self.anchors.setdefault(latent.name, Anchor())
                prepared, accepted[latent.statistic] = latent.draw(
                    self.rng, point, target, prepared, anchor, self.tune
                )
            if self.imputed:
                prepared = target.impute(self.rng, point, prepared, self.imputed)
            # A State, and of topics a TopicState, as their targets have them.
            state: Any
            given = (self.rng, prepared.state, self.tune)
            if isinstance(schedule, CorrectedSchedule) or not schedule.searches(self.tune):
                own = (*laws.get("alpha", _NO_LAW), *laws.get("gamma", _NO_LAW))
                target.enter(self.rng, point, prepared.state, own)
            if isinstance(schedule, CorrectedSchedule):
                assert target.dependents is not None
                rest = target.dependents.at(point, target.labels_of(prepared.state), target.labels_of)
                state, drawn, rest = schedule.draw(*given, rest)
                point.update({name: rest.point[name] for name in target.dependents.renamed})
            else:
                state, drawn = schedule.draw(*given)
            if state.is_grouped or not isinstance(target, GroupedTarget):
                for role, concentration in concentrations.items():
                    concentration.write(point, getattr(state, role))
            target.leave(point, state)
            labels = target.labels_of(state)
            self.prepared[position] = prepared._replace(labels=labels, state=state)
            point[target.name] = labels
        sizes = target.sizes(point, self.prepared[position] if prepared is not None else None)
        return {
            **of_partition(sizes, drawn.n_moved, drawn.log_joint),
            "searching": drawn.searching,
            "restarted": isinstance(schedule, Schedule) and schedule.restarted,
            **self._of_moves.of(drawn.tally),
            **accepted,
            "seconds": time.perf_counter() - started,
        }


ASSIGNED = (
    "n_sweeps",
    "gibbs",
    "split_merge",
    "leader_sweeps",
    "threads",
    "hyperparameters",
    "latent_rows",
    "atoms",
    "chunks",
)
GIBBS_OPTIONS = ("n_scans",)


def _chosen(owner: str, options: Any, allowed: Sequence[str]) -> dict[str, Any]:
    """Return a user's options, top-level or nested.

    Raises
    ------
    TypeError, ValueError
        If they are not a dict, or one is unknown.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"{owner} must be a dict of options ({', '.join(allowed)}), got {options!r}")
    unknown = [str(name) for name in options if name not in allowed]
    if unknown:
        # The nested options of the assigned step are easily given one level too high.
        homes = {"n_scans": "gibbs", **dict.fromkeys((*MOVES, "search"), "split_merge")}
        misplaced = [name for name in unknown if owner == "dpmixture" and name in homes]
        hints = "".join(f"; {name} belongs into {homes[name]}" for name in misplaced)
        raise ValueError(
            f"unknown options for {owner}: {', '.join(unknown)}; allowed are {', '.join(allowed)}{hints}"
        )
    return dict(options)


class DPMixtureStep(LabelsStep):
    """The step that ``pm.sample`` assigns to labels; it runs all moves.

    The step also draws a concentration with a gamma prior, if one CRP and nothing else depends on it. alpha is
    then drawn exactly (Escobar and West 1995) before every sweep. Other concentrations are left to PyMC's own step
    methods. Pass options as ``pm.sample(dpmixture={"gibbs": {...}, "split_merge": {...}})``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels, and of some of them concentrations, missing entries, hyperparameters and latent rows. By default
        all labels of the model, with the missing entries and latent rows that go with them.
    n_sweeps : int, >= 1, optional
        Number of sweeps per draw. A sweep consists of Gibbs scans and then split and merge moves. By default
        tuning decides: small data gets more than one sweep, because otherwise a draw would cost more than its
        moves.
    gibbs : dict, optional
        ``n_scans`` per sweep, as in :class:`CollapsedGibbs`, except that 0 is allowed.
    split_merge : dict, optional
        ``sequential``, ``random`` and ``search`` per sweep, as in :class:`SplitMerge`.
    leader_sweeps : int, >= 0, optional
        Sweeps that draw all labels at once given weights and parameters of the clusters, before every scan, which
        is then one of a part of the rows. By default 1 for 20,000 rows or more, and 0 for fewer. :doc:`/moves` has
        the proof that they are exact.
    threads : int, >= 1, optional
        Number of threads of leader sweeps. The draws do not depend on it. By default 1 if chains
        run in processes of their own, and otherwise the number of numba (``NUMBA_NUM_THREADS``, by default all
        cores).
    hyperparameters : {"slices", "nuts"}, optional
        How hyperparameters are drawn: free continuous variables on which only the prior of the labels and base
        measures depend, or other such variables. ``"slices"``: with the labels, one coordinate after the other, by
        slices of the density that sums over the clusters' parameters (Neal 2003). ``"nuts"``: by NUTS, beside the
        rest of the model. By default slices for up to 16 coordinates.
    latent_rows : {"labels", "nuts"}, optional
        How the rows of a latent mixture are drawn, where the rows of a cluster are normal and every term of the
        rest of the model depends on one row. ``"labels"``, the default: label and value of each row together,
        given drawn weights and parameters of the clusters; up to 16 numbers that the rows share, such as
        coefficients, are moved with them as well. ``"nuts"``: by NUTS, given the labels.

    Raises
    ------
    TypeError, ValueError
        If an option is unknown or out of range, or a concentration is given without its labels.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model() as model:
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(**run, dpmixture={"n_sweeps": 2})
    >>> int(idata.sample_stats["y_labels_n_clusters"].min()) >= 1
    True
    """

    name = "dpmixture"

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Hand concentrations that turn out not to fit to other steps, where PyMC assigned them by itself."""
        # PyMC assigns steps without showing the model, so only here can the rest of it be looked at.
        if not ("compile_kwargs" in kwargs and "vars" in kwargs):
            return super().__new__(cls, *args, **kwargs)
        model, values = kwargs["model"], kwargs["vars"]
        given = [model.values_to_rvs[value] for value in values]
        labels = [rv for rv in given if is_labels(rv)]
        known = drawn_with_labels(model)
        others = {name: option for name, option in kwargs.items() if name not in (*ASSIGNED, "vars")}
        own: list[Any] = []
        alone: list[Any] = []
        strange: list[Any] = []
        with_atoms: list[Any] = []
        in_chunks: dict[bool, list[Any]] = {True: [], False: []}
        have_atoms = {atoms_inputs(rv)[0] for rv in model.free_RVs if is_atoms(rv)}
        of_atoms = hyperparameters_of_processes(model)
        for value, rv in zip(values, given, strict=True):
            if is_atoms(rv) or rv in have_atoms or rv in of_atoms:
                with_atoms.append(value)
                continue
            on, _ = concentration_of(model, rv)
            if is_chunked_clusters(rv) or (on is not None and is_chunked_clusters(on)):
                in_chunks[is_chunked_clusters(rv)].append(value)
                continue
            if is_missing(rv):
                (own if labels_of_missing(model, rv) in labels else strange).append(value)
                continue
            if is_labels(rv) or is_openers(rv) or rv in known:
                own.append(value)
                continue
            if on in labels:
                (with_atoms if on in have_atoms else own).append(value)
            else:
                (strange if on is None or is_grouped(on) else alone).append(value)
        if len(own) == len(values):
            return super().__new__(cls, *args, **kwargs)
        for_chunks = _chosen(
            "chunks", kwargs.pop("chunks", None) if in_chunks[True] else None, ChunkOptions._fields
        )
        for_atoms = _chosen("atoms", kwargs.pop("atoms", None) if with_atoms else None, AtomOptions._fields)
        of_mixtures = [name for name in ASSIGNED if name != "hyperparameters"]
        misplaced = [name for name in of_mixtures if with_atoms and not own and name in kwargs]
        if misplaced:
            raise ValueError(
                f"{', '.join(misplaced)} are options for the labels of a dp.DPMixture, and the model has none; "
                f"those for a dp.DirichletProcess are dpmixture={{'atoms': {{...}}}}, with "
                f"{', '.join(AtomOptions._fields)}"
            )
        steps = [cls(**(kwargs | {"vars": own}))] if own else []
        steps += [DirichletProcessStep(vars=with_atoms, **for_atoms, **others)] if with_atoms else []
        if in_chunks[True] and not own:
            ignored = [name for name in ASSIGNED if name in kwargs]
            if ignored:
                raise ValueError(
                    f"{', '.join(ignored)} are options for labels of rows in memory, and the model has none; "
                    "those for rows in chunks are dpmixture={'chunks': {...}}, with "
                    f"{', '.join(ChunkOptions._fields)}"
                )
        if in_chunks[True]:
            options = ChunkOptions(**for_chunks)
            steps += [ChunkedStep(in_chunks[True], in_chunks[False], options=options, **others)]
        steps += [ConcentrationGibbs(vars=alone, **others)] if alone else []
        steps += [pm.NUTS(vars=strange, **others)] if strange else []
        return steps[0] if len(steps) == 1 else CompoundStep(steps)

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        n_sweeps: int | None = None,
        gibbs: Mapping[str, Any] | None = None,
        split_merge: Mapping[str, Any] | None = None,
        leader_sweeps: int | None = None,
        threads: int | None = None,
        hyperparameters: str | None = None,
        latent_rows: str | None = None,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
        **unknown: Any,
    ) -> None:
        _chosen("dpmixture", unknown, ASSIGNED)
        if "atoms" in unknown:
            raise ValueError(
                "atoms are options for a dp.DirichletProcess, and the model has none; those for the labels of a "
                "dp.DPMixture are n_sweeps, gibbs, split_merge, leader_sweeps and threads"
            )
        if "chunks" in unknown:
            raise ValueError(
                "chunks are options for rows of a dask array, and the model has none; those for the labels of "
                "rows in memory are n_sweeps, gibbs, split_merge, leader_sweeps and threads"
            )
        chosen = _chosen("gibbs", gibbs, GIBBS_OPTIONS)
        moves = _chosen("split_merge", split_merge, (*MOVES, "search"))
        chosen |= {"search": moves.pop("search")} if "search" in moves else {}
        options = Options(n_sweeps, moves=moves, leader_sweeps=leader_sweeps, threads=threads, **chosen).check()
        model = pm.modelcontext(model)
        known_rows = latent_rows_of(model)
        if vars is None:
            own = [rv for rv in model.free_RVs if is_labels(rv) or labels_of_missing(model, rv) is not None]
            own += chosen_latent_rows(known_rows, model.free_RVs, latent_rows)
            values = get_value_vars_from_user_vars(own, model)
        else:
            values = get_value_vars_from_user_vars(vars, model)
        check_hyperparameters(hyperparameters)
        check_latent_rows(latent_rows)
        known = hyperparameters_of(model)
        kinds: dict[str, list[Variable]] = {
            kind: [] for kind in ("labels", "imputed", "concentrations", "hyperparameters", "rows")
        }
        for value in values:
            rv = model.values_to_rvs[value]
            if is_openers(rv):
                # They come with their labels.
                continue
            kind = "labels" if is_labels(rv) else "imputed" if is_missing(rv) else "concentrations"
            kind = "hyperparameters" if rv in known else "rows" if rv in known_rows else kind
            kinds[kind].append(value)
        self._setup(
            kinds["labels"],
            model,
            options,
            rng,
            compile_kwargs,
            kinds["concentrations"],
            kinds["imputed"],
            kinds["hyperparameters"],
            kinds["rows"],
        )

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC what the step takes.

        It is ideal for labels and what is drawn with them (openers, missing entries, atoms, clusters of rows in
        chunks), and for a concentration with a gamma prior that fits. :meth:`__new__`, which sees the model, hands
        on what does not. Hyperparameters are assigned in ``hooks/guards.py``, which sees the options too.
        """
        if is_labels(var) or is_openers(var) or is_missing(var) or is_atoms(var) or is_chunked_clusters(var):
            return Competence.IDEAL
        if not getattr(var.tag, "is_concentration", False) or not is_gamma(var):
            return Competence.INCOMPATIBLE
        model = pm.Model.get_context(error_if_none=False)
        if model is not None and var in model.free_RVs and concentration_of(model, var)[0] is None:
            return Competence.INCOMPATIBLE
        return Competence.IDEAL


class CollapsedGibbs(LabelsStep):
    """Collapsed Gibbs scans over labels (Neal 2000, Algorithm 3), to be used on their own in ``step=[...]``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels. By default all labels of the model.
    n_scans : int, >= 1
        Number of scans per draw.

    Raises
    ------
    TypeError, ValueError
        If ``n_scans`` is not an integer of at least 1.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model() as model:
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(**run, step=[dp.CollapsedGibbs([model["y_labels"]], n_scans=2)])
    """

    name = "collapsed_gibbs"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        n_scans: int = 1,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        check_count("n_scans", n_scans, 1)
        options = Options(
            n_sweeps=n_scans, n_scans=1, moves=dict.fromkeys(MOVES, 0), search=False, leader_sweeps=0
        )
        self._setup(vars, pm.modelcontext(model), options, rng, compile_kwargs)


class SplitMerge(LabelsStep):
    """Split and merge moves over labels, to be used on their own in ``step=[...]``.

    Parameters
    ----------
    vars : list of variables, optional
        Labels. By default all labels of the model.
    sequential : int, >= 0, optional
        Number of data-driven moves per draw: sequentially allocated splits (Dahl 2005) and the merges that undo
        them. By default tuning decides.
    random : int, >= 0, optional
        Number of moves per draw that divide small clusters at random (Chang and Fisher 2013, section 5.5), and of
        the merges that undo them. 1 by default.
    search : bool
        Whether tuning begins with a search that divides and merges clusters without leaving the posterior
        invariant. The kept draws are exact either way.
    **others : int, >= 0
        Numbers of moves of kinds that another package has added, by their names.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer of at least 0, all are 0, or there is no kind of a name.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model() as model:
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(**run, step=[dp.SplitMerge([model["y_labels"]])])
    """

    name = "split_merge"

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        sequential: int | None = None,
        random: int | None = None,
        search: bool = True,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
        **others: int | None,
    ) -> None:
        moves = {"random": random, "sequential": sequential, **others}
        unknown = [name for name in moves if name not in MOVES]
        if unknown:
            raise TypeError(f"unknown kinds of moves: {', '.join(unknown)}; there are {', '.join(MOVES)}")
        options = Options(n_sweeps=1, n_scans=0, moves=moves, search=search).check()
        self._setup(vars, pm.modelcontext(model), options, rng, compile_kwargs)
