"""Labels of few draws, for data with so many rows that those of all draws do not fit in memory."""

from typing import Any

import numpy as np
import xarray as xr


class ThinnedLabels:
    """Keeps the labels of every so many draws, and always those of the last one, while ``pm.sample`` runs.

    Leave the labels out of the trace (``var_names``) and pass this as ``callback``.

    Parameters
    ----------
    labels : str
        Name of the labels: ``"y_labels"`` for a mixture ``"y"``.
    every : int, >= 1, optional
        Keep the labels of each ``every``-th draw after tuning. By default only of the last one.

    Raises
    ------
    TypeError, ValueError
        If ``every`` is not an integer of at least 1.

    Examples
    --------
    ::

        keep = dp.ThinnedLabels("y_labels", every=100)
        with model:
            idata = pm.sample(var_names=["alpha", "y_n_clusters"], callback=keep, compute_convergence_checks=False)
        idata["thinned"] = keep.to_datatree()
        idata.thinned["y_labels"]  # (chain, draw, row)
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

    def __call__(self, trace: Any, draw: Any) -> None:
        """Look at one draw; ``pm.sample`` calls this."""
        if draw.tuning:
            return
        if self.labels not in draw.point:
            raise KeyError(f"{self.labels} is not among the sampled variables: {', '.join(draw.point)}")
        position = self._seen.get(draw.chain, 0)
        self._seen[draw.chain] = position + 1
        labels = np.array(draw.point[self.labels])
        self._last[draw.chain] = (position, labels)
        if self.every is not None and (position + 1) % self.every == 0:
            self._kept.setdefault(draw.chain, {})[position] = labels

    def to_datatree(self) -> xr.DataTree:
        """Return the labels kept, with dims chain, draw and row; ``draw`` has the numbers of the draws.

        Raises
        ------
        ValueError
            If no draw after tuning has been seen.
        """
        if not self._last:
            raise ValueError("no draws after tuning have been seen: pass this object to pm.sample(callback=...)")
        # An interrupted run may leave chains of different lengths.
        length = min(self._seen.values())
        chains = sorted(self._last)
        draws = [d for d in sorted(self._kept.get(chains[0], {})) if d < length]
        ends = {chain: self._last[chain] for chain in chains}
        kept = [[self._kept[chain][d] for d in draws] for chain in chains]
        if not draws or draws[-1] != ends[chains[0]][0]:
            draws = [*draws, ends[chains[0]][0]]
            kept = [[*rows, ends[chain][1]] for rows, chain in zip(kept, chains, strict=True)]
        return xr.DataTree(
            xr.Dataset(
                {self.labels: (("chain", "draw", "row"), np.array(kept))},
                coords={"chain": chains, "draw": draws},
            )
        )
