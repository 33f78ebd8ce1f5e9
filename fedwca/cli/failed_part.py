"""Which part of somebody else's an error came from: plugins run deep inside a round."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

OURS = ("fedwca.", "torch.", "torchvision.")
"""Modules whose classes are no plugins."""
BASES = ("fedwca.core.", "fedwca.partitions", "fedwca.datasets", "fedwca.loggers")
"""Where base classes of components, and of what they are made of, are."""


def find_failed_part(error: BaseException) -> str | None:
    """The innermost component of a plugin that was at work, with its file and line; None where none was.

    Args:
        error: with its traceback.
    """
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        inside_torch = frame.f_globals.get("__name__", "").startswith(OURS)
        if part is None or inside_torch or type(part).__module__.startswith(OURS):
            continue
        bases = [base for base in type(part).__mro__[1:] if base.__module__.startswith(BASES)]
        if bases:
            kind = re.sub("(?<=[a-z])(?=[A-Z])", "-", bases[-1].__name__).lower()
            name = getattr(type(part), "name", None) or type(part).__name__
            found = f"{kind} {name!r} ({Path(frame.f_code.co_filename).name}:{line})"
    return found
