"""Registry of the pseudo-labelers by name; each public module of this package defines one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.interfaces import PseudoLabeler

pseudo_labelers: Registry[PseudoLabeler] = Registry(
    "pseudo-labeler", __name__, requires=("__call__",), base="fedwca.core.pseudo_labeler.PseudoLabeler"
)
register = pseudo_labelers
