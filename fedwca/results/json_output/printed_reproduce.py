"""Output of ``fedwca reproduce``."""

from __future__ import annotations

from typing import Any

from fedwca.results.json_output.printed_values import PrintedValues


class PrintedReproduction(PrintedValues):
    """Output of ``fedwca reproduce --format json``: one object for each table or figure, one after another."""

    title: str
    """Title of the table or figure."""
    values: list[dict[str, Any]]
    """Its entries, such as our value and the published one."""
