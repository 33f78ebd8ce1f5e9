"""One thread, so that times can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

collect_ignore = ["peers"]  # programs, some of which import what is not installed here
NEEDS_TIMES = ("save", "autosave", "compare", "compare_fail", "json")
"""Options of pytest-benchmark that do nothing, and say nothing, where it is disabled, as pyproject.toml does."""


def pytest_configure(config: pytest.Config) -> None:
    enabled = config.getoption("benchmark_enable", default=True)
    for name in () if enabled else NEEDS_TIMES:
        if config.getoption(f"benchmark_{name}", default=None):
            raise pytest.UsageError(f"--benchmark-{name.replace('_', '-')} needs --benchmark-enable: nothing is timed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
