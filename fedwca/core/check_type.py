"""A check of arguments from Python callers whose wrong type would fail far from the call."""

from __future__ import annotations

from fedwca.core.component_answers import describe_value
from fedwca.errors import UsageError


def check_type(name: str, value: object, wanted: type, example: str) -> None:
    """Refuse an argument of another type.

    Args:
        name: the argument's name.
        value: its value.
        wanted: the class it must be of.
        example: how to get one, for the message.

    Raises:
        UsageError: it is no instance of the class.

    >>> check_type("rounds", 3, int, "3")
    """
    if not isinstance(value, wanted):
        raise UsageError(
            f"{name} needs an instance of {wanted.__name__}, such as {example}, not {describe_value(value)}"
        )
