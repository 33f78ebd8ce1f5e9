"""Images of the clients in each cluster (Figure 6 of the FedWCA paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedwca.results.pictures import style

COLUMNS = 12
MOST = 20
"""Clusters that are drawn, the largest first."""


def clusters(labels: Sequence[int], images: Sequence[Any], domains: Sequence[str], title: str) -> Any:
    """A row of images for each cluster, taken in turn from its clients.

    Args:
        labels: cluster of each of K clients.
        images: ``[N, H, W, 3]`` uint8 of each client.
        domains: true domain of each client.
        title: what was run.

    Raises:
        NotDrawn: no client has an image.
    """
    members: dict[int, list[int]] = {}
    for client, label in enumerate(labels):
        members.setdefault(int(label), []).append(client)
    rows = {label: take_in_turn(alternate_domains(clients, domains), images) for label, clients in members.items()}
    kept = sorted((label for label in rows if rows[label]), key=lambda label: (-len(members[label]), label))[:MOST]
    if not kept:
        raise style.NotDrawn("no client has test images")
    more = f"; the {MOST} largest of {len(members)} clusters" if len(members) > MOST else ""
    made = style.figure(11, 0.9 + 0.85 * len(kept), f"Images of the clients in each cluster{more}\n{title}")
    axes = made.subplots(len(kept), 1, squeeze=False)[:, 0]
    for axis, label in zip(axes, sorted(kept), strict=True):
        axis.imshow(image_strip(rows[label]))
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        count = len(members[label])
        told = style.count_domains([domains[k] for k in members[label]])
        text = f"cluster {label}: {count} client{'s' * (count > 1)}\n{told}"
        axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9)
    return made


def alternate_domains(clients: Sequence[int], domains: Sequence[str]) -> list[int]:
    """Clients, one of each domain in turn, so that the first few show every domain.

    >>> alternate_domains([0, 1, 2, 3], ["photo", "photo", "photo", "neon"])
    [0, 3, 1, 2]
    """
    places: dict[str, int] = {}
    order = []
    for client in clients:
        places[domains[client]] = place = places.get(domains[client], -1) + 1
        order.append((place, client))
    return [client for _, client in sorted(order)]


def take_in_turn(clients: Sequence[int], images: Sequence[Any], most: int = COLUMNS) -> list[Any]:
    """At most so many images, one of each client in turn, with a client's own side by side."""
    counts = dict.fromkeys(clients, 0)
    while sum(counts.values()) < most:
        more = [k for k in clients if counts[k] < len(images[k])]
        if not more:
            break
        for client in more[: most - sum(counts.values())]:
            counts[client] += 1
    # Spread over all of a client's images: neighbours in the file may be variants of one.
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
