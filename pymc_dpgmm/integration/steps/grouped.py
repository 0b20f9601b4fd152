"""Targets of label steps for rows in groups: labels with their prior, openers and concentrations."""

from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.targets import (
    KeptState,
    LabelsTarget,
    MixtureTarget,
    n_labels,
    same_rows,
)
from pymc_dpgmm.integration.variables import dependents, is_plain_mixture, prior_parameters
from pymc_dpgmm.integration.variables.grouped_labels import (
    GroupedLabelsRV,
    HDPLabelsRV,
    OpenersRV,
    TopicLabelsRV,
    group_of,
)
from pymc_dpgmm.partitions.grouped import Groups, can_be_scanned
from pymc_dpgmm.partitions.priors import GibbsType, chinese_restaurant, finite_dirichlet
from pymc_dpgmm.sampler.amounts import FEWEST_WORDS
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.topics.topics import TopicState


class GroupedTarget(LabelsTarget):
    """One vector of labels of rows in groups: a :class:`LabelsTarget` with weights of clusters for each group."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        if self.dependents is not None:
            raise NotImplementedError(
                "only mixtures of this package can depend on labels by group, but "
                f"{', '.join(self.dependents.watched)} depends on {self.name} too; without group= that is possible"
            )
        parameters = prior_parameters(rv)
        if isinstance(self._op, HDPLabelsRV):
            openers = parameters["openers"]
            if openers not in model.free_RVs or not isinstance(openers.owner.op, OpenersRV):
                raise NotImplementedError(f"the openers of {self.name} cannot be observed or computed")
            others = [other.name for other in dependents(model, openers) if other is not rv]
            if others:
                raise NotImplementedError(
                    f"only labels can depend on the openers, but {', '.join(others)} depends on "
                    f"{openers.name}, or on the number of tables, which is computed from it"
                )
            self.openers = model.rvs_to_values[openers]
            alpha, _ = openers.owner.op.dist_params(openers.owner)
            self._numbers = PointFunction(model, [alpha, parameters["gamma"]])
        else:
            self._numbers = PointFunction(model, [parameters["alpha"], parameters["n_components"]])
        # Groups without rows do not enter the density of labels.
        self.groups = Groups(group_of(rv))

    @property
    def takes_leaders(self) -> bool:
        """Whether leader sweeps are possible: not with weights that differ between groups."""
        return False

    @property
    def may_search(self) -> bool:
        """Whether searches help. They ignore groups, and words without their documents do not determine topics."""
        sole = self.mixtures[0].family.title if len(self.mixtures) == 1 else ""
        return sole != "DirichletCategorical" or self.groups.n < FEWEST_WORDS

    def _group_alphas(self, alpha: np.ndarray) -> np.ndarray:
        alpha = np.asarray(alpha, dtype=np.float64)
        n_groups = self.groups.n_groups
        return np.full(n_groups, float(alpha)) if alpha.ndim == 0 else np.ascontiguousarray(alpha[:n_groups])

    def prior(self, point: dict[str, np.ndarray]) -> GibbsType | None:
        """Return a prior that ignores groups, for searches and proposals; None outside the support."""
        alpha, other = self._numbers(point)
        concentrations = self._group_alphas(alpha)
        if not (np.all(concentrations > 0.0) and np.all(np.isfinite(concentrations))):
            return None
        if self.openers is not None:
            return chinese_restaurant(float(other))
        return finite_dirichlet(float(np.mean(concentrations)), float(other))

    def state(
        self, point: dict[str, np.ndarray], prior: GibbsType | None, prepared: KeptState | None
    ) -> KeptState | None:
        """Return the state at a point, with the groups of rows; see :meth:`LabelsTarget.state`."""
        current = super().state(point, prior, prepared)
        if current is not None and current.state.groups is not self.groups:
            current.state.set_groups(self.groups)
        return current

    def enter(self, rng: np.random.Generator, point: dict[str, np.ndarray], state: State, laws: Any) -> None:
        """Give a state the groups' weights of clusters, from openers and concentrations at a point."""
        alpha, other = self._numbers(point)
        if self.openers is None:
            state.set_grouping(rng, self._group_alphas(alpha), None)
        else:
            openers = point[self.openers.name]
            state.set_grouping(rng, self._group_alphas(alpha), openers, float(other), laws)

    def has_drawn_concentrations(self, state: State) -> bool:
        """Tell whether concentrations were drawn with the labels of a state: a search ignores groups."""
        return state.is_grouped

    def leave(self, point: dict[str, np.ndarray], state: State) -> None:
        """Set the openers at a point to those at the end of a draw."""
        if self.openers is None:
            state.leave_groups()
            return
        # A search ignores groups. After it every row opens a table, which is possible for any labels.
        openers = state.openers if state.is_grouped else np.ones(state.n)
        point[self.openers.name] = openers.astype(self.openers.dtype)
        state.leave_groups()


