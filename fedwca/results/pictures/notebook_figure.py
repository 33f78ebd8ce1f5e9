"""A figure that notebooks show with any matplotlib backend."""

from __future__ import annotations

from matplotlib.figure import Figure

from fedwca.results.pictures.png_of_figure import png_bytes


class NotebookFigure(Figure):
    """A matplotlib figure without a window; notebooks show it by its PNG representation."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self)
