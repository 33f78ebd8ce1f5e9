"""The CPU cores of this process: how many there are, and the limit to one thread where clients share them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedwca.core.environment_variables import count_local_ranks
from fedwca.core.process_limits import available_cores


@contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Context in which tensor operations use one thread; sums then have a fixed order, and clients run in parallel."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def count_cores() -> int:
    """Cores for this process: those it may use, divided by the processes that `torchrun` started on this machine."""
    return max(1, available_cores() // count_local_ranks())
