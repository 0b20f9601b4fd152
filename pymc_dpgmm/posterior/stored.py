"""Reads parameters, data and priors on partitions from the results of ``pm.sample``.

Records in the results say where they are stored (see :mod:`pymc_dpgmm.integration.variables.records`). The model
is needed only for expressions that have no name in it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.variables import prior_parameters
from pymc_dpgmm.integration.variables.operations import as_numbers
from pymc_dpgmm.integration.variables.partition_operations import PRIORS
from pymc_dpgmm.integration.variables.records import dataset_of, parse_numbers
from pymc_dpgmm.native.special import gammaincinv
from pymc_dpgmm.partitions.hidden_states import OPENS, transition_counts
from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.posterior.arrays.mixtures import ValuesByDraw, constant
from pymc_dpgmm.posterior.arrays.partitions import shared_rows
from pymc_dpgmm.posterior.arrays.seats import GibbsSeats, GroupedSeats, HiddenSeats, SegmentSeats
from pymc_dpgmm.posterior.draws import DrawnLabels, with_chains_and_draws
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.names import as_text

# Groups of results that are searched for variables, in this order.
_GROUPS = ("posterior", "thinned", "constant_data", "observed_data")


class UnknownPriorError(ValueError):
    """The prior of hyperparameters of the partition is not stored, and no model was passed."""


class Source:
    """Looks up values of all draws in results of sampling, or evaluates them with the model.

    Parameters
    ----------
    idata : xarray.DataTree
    drawn : DrawnLabels
        The labels; values are looked up for their draws.
    model : pm.Model or None
    """

    def __init__(self, idata: Any, drawn: DrawnLabels, model: pm.Model | None) -> None:
        self._idata = idata
        self._drawn = drawn
        self._model = model

    def variable(self, name: str, what: str = "") -> ValuesByDraw:
        """Return the values of a named variable.

        Raises
        ------
        ValueError
            If it was not stored. The message says what to do.
        """
        for group in _GROUPS:
            if group not in self._idata.children or name not in self._idata[group].dataset:
                continue
            stored = with_chains_and_draws(self._idata[group].dataset[name])
            if "draw" not in stored.dims:
                return constant(stored.to_numpy())
            # Thinned labels have fewer draws than the posterior.
            chosen = self._drawn.at_draws(stored.to_dataset(name=name))[name]
            of_draws = chosen.transpose("chain", "draw", ...).to_numpy()
            values = of_draws.reshape(-1, *of_draws.shape[2:])
            return ValuesByDraw(values.__getitem__, False)
        if what:
            raise ValueError(f"idata has no {name}, which is needed: {what}")
        draws = [str(v) for v in self._idata["posterior"].dataset] if "posterior" in self._idata.children else []
        raise ValueError(
            f"{name} is not among the stored variables ({', '.join(sorted(draws))}): sample with var_names that "
            "contain it, or with the default, which stores all"
        )

    def find(
        self, what: str, where: Mapping[str, Any] | None, expression: Callable[[pm.Model], Any] | None = None
    ) -> ValuesByDraw:
        """Return the values that a record refers to; ``expression`` returns the expression for them in a model."""
        if where is None:
            if self._model is None or expression is None:
                raise ValueError(
                    f"{what} is an expression without a name, so it was not stored: pass model=, or make it a "
                    "pm.Deterministic before sampling"
                )
            return self._evaluated(self._model, expression(self._model))
        if "product" in where:
            return self._product(where["product"])
        return self.variable(where["variable"]) if "variable" in where else constant(parse_numbers(where))

    def parameters(
        self, name: str, where: Mapping[str, Any], expression: Callable[[str], Any] = lambda field: None
    ) -> dict[str, ValuesByDraw]:
        """Return the values of the parameters of a mixture or prior, by their names; see :meth:`find`."""
        return {
            field: self.find(f"{field} of {name}", of_field, expression(field))
            for field, of_field in where.items()
        }

    def _product(self, parts: Sequence[Mapping[str, Any]]) -> ValuesByDraw:
        """Return the product of linear functions of variables."""
        factors = [
            (
                self.variable(part["variable"]),
                parse_numbers(part["constant"]),
                parse_numbers(part["slope"]),
                part.get("power", 1.0),
            )
            for part in parts
        ]
        return ValuesByDraw(
            lambda s: math.prod(
                (shift + slope * values.at(s)) ** power for values, shift, slope, power in factors
            ),
            False,
        )

    def _evaluated(self, model: pm.Model, expression: Any) -> ValuesByDraw:
        random = model.basic_RVs
        needed = [v for v in ancestors([expression], blockers=random) if v in random]
        inputs = {v: v.type(v.name) for v in needed}
        # Take data from the results: the data of the model may have been changed since sampling.
        shared = {v: self.variable(v.name).at(0) for v in model.data_vars if isinstance(v, SharedVariable)}
        data = {v: pt.constant(np.asarray(value, dtype=v.dtype), v.name) for v, value in shared.items()}
        (replaced,) = clone_replace([expression], inputs | data)
        function = pm.compile(list(inputs.values()), replaced, on_unused_input="ignore")
        arguments = [self.variable(v.name) for v in needed]
        return ValuesByDraw(lambda s: function(*(a.at(s) for a in arguments)), not needed)


def record_of(records: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the record of a mixture or of labels.

    Raises
    ------
    ValueError
        If there is no record of this name. The message lists the names.
    """
    if name in records:
        return records[name]
    if not records:
        raise ValueError(
            "idata has no records of mixtures in its group constant_data: it comes from an older version of "
            "pymc_dpgmm, or the group was removed. Sample again, or pass idata with that group"
        )
    raise ValueError(f"idata has no record of {name!r}, only of {sorted(records)}")


