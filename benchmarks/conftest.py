"""One thread, so that times can be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

collect_ignore = ["peers"]  # programs, some of which import what is not installed here


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
