"""Clustered federated learning: a client's model is its cluster's mean."""

from __future__ import annotations

from fedwca.aggregators import register
from fedwca.core.interfaces import Aggregator


@register("one_hot")
class OneHot(Aggregator):
    """Weight 1 on the own cluster, 0 on the others.

    The start is the cluster model itself, so two-model labels always agree and mixup has nothing to do.
    """

    label = "One-hot"
    paper = "FedWCA sec. 5.2.1 (One-hot)"
