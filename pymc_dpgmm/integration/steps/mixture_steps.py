"""The steps of labels that ``pm.sample`` assigns and that users make: all moves, scans, or splits and merges."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import Competence, CompoundStep, get_value_vars_from_user_vars
from pymc_dpgmm.integration.steps.assignment import (
    check_choice,
    drawn_with_labels,
    moved_together,
    refuse_single_precision,
)
from pymc_dpgmm.integration.steps.atoms import AtomOptions, DirichletProcessStep
from pymc_dpgmm.integration.steps.chunked import ChunkedStep, ChunkOptions
from pymc_dpgmm.integration.steps.concentration import ConcentrationGibbs, concentration_of
from pymc_dpgmm.integration.steps.continuous import nuts_options
from pymc_dpgmm.integration.steps.grouped import is_grouped, is_openers
from pymc_dpgmm.integration.steps.hyperparameters import hyperparameters as hyperparameters_of
from pymc_dpgmm.integration.steps.labels import LabelsStep
from pymc_dpgmm.integration.steps.latent_rows import chosen_latent_rows
from pymc_dpgmm.integration.steps.latent_rows import latent_rows as latent_rows_of
from pymc_dpgmm.integration.steps.targets import is_labels, is_missing, labels_of_missing
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.integration.variables.chunked_partition import is_chunked_clusters
from pymc_dpgmm.integration.variables.records import is_gamma
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.tuning.schedule import Options
from pymc_dpgmm.tables.checks import check_count

ASSIGNED = (
    "n_sweeps",
    "gibbs",
    "split_merge",
    "leader_sweeps",
    "threads",
    "continuous",
    "share",
    "atoms",
    "chunks",
    "nuts",
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
    then drawn exactly (Escobar and West 1995) before every sweep. Other concentrations are hyperparameters: see
    below. Pass options as ``pm.sample(dpmixture={"gibbs": {...}, "split_merge": {...}})``.

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
        ``sequential``, ``random``, ``carving`` and ``reallocation`` per sweep, and ``search``, as in
        :class:`SplitMerge`.
    leader_sweeps : int, >= 0, optional
        Sweeps that draw all labels at once given weights and parameters of the clusters, before every scan, which
        is then one of a part of the rows. By default 1 for 20,000 rows or more, and 0 for fewer. :doc:`/moves` has
        the proof that they are exact.
    threads : int, >= 1, optional
        Number of threads of leader sweeps. The draws do not depend on it. By default 1 if chains
        run in processes of their own, and otherwise the number of numba (``NUMBA_NUM_THREADS``, by default all
        cores).
    continuous : {"nuts"}, optional
        ``"nuts"``: PyMC's NUTS samples all that is continuous, given the labels. By default a few hyperparameters
        of observed rows (free continuous variables on which only the prior of the labels, base measures and few
        offsets depend; up to 16 coordinates) are drawn with the labels, one coordinate after the other, by slices
        of the density that sums over the clusters' parameters (Neal 2003). And in a model with latent rows, or
        with a `DirichletProcess`, all else that is continuous moves together with the rows and the clusters or
        atoms, by the No-U-Turn sampler; where every term of the rest of the model depends on one row, label and
        value of each latent row are drawn together as well.
    nuts : dict, optional
        ``target_accept`` and ``max_treedepth`` of the Hamiltonian move of continuous variables, as of ``pm.NUTS``;
        ``pm.sample(target_accept=...)`` sets them too.
    share : bool
        Whether chains tell each other in tuning what they have found, so that one that has found far less probable
        partitions begins anew at those of another. With False they stay apart, and R-hat compares chains that know
        nothing of each other.

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
        """Divide the variables that PyMC has assigned to this class among the steps that draw them.

        Labels in memory are drawn here, atoms of a process, rows in chunks and lone concentrations by steps of
        their own, and what fits nowhere by NUTS. Several steps are returned as a compound step.
        """
        # PyMC shows the model to no step before.
        if not ("compile_kwargs" in kwargs and "vars" in kwargs):
            return super().__new__(cls, *args, **kwargs)
        model, values = kwargs["model"], kwargs["vars"]
        given = [model.values_to_rvs[value] for value in values]
        labels = [rv for rv in given if is_labels(rv)]
        known = drawn_with_labels(model)
        moving = moved_together(model, values) if kwargs.get("continuous") is None else []
        others = {name: option for name, option in kwargs.items() if name not in (*ASSIGNED, "vars")}
        for_this_step: list[Any] = []
        for_concentrations: list[Any] = []
        for_nuts: list[Any] = []
        for_processes: list[Any] = []
        for_chunks_by_kind: dict[bool, list[Any]] = {True: [], False: []}
        have_atoms = {atoms_inputs(rv)[0] for rv in model.free_RVs if is_atoms(rv)}
        with_atoms = bool(have_atoms) and not latent_rows_of(model)
        for value, rv in zip(values, given, strict=True):
            if is_atoms(rv) or rv in have_atoms or (with_atoms and value in moving):
                for_processes.append(value)
                continue
            if value in moving:
                for_this_step.append(value)
                continue
            on, _ = concentration_of(model, rv)
            if is_chunked_clusters(rv) or (on is not None and is_chunked_clusters(on)):
                for_chunks_by_kind[is_chunked_clusters(rv)].append(value)
                continue
            if is_missing(rv):
                (for_this_step if labels_of_missing(model, rv) in labels else for_nuts).append(value)
                continue
            if is_labels(rv) or is_openers(rv) or rv in known:
                for_this_step.append(value)
                continue
            if on in labels:
                (for_processes if on in have_atoms else for_this_step).append(value)
            else:
                (for_nuts if on is None or is_grouped(on) else for_concentrations).append(value)
        if len(for_this_step) == len(values):
            return super().__new__(cls, *args, **kwargs)
        for_chunks = _chosen(
            "chunks", kwargs.pop("chunks", None) if for_chunks_by_kind[True] else None, ChunkOptions._fields
        )
        for_atoms = _chosen("atoms", kwargs.pop("atoms", None) if for_processes else None, AtomOptions._fields)
        of_mixtures = [name for name in ASSIGNED if name not in ("continuous", "nuts")]
        misplaced = [name for name in of_mixtures if for_processes and not for_this_step and name in kwargs]
        if misplaced:
            raise ValueError(
                f"{', '.join(misplaced)} are options for the labels of a dp.DPMixture, and the model has none; "
                f"those for a dp.DirichletProcess are dpmixture={{'atoms': {{...}}}}, with "
                f"{', '.join(AtomOptions._fields)}"
            )
        of_moves = {"nuts": kwargs["nuts"]} if "nuts" in kwargs else {}
        steps = [cls(**(kwargs | {"vars": for_this_step}))] if for_this_step else []
        steps += (
            [DirichletProcessStep(vars=for_processes, **for_atoms, **others, **of_moves)] if for_processes else []
        )
        if for_chunks_by_kind[True] and not for_this_step:
            ignored = [name for name in ASSIGNED if name in kwargs]
            if ignored:
                raise ValueError(
                    f"{', '.join(ignored)} are options for labels of rows in memory, and the model has none; "
                    "those for rows in chunks are dpmixture={'chunks': {...}}, with "
                    f"{', '.join(ChunkOptions._fields)}"
                )
        if for_chunks_by_kind[True]:
            options = ChunkOptions(**for_chunks)
            steps += [ChunkedStep(for_chunks_by_kind[True], for_chunks_by_kind[False], options=options, **others)]
        steps += [ConcentrationGibbs(vars=for_concentrations, **others)] if for_concentrations else []
        for value in for_nuts:
            if is_missing(model.values_to_rvs[value]):
                refuse_single_precision(model.values_to_rvs[value])
        steps += [pm.NUTS(vars=for_nuts, **others)] if for_nuts else []
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
        continuous: str | None = None,
        share: bool = True,
        nuts: Mapping[str, Any] | None = None,
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
            own += chosen_latent_rows(known_rows, model.free_RVs)
            values = get_value_vars_from_user_vars(own, model)
        else:
            values = get_value_vars_from_user_vars(vars, model)
        check_choice(continuous)
        if not isinstance(share, bool):
            raise TypeError(f"share must be True or False, got {share!r}")
        self.share = share
        known = hyperparameters_of(model)
        kinds: dict[str, list[Variable]] = {
            kind: [] for kind in ("labels", "imputed", "concentrations", "hyperparameters", "rows", "continuous")
        }
        moving = moved_together(model, values) if continuous is None else []
        for value in values:
            rv = model.values_to_rvs[value]
            if is_openers(rv):
                # They come with their labels.
                continue
            if is_chunked_clusters(rv):
                raise TypeError(
                    f"{rv.name} is the number of clusters of rows in chunks, for which pm.sample assigns a step "
                    "of its own; leave out step="
                )
            kind = "labels" if is_labels(rv) else "imputed" if is_missing(rv) else "concentrations"
            kind = "hyperparameters" if rv in known else "rows" if rv in known_rows else kind
            kind = "continuous" if value in moving else kind
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
            kinds["continuous"],
            nuts_options(nuts),
        )

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC what the step takes.

        It is ideal for labels and what is drawn with them (openers, missing entries, atoms, clusters of rows in
        chunks), and for a concentration with a gamma prior. ``assignment.py``, which sees the model and the
        options, hands concentrations that do not fit to NUTS, and brings hyperparameters.
        """
        if is_labels(var) or is_openers(var) or is_missing(var) or is_atoms(var) or is_chunked_clusters(var):
            return Competence.IDEAL
        may_be_drawn = getattr(var.tag, "is_concentration", False) and is_gamma(var)
        return Competence.IDEAL if may_be_drawn else Competence.INCOMPATIBLE


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
        Numbers of moves of other kinds by their names: ``carving`` and ``reallocation``, which tuning decides by
        default, and those that another package has added.

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
