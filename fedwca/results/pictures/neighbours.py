"""FINCH's first-neighbour graph: each client points to the client with the nearest model parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.table_rows import CLOSE

FAT = ("o", "s", "D", "p", "h", "8")
"""Markers that are large enough for a number inside."""
Point = tuple[float, float]


def neighbours(
    nearest: Sequence[int], domains: Sequence[str], title: str, margins: Sequence[float] | None = None
) -> Any:
    """The graph, coloured by true domain; each component is drawn as a tree around its mutual pair.

    Args:
        nearest: first neighbour of each of K clients.
        domains: true domain of each client.
        title: title of the run.
        margins: distance of the second neighbour over that of the first; arrows of near ties are dashed.
    """
    parts = components(nearest)
    layouts = [_tree(part, nearest) for part in parts]
    positions, width, height = _pack(layouts)
    scale = min(0.62, 13 / width)  # inches
    fig = style.figure(max(7.0, width * scale), height * scale + 1.2, f"First neighbours of the clients\n{title}")
    axis = fig.subplots()
    looks = style.domain_looks(domains, FAT)
    tied = [margins is not None and margins[k] <= CLOSE for k in range(len(nearest))]
    for client, neighbour in enumerate(nearest):
        _arrow(axis, positions[client], positions[neighbour], tied[client])
    for domain, look in looks.items():
        points = [positions[k] for k in range(len(domains)) if domains[k] == domain]
        xs, ys = zip(*points, strict=True)
        axis.scatter(
            xs, ys, s=330, **look, label=style.legend_label(domain), zorder=3, edgecolors="white", linewidths=1.2
        )
    for client, (x, y) in enumerate(positions):
        # White is hard to read on all other colours.
        ink = "white" if looks[domains[client]]["color"] in (style.OWN, "#000000") else "black"
        axis.text(x, y, str(client), ha="center", va="center", fontsize=8, color=ink, weight="bold", zorder=4)
    for number, part in enumerate(parts):
        xs, ys = zip(*(positions[k] for k in part), strict=True)
        name = f"component {number}"
        axis.text((min(xs) + max(xs)) / 2, min(ys) - 0.85, name, ha="center", fontsize=9, color="#444444")
    axis.set(aspect="equal", xlim=(-1, width - 1), ylim=(0.9 - height, 0.8))
    axis.axis("off")
    if any(tied):
        axis.plot(
            [], [], linestyle="--", color="#444444", label=f"second neighbour at most {100 * (CLOSE - 1):.0f} % farther"
        )
    style.legend(fig, axis, len(looks) + any(tied), 0.6)
    return fig


def components(nearest: Sequence[int]) -> list[list[int]]:
    """Lists of clients that are connected by arrows, ordered by their first client.

    >>> components([1, 0, 3, 2, 1])
    [[0, 1, 4], [2, 3]]
    """
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    clients, shape = np.arange(len(nearest)), (len(nearest), len(nearest))
    arrows = coo_array((np.ones_like(clients), (clients, nearest)), shape)
    _, labels = connected_components(arrows, directed=False)
    return [clients[labels == label].tolist() for label in dict.fromkeys(labels.tolist())]


def _tree(part: Sequence[int], nearest: Sequence[int]) -> dict[int, Point]:
    """Positions around the origin: the clients of the cycle in the middle, those that point to them in outer rings."""
    client = part[0]
    for _ in part:
        client = nearest[client]
    cycle = [client]
    while nearest[cycle[-1]] != client:
        cycle.append(nearest[cycle[-1]])
    children = {k: [c for c in part if nearest[c] == k and c not in cycle] for k in part}

    def leaves(client: int) -> int:
        return max(1, sum(leaves(c) for c in children[client]))

    total = sum(leaves(k) for k in cycle)
    ring = max(1.25, total * 1.15 / (2 * math.pi) - 0.55)
    positions: dict[int, Point] = {}

    def place(client: int, start: float, depth: int) -> None:
        sector_angle = 2 * math.pi * leaves(client) / total
        radius = (0.55 if len(cycle) > 1 else 0.0) if depth == 0 else 0.55 + ring * depth
        angle = start + sector_angle / 2
        positions[client] = (radius * math.cos(angle), radius * math.sin(angle))
        for child in children[client]:
            place(child, start, depth + 1)
            start += 2 * math.pi * leaves(child) / total

    start = 0.0
    for member in cycle:
        place(member, start, 0)
        start += 2 * math.pi * leaves(member) / total
    return positions


def _pack(layouts: Sequence[dict[int, Point]]) -> tuple[list[Point], float, float]:
    """Position of each client, with components side by side in rows, and the total width and height."""
    boxes = []
    for points in layouts:
        xs, ys = zip(*points.values(), strict=True)
        boxes.append((min(xs), min(ys), max(xs) - min(xs) + 2.0, max(ys) - min(ys) + 2.3))
    max_width = max(
        max(width for _, _, width, _ in boxes), 1.5 * math.sqrt(sum(width * height for _, _, width, height in boxes))
    )
    positions: dict[int, Point] = {}
    x = top = row_height = widest = 0.0
    for points, (left, bottom, width, height) in zip(layouts, boxes, strict=True):
        if x and x + width > max_width:
            x, top, row_height = 0.0, top - row_height, 0.0
        for client, (px, py) in points.items():
            positions[client] = (x + px - left, top - (height - 2.3) + py - bottom)
        x, row_height, widest = x + width, max(row_height, height), max(widest, x + width)
    return [positions[client] for client in range(len(positions))], widest, row_height - top


def _arrow(axis: Any, start: Point, end: Point, tied: bool) -> None:
    """Draw an arrow from a client to its first neighbour, bent so that both arrows of a mutual pair are visible."""
    line = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.12", "color": "#444444", "linewidth": 1.1}
    line |= {"shrinkA": 9, "shrinkB": 9, "linestyle": "--" if tied else "-"}
    axis.annotate("", xy=end, xytext=start, arrowprops=line, zorder=2)
