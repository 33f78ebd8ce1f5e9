"""Refuse empty values on the command line: they come from an unset shell variable and do not mean the default."""

from __future__ import annotations

from collections.abc import Sequence

from fedwca.errors import UsageError

TAKES_AWAY = {("runs", "--note")}
"""Pairs of command and option whose empty value has a meaning: it removes the present value."""


def check_not_empty(arguments: Sequence[str]) -> None:
    """Refuse an argument or an option's value that is empty or blank.

    >>> check_not_empty(["bench", "--name", "mine"])
    >>> check_not_empty(["runs", "tag", "mine", "--note", ""])

    Raises:
        UsageError: a value is empty; names its option.
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        option, equals, value = argument.partition("=")
        joined = option.startswith("--") and equals
        if not joined:
            option, value = previous, argument
        if value.strip() or (command, option) in TAKES_AWAY:
            continue
        if joined:
            raise UsageError(f"{option}: the value is empty; leave the option out for its default")
        subject = f"{previous}: the value" if previous.startswith("-") else "an argument"
        raise UsageError(f"{subject} is empty; leave it out, or say what is meant")
