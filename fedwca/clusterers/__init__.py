"""Registry of the clusterers by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.interfaces import Clusterer

clusterers: Registry[Clusterer] = Registry(
    "clusterer", __name__, requires=("__call__",), base="fedwca.core.clusterer.Clusterer"
)
register = clusterers
