"""Output of ``fedwca sweep``."""

from __future__ import annotations

from typing import Any, Literal

from fedwca.results.json_output.printed_values import PrintedValues


class PrintedSearch(PrintedValues):
    """Output of ``fedwca sweep --format json``."""

    criterion: str
    """Name of the criterion that the tries are judged by."""
    direction: Literal["maximize", "minimize"]
    """Whether the highest or the lowest criterion is the best."""
    tries: list[dict[str, Any]]
    """All tries, the best first: the number of the try, its values by key, and its criterion by name."""
