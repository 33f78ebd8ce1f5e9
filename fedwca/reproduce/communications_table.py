"""The table of communications, which is computed without running anything."""

from __future__ import annotations

from typing import Any

from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.reproduce import communications
from fedwca.reproduce.definitions import Definition, published_table
from fedwca.reproduce.side_by_side import messages_beside
from fedwca.results.tables import Table


def message_table(name: str, table_definition: Definition) -> tuple[Table, list[dict[str, Any]]]:
    """The table and its entries: communications by epochs beside the published ones, and with all that sec. 3.2 sends.

    Raises:
        UsageError: the table does not show communications.
    """
    name = canonical_name(name)
    messages, (dataset,) = table_definition.messages, table_definition.datasets
    if messages is None:
        raise UsageError(f"{name} does not count messages")
    counted = {
        "FADA": [communications.fada(epochs, messages.smallest, messages.batch) for epochs in messages.epochs],
        "SFDA": [communications.sfda(epochs, messages.per_epoch) for epochs in messages.epochs],
    }
    counts = {row: ours for row, ours in counted.items() if row in table_definition.rows}
    if "SFDA" in counts:
        counts["SFDA, all that is sent"] = [
            communications.sfda_with_evidence(epochs, messages.per_epoch) for epochs in messages.epochs
        ]
    printed = published_table(name, dataset)
    values, citation = (printed.values, printed.where) if printed else ({}, "nothing")
    entries = [
        {
            "row": row,
            "epochs": epochs,
            "count": count,
            "published": values.get((row, str(epochs)), (None,))[0],
        }
        for row, ours in counts.items()
        for epochs, count in zip(messages.epochs, ours, strict=True)
    ]
    return messages_beside(f"{name}: {table_definition.title}", counts, messages.epochs, values, citation), entries
