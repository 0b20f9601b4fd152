"""Latent rows that follow a variable which they all share, so that it moves together with them."""

from abc import ABC, abstractmethod

import numpy as np

from pymc_dpgmm.sampler.latent_rows.expansions import Density
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.state import State


class FollowingRows(ABC):
    """The rows of a view, given something of them that stays where it is while the variable moves.

    Parameters
    ----------
    state : State
    v : int
        The view.
    anchors, distances : (n, d) arrays
        Where expansions begin, and how far differences reach; must not depend on the present rows.
    work : Work
        Not to be used by others meanwhile.

    Attributes
    ----------
    present : (n, d) array
        The rows of the state.
    """

    def __init__(self, state: State, v: int, anchors: np.ndarray, distances: np.ndarray, work: Work) -> None:
        self._work, self._anchors, self._distances = work, anchors, distances
        self.present = np.ascontiguousarray(state.tables[v].values[:, : anchors.shape[1]], dtype=np.float64)
        # What stays: of each row, how far it is from where the variable puts it.
        self._residuals = np.empty(anchors.shape)

    @abstractmethod
    def begin(self, density: Density) -> float:
        """Take what stays of the present rows; return their log density, as :meth:`rows` does."""

    @abstractmethod
    def rows(self, density: Density) -> tuple[np.ndarray, float]:
        """Return rows (n, d) where the rest of the model has another density, and a log density.

        This is the log density of the rows in their clusters, with the Jacobian, without the rest of the model.
        """
