"""Let SIGTERM, which schedulers and containers send, end a command as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedwca.core.environment_variables import is_distributed


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM while inside; the previous handler is restored afterwards.

    Does nothing outside the main thread, where Python cannot set handlers, and under `torchrun`, which sends SIGTERM to
    the other ranks when one has failed: they must end at once.
    """
    if threading.current_thread() is not threading.main_thread() or is_distributed():
        yield
        return
    previous_handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _interrupt(number: int, frame: object) -> None:
    # `timeout` and others send it twice, to the process and to its group; the second must not interrupt the summary.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
