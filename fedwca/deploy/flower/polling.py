"""How long one waits who asks again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

SOONEST, LATEST = 0.1, 3.0
"""Seconds; Flower's own programs wait 3 each time."""


def next_pause(waited: float, latest: float = LATEST) -> float:
    """Seconds until the next question after so many in vain: what is waited too long is a quarter at most, and a long
    wait costs few questions.

    >>> [next_pause(waited) for waited in (0.0, 2.0, 60.0)]
    [0.1, 0.5, 3.0]
    """
    return min(latest, max(SOONEST, waited / 4))


class SuperNodePauses:
    """Stands for the module ``time`` in the loop of Flower's SuperNode, which has two waits of fixed length: `LATEST`
    for a message, and less for its own app's answer.

    Args:
        tell: called whenever an app's answer is waited for.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.tell = tell
        self.waited, self.asked = 0.0, 0.0

    def sleep(self, seconds: float) -> None:
        """Wait, but for so many seconds at most."""
        if seconds != self.asked:
            self.waited, self.asked = 0.0, seconds
        if seconds < LATEST:
            self.tell()
        pause = next_pause(self.waited, seconds)
        self.waited += pause
        time.sleep(pause)