def mixtures_on(records: Mapping[str, dict[str, Any]], labels: str) -> dict[str, dict[str, Any]]:
    """Return the records of all mixtures that depend on these labels."""
    return {name: record for name, record in records.items() if record.get("labels") == labels}


def data_of(idata: Any, name: str) -> Any:
    """Return the observed data of a mixture, or None if it is latent."""
    if "observed_data" in idata.children and name in idata["observed_data"].dataset:
        return idata["observed_data"].dataset[name]
    return None


class StoredPrior:
    """The prior on partitions in every draw, for the rows and one new row."""

    def __init__(self, source: Source, name: str, record: Mapping[str, Any], n: int) -> None:
        self._n, self._name, self._record = n, name, record
        if record["prior"] not in PRIORS:
            raise ValueError(
                f"{name} has the prior {record['prior']}, which is not known: import the module that defines it"
            )
        self._prior = PRIORS[record["prior"]]()
        self._parameters = source.parameters(name, record["parameters"], partial(_parameter_in, name))
        self._is_constant = all(numbers.is_constant for numbers in self._parameters.values())
        self._kept: GibbsType | None = None

    def seats(self, s: int, labels: np.ndarray, sizes: np.ndarray, names: np.ndarray) -> GibbsSeats:
        """Return the posterior of the weights of the clusters in a draw."""
        return GibbsSeats(self.at(s), sizes)

    def of_rows(self, s: int) -> GibbsType:
        """Return the prior on partitions of the rows in a draw."""
        return self._made(s, self._n)

    def at(self, s: int) -> GibbsType:
        """Return the prior on partitions of the rows and one new row in a draw."""
        if self._kept is None or not self._is_constant:
            self._kept = self._made(s, self._n + 1)
        return self._kept

    def _made(self, s: int, n: int) -> GibbsType:
        return self._with({field: np.asarray(numbers.at(s)) for field, numbers in self._parameters.items()}, n)

    def _with(self, numbers: Mapping[str, Any], n: int) -> GibbsType:
        prior = self._prior.prior(*as_numbers([numbers[field] for field in self._prior.fields]), n)
        assert prior is not None
        return prior

    def draw(self, idata: Any, model: pm.Model | None, n_draws: int, random_seed: Any) -> list[GibbsType]:
        """Return priors with parameters drawn from their hyperprior, or a single one if they are constant."""
        random = {
            field: where
            for field, where in self._record["parameters"].items()
            if not self._parameters[field].is_constant
        }
        if not random:
            return [self.of_rows(0)]
        prior = dataset_of(idata, "prior")
        if all(where is not None and where["variable"] in prior for where in random.values()):
            drawn = [prior[where["variable"]].to_numpy() for where in random.values()]
            columns = [values.reshape(-1, *values.shape[2:])[:n_draws] for values in drawn]
        elif len(random) == 1 and "gamma" in (next(iter(random.values())) or {}):
            # Quantiles at the midpoints of n_draws intervals of equal probability.
            (where,) = random.values()
            shape, rate = where["gamma"]
            columns = [gammaincinv(shape, (np.arange(n_draws) + 0.5) / n_draws) / rate]
        elif model is not None:
            expressions = [_parameter_in(self._name, field)(model) for field in random]
            columns = pm.draw(expressions, draws=n_draws, random_seed=random_seed)
        else:
            raise UnknownPriorError(
                f"{', '.join(random)} of {self._name} is random: add draws of its prior, "
                'idata["prior"] = pm.sample_prior_predictive(model=model)["prior"], '
                "or pass model="
            )
        constants = {f: np.asarray(stored.at(0)) for f, stored in self._parameters.items() if f not in random}
        return [
            self._with(constants | dict(zip(random, values, strict=True)), self._n)
            for values in zip(*columns, strict=True)
        ]


