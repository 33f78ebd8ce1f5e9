"""Old names that still work: each says once what it is called now, and in which version it goes."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

GONE_IN = "0.3"
"""The version that drops the old names: two minor versions after the one that renamed them."""


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that a name is an old one."""
    message = f"{old} is now {new}; the old name goes in fedwca {GONE_IN}"
    warnings.warn(message, FutureWarning, stacklevel=stacklevel)


def forward_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` for names that have moved.

    Args:
        module: dotted name of the module that asks.
        renamed: old name to its new one, dotted, from the package down.

    Returns:
        The function; it raises ``AttributeError`` for a name that never was.
    """

    def get(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = renamed[name].rpartition(".")
        warn_renamed(f"{module}.{name}", renamed[name])
        return getattr(importlib.import_module(home), new)

    return get


def forward_module(old: str, new: str, renamed: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """``__getattr__`` of a module that has moved: everything public is where it went.

    Args:
        old: dotted name of the module that asks.
        new: dotted name of the module that has its content now.
        renamed: old name to new one, of what is called otherwise there.
    """
    table = renamed or {}

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(new), table.get(name, name))
        warn_renamed(old, new)
        return found

    return get
