"""Empty values on the command line: no way to ask for a default, but what an unset variable of a shell leaves."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.errors import UsageError


def refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an argument, or the value of an option, that is empty or blank.

    >>> refuse_empty(["bench", "--name", "mine"])

    Raises:
        UsageError: names the option that it stands behind.
    """
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, value = argument.partition("=")
        if option.startswith("--") and equals and not value.strip():
            raise UsageError(f"{option}: the value is empty; leave the option out for its default")
        if not argument.strip():
            where = f"{before}: the value" if before.startswith("-") else "an argument"
            raise UsageError(f"{where} is empty; leave it out, or say what is meant")
