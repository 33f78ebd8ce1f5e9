"""No federation: every client keeps its own model."""

from __future__ import annotations

from fedwca.aggregators import register
from fedwca.core.grouping import EachAlone
from fedwca.core.interfaces import Aggregator


@register("local")
class Local(Aggregator):
    """Every client goes on from its own model; nothing is averaged."""

    label = "Local"
    paper = "FedWCA sec. 5 (SHOT at each client alone)"
    grouping = EachAlone()
    sends_models = False
