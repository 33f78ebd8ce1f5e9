"""Images of the clients in each cluster (Figure 6 of the FedWCA paper)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from fedwca.core.count_of import count_of
from fedwca.results.pictures import style

COLUMNS = 12
MOST = 20
"""Maximum number of clusters that are drawn; the largest are chosen."""


def clusters(labels: Sequence[int], images: Sequence[Any], domains: Sequence[str], title: str) -> Any:
    """A row of images per cluster, taken in turn from its clients.

    Args:
        labels: cluster of each of K clients.
        images: ``[N, H, W, 3]`` uint8 of each client.
        domains: true domain of each client.
        title: title of the run.

    Raises:
        NotDrawn: no client has an image.
    """
    members: dict[int, list[int]] = {}
    for client, label in enumerate(labels):
        members.setdefault(int(label), []).append(client)
    rows = {label: take_in_turn(alternate_domains(clients, domains), images) for label, clients in members.items()}
    shown = sorted((label for label in rows if rows[label]), key=lambda label: (-len(members[label]), label))[:MOST]
    if not shown:
        raise style.NotDrawn("no client has test images")
    note = f"; the {MOST} largest of {len(members)} clusters" if len(members) > MOST else ""
    fig = style.figure(11, 0.9 + 0.85 * len(shown), f"Images of the clients in each cluster{note}\n{title}")
    axes = fig.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axis, label in zip(axes, sorted(shown), strict=True):
        axis.imshow(image_strip(rows[label]))
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        domain_counts = textwrap.fill(style.count_domains([domains[k] for k in members[label]]), 48)
        text = f"cluster {label}: {count_of(len(members[label]), 'client')}\n{domain_counts}"
        axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9)
    return fig


def alternate_domains(clients: Sequence[int], domains: Sequence[str]) -> list[int]:
    """Clients ordered so that domains alternate and the first few include every domain.

    >>> alternate_domains([0, 1, 2, 3], ["photo", "photo", "photo", "neon"])
    [0, 3, 1, 2]
    """
    positions: dict[str, int] = {}
    order = []
    for client in clients:
        positions[domains[client]] = position = positions.get(domains[client], -1) + 1
        order.append((position, client))
    return [client for _, client in sorted(order)]


def take_in_turn(clients: Sequence[int], images: Sequence[Any], most: int = COLUMNS) -> list[Any]:
    """At most ``most`` images, counted out one per client in turn; images of a client are next to each other."""
    counts = dict.fromkeys(clients, 0)
    while sum(counts.values()) < most:
        remaining = [k for k in clients if counts[k] < len(images[k])]
        if not remaining:
            break
        for client in remaining[: most - sum(counts.values())]:
            counts[client] += 1
    # Spread over all images of a client, since consecutive ones may be variants of each other.
    return [images[k][i * len(images[k]) // counts[k]] for k in clients for i in range(counts[k])]


def image_strip(images: Sequence[Any]) -> Any:
    """Images ``[H, W, 3]`` side by side on white, as wide as `COLUMNS` of them."""
    import numpy as np

    height, width, _ = images[0].shape
    gap = 2
    sheet = np.full((height, COLUMNS * (width + gap) - gap, 3), 255, dtype=np.uint8)
    for index, image in enumerate(images):
        sheet[:, index * (width + gap) : index * (width + gap) + width] = image
    return sheet
