"""Find the plugin component that an error came from; plugins run deep inside a round."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

OURS = ("fedwca.", "torch.", "torchvision.")
"""Prefixes of modules whose classes are not plugins."""
BASES = ("fedwca.core.", "fedwca.partitions", "fedwca.datasets", "fedwca.loggers")
"""Prefixes of modules that define base classes of components and of their parts."""


def find_failed_part(error: BaseException) -> str | None:
    """The innermost plugin component in an error's traceback, with its file and line; None if there is none.

    A line of a method that it inherits from fedwca counts only if there is none of its own.

    Args:
        error: an exception with its traceback.
    """
    own, inherited = None, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        if part is None or type(part).__module__.startswith(OURS):
            continue
        bases = [base for base in type(part).__mro__[1:] if base.__module__.startswith(BASES)]
        if bases:
            kind = re.sub("(?<=[a-z])(?=[A-Z])", "-", bases[-1].__name__).lower()
            name = getattr(type(part), "name", None) or type(part).__name__
            description = f"{kind} {name!r} ({Path(frame.f_code.co_filename).name}:{line})"
            if frame.f_globals.get("__name__", "").startswith(OURS):
                inherited = description
            else:
                own = description
    return own or inherited
