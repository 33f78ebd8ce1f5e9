"""Pauses between polls that grow with the time waited."""

from __future__ import annotations

import time
from collections.abc import Callable

SOONEST, LATEST = 0.1, 3.0
"""Shortest and longest pause in seconds; Flower's own programs always wait 3."""


def next_pause(waited: float, latest: float = LATEST) -> float:
    """Return the seconds until the next poll, a quarter of the time waited so far, from `SOONEST` to ``latest``.

    An answer is then noticed late by at most a quarter of the wait, and a long wait takes few polls.

    >>> [next_pause(waited) for waited in (0.0, 2.0, 60.0)]
    [0.1, 0.5, 3.0]
    """
    return min(latest, max(SOONEST, waited / 4))


class SuperNodePauses:
    """Replaces the module ``time`` in the loop of Flower's SuperNode, to shorten its pauses.

    The loop has two pauses of fixed length: `LATEST` while it waits for a message, and a shorter one while it waits for
    its app's answer.

    Args:
        tell: called at each pause for an app's answer.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell = tell
        self.waited, self.asked = 0.0, 0.0

    def sleep(self, seconds: float) -> None:
        """Wait for at most so many seconds; see `next_pause`."""
        if seconds != self.asked:
            self.waited, self.asked = 0.0, seconds
        if seconds < LATEST:
            self.tell()
        pause = next_pause(self.waited, seconds)
        self.waited += pause
        time.sleep(pause)
