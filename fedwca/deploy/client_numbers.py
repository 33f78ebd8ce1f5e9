"""Numbers of a deployment's clients: who has which, and which a new one gets."""

from __future__ import annotations

from fedwca.deploy.session_state import Names


def assign_number(names: Names, name: str, wish: int | None = None) -> int | None:
    """Return the number of the client called ``name``: the one it has, else the one it wishes, else the first free one.

    None if all numbers, or the one it wishes, are taken by others.

    >>> [assign_number(("a", "", ""), name) for name in "ab"]
    [0, 1]
    >>> [assign_number(("a", "", ""), "b", 2), assign_number(("a",), "b")]
    [2, None]
    """
    if name in names:
        return names.index(name)
    free = [number for number, holder in enumerate(names) if not holder]
    if wish is not None:
        free = [number for number in free if number == wish]
    return free[0] if free else None


def why_no_number(names: Names, wish: int | None) -> str:
    """Say why `assign_number` gives no number."""
    if wish is None:
        return f"all {len(names)} numbers are taken"
    if wish >= len(names):
        return f"it asks for number {wish} (--number); the last is {len(names) - 1}"
    return f"it asks for number {wish} (--number), which is client {names[wish]}'s"


def set_name(names: Names, number: int, name: str) -> Names:
    """Return the names with ``name``, which may be empty, at a number."""
    return (*names[:number], name, *names[number + 1 :])
