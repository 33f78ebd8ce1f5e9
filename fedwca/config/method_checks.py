"""Checks of a method's parts against one another: what does not fit is refused when it is composed."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.core.interfaces import Aggregator, Objective, PseudoLabeler
from fedwca.errors import UsageError


def check_clusterer_is_used(aggregator: Aggregator, clusterer: str | None) -> None:
    """Refuse a clusterer where the aggregator asks none.

    Raises:
        UsageError: one is named.
    """
    if clusterer and not aggregator.grouping.needs_clusterer:
        raise UsageError(
            f"clusterer {clusterer!r} is not used: aggregator {aggregator.name!r} {aggregator.grouping.instead}; "
            "leave --clusterer out, or take one_hot or wca"
        )


def check_models_are_given(aggregator: Aggregator, labeler: PseudoLabeler, objectives: Sequence[Objective]) -> None:
    """Refuse a pseudo-labeler or an objective that reads a model which the aggregator does not give.

    Raises:
        UsageError: names the part and the model.
    """
    asked = [(labeler, labeler.models), *((o, (*o.anchors, *o.teachers)) for o in objectives)]
    for part, models in asked:
        if lacking := [model for model in models if model not in aggregator.references]:
            raise UsageError(
                f"{part.name!r} reads the model {lacking[0]!r}, which aggregator {aggregator.name!r} does not give; it "
                f"gives {', '.join(aggregator.references)}"
            )
