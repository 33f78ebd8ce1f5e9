"""SIGTERM, by which schedulers and containers stop a process, ends a run as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedwca.core.environment_variables import is_distributed


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM while inside; what a signal did before holds again afterwards.

    Nothing changes outside the main thread, where Python sets no handlers, nor under `torchrun`, which ends the other
    ranks by SIGTERM when one has failed: they are to go at once.
    """
    if threading.current_thread() is not threading.main_thread() or is_distributed():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    # `timeout` and others send it twice, to the process and to its group: the second must not cut the summary short.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
