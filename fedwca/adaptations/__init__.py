"""Registry of the adaptations by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.adaptation import Adaptation

adaptations: Registry[Adaptation] = Registry(
    "adaptation", __name__, requires=("loss",), base="fedwca.core.adaptation.Adaptation"
)
register = adaptations
