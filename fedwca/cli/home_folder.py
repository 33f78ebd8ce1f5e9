"""Expand ``~`` where the shell does not: bash expands ``--out ~/runs``, but not ``--out=~/runs``."""

from __future__ import annotations

import os.path


def expand_argument(argument: str) -> str:
    """An argument with a leading ``~`` or ``~/`` expanded, also in the value after an option's ``=``.

    >>> expand_argument("--note=~5 points"), expand_argument("runs/~")
    ('--note=~5 points', 'runs/~')
    """
    option, equals, value = argument.partition("=")
    if option.startswith("--") and equals:
        return f"{option}={_expand(value)}"
    return _expand(argument)


def _expand(path: str) -> str:
    # Without a home folder, ~ stays as it is.
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path  # noqa: PTH111
