"""Chains of topics tell each other how probable theirs are, and begin anew at the best ones.

Topics of many words move slowly. Chains that divide themes among topics in different ways come together after tens
of thousands of scans, if ever. Their *levels* are compared, the means of the log joint density over their last
draws, since single draws of one chain differ by hundreds of nats.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pymc_dpgmm.sampler.amounts import LOWER_BY, SHARE_BEFORE_TELLING, SHARE_OF_LEVEL
from pymc_dpgmm.sampler.tuning.comparison import Abandoned, left
from pymc_dpgmm.sampler.tuning.exchange import NOTHING, Found, Mailbox


@dataclass
class Levels:
    """The log joint densities of a chain's draws in tuning, of which it tells other chains once.

    Parameters
    ----------
    tune : int
        Number of tuning draws.
    others : Mailbox, optional
        Where other chains can be heard.
    """

    tune: int
    others: Mailbox | None
    left: Abandoned | None = None
    n_draws: int = 0
    log_joints: list[float] = field(default_factory=list)

    @property
    def _is_time(self) -> bool:
        return 0 < self.n_draws == round(SHARE_BEFORE_TELLING * self.tune)

    def begin_draw(self) -> None:
        """Count a draw of tuning, also one in which labels have no posterior and wait."""
        self.n_draws += 1

    def end_draw(self) -> None:
        """Keep nobody waiting who expects this chain to have told of its labels."""
        if self._is_time:
            self.leave()

    def better(self, log_joint: float, labels: Callable[[], np.ndarray]) -> np.ndarray | None:
        """Note a draw of tuning, and return the labels that a chain begins anew at, or None where it goes on.

        A chain begins anew at the labels of the chain of the highest level, if that is above its own by more than
        ``LOWER_BY`` standard deviations of its own last draws.

        Parameters
        ----------
        log_joint : float
        labels : callable
            ``() -> (n,) int array``, those of the draw.
        """
        self.log_joints.append(log_joint)
        if self.others is None or not self._is_time:
            return None
        latest = np.array(self.log_joints[-max(round(SHARE_OF_LEVEL * self.tune), 1) :])
        level = float(latest.mean())
        alone = labels()
        self.others.tell(Found(alone, level))
        best = max([NOTHING, *self.others.of_others()], key=lambda found: found.merit)
        if best.merit <= level + LOWER_BY * float(latest.std()):
            return None
        self.left = left(best.merit - level, alone, best.labels)
        return best.labels

    def leave(self) -> None:
        """Keep nobody waiting who has not heard of this chain."""
        if self.others is not None:
            self.others.leave()
