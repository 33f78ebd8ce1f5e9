"""Clients of one superclass each."""

from __future__ import annotations

from pydantic import PositiveInt

from fedwca.partitions import register
from fedwca.partitions._unit_partition import UnitPartition


@register("superclasses")
class Superclasses(UnitPartition):
    """Every superclass has clients of its own, training or new, among which its images are dealt at random.

    Source: FedTTA, sec. 4.1, on CIFAR-100.
    """

    label = "labelled clients and new ones, of one superclass each"
    paper = "FedTTA sec. 4.1"
    unit_noun = "superclasses"

    per_unit: PositiveInt = 5
    """Clients of each superclass."""
