"""Registry of the objectives by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.interfaces import Objective

objectives: Registry[Objective] = Registry(
    "objective", __name__, requires=("__call__",), base="fedwca.core.objective.Objective"
)
register = objectives
