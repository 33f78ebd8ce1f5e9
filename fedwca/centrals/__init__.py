"""Registry of the central methods by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.central import Central

centrals: Registry[Central] = Registry("central", __name__, requires=("__call__",), base="fedwca.core.central.Central")
register = centrals
