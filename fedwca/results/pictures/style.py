"""One look for all pictures: colours that colour-blind readers tell apart, titles, units, files."""

from __future__ import annotations

import math
import os
import sys
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically
from fedwca.core.printable import printable
from fedwca.errors import FedwcaError

# Okabe and Ito's palette without its yellow, which a white page swallows; neighbours differ in lightness too.
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#000000")
OWN = "#0072B2"
NAMED = {
    **dict(zip(("source_only", "local", "fedavg", "fedprox", "ifca", "ladd", "fedpcl_pl"), COLOURS, strict=False)),
    **dict.fromkeys(("wca", "fedwca", "mdmgb", "fedtta"), OWN),
}
"""Colours of methods that stand beside most others, and of the papers' own."""
LINES = ("-", "--", ":", "-.")
HATCHES = ("", "///", "...", "xxx")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
MAP = "cividis"
"""Colours of heat maps: even in lightness, alike for all readers."""


class NotDrawn(FedwcaError):
    """A picture that this run has no data for; the sentence says what is missing."""


def figure(width: float, height: float, title: str) -> Any:
    """An empty matplotlib figure, inches wide and high, with its own canvas: no window, no state of pyplot.

    Notebooks show it whatever MPLBACKEND says.
    """
    _import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from fedwca.results.pictures.notebook_figure import NotebookFigure

    made = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    most = max(30, int(width * 12))  # characters at 11 points
    made.suptitle("\n".join(textwrap.fill(line, most) for line in title.splitlines()), fontsize=11)
    return made


def _import_matplotlib() -> None:
    """Import matplotlib even where MPLBACKEND names a backend that is not there: pictures bring their canvas."""
    try:
        import matplotlib
    except ValueError:
        # Half of it is imported; what is there does not fit what comes with a second try.
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            del sys.modules[name]
        asked = os.environ.pop("MPLBACKEND")
        try:
            import matplotlib  # noqa: F401
        finally:
            os.environ["MPLBACKEND"] = asked


def colour_of(name: str) -> str:
    """A method's colour, by its name alone; names that are not `NAMED` share the later four of `COLOURS`.

    >>> colour_of("wca") == OWN, colour_of("fedavg")
    (True, '#56B4E9')
    """
    later = COLOURS[3:]
    return NAMED.get(name, later[zlib.crc32(name.encode()) % len(later)])


def looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, line style, marker and hatch of each method, in pictures and on the page alike.

    Its colour follows from its name. Of several of one colour, each has a line style, marker and hatch of its own.

    >>> looks(["fedavg", "wca"])["fedavg"] == looks(["wca", "local", "fedavg"])["fedavg"]
    True
    """
    found, places = {}, Counter[str]()
    for name in sorted(names, key=lambda name: (name not in NAMED, name)):
        colour = colour_of(name)
        place = places[colour]
        places[colour] += 1
        start = (*COLOURS, OWN).index(colour)
        found[name] = {
            "color": colour,
            "linestyle": LINES[place % len(LINES)],
            "marker": MARKERS[(start + place) % len(MARKERS)],
            "hatch": HATCHES[place % len(HATCHES)],
        }
    return {name: found[name] for name in names}


def line_style(look: dict[str, Any], strong: bool) -> dict[str, Any]:
    """A look as arguments of ``plot``."""
    kept = {key: value for key, value in look.items() if key != "hatch"}
    return {**kept, "markersize": 4 if strong else 3.5, "linewidth": 2.6 if strong else 1.5, "zorder": 3 + strong}


def domain_looks(domains: Iterable[str], marks: Sequence[str] = MARKERS) -> dict[str, dict[str, Any]]:
    """Colour and marker of each domain, in order of appearance."""
    palette = (OWN, *(COLOURS[index] for index in (1, 3, 4, 5, 2, 6, 0)))
    names = list(dict.fromkeys(domains))
    return {
        name: {"color": palette[index % len(palette)], "marker": marks[index % len(marks)]}
        for index, name in enumerate(names)
    }


def whole_percent(value: float) -> str:
    """A percentage without decimals, halves rounded up as a reader would; nothing for NaN.

    >>> whole_percent(62.5), whole_percent(67.5)
    ('63', '68')
    """
    return "" if math.isnan(value) else str(math.floor(value + 0.5))


def legend_label(name: str) -> str:
    """A name as a legend takes it: matplotlib leaves out those that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def legend(made: Any, axis: Any, count: int, scale: float = 1.0) -> None:
    """One legend below a figure, in as many columns as fit, so that it never lies on data."""
    handles, labels = axis.get_legend_handles_labels()
    columns = max(1, min(count, int(made.get_figwidth() / 1.7)))
    made.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False, markerscale=scale
    )


def remove_frame(axis: Any) -> None:
    """A light grid behind the data, and no frame on the far sides."""
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def count_domains(values: Sequence[str]) -> str:
    """The three commonest domains with how often each comes, and how many more there are.

    >>> count_domains(["photo", "neon", "photo"])
    'photo ×2, neon'
    """
    counts = sorted(((values.count(name), name) for name in dict.fromkeys(values)), key=lambda pair: -pair[0])
    shown = [name if count == 1 else f"{name} ×{count}" for count, name in counts[:3]]
    more = len(counts) - 3
    return ", ".join(shown) + (f", {more} more domain{'s' * (more > 1)}" if more > 0 else "")


def save(picture: Any, path: Path, dpi: int = 120) -> None:
    """Write a figure or an animation whole, as the path's suffix says; the same picture gives the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "fedwca", "svg.fonttype": "none", "text.parse_math": False}):
        _write(picture, path, dpi)


def png_bytes(picture: Any) -> bytes:
    """A figure as a PNG."""
    from matplotlib import rc_context

    made = BytesIO()
    with rc_context({"text.parse_math": False}):
        _show_as_text(picture)
        picture.savefig(made, dpi=110, format="png")
    return made.getvalue()


def _write(picture: Any, path: Path, dpi: int) -> None:
    if hasattr(picture, "savefig"):
        _show_as_text(picture)
        suffix = path.suffix.removeprefix(".")
        stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
        write_atomically(path, lambda file: picture.savefig(file, dpi=dpi, format=suffix, metadata=stamp))
        return
    from matplotlib.animation import PillowWriter

    write_atomically(path, lambda file: picture.save(str(file), writer=PillowWriter(fps=2), dpi=dpi))


def _printable_tick(formatter: Any, value: float, position: int | None = None) -> str:
    return printable(formatter(value, position))


def _show_as_text(made: Any) -> None:
    """Show every name in a figure as it is: no formula between dollar signs, no control characters."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for axes in made.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(formatter := axis.get_major_formatter(), FuncFormatter):  # of ticks with names
                axis.set_major_formatter(FuncFormatter(partial(_printable_tick, formatter)))
    for text in made.findobj(Text):
        text.set_parse_math(False)
        text.set_text(printable(text.get_text(), lines=True))
