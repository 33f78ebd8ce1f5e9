"""The style of all pictures: colours safe for colour-blind readers, titles, legends, files."""

from __future__ import annotations

import math
import os
import sys
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedwca.core.count_of import count_of
from fedwca.core.files import write_atomically
from fedwca.errors import FedwcaError
from fedwca.results.pictures.png_of_figure import show_as_text, show_literally

# Okabe and Ito's palette without its yellow, which is hard to see on white; neighbours differ in lightness too.
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#000000")
OWN = "#0072B2"
NAMED = {
    **dict(zip(("source_only", "local", "fedavg", "fedprox", "ifca", "ladd", "fedpcl_pl"), COLOURS, strict=False)),
    **dict.fromkeys(("wca", "fedwca", "mdmgb", "fedtta"), OWN),
}
"""Fixed colours of the most common baselines, and of the papers' own methods."""
LINES: dict[Any, str] = {
    **{"-": "", ":": "2 3", "-.": "6 3 2 3"},
    **{(0, (8, 1.5)): "13 3", (0, (4, 1, 1, 1, 1, 1)): "6 2 2 2 2 2", (0, (1, 4)): "2 8", (0, (8, 4)): "13 8"},
    **{(0, (16, 2)): "26 4", (0, (2, 2)): "4 4", (0, (8, 2, 1, 2, 1, 2)): "13 3 2 3 2 3"},
}
"""Line styles of matplotlib, and the same as SVG writes dashes; ``--`` is left to level lines."""
HATCHES = ("", "///", "...", "xxx", "---", "ooo", "|||", "\\\\\\", "+++", "**")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
MAP = "cividis"
"""Colour map of heat maps: perceptually uniform, also for colour-blind readers."""


class NotDrawn(FedwcaError):
    """The run has no data for a picture; the message says what is missing."""


def figure(width: float, height: float, title: str) -> Any:
    """An empty matplotlib figure with its own canvas, without a window or state of pyplot; sizes are in inches.

    Notebooks show it with any MPLBACKEND.
    """
    _import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from fedwca.results.pictures.notebook_figure import NotebookFigure

    fig = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    max_characters = max(30, int(width * 12))  # characters at 11 points
    text = "\n".join(textwrap.fill(line, max_characters) for line in title.splitlines())
    show_literally(fig.suptitle(text, fontsize=11))  # at once: an animation is saved without `show_as_text`
    return fig


def _import_matplotlib() -> None:
    """Import matplotlib even if MPLBACKEND names a missing backend: pictures have their own canvas."""
    try:
        import matplotlib
    except ValueError:
        # The failed import left half of the modules, which do not fit those of a second import.
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            del sys.modules[name]
        backend = os.environ.pop("MPLBACKEND")
        try:
            import matplotlib  # noqa: F401
        finally:
            os.environ["MPLBACKEND"] = backend


def colour_of(name: str) -> str:
    """A method's colour, by its name alone; names that are not in `NAMED` share the last four of `COLOURS`.

    >>> colour_of("wca") == OWN, colour_of("fedavg")
    (True, '#56B4E9')
    """
    shared_colours = COLOURS[3:]
    return NAMED.get(name, shared_colours[zlib.crc32(name.encode()) % len(shared_colours)])


def looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, line style, marker and hatch of each method, the same in pictures and on the report page.

    The colour depends on the name alone. Methods of the same colour differ in line style, marker and hatch.

    >>> looks(["fedavg", "wca"])["fedavg"] == looks(["wca", "local", "fedavg"])["fedavg"]
    True
    """
    look_by_name, counts = {}, Counter[str]()
    for name in sorted(names, key=lambda name: (name not in NAMED, name)):
        colour = colour_of(name)
        position = counts[colour]
        counts[colour] += 1
        start = (*COLOURS, OWN).index(colour)
        look_by_name[name] = {
            "color": colour,
            "linestyle": list(LINES)[position % len(LINES)],
            "marker": MARKERS[(start + position) % len(MARKERS)],
            "hatch": HATCHES[position % len(HATCHES)],
        }
    return {name: look_by_name[name] for name in names}


def line_style(look: dict[str, Any], strong: bool) -> dict[str, Any]:
    """A method's look as keyword arguments of ``plot``."""
    options = {key: value for key, value in look.items() if key != "hatch"}
    return {**options, "markersize": 4 if strong else 3.5, "linewidth": 2.6 if strong else 1.5, "zorder": 3 + strong}


