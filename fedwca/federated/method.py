"""What a federation plays: components put together."""

from __future__ import annotations

from dataclasses import dataclass

from fedwca.core.interfaces import Aggregator, Clusterer, Objective, PseudoLabeler


@dataclass(frozen=True)
class Method:
    """A composition of components: what one row of a table is."""

    name: str
    label: str
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    clusterer: Clusterer | None = None
    """Only where the aggregator's grouping needs one."""
