"""Pseudo-labelers by name; each file beside this one is one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.interfaces import PseudoLabeler

pseudo_labelers: Registry[PseudoLabeler] = Registry("pseudo-labeler", __name__, requires=("__call__",))
register = pseudo_labelers
