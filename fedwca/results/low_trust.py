"""Which clients the model that their labels come from says little about."""

from __future__ import annotations

from collections.abc import Sequence

LOW_TRUST = 0.5
"""Share of all that outputs can say of the class. Below it most labels were wrong nearly always on Digit-Five, in under
half of the pairs of domains on digits-mini (docs/fedtab.md)."""


SOURCE_MODEL, LABELLED_MODEL = "the source model", "what clients with labels trained"
"""What is asked: before the first round, or where others have labels before the last phase."""


def low_trust_note(trust: Sequence[float], model: str = SOURCE_MODEL) -> str:
    """A sentence on the clients whose ``trust`` in a record is low; empty where none is.

    >>> low_trust_note([0.7, 0.2, float("nan")])
    'the source model says little about client 1: its labels may be mostly wrong; self-training may harm it'
    """
    low = [k for k, value in enumerate(trust) if value < LOW_TRUST]
    return _say(name_clients(low), len(low) > 1, model) if low else ""


def own_low_trust_note(trust: float) -> str:
    """The same for a client that knows nothing of others.

    >>> own_low_trust_note(0.2)
    'the source model says little about this client: its labels may be mostly wrong; self-training may harm it'
    """
    return _say("this client", False) if trust < LOW_TRUST else ""


def _say(who: str, several: bool, model: str = SOURCE_MODEL) -> str:
    its, it = ("their", "them") if several else ("its", "it")
    return f"{model} says little about {who}: {its} labels may be mostly wrong; self-training may harm {it}"


def name_clients(clients: Sequence[int], most: int = 6) -> str:
    """Some numbers as words.

    >>> name_clients([3]), name_clients([1, 2, 4], most=2)
    ('client 3', 'clients 1, 2 and 1 more')
    """
    shown = ", ".join(map(str, clients[:most]))
    more = f" and {len(clients) - most} more" if len(clients) > most else ""
    return f"client{'s' * (len(clients) > 1)} {shown}{more}"
