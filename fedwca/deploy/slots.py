"""Places in a federation: which client has which number."""

from __future__ import annotations

Seats = tuple[str, ...]
"""Names of the clients by their number; empty for a free place."""


def assign_slot(seats: Seats, name: str, wish: int | None = None) -> int | None:
    """The number of the client called ``name``: the one it has, the one it wishes, or the first free one.

    Returns:
        None where all places, or the one it wishes, are taken by others.

    >>> [assign_slot(("a", "", ""), name) for name in "ab"]
    [0, 1]
    >>> [assign_slot(("a", "", ""), "b", 2), assign_slot(("a",), "b")]
    [2, None]
    """
    if name in seats:
        return seats.index(name)
    free = [number for number, taken in enumerate(seats) if not taken]
    if wish is not None:
        free = [number for number in free if number == wish]
    return free[0] if free else None


def set_slot(seats: Seats, number: int, name: str) -> Seats:
    """With another name, or none, at a place."""
    return (*seats[:number], name, *seats[number + 1 :])
