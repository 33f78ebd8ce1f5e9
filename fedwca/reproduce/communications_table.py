"""The table of communications: nothing is run for it."""

from __future__ import annotations

from typing import Any

from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.reproduce import communications
from fedwca.reproduce.definitions import Definition, published_table
from fedwca.reproduce.side_by_side import messages_beside
from fedwca.results.tables import Table


def message_table(name: str, found: Definition) -> tuple[Table, list[dict[str, Any]]]:
    """How often models travel by epochs, ours beside the published counts, and with everything that sec. 3.2 sends.

    Raises:
        UsageError: the table does not show that.
    """
    name = canonical_name(name)
    said, (dataset,) = found.messages, found.datasets
    if said is None:
        raise UsageError(f"{name} does not count messages")
    counted = {
        "FADA": [communications.fada(epochs, said.smallest, said.batch) for epochs in said.epochs],
        "SFDA": [communications.sfda(epochs, said.per_epoch) for epochs in said.epochs],
    }
    counts = {row: ours for row, ours in counted.items() if row in found.rows}
    if "SFDA" in counts:
        counts["SFDA, all that is sent"] = [
            communications.sfda_with_evidence(epochs, said.per_epoch) for epochs in said.epochs
        ]
    printed = published_table(name, dataset)
    values, where = (printed.values, printed.where) if printed else ({}, "nothing")
    entries = [
        {
            "row": row,
            "epochs": epochs,
            "count": count,
            "published": values.get((row, str(epochs)), (None,))[0],
        }
        for row, ours in counts.items()
        for epochs, count in zip(said.epochs, ours, strict=True)
    ]
    return messages_beside(f"{name}: {found.title}", counts, said.epochs, values, where), entries