class TopicsTarget:
    """Topics of words, whose numbers are not exchangeable between draws, and the words on them."""

    has_moves = takes_leaders = False
    dependents = None
    openers = None

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        self.name, self.dtype = value.name, value.dtype
        self.n_rows = n_labels(rv)
        depending = dependents(model, rv)
        if len(depending) != 1 or not is_plain_mixture(model, rv, depending[0]):
            names = ", ".join(other.name for other in depending) or "nothing"
            raise NotImplementedError(f"only words can depend on topics, but {names} depends on {self.name}")
        self._words = MixtureTarget(model, depending[0])
        self.mixtures: list[MixtureTarget] = []
        self._alpha = PointFunction(model, [prior_parameters(rv)["alpha"]])
        self.groups = Groups(group_of(rv))

    def prior(self, point: dict[str, np.ndarray]) -> np.ndarray | None:
        """Return the Dirichlet parameters of topics within documents, None outside their support."""
        (alpha,) = self._alpha(point)
        return alpha if np.all((alpha > 0.0) & np.isfinite(alpha)) else None

    def state(
        self, point: dict[str, np.ndarray], prior: np.ndarray, prepared: KeptState | None
    ) -> KeptState | None:
        """Return the state at a point: the prepared one unless its inputs have changed."""
        labels = point[self.name]
        view = self._words.view(point, len(labels))
        if not view.family.supports(view.params):
            return None
        eta = np.asarray(view.params.a)[0]
        # Topics wait while other variables are where scans lose digits.
        if not can_be_scanned(prior.sum(), eta):
            return None
        same_labels = prepared is not None and (
            labels is prepared.labels or np.array_equal(labels, prepared.labels)
        )
        if prepared is None or not same_labels or not same_rows(view, prepared.views[0]):
            if labels.min() < 0 or labels.max() >= len(prior):
                raise ValueError(f"{self.name} must lie in 0..{len(prior) - 1}, the names of the topics")
            words = view.values[:, 0].astype(np.int64)
            return KeptState(labels, [view], TopicState(words, self.groups, labels.astype(np.int64), prior, eta))
        if not np.array_equal(eta, prepared.state.words.eta):
            prepared.state.set_eta(eta)
        return prepared

    def enter(self, rng: np.random.Generator, point: dict[str, np.ndarray], state: TopicState, laws: Any) -> None:
        """Do nothing: a state is always ready."""

    def rest(self, point: dict[str, np.ndarray], state: TopicState) -> None:
        """Return None: words alone depend on topics."""

    def has_drawn_concentrations(self, state: TopicState) -> bool:
        """Return False: other steps draw them."""
        return False

    def leave(self, point: dict[str, np.ndarray], state: TopicState) -> None:
        """Do nothing: only the labels are drawn."""

    def sizes(self, point: dict[str, np.ndarray], prepared: KeptState | None) -> np.ndarray:
        """Return the numbers of tokens of the topics that have tokens."""
        if prepared is not None:
            return prepared.state.cluster_sizes
        sizes = np.bincount(point[self.name])
        return sizes[sizes > 0]

    def labels_of(self, state: TopicState) -> np.ndarray:
        """Return the topics of a state."""
        return state.labels().astype(self.dtype)


def is_topics(var: Any) -> bool:
    """Tell whether a variable is a vector of topics."""
    return var.owner is not None and isinstance(var.owner.op, TopicLabelsRV)


def is_grouped(var: Any) -> bool:
    """Tell whether a variable is a vector of labels of rows in groups."""
    return var.owner is not None and isinstance(var.owner.op, GroupedLabelsRV)


def is_openers(var: Any) -> bool:
    """Tell whether a variable is a vector of openers."""
    return var.owner is not None and isinstance(var.owner.op, OpenersRV)
