"""Where a bench tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a bench tells how far it is; any of these may be replaced, none must be."""

    source: Callable[[int, int, float], None] = lambda epoch, epochs, accuracy: None
    """(epochs done, epochs, held-out accuracy in percent) of the source model."""
    begin: Callable[[str, int, int], None] = lambda label, rounds, clients: None
    """(method, rounds, clients) when a method starts."""
    earlier: Callable[[int, int], None] = lambda rounds, clients: None
    """(rounds, clients) that an earlier process did: of finished methods (0 clients), or of the one that goes on."""
    elsewhere: Callable[[int], None] = lambda rounds: None
    """Rounds that were done besides those `round` tells of: by another rank, or by trials that go together."""
    client: Callable[[int], None] = lambda client: None
    """After each client's round."""
    round: Callable[[int, float], None] = lambda done, accuracy: None
    """(rounds done, mean accuracy in percent), once for all trials that go together."""
    end: Callable[[str, float], None] = lambda label, accuracy: None
    """(method, mean accuracy in percent) when a method ends; NaN where nothing was left to do."""
    warn: Callable[[str], None] = lambda message: None
    """A sentence for the user."""


NOBODY = Progress()
"""Tells nobody."""
