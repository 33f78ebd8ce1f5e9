"""Places in a federation: which client has which number."""

from __future__ import annotations

Seats = tuple[str, ...]
"""Names of the clients by their number; empty for a free place."""


def seated(seats: Seats, name: str, wish: int | None = None) -> int | None:
    """The number of the client called ``name``: the one it has, the one it wishes, or the first free one.

    Returns:
        None where all places, or the one it wishes, are taken by others.

    >>> [seated(("a", "", ""), "a"), seated(("a", "", ""), "b"), seated(("a", "", ""), "b", 2), seated(("a",), "b")]
    [0, 1, 2, None]
    """
    if name in seats:
        return seats.index(name)
    free = [number for number, taken in enumerate(seats) if not taken]
    if wish is not None:
        free = [number for number in free if number == wish]
    return free[0] if free else None


def named(seats: Seats, number: int, name: str) -> Seats:
    """With another name, or none, at a place."""
    return (*seats[:number], name, *seats[number + 1 :])
