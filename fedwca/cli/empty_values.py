"""Empty values on the command line: no way to ask for a default, but what an unset variable of a shell leaves."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.errors import UsageError

TAKES_AWAY = {("runs", "--note")}
"""Command and option whose empty value says something: it takes away what there is."""


def check_not_empty(arguments: Sequence[str]) -> None:
    """Refuse an argument, or the value of an option, that is empty or blank.

    >>> check_not_empty(["bench", "--name", "mine"])
    >>> check_not_empty(["runs", "tag", "mine", "--note", ""])

    Raises:
        UsageError: names the option that it stands behind.
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    for before, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, value = argument.partition("=")
        joined = option.startswith("--") and equals
        if not joined:
            option, value = before, argument
        if value.strip() or (command, option) in TAKES_AWAY:
            continue
        if joined:
            raise UsageError(f"{option}: the value is empty; leave the option out for its default")
        where = f"{before}: the value" if before.startswith("-") else "an argument"
        raise UsageError(f"{where} is empty; leave it out, or say what is meant")