def draw_line(axis: Any, points: Sequence[tuple[float, float]], look: dict[str, Any], label: str, level: bool) -> None:
    """Draw points (x, y) as a line with few markers; ``level``: the first as a level line, for what never trains."""
    if level:
        # Dashed in place of solid; others stay, so that those of one colour differ. So does the script of the page.
        linestyle = "--" if look["linestyle"] == "-" else look["linestyle"]
        axis.axhline(points[0][1], **{**look, "linestyle": linestyle, "marker": ""}, label=legend_label(label))
    else:
        every = max(1, len(points) // 12)
        axis.plot(*zip(*points, strict=True), **look, label=legend_label(label), markevery=every)


def domain_looks(domains: Iterable[str], markers: Sequence[str] = MARKERS) -> dict[str, dict[str, Any]]:
    """Colour and marker of each domain, assigned in order of appearance."""
    palette = (OWN, *(COLOURS[index] for index in (1, 3, 4, 5, 2, 6, 0)))
    names = list(dict.fromkeys(domains))
    return {
        name: {"color": palette[index % len(palette)], "marker": markers[index % len(markers)]}
        for index, name in enumerate(names)
    }


def whole_percent(value: float) -> str:
    """A percentage without decimals, halves rounded up; empty for NaN.

    >>> whole_percent(62.5), whole_percent(67.5)
    ('63', '68')
    """
    return "" if math.isnan(value) else str(math.floor(value + 0.5))


def cut_name(name: str, letters: int) -> str:
    """A name, cut where it has more letters than that.

    >>> cut_name("The_Great_Wall_of_China", 9), cut_name("lamp", 9)
    ('The_Grea…', 'lamp')
    """
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def legend_label(name: str) -> str:
    """A name that a legend accepts: matplotlib leaves out names that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def outline(lines: Iterable[Any]) -> None:
    """Give thin black lines, such as whiskers, a white edge, so that they are visible on black, too."""
    from matplotlib.patheffects import withStroke

    for line in lines:
        line.set_path_effects([withStroke(linewidth=2.4, foreground="white")])


def legend(fig: Any, axis: Any, count: int, scale: float = 1.0, bars: Any = None) -> None:
    """Draw one legend below a figure, in as many columns as fit, so that it never covers data and is not cut.

    Args:
        fig: the figure.
        axis: has what the legend explains.
        count: number of names.
        scale: size of markers over that in the axis.
        bars: axis with bars of the same names; each is shown beside what ``axis`` has of that name, if anything.
    """
    from matplotlib.legend_handler import HandlerTuple

    handles, names = axis.get_legend_handles_labels()
    if bars is not None:
        curves = dict(zip(names, handles, strict=True))
        handles, names = bars.get_legend_handles_labels()
        handles = [(curves[name], bar) if name in curves else bar for name, bar in zip(names, handles, strict=True)]
    labels = [textwrap.fill(name, int(fig.get_figwidth() * 10)) for name in names]
    for columns in range(max(1, min(count, int(fig.get_figwidth() / 1.7))), 0, -1):
        drawn = fig.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=columns,
            fontsize=9,
            frameon=False,
            markerscale=scale,
            handlelength=2.0 if bars is None else 4.5,  # room for both side by side
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.5)},
        )
        for text in drawn.get_texts():
            show_literally(text)
        # Letters are up to a tenth wider at a low resolution.
        if columns == 1 or drawn.get_window_extent().width <= 0.9 * fig.bbox.width:
            return
        drawn.remove()


def count_rounds(axis: Any) -> None:
    """Put ticks of the x axis at whole numbers only, also if there is a single one."""
    axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def remove_frame(axis: Any) -> None:
    """Draw a light grid behind the data, and remove the frame at the top and right."""
    axis.grid(alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def count_domains(values: Sequence[str]) -> str:
    """The three most common domains with their counts, and the number of further domains.

    >>> count_domains(["photo", "neon", "photo"])
    'photo ×2, neon'
    """
    counts = Counter(values)
    shown = [name if count == 1 else f"{name} ×{count}" for name, count in counts.most_common(3)]
    hidden = len(counts) - 3
    return ", ".join(shown) + (f", {count_of(hidden, 'more domain')}" if hidden > 0 else "")


def save(picture: Any, path: Path, dpi: int = 120) -> None:
    """Write a figure or an animation atomically, in the format of the path's suffix; the output is reproducible."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "fedwca", "svg.fonttype": "none", "text.parse_math": False}):
        _write(picture, path, dpi)


def _write(picture: Any, path: Path, dpi: int) -> None:
    if hasattr(picture, "savefig"):
        show_as_text(picture)
        suffix = path.suffix.removeprefix(".")
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
        write_atomically(path, lambda file: picture.savefig(file, dpi=dpi, format=suffix, metadata=metadata))
        return
    from matplotlib.animation import PillowWriter

    write_atomically(path, lambda file: picture.save(str(file), writer=PillowWriter(fps=2), dpi=dpi))