class StoredGroups:
    """Groups of rows, and the posterior of their weights in every draw.

    Parameters
    ----------
    source : Source
    name : str
        Name of the labels.
    record : mapping
    chosen : str, int or None
        Name of the group of new rows, None for a new group.
    """

    def __init__(self, source: Source, name: str, record: Mapping[str, Any], chosen: Any = None) -> None:
        self.group = parse_numbers(record["group"])
        self.names = list(record["groups"])
        self._parameters = source.parameters(name, record["parameters"])
        self._openers = None if record["openers"] is None else source.variable(record["openers"])
        self._chosen = None if chosen is None else self.position(chosen)

    def position(self, chosen: Any) -> int:
        """Return the number of the group with a name: see :func:`position_of`."""
        return position_of(self.names, chosen, "group")

    def seats(self, s: int, labels: np.ndarray, sizes: np.ndarray, names: np.ndarray) -> GroupedSeats:
        """Return the posterior of the weights of the clusters in a draw."""
        numbers = {field: np.asarray(stored.at(s), dtype=np.float64) for field, stored in self._parameters.items()}
        n_groups, n_clusters = len(self.names), len(sizes)
        counts = shared_rows(self.group, n_groups, labels, n_clusters)
        options: dict[str, Any] = {"group": self._chosen}
        if "n_topics" not in numbers:
            alpha = np.broadcast_to(numbers["alpha"], n_groups)
        if self._openers is not None:
            tables = np.bincount(labels[np.asarray(self._openers.at(s)) == 1], minlength=n_clusters)
            return GroupedSeats(counts, alpha, tables.astype(float), gamma=float(numbers["gamma"]), **options)
        if "n_topics" in numbers:
            # Topics keep their numbers: first those of the clusters, then those without words.
            alphas = np.broadcast_to(numbers["alpha"], int(numbers["n_topics"]))
            of_clusters = np.empty(n_clusters, dtype=np.int64)
            of_clusters[labels] = names
            without = np.setdiff1d(np.arange(len(alphas)), of_clusters)
            options |= {"empty": alphas[without] / alphas.sum(), "names": np.append(of_clusters, without)}
            return GroupedSeats(
                counts, np.full(n_groups, alphas.sum()), alphas[of_clusters] / alphas.sum(), **options
            )
        most = int(numbers["n_components"])
        options["empty"] = np.full(most - n_clusters, 1.0 / most)
        return GroupedSeats(counts, alpha, np.full(n_clusters, 1.0 / most), **options)

    def draw(self, *_: Any) -> Any:
        """Raise UnknownPriorError: the prior of the number of clusters is not available for groups."""
        raise UnknownPriorError(
            "the prior of the number of clusters has no closed form for rows in groups: use draws from "
            "pm.sample_prior_predictive"
        )


class StoredOrder:
    """Rows in order, and where a row after the last one of a sequence may be, in every draw.

    Parameters
    ----------
    source : Source
    name : str
        Name of the labels.
    record : mapping
    chosen : str, int or None
        Name of the sequence that new rows come after. By default the only one; of several, a new sequence.
    """

    def __init__(self, source: Source, name: str, record: Mapping[str, Any], chosen: Any = None) -> None:
        self.sequences = Sequences(parse_numbers(record["rows"]), parse_numbers(record["starts"]))
        self.names = list(record["sequences"])
        self._name = name
        found = None if chosen is None else position_of(self.names, chosen, "sequence")
        found = 0 if chosen is None and len(self.names) == 1 else found
        self._last = None if found is None else int(self.sequences.rows[self.sequences.starts[found + 1] - 1])
        self._parameters = source.parameters(name, record["parameters"])
        self._openers = source.variable(record["hidden_openers"]) if "hidden_openers" in record else None
        self._most = float(record.get("n_states") or math.inf)

    def seats(self, s: int, labels: np.ndarray, sizes: np.ndarray, names: np.ndarray) -> Any:
        """Return where the next row may be in a draw."""
        numbers = {field: float(stored.at(s)) for field, stored in self._parameters.items()}
        last = -1 if self._last is None else int(labels[self._last])
        if self._openers is None:
            return SegmentSeats(last, len(sizes), numbers["p"])
        counts = transition_counts(labels[self.sequences.rows], self.sequences, len(sizes))
        tables = np.bincount(labels[np.asarray(self._openers.at(s)) == OPENS], minlength=len(sizes))
        return HiddenSeats(last, counts, tables.astype(float), **numbers, most=self._most)

    def draw(self, *_: Any) -> Any:
        """Raise UnknownPriorError: rows in order have no prior on partitions of rows in any order."""
        raise UnknownPriorError(
            f"the rows of {self._name} come in order, and the prior of the number of clusters has no closed form: "
            "use draws from pm.sample_prior_predictive"
        )


def position_of(names: list[Any], chosen: Any, what: str) -> int:
    """Return the number of a group or sequence with a name, or with the name as text.

    Raises
    ------
    ValueError
        If there is none. The message lists the names.
    """
    if chosen in names:
        return names.index(chosen)
    texts, wanted = [as_text(name) for name in names], as_text(chosen)
    if wanted not in texts:
        raise ValueError(f"there is no {what} {chosen!r}, only {listed(names)}")
    return texts.index(wanted)


def _parameter_in(name: str, field: str) -> Callable[[pm.Model], Any]:
    return lambda model: prior_parameters(model[name])[field]
