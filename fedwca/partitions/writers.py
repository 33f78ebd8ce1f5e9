"""A client for each writer."""

from __future__ import annotations

from fedwca.partitions import register
from fedwca.partitions._unit_partition import UnitPartition


@register("writers")
class Writers(UnitPartition):
    """Every writer is a client, training or new; who trains is drawn.

    Source: Caldas et al. (LEAF), arXiv 1812.01097; FedTTA, sec. 4.1, on FEMNIST.
    """

    label = "labelled clients and new ones, one for each writer"
    paper = "Caldas et al. 2018; FedTTA sec. 4.1"
    unit_noun = "writers"
