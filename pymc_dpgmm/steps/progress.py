"""What the progress bar of ``pm.sample`` shows of labels."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import TextColumn
from rich.table import Column


class ShowsClusters:
    """A step that lets the progress bar show the number of clusters of each of its targets."""

    targets: Sequence[Any]

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[Any], dict[str, Any]]:
        # One column for each vector of labels: more, and PyMC's own have no room in 80 characters.
        columns, stats = [], {}
        for target in self.targets:
            name = f"{target.name}_n_clusters"
            header = "Clusters" if len(self.targets) == 1 else target.name
            columns.append(TextColumn(f"{{task.fields[{name}]}}", table_column=Column(header, ratio=1)))
            stats[name] = [0] * n_chains
        return columns, stats

    def _make_progressbar_update_functions(self) -> tuple[Callable[..., Any], ...]:
        shown = [f"{target.name}_n_clusters" for target in self.targets]
        return (lambda stats: {name: stats[name] for name in shown if name in stats},)
