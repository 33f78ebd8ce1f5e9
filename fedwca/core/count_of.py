"""A number with its noun."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """A number with its noun; in the plural, the s comes before an ``of``.

    >>> count_of(1, "round"), count_of(2, "more domain"), count_of(0, "group of images")
    ('1 round', '2 more domains', '0 groups of images')
    """
    counted, of, rest = noun.partition(" of ")
    return f"{number} {counted}{'' if number == 1 else 's'}{of}{rest}"
