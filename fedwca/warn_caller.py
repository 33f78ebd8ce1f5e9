"""Warnings that point at the line that called fedwca."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line, outside of fedwca, that led to it: a line of a script, or a cell of a notebook.

    Where it arises in fedwca tells the user nothing; and Python shows a warning of one line and text only once, so in
    a notebook the next run would not show it again.

    Args:
        message: the sentence for the user.
        category: class of the warning.
    """
    frame: FrameType | None = sys._getframe()
    level = outermost = 0
    while frame is not None:
        level += 1
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package == "fedwca" or (package == "contextlib" and outermost == level - 1):  # a decorator's frame
            outermost = level
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
