"""Bytes that a run needs, from a stated formula (docs/internals/performance.md), that are free, and that were taken."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedwca.core.input_files import free_memory
from fedwca.core.network import Network
from fedwca.engine.parameter_layout import Layout


@dataclass(frozen=True)
class Footprint:
    """What one model and one image cost."""

    values: int
    """P, values of a row."""
    frozen: int
    """Values that are in no row: the classifier, and a frozen backbone."""
    saved: int
    """Bytes of an image's activations that wait for the backward pass."""
    largest: int
    """Bytes of the largest output of an operation, per image."""
    item: int = 4
    """Bytes of a value."""
    recorded: bool = False
    """Whether training steps are recorded and keep memory of their own for it."""

    @classmethod
    def of(cls, network: Network, recorded: bool = False) -> Footprint:
        """Counted by a training pass of a copy that has shapes but no values; it makes no copies for another order of
        memory, 3 % of a LeNet's activations.

        Args:
            network: the model.
            recorded: whether its steps are CUDA graphs.
        """
        layout = Layout.of(network)
        images, largest = 2, 0
        like = copy.deepcopy(network).to("meta").train()
        for parameter in like.parameters():
            parameter.requires_grad_(True)
        known = {tensor.untyped_storage()._cdata for tensor in (*like.parameters(), *like.buffers())}
        seen: dict[int, Tensor] = {}

        def keep(tensor: Tensor) -> Tensor:
            seen[tensor.untyped_storage()._cdata] = tensor  # kept, so that its address is not taken again
            return tensor

        def output(module: torch.nn.Module, given: object, made: object) -> None:
            nonlocal largest
            if isinstance(made, Tensor):
                largest = max(largest, made.untyped_storage().nbytes())

        hooks = [module.register_forward_hook(output) for module in like.modules()]
        masks = [torch.empty(images, *drop.shape, device="meta") for drop in network.drops]
        x = torch.empty(
            images, network.channels, network.side, network.side, device="meta", dtype=next(like.parameters()).dtype
        )
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            like(x, masks)
        for hook in hooks:
            hook.remove()
        saved = sum(tensor.untyped_storage().nbytes() for place, tensor in seen.items() if place not in known)
        total = sum(parameter.numel() for parameter in network.parameters())
        item, frozen = next(network.parameters()).element_size(), max(0, total - layout.trained)
        largest = max(largest, x.untyped_storage().nbytes())
        return cls(layout.width, frozen, saved // images, largest // images, item, recorded)

    @property
    def model(self) -> int:
        """Bytes of one row."""
        return self.item * self.values

    def training(self, images: int) -> int:
        """Bytes of a model in training on a step of so many images: gradients, momenta, the mixture it starts from and
        one to compare with, activations, and the gradient of the largest one with room to work. Recorded steps have
        gradients, activations and that room in memory of their own, beside what steps take that are not recorded.
        """
        step = self.model + images * (self.saved + 2 * self.largest)
        return 3 * self.model + self.item * self.frozen + step * (2 if self.recorded else 1)

    def evaluation(self, images: int) -> int:
        """Bytes of a model that predicts so many images at once: the mixture, and an operation's input and output."""
        return self.model + self.item * self.frozen + images * 3 * self.largest


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for."""

    bank: int
    """All clients' models."""
    rows: int
    """The server's rows, the next ones while the last are there, and the source model."""
    images: int
    """Training and test images of all clients, as bytes."""
    work: int
    """Models at work at the same time."""
    embeddings: int = 0
    """What a frozen backbone makes of these images, where it is kept in memory."""

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return sum(asdict(self).values())

    def times(self, trials: int) -> MemoryEstimate:
        """Of so many federations that go through rounds together.

        >>> MemoryEstimate(1, 2, 3, 4).times(2)
        MemoryEstimate(bank=2, rows=4, images=6, work=8, embeddings=0)
        """
        return MemoryEstimate(*(trials * value for value in asdict(self).values()))

    def plus(self, other: MemoryEstimate) -> MemoryEstimate:
        """Of both, part by part.

        >>> MemoryEstimate(1, 2, 3, 4).plus(MemoryEstimate(1, 1, 1, 0))
        MemoryEstimate(bank=2, rows=3, images=4, work=4, embeddings=0)
        """
        more = asdict(other)
        return MemoryEstimate(**{name: value + more[name] for name, value in asdict(self).items()})


MIXTURE = 24
"""Bytes of a weight in a mixture: three float64 of it are there at once."""


def estimate_memory(
    footprint: Footprint,
    clients: Sequence[int],
    side: int,
    rows: int,
    step: int,
    chunk: int,
    at_once: int,
    embeddings: int = 0,
) -> MemoryEstimate:
    """What a run holds at its peak.

    Args:
        footprint: of the network.
        clients: images of each client, training and test.
        side: height and width of an image as it is kept.
        rows: R, models that the server keeps.
        step: images of a training step; twice the batch where each is mixed with another.
        chunk: images that are predicted at once.
        at_once: models at work at the same time: workers of the loop, or the clients of a slice.
        embeddings: bytes of what a frozen backbone makes of all images.

    >>> one = Footprint(values=10, frozen=2, saved=100, largest=50)
    >>> estimate_memory(one, [4, 6], side=2, rows=1, step=3, chunk=8, at_once=2)
    MemoryEstimate(bank=80, rows=192, images=120, work=2496, embeddings=0)
    """
    work = max(footprint.training(step), footprint.evaluation(chunk))
    return MemoryEstimate(
        bank=footprint.model * len(clients),
        rows=footprint.model * (2 * rows + 1) + MIXTURE * rows * (rows + len(clients)),
        images=sum(clients) * 3 * side**2,
        work=at_once * work,
        embeddings=embeddings,
    )


def slice_size(there: int, fixed: int, each: int, clients: int) -> int:
    """Clients that can be at work at the same time; 0 where not even one fits.

    Args:
        there: bytes that are free.
        fixed: bytes that do not depend on it: bank, rows, images.
        each: bytes of one more client at work, `Footprint.training` or `Footprint.evaluation`.
        clients: K.

    >>> slice_size(there=1000, fixed=400, each=250, clients=8)
    2
    """
    return max(0, min(clients, (there - fixed) // each))


def free_bytes(device: str) -> int | None:
    """Bytes that a process may still take on a device; None where the system does not say."""
    if torch.device(device).type == "cuda":
        # What torch keeps for later is free to this process, and taken to the device.
        own = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + own
    return free_memory()


def human_size(count: int) -> str:
    """Bytes for a reader.

    >>> human_size(1_400_000), human_size(3_900_000_000)
    ('1.4 MB', '3.9 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def measure_peak_memory() -> int:
    """Bytes of the machine's memory that this process has held at most; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage, whose peak a process takes over from the one that started it.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    if sys.platform == "win32":
        return 0
    from resource import RUSAGE_SELF, getrusage

    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class MeasuredMemory:
    """The most memory that was taken on a device since this was made."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.before = self._peak() if self.device.type == "cuda" else self._held()

    def _peak(self) -> int:
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        return measure_peak_memory()

    def _held(self) -> int:
        statm = Path("/proc/self/statm")
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else self._peak()

    def growth(self) -> int:
        """Bytes between what was held at first and the peak: of the device's tensors, or of the whole process."""
        return self._peak() - self.before
