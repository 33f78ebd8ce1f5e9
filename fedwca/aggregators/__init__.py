"""Aggregators by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.interfaces import Aggregator

aggregators: Registry[Aggregator] = Registry(
    "aggregator",
    __name__,
    requires=("blend", "gather", "offer", "next_state", "deliver"),
    base="fedwca.core.aggregator.Aggregator",
)
register = aggregators
