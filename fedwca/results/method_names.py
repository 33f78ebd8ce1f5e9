"""Finds a method of a run by its name."""

from __future__ import annotations

from collections.abc import Iterable

from fedwca.registry import canonical_name


def find_spelling(names: Iterable[str], name: str) -> str | None:
    """A name as it is spelled in ``names``: exactly, or else with other capitals and dashes; None if it is not there.

    >>> find_spelling(["fedavg", "FedAvg"], "FedAvg"), find_spelling(["one_hot"], "One-Hot"), find_spelling([], "wca")
    ('FedAvg', 'one_hot', None)
    """
    known_names = list(names)
    if name in known_names:
        return name
    return next((known for known in known_names if canonical_name(known) == canonical_name(name)), None)
