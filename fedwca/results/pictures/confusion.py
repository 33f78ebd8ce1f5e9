"""Confusion matrices by client."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from fedwca.results.pictures import style
from fedwca.results.pictures.final_models import Models

NOTHING = "#d0d0d0"
"""Colour of rows without test images; it does not occur in the colour map."""
MOST = 12
"""Maximum number of clients with a matrix each; with more, there is a matrix per domain."""


def confusion(models: Models) -> Any:
    """Confusion matrices of the delivered models on test images: rows are true classes and sum to 100 %.

    Raises:
        NotDrawn: no client has test images.
    """
    import numpy as np

    groups: dict[str, list[int]] = {}
    classes, by_client = models.classes, len(models.domains) <= MOST
    for client, domain in enumerate(models.domains):
        groups.setdefault(f"client {client}, {domain}" if by_client else domain, []).append(client)
    tables = {
        name: matrix([(models.truth[k], models.predicted[k]) for k in clients], len(classes))
        for name, clients in groups.items()
    }
    tables = {name: table for name, table in tables.items() if table.sum() > 0}
    if not tables:
        raise style.NotDrawn("no client has test images")
    columns = min(4, math.ceil(math.sqrt(len(tables))))
    rows = math.ceil(len(tables) / columns)
    unit = "client" if by_client else "domain, all its clients together"
    has_gaps = any((table.sum(1) == 0).any() for table in tables.values())
    note = f"; grey: no {models.image_kind} of that class" if has_gaps else ""
    fig = style.figure(1 + 3 * columns, 1 + 2.9 * rows, f"Confusion by {unit}{note}\n{models.title}")
    axes = fig.subplots(rows, columns, squeeze=False)
    fig.get_layout_engine().set(h_pad=0.1)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for index, (axis, (name, table)) in enumerate(zip(axes.flat, tables.items(), strict=False)):
        totals = table.sum(1, keepdims=True)
        axis.set_facecolor(NOTHING)  # visible in masked rows
        shares = np.ma.masked_where((totals == 0).repeat(len(classes), 1), 100 * table / totals.clip(1))
        image = axis.imshow(shares, cmap=style.MAP, vmin=0, vmax=100)
        accuracy = 100 * float(table.trace() / table.sum())
        heading = f"{name}: {style.whole_percent(accuracy)} % of {int(table.sum())}"
        axis.set_title(textwrap.fill(heading, 36), fontsize=9)
        if len(classes) <= 12:
            rotated = max(map(len, classes)) > 2
            axis.set_xticks(range(len(classes)), classes, fontsize=7, rotation=90 if rotated else 0)
            axis.set_yticks(range(len(classes)), classes, fontsize=7)
        if index % columns == 0:
            axis.set_ylabel("true class")
        if index + columns >= len(tables):
            axis.set_xlabel("predicted class")
    fig.colorbar(image, ax=list(axes.flat), label="images of the true class (%)", shrink=0.8)
    return fig


def matrix(pairs: Sequence[tuple[Any, Any]], classes: int) -> Any:
    """Counts ``[M, M]`` of (true class, predicted class), summed over clients."""
    import numpy as np

    counts = np.zeros((classes, classes))
    for true, predicted in pairs:
        np.add.at(counts, (np.asarray(true, dtype=int), np.asarray(predicted, dtype=int)), 1)
    return counts
