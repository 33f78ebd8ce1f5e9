"""Environment variables that hold numbers."""

from __future__ import annotations

import os

from fedwca.errors import UsageError


def number_in_environment(name: str, default: int) -> int:
    """The whole number, 0 or more, that a variable holds; the default where it is not set.

    Raises:
        UsageError: it holds something else.
    """
    text = os.environ.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"the environment variable {name} is {text!r}; it takes a whole number, as torchrun sets it")
    return int(text)
