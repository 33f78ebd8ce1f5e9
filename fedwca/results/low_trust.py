"""Warnings about clients on whose images the model that gives their labels is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

LOW_TRUST = 0.5
"""Trust below which a warning is given: mutual information of the outputs as a share of its maximum. Below this value
most labels were wrong nearly always on Digit-Five, and in under half of the domain pairs on digits-mini
(docs/fedtab-first-test.md)."""


SOURCE_MODEL, LABELLED_MODEL = "the source model", "what clients with labels trained"
"""The model that gives labels: before the first round, or before the last phase where other clients have labels."""


def low_trust_note(trust: Sequence[float], model: str = SOURCE_MODEL, domains: Sequence[str] = ()) -> str:
    """A sentence on the clients whose ``trust`` in a record is low, with their domains; empty if there are none.

    >>> low_trust_note([0.7, 0.2, float("nan")])
    'the source model says little about client 1: its labels may be mostly wrong; self-training may harm it'
    """
    low = [k for k, value in enumerate(trust) if value < LOW_TRUST]
    return _say(name_clients(low, domains=domains), len(low) > 1, model) if low else ""


def own_low_trust_note(trust: float) -> str:
    """The same as `low_trust_note` for a single client that does not know the others.

    >>> own_low_trust_note(0.2)
    'the source model says little about this client: its labels may be mostly wrong; self-training may harm it'
    """
    return _say("this client", False) if trust < LOW_TRUST else ""


def _say(subject: str, several: bool, model: str = SOURCE_MODEL) -> str:
    its, it = ("their", "them") if several else ("its", "it")
    return f"{model} says little about {subject}: {its} labels may be mostly wrong; self-training may harm {it}"


def name_clients(clients: Sequence[int], most: int = 6, domains: Sequence[str] = ()) -> str:
    """Client numbers as text, at most ``most`` of them.

    Args:
        clients: in order.
        most: how many are named.
        domains: domain of each of K clients, named behind the last client of each; left out if there is one alone.

    >>> name_clients([3]), name_clients([1, 2, 4], most=2)
    ('client 3', 'clients 1, 2 and 1 more')
    >>> name_clients([0, 1, 2], domains=["photo", "photo", "neon"])
    'clients 0, 1 (photo), 2 (neon)'
    """
    shown = clients[:most]
    if len(set(domains)) > 1:
        groups = [(name, list(numbers)) for name, numbers in groupby(shown, key=domains.__getitem__)]
        listed = ", ".join(f"{', '.join(map(str, numbers))} ({name})" for name, numbers in groups)
    else:
        listed = ", ".join(map(str, shown))
    suffix = f" and {len(clients) - most} more" if len(clients) > most else ""
    return f"client{'s' * (len(clients) > 1)} {listed}{suffix}"
