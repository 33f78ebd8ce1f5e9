"""The CPU cores of this process: how many there are, and the limit to one thread where clients share them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedwca.core.environment_variables import number_in_environment


@contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Tensor operations use one core inside; the parallelism is over clients, and sums have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count_cores() -> int:
    """Cores this process may use; what `torchrun` started beside it on this machine has as many."""
    affinity = getattr(os, "sched_getaffinity", None)
    there = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, there // max(1, number_in_environment("LOCAL_WORLD_SIZE", 1)))
