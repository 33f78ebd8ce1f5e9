"""Pictures as files show them: text as it is written, and a figure as the bytes of a PNG file."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any

from fedwca.core.printable import printable


def png_bytes(picture: Any) -> bytes:
    """A figure as the bytes of a PNG file."""
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"text.parse_math": False}):
        show_as_text(picture)
        picture.savefig(buffer, dpi=110, format="png")
    return buffer.getvalue()


def _printable_tick(formatter: Any, value: float, position: int | None = None) -> str:
    return printable(formatter(value, position), lines=True)


def show_literally(text: Any) -> None:
    """Show a text of a figure as it is written."""
    text.set_parse_math(False)
    text.set_text(printable(text.get_text(), lines=True))


def show_as_text(fig: Any) -> None:
    """Show all text of a figure literally: no formulas between dollar signs, no control characters."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for axes in fig.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(formatter := axis.get_major_formatter(), FuncFormatter):  # ticks with names
                axis.set_major_formatter(FuncFormatter(partial(_printable_tick, formatter)))
    for text in fig.findobj(Text):
        show_literally(text)
