"""Adaptations by name; each file beside this one is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.adaptation import Adaptation

adaptations: Registry[Adaptation] = Registry("adaptation", __name__, requires=("loss",))
register = adaptations
