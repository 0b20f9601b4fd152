"""Labels of some draws only, for data whose labels of all draws do not fit in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr


class ThinnedLabels:
    """Keep the labels of some of the draws, and always of the last one, while ``pm.sample`` runs.

    Leave the labels out of the trace with ``var_names``, and pass an object of this class as ``callback``. Add the
    result to the draws as the group ``thinned``: all functions of the package for the posterior read it. A further
    run begins anew: the labels are those of the last run.

    Parameters
    ----------
    labels : str
        Name of the labels, ``"y_labels"`` for a mixture ``"y"``.
    every : int, >= 1, optional
        Keep the labels of each ``every``-th draw after tuning. By default only those of the last draw are kept.

    Raises
    ------
    TypeError, ValueError
        If ``every`` is not an integer of at least 1.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> keep = dp.ThinnedLabels("y_labels", every=10)
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(**run, var_names=["y_n_clusters"], callback=keep)
    >>> idata["thinned"] = keep.to_datatree()
    >>> idata["thinned"]["y_labels"].shape
    (1, 2, 6)
    """

    def __init__(self, labels: str, every: int | None = None) -> None:
        if every is not None:
            if not isinstance(every, int | np.integer) or isinstance(every, bool):
                raise TypeError(f"every must be an integer or None, got {every!r}")
            if every < 1:
                raise ValueError(f"every must be at least 1, got {every}")
        self.labels = labels
        self.every = every
        self._seen: dict[int, int] = {}
        self._kept: dict[int, dict[int, np.ndarray]] = {}
        self._last: dict[int, tuple[int, np.ndarray]] = {}
        # Numbers of the last draws of the chains, tuning included, as PyMC counts them.
        self._numbers: dict[int, int] = {}
        # Dimension and names of the rows.
        self._dim = f"{labels}_dim_0"
        self._names: Any = None

    def __call__(self, trace: Any, draw: Any) -> None:
        """Receive one draw; ``pm.sample`` calls this."""
        if self.labels not in draw.point:
            raise KeyError(
                f"{self.labels} is not among the sampled variables: {', '.join(draw.point)}. (Labels of a dask "
                "array are no variable: dp.chunked_labels returns them.)"
            )
        if draw.draw_idx <= self._numbers.get(draw.chain, -1):
            # Another run has begun.
            for kept in (self._seen, self._kept, self._last, self._numbers):
                kept.clear()
        self._numbers[draw.chain] = draw.draw_idx
        if draw.tuning:
            return
        if not self._seen:
            self._note_rows(getattr(trace, "model", None))
        position = self._seen.get(draw.chain, 0)
        self._seen[draw.chain] = position + 1
        labels = np.array(draw.point[self.labels])
        self._last[draw.chain] = (position, labels)
        if self.every is not None and (position + 1) % self.every == 0:
            self._kept.setdefault(draw.chain, {})[position] = labels

    def _note_rows(self, model: pm.Model | None) -> None:
        """Note the dimension that the labels have in a model, and its coordinates."""
        dims: tuple[Any, ...] = () if model is None else tuple(model.named_vars_to_dims.get(self.labels) or ())
        self._dim, self._names = f"{self.labels}_dim_0", None
        if model is not None and len(dims) == 1 and dims[0] is not None:
            self._dim, self._names = str(dims[0]), model.coords.get(dims[0])

    def to_datatree(self) -> xr.DataTree:
        """Return the kept labels with the dimensions chain, draw and that of the rows, with the names of the rows.

        ``draw`` holds the numbers of the draws.

        An interrupted run leaves chains of different lengths. The result then has the same chains and draws as
        that of ``pm.sample``, which leaves out short chains and cuts the others to one length, so that most draws
        are kept. The labels of the last draw of a chain are included unless they were cut; :attr:`last` has those
        of every chain.

        Raises
        ------
        ValueError
            If this object has not received draws after tuning, or no draw was kept in all of these chains.
        """
        if not self._last:
            raise ValueError("no draws after tuning were received: pass this object to pm.sample(callback=...)")
        chains, length = _returned_chains(self._seen)
        kept = [dict(self._kept.get(chain, {})) for chain in chains]
        for labels_by_draw, chain in zip(kept, chains, strict=True):
            draw, labels = self._last[chain]
            labels_by_draw[draw] = labels
        draws = sorted(d for d in set.intersection(*map(set, kept)) if d < length)
        if not draws:
            raise ValueError(
                f"the chains {chains} were interrupted, and have no kept draw in common; the labels of their last "
                "draws, which differ in number, are in the attribute last. Keep more draws, with every="
            )
        names: dict[str, Any] = {} if self._names is None else {self._dim: np.asarray(self._names)}
        values = np.array([[chain[d] for d in draws] for chain in kept])
        return xr.DataTree(
            xr.Dataset(
                {self.labels: (("chain", "draw", self._dim), values)},
                coords={"chain": chains, "draw": draws, **names},
            )
        )

    @property
    def last(self) -> dict[int, tuple[int, np.ndarray]]:
        """For every chain, the number of its last draw, and its labels (n,)."""
        return dict(self._last)


def _returned_chains(lengths: Mapping[int, int]) -> tuple[list[int], int]:
    """Return the chains that ``pm.sample`` returns, and how many draws of each, given the lengths of all."""
    ordered = sorted(lengths, key=lambda chain: (lengths[chain], chain))
    n_draws = [lengths[chain] * (len(ordered) - position) for position, chain in enumerate(ordered)]
    shortest = n_draws.index(max(n_draws))
    return sorted(ordered[shortest:]), lengths[ordered[shortest]]
