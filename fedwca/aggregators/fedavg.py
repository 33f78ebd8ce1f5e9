"""One model for everybody: the mean of all clients' models."""

from __future__ import annotations

from typing import Literal

from fedwca.aggregators import register
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator


@register("fedavg")
class FedAvg(Aggregator):
    """All clients share the mean of their models, weighed by samples.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
    """

    label = "FedAvg"
    paper = "McMahan et al. 2017; FedWCA sec. 5 (with SHOT at the clients)"
    grouping = OneGroup()

    weighting: Literal["uniform", "samples"] = "samples"
    """How the mean weighs clients: by their number of training images, or all alike."""
