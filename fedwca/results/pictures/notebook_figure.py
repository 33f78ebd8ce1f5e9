"""A figure that notebooks show with any matplotlib backend."""

from __future__ import annotations

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A matplotlib figure without a window; notebooks show it by its PNG representation."""

    def _repr_png_(self) -> bytes:
        from fedwca.results.pictures.style import png_bytes

        return png_bytes(self)
