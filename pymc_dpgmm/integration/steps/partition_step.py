"""Base class of steps that draw partitions: a loop over vectors of labels, statistics and progress."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
from rich.progress import TextColumn
from rich.table import Column

from pymc_dpgmm.integration.internals.modes import check_mode
from pymc_dpgmm.integration.internals.pymc_internals import BlockedStep
from pymc_dpgmm.sampler.amounts import ROWS_FOR_LEADERS


class PartitionStep(BlockedStep):
    """A step that draws several vectors of labels in turn, each with the variables that are drawn with it.

    A *target* is a vector of labels together with everything that a step reads from the model for it. The progress
    bar shows the number of clusters of each target and, for many rows, the number of rows drawn per second.
    """

    targets: Sequence[Any]

    def _set_targets(
        self,
        targets: Sequence[Any],
        statistics: Mapping[str, Any],
        rng: Any,
        compile_kwargs: Any,
        of_targets: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Set the targets, the statistics that each draw records, by name and dtype, and the generator.

        ``of_targets`` are further statistics of some targets, by the names of these.
        """
        check_mode((compile_kwargs or {}).get("mode"))
        self.targets = targets
        self.tune = True
        self.rng = pm.util.get_random_generator(rng)
        of_each = [{**statistics, **of_targets.get(target.name, {})} for target in targets]
        self._names_of_statistics = [
            {key: f"{target.name}_{key}" for key in own} for target, own in zip(targets, of_each, strict=True)
        ]
        self.stats_dtypes_shapes: dict[str, Any] = {
            names[key]: (dtype, [])
            for names, own in zip(self._names_of_statistics, of_each, strict=True)
            for key, dtype in own.items()
        }
        self.stats_dtypes = [{name: dtype for name, (dtype, _) in self.stats_dtypes_shapes.items()}]

    def _watch(self, watched: Sequence[Any]) -> None:
        """Record at how many evaluations in a draw log densities were +inf or NaN: see ``Hyperparameters``."""
        self._watched = watched
        self._record({f"{name}_impossible": np.int64 for one in watched for name in one.watched})

    def _record(self, statistics: Mapping[str, Any]) -> None:
        """Record further statistics of each draw, by name and dtype."""
        self.stats_dtypes_shapes |= {name: (dtype, []) for name, dtype in statistics.items()}
        self.stats_dtypes = [{name: dtype for name, (dtype, _) in self.stats_dtypes_shapes.items()}]

    def _impossible(self) -> dict[str, int]:
        """Return the statistics of what is watched, for the last draw."""
        counts: dict[str, int] = {}
        for one in self._watched:
            for name in one.watched:
                counts[f"{name}_impossible"] = counts.get(f"{name}_impossible", 0) + one.n_impossible
        return counts

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Compile what draws need, before chains begin in other processes."""

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the labels, and the variables drawn with them, given everything else in the point."""
        point = dict(point)
        statistics: dict[str, Any] = {}
        for position, target in enumerate(self.targets):
            names = self._names_of_statistics[position]
            for statistic, value in self._draw(position, target, point).items():
                statistics[names[statistic]] = value
        return point, [statistics]

    def _draw(self, position: int, target: Any, point: dict[str, np.ndarray]) -> dict[str, Any]:
        """Draw one target, set it in the point, and return its statistics."""
        raise NotImplementedError

    def _n_rows(self, target: Any) -> int:
        """Return the number of rows of a target; 0 if it is not known before the target is drawn."""
        return 0

    def _many_rows(self) -> dict[str, int]:
        """Return the numbers of rows of the targets that have many, by name."""
        n_rows = {target.name: self._n_rows(target) for target in self.targets}
        return {name: n for name, n in n_rows.items() if n >= ROWS_FOR_LEADERS}

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[Any], dict[str, Any]]:
        # One column for each vector of labels: with more, PyMC's own columns would not fit into 80 characters.
        columns: list[Any] = []
        stats: dict[str, Any] = {}
        many_rows = self._many_rows()
        for target in self.targets:
            name = f"{target.name}_n_clusters"
            header = "Clusters" if len(self.targets) == 1 else target.name
            text = f"{{task.fields[{name}]}}"
            stats[name] = [0] * n_chains
            if target.name in many_rows:
                # PyMC shows seconds per draw itself.
                name = f"{target.name}_rows_per_second"
                header += " rows/s"
                text += f" {{task.fields[{name}]}}"
                stats[name] = [""] * n_chains
            columns.append(TextColumn(text, table_column=Column(header, ratio=1)))
        return columns, stats

    def _make_progressbar_update_functions(self) -> tuple[Callable[..., Any], ...]:
        shown, many_rows = [f"{target.name}_n_clusters" for target in self.targets], self._many_rows()

        def update(stats: Mapping[str, Any]) -> dict[str, Any]:
            fields = {name: stats[name] for name in shown if name in stats}
            for name, n in many_rows.items():
                if f"{name}_seconds" in stats:
                    fields[f"{name}_rows_per_second"] = _short(n / stats[f"{name}_seconds"])
            return fields

        return (update,)


def _short(rate: float) -> str:
    """Format a number per second in few characters."""
    for letter, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= unit:
            return f"{rate / unit:.{int(rate < 10 * unit)}f}{letter}/s"
    return f"{rate:.0f}/s"
