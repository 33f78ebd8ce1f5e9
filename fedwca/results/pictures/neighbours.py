"""FINCH's first-neighbour graph: each client points to the one whose weights are nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.table_rows import CLOSE

FAT = ("o", "s", "D", "p", "h", "8")
"""Marks that a number fits into."""
Point = tuple[float, float]


def neighbours(
    nearest: Sequence[int], domains: Sequence[str], title: str, margins: Sequence[float] | None = None
) -> Any:
    """The graph, a tree around its mutual pair for each component, coloured by true domain.

    Args:
        nearest: first neighbour of each of K clients.
        domains: true domain of each client.
        title: what was run.
        margins: second distance over first; arrows that are nearly ties are dashed.
    """
    parts = components(nearest)
    placed = [_tree(part, nearest) for part in parts]
    where, wide, high = _pack(placed)
    scale = min(0.62, 13 / wide)  # inches
    made = style.figure(max(7.0, wide * scale), high * scale + 1.2, f"First neighbours of the clients\n{title}")
    axis = made.subplots()
    looks = style.domain_looks(domains, FAT)
    tied = [margins is not None and margins[k] <= CLOSE for k in range(len(nearest))]
    for client, other in enumerate(nearest):
        _arrow(axis, where[client], where[other], tied[client])
    for domain, look in looks.items():
        own = [where[k] for k in range(len(domains)) if domains[k] == domain]
        xs, ys = zip(*own, strict=True)
        axis.scatter(
            xs, ys, s=330, **look, label=style.legend_label(domain), zorder=3, edgecolors="white", linewidths=1.2
        )
    for client, (x, y) in enumerate(where):
        axis.text(x, y, str(client), ha="center", va="center", fontsize=8, color="white", weight="bold", zorder=4)
    for number, part in enumerate(parts):
        xs, ys = zip(*(where[k] for k in part), strict=True)
        name = f"component {number}"
        axis.text((min(xs) + max(xs)) / 2, min(ys) - 0.85, name, ha="center", fontsize=9, color="#444444")
    axis.set(aspect="equal", xlim=(-1, wide - 1), ylim=(0.9 - high, 0.8))
    axis.axis("off")
    if any(tied):
        axis.plot(
            [], [], linestyle="--", color="#444444", label=f"second neighbour at most {100 * (CLOSE - 1):.0f} % farther"
        )
    style.legend(made, axis, len(looks) + any(tied), 0.6)
    return made


def components(nearest: Sequence[int]) -> list[list[int]]:
    """Clients connected by arrows, in order of their first one.

    >>> components([1, 0, 3, 2, 1])
    [[0, 1, 4], [2, 3]]
    """
    root = list(range(len(nearest)))

    def find(client: int) -> int:
        while root[client] != client:
            client = root[client]
        return client

    for client, other in enumerate(nearest):
        low, high = sorted((find(client), find(other)))
        root[high] = low
    found: dict[int, list[int]] = {}
    for client in range(len(nearest)):
        found.setdefault(find(client), []).append(client)
    return list(found.values())


def _tree(part: Sequence[int], nearest: Sequence[int]) -> dict[int, Point]:
    """Places around the origin: the clients of the cycle in the middle, those that point to them in rings outside."""
    walk = part[0]
    for _ in part:
        walk = nearest[walk]
    cycle = [walk]
    while nearest[cycle[-1]] != walk:
        cycle.append(nearest[cycle[-1]])
    children = {k: [c for c in part if nearest[c] == k and c not in cycle] for k in part}

    def leaves(client: int) -> int:
        return max(1, sum(leaves(c) for c in children[client]))

    total = sum(leaves(k) for k in cycle)
    ring = max(1.25, total * 1.15 / (2 * math.pi) - 0.55)
    places: dict[int, Point] = {}

    def lay(client: int, start: float, depth: int) -> None:
        share = 2 * math.pi * leaves(client) / total
        radius = (0.55 if len(cycle) > 1 else 0.0) if depth == 0 else 0.55 + ring * depth
        middle = start + share / 2
        places[client] = (radius * math.cos(middle), radius * math.sin(middle))
        for child in children[client]:
            lay(child, start, depth + 1)
            start += 2 * math.pi * leaves(child) / total

    start = 0.0
    for member in cycle:
        lay(member, start, 0)
        start += 2 * math.pi * leaves(member) / total
    return places


def _pack(placed: Sequence[dict[int, Point]]) -> tuple[list[Point], float, float]:
    """Place of each client with components side by side in rows, and how wide and high all of it is."""
    boxes = []
    for points in placed:
        xs, ys = zip(*points.values(), strict=True)
        boxes.append((min(xs), min(ys), max(xs) - min(xs) + 2.0, max(ys) - min(ys) + 2.3))
    most = max(max(wide for _, _, wide, _ in boxes), 1.5 * math.sqrt(sum(wide * high for _, _, wide, high in boxes)))
    where: dict[int, Point] = {}
    x = top = row = widest = 0.0
    for points, (left, bottom, wide, high) in zip(placed, boxes, strict=True):
        if x and x + wide > most:
            x, top, row = 0.0, top - row, 0.0
        for client, (px, py) in points.items():
            where[client] = (x + px - left, top - (high - 2.3) + py - bottom)
        x, row, widest = x + wide, max(row, high), max(widest, x + wide)
    return [where[client] for client in range(len(where))], widest, row - top


def _arrow(axis: Any, start: Point, end: Point, tied: bool) -> None:
    """From a client to its first neighbour, bent so that both arrows of a mutual pair are seen."""
    line = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.12", "color": "#444444", "linewidth": 1.1}
    line |= {"shrinkA": 9, "shrinkB": 9, "linestyle": "--" if tied else "-"}
    axis.annotate("", xy=end, xytext=start, arrowprops=line, zorder=2)
