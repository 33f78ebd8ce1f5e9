"""Losses of speed made on purpose, which the speed gate must find; no script."""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.stacked import network as stacked_network

Work = Callable[[], None]
LOSS = 0.2
"""Share of the CPU seconds that `burning` adds."""


def burning(work: Work) -> Work:
    """The same work, which takes a fifth more CPU seconds."""

    def slowed() -> None:
        started = time.process_time()
        work()
        end = started + (1 + LOSS) * (time.process_time() - started)
        while time.process_time() < end:
            pass

    return slowed


def channels_first(work: Work) -> Work:
    """The same work on images that lie in memory as ``[N, C, H, W]``."""
    scaled = Network._scaled

    def planes(network: Network, images: Tensor) -> Tensor:
        return scaled(network, images).contiguous()

    def slowed() -> None:
        with (
            patch.object(Network, "_scaled", planes),
            patch.object(stacked_network, "channels_last_batch", lambda x: x),
        ):
            work()

    return slowed


LOSSES: dict[str, Callable[[Work], Work]] = {
    "as it is": lambda work: work,
    "a fifth more CPU seconds": burning,
    "channels first": channels_first,
}
