"""A number with its noun."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """A number with its noun, the first word of which is counted.

    >>> count_of(1, "round"), count_of(2, "round"), count_of(0, "group of images")
    ('1 round', '2 rounds', '0 groups of images')
    """
    first, space, rest = noun.partition(" ")
    return f"{number} {first}{'' if number == 1 else 's'}{space}{rest}"
