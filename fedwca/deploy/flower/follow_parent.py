"""Ends a process with the one that started it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

DIES_WITH_PARENT = 1
"""The constant ``PR_SET_PDEATHSIG`` of Linux."""
LOOK = 1.0
"""Seconds between two looks for the parent."""


def follow(parent: int, number: int) -> None:
    """Have this process sent a signal when its parent, or the thread of the parent that forked it, ends; Linux only.

    Use SIGKILL for apps: on SIGINT or SIGTERM an app tells Flower that it ends, and the message is never answered,
    whereas for a killed app Flower answers within a minute.

    Args:
        parent: the parent's process id.
        number: the signal.
    """
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, ctypes.c_ulong(number))
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


@contextmanager
def watch_parent(on_end: Callable[[], None]) -> Iterator[None]:
    """Within the ``with`` block, call ``on_end`` in a thread once the parent has ended; not on Windows.

    For a process whose parent forked it in a thread that may end earlier, which `follow` would take for the parent.

    Args:
        on_end: should end this process.
    """
    parent, over = os.getppid(), Event()

    def watch() -> None:
        while not over.wait(LOOK):
            if os.getppid() != parent:
                on_end()
                return

    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()
