"""Progress bars whose last frame is complete, also in notebooks, with or without ipywidgets."""

import importlib.util
import sys
import time
from io import StringIO
from typing import Any

from rich import get_console
from rich.console import Console
from rich.progress import Progress, TaskID

# Seconds between two frames of a bar that is written as text.
_BETWEEN = 0.5
_WIDTH = 80


class Bar(Progress):
    """A progress bar of rich that shows its last frame.

    Rich draws no last frame in a notebook, and only a warning in a notebook without ipywidgets. There, this bar is
    a line of text that is rewritten.

    Parameters
    ----------
    *columns : str or ProgressColumn
        As for rich.
    is_shown : bool
        Whether there is a bar.
    """

    def __init__(self, *columns: Any, is_shown: bool = True) -> None:
        without_widgets = get_console().is_jupyter and importlib.util.find_spec("ipywidgets") is None
        self._is_text = is_shown and without_widgets
        self._next, self._length = 0.0, 0
        super().__init__(*columns, disable=not is_shown or without_widgets)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Update a task."""
        super().update(task_id, **changes)
        self._write_in_time()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Advance a task by a step."""
        super().advance(task_id, advance)
        self._write_in_time()

    def stop(self) -> None:
        """Show the last frame, and end."""
        if self._is_text:
            self._write()
            sys.stdout.write("\n")
            sys.stdout.flush()
        else:
            self.refresh()
        super().stop()

    def _write_in_time(self) -> None:
        if self._is_text and time.monotonic() >= self._next:
            self._next = time.monotonic() + _BETWEEN
            self._write()

    def _write(self) -> None:
        """Overwrite the last line with the bar."""
        line = self.line()
        sys.stdout.write("\r" + line.ljust(self._length))
        sys.stdout.flush()
        self._length = len(line)

    def line(self) -> str:
        """Return the bar as plain text."""
        console = Console(file=StringIO(), width=_WIDTH, color_system=None, force_jupyter=False)
        console.print(self.get_renderable())
        return console.file.getvalue().strip("\n").rstrip()  # type: ignore[attr-defined]
