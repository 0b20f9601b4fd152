"""How figures are made: axes, colours, and how they are shown. They need matplotlib."""

import importlib
from functools import partial
from io import BytesIO
from typing import Any

# The palette of Okabe and Ito (2008) for colour-blind readers, without its yellow, which is too pale on paper.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "0.55"


def pyplot() -> Any:
    """Return what figures are made with."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "pymc-dpgmm[demo]"') from None
    return _Pyplot(plt)


class _Pyplot:
    """Matplotlib with the constrained layout, which leaves space for labels and legends."""

    def __init__(self, plt: Any) -> None:
        self.Line2D, self.MaxNLocator = plt.Line2D, plt.MaxNLocator
        self._pyplot = plt

    def subplots(self, *args: Any, **kwargs: Any) -> Any:
        figure, axes = self._pyplot.subplots(*args, layout="constrained", **kwargs)
        figure._ipython_display_ = partial(_display, figure)
        return figure, axes


def _display(figure: Any) -> None:
    """Show a figure in a notebook once.

    A notebook shows the value of a cell, and then all open figures. So the figure is closed here.
    """
    import matplotlib.pyplot as plt

    picture = BytesIO()
    figure.savefig(picture, format="png")
    shown: Any = importlib.import_module("IPython.display")
    shown.display(shown.Image(picture.getvalue()))
    plt.close(figure)


def make_axes(
    plt: Any, ax: Any, size: tuple[float, float], n_rows: int = 1, n_columns: int = 1
) -> tuple[Any, list[Any]]:
    """Return a new figure and its axes, or those that the user passes."""
    if ax is not None:
        return ax.figure, [ax]
    figure, array = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False)
    return figure, list(array.ravel())
