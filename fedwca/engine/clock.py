"""Where the time of clients at work goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by phase, of whoever is at work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Adds the time spent inside to ``seconds[phase]``."""
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start
