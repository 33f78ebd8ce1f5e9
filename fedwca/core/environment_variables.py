"""Environment variables that hold numbers, and the ones in which `torchrun` describes a process."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fedwca.errors import UsageError


def number_in_environment(name: str, default: int) -> int:
    """The whole number, 0 or more, in an environment variable; the default where it is not set.

    Raises:
        UsageError: the variable holds something else.
    """
    text = os.environ.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"the environment variable {name} is {text!r}; it takes a whole number, as torchrun sets it")
    return int(text)


def count_ranks() -> int:
    """Number of processes that `torchrun` started together; 1 without `torchrun`."""
    return number_in_environment("WORLD_SIZE", 1)


def count_local_ranks() -> int:
    """Number of processes that `torchrun` started together on this machine; 1 without `torchrun`."""
    return max(1, number_in_environment("LOCAL_WORLD_SIZE", 1))


def is_distributed() -> bool:
    """Whether `torchrun` started other processes beside this one."""
    return count_ranks() > 1


def check_one_process(name: str, instead: Sequence[str] = ("fedwca bench", "fedwca resume")) -> None:
    """Refuse to run under `torchrun` what would then run once per rank.

    Args:
        name: what would run, for the error.
        instead: commands that several ranks can share.

    Raises:
        UsageError: there are several ranks.
    """
    if is_distributed():
        alternatives = f"{'are' if len(instead) > 1 else 'is'} {' and '.join(instead)}"
        raise UsageError(f"{name} runs in one process; under torchrun there {alternatives}")
