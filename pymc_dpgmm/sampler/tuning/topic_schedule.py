"""How topics that keep their names are drawn: scans, and in tuning a search by annealing."""

from dataclasses import dataclass
from typing import Any, override

import numpy as np

from pymc_dpgmm.sampler.amounts import ANNEALING_SHARE
from pymc_dpgmm.sampler.topics.topics import TopicState, scans_of_words
from pymc_dpgmm.sampler.tuning.levels import Levels
from pymc_dpgmm.sampler.tuning.schedule import DrawReport, LabelsSchedule, Options, no_tally


@dataclass
class TopicSchedule(LabelsSchedule):
    """Draws of topics that keep their names.

    Tuning begins with annealing. Scans take larger parameters of the words, which let topics overlap, so that
    whole themes can still move between them. At first all words of a topic together weigh as much as the tokens of
    an average one. They decline by the same factor from draw to draw until they are those of the model.

    Parameters
    ----------
    options : Options
    levels : Levels
    """

    options: Options
    levels: Levels
    n_annealed: int = 0
    first: float = 0.0
    last: float = 0.0

    @override
    def searches(self, tuning: bool) -> bool:
        return tuning and self.options.search and self.n_annealed < self._n_to_anneal

    @property
    def _n_to_anneal(self) -> int:
        return round(ANNEALING_SHARE * self.levels.tune)

    @override
    def begin_draw(self) -> None:
        self.levels.begin_draw()

    @override
    def end_draw(self) -> None:
        self.levels.end_draw()

    @override
    def leave(self) -> None:
        self.levels.leave()

    def draw(
        self, rng: np.random.Generator, state: TopicState, tuning: bool, rest: Any = None
    ) -> tuple[TopicState, DrawReport]:
        """Draw all topics, as often as options say; in tuning, search."""
        searching = self.searches(tuning)
        n_moved = self._anneal(rng, state) if searching else self._scan(rng, state)
        log_joint = state.log_joint()
        better = self.levels.better(log_joint, state.labels) if tuning and self.options.search else None
        if better is not None:
            self.left = self.levels.left
            state.words.set_labels(better, len(state.alpha))
        return state, DrawReport(n_moved, log_joint, no_tally(), searching)

    def _anneal(self, rng: np.random.Generator, state: TopicState) -> int:
        """Scan with larger parameters of the words."""
        eta = state.words.eta
        if self.n_annealed == 0:
            self.last = float(eta.sum())
            self.first = max(self.last, len(state.words.labels) / len(state.alpha))
        total = self.first * (self.last / self.first) ** (self.n_annealed / self._n_to_anneal)
        # Parameters that the model draws follow the topics down.
        state.set_eta(eta * max(total / float(eta.sum()), 1.0))
        n_moved = self._scan(rng, state)
        state.set_eta(eta)
        self.n_annealed += 1
        return n_moved

    def _scan(self, rng: np.random.Generator, state: TopicState) -> int:
        n_scans = self.options.n_sweeps or scans_of_words(len(state.words.labels))
        ones = np.ones(state.groups.n_groups)
        return sum(state.words.scan(rng, ones, state.alpha) for _ in range(n_scans * max(self.options.n_scans, 1)))
