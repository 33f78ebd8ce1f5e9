"""Model architectures by name; each module beside this one is one, except those with a leading underscore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.registry import Registry

if TYPE_CHECKING:
    from fedwca.core.architecture import Architecture

models: Registry[Architecture] = Registry(
    "model", __name__, requires=("backbone",), base="fedwca.core.architecture.Architecture"
)
register = models
