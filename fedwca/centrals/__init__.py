"""Central methods by name; each file beside this one is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.central import Central

centrals: Registry[Central] = Registry("central", __name__, requires=("__call__",))
register = centrals
