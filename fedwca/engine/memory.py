"""Memory in bytes: what a run needs by a formula (docs/internals/performance.md), what is free, what was used."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fedwca.core.environment_variables import count_local_ranks
from fedwca.core.network import Network
from fedwca.core.process_limits import free_memory
from fedwca.engine.parameter_layout import Layout


@dataclass(frozen=True)
class Footprint:
    """Memory that one model and one image take."""

    values: int
    """P, values of a row."""
    frozen: int
    """Values that are in no row: the classifier, and a frozen backbone."""
    saved: int
    """Bytes of one image's activations that are kept for the backward pass."""
    largest: int
    """Bytes of the largest output of an operation, per image."""
    item: int = 4
    """Bytes per value."""
    recorded: bool = False
    """Whether training steps are recorded, for which they keep additional memory."""

    @classmethod
    def of(cls, network: Network, recorded: bool = False) -> Footprint:
        """Measure a training pass of a copy over two images, on the CPU.

        Args:
            network: the model. If its parameters are on the meta device, which has shapes but no values, the pass is
                on that; copies into another memory format are not counted there, 3 % of a LeNet's activations.
            recorded: whether training steps are CUDA graphs.
        """
        layout = Layout.of(network)
        if network not in _PASSES:
            _PASSES[network] = _measure_pass(network)
        saved, largest = _PASSES[network]
        total = sum(parameter.numel() for parameter in network.parameters())
        item, frozen = next(network.parameters()).element_size(), max(0, total - layout.trained)
        return cls(layout.width, frozen, saved, largest, item, recorded)

    @property
    def model(self) -> int:
        """Bytes of one row."""
        return self.item * self.values

    def training(self, images: int) -> int:
        """Bytes of one model that trains on steps of ``images`` images.

        They are for gradients, momenta, the mixture that training starts from, one to compare with, activations, and
        the gradient of the largest activation with a workspace. Recorded steps have gradients, activations and
        workspace in memory of their own, in addition to those of steps that are not recorded.
        """
        step = self.model + images * (self.saved + 2 * self.largest)
        return 3 * self.model + self.item * self.frozen + step * (2 if self.recorded else 1)

    def evaluation(self, images: int) -> int:
        """Bytes of one model that predicts ``images`` images at once: its row, and an operation's input and output."""
        return self.model + self.item * self.frozen + images * 3 * self.largest


_PASSES: WeakKeyDictionary[Network, tuple[int, int]] = WeakKeyDictionary()
"""What `_measure_pass` gave, since a run asks several times for the same network."""


def _measure_pass(network: Network) -> tuple[int, int]:
    """Bytes per image that a training pass keeps for the backward pass, and of its largest output."""
    images, largest = 2, 0
    # On the CPU where it can be: operations on the meta device import torch's compiler, some seconds of a run.
    device = "meta" if next(network.parameters()).is_meta else "cpu"
    model = copy.deepcopy(network).to(device).train()
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    model_storages = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    saved_tensors: dict[int, Tensor] = {}

    def save_tensor(tensor: Tensor) -> Tensor:
        saved_tensors[tensor.untyped_storage()._cdata] = tensor  # kept alive, so that its address is not reused
        return tensor

    def measure_output(module: torch.nn.Module, inputs: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, Tensor):
            largest = max(largest, output.untyped_storage().nbytes())

    for module in model.modules():
        module.register_forward_hook(measure_output)
    like = next(model.parameters())
    masks = [like.new_zeros(images, *drop.shape) for drop in network.drops]
    x = like.new_zeros(images, network.channels, network.side, network.side)
    # Layers of a plugin may draw numbers of their own.
    with torch.autograd.graph.saved_tensors_hooks(save_tensor, lambda tensor: tensor), torch.random.fork_rng([]):
        model(x, masks)
    saved = sum(
        tensor.untyped_storage().nbytes() for storage, tensor in saved_tensors.items() if storage not in model_storages
    )
    return saved // images, max(largest, x.untyped_storage().nbytes()) // images


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of memory by purpose."""

    bank: int
    """All clients' models."""
    rows: int
    """The server's rows, the next ones beside the last, the source model, and the weights of mixtures."""
    images: int
    """Training and test images of all clients, as uint8."""
    work: int
    """Models that train or predict at the same time."""
    embeddings: int = 0
    """A frozen backbone's embeddings of these images, if they are kept in memory."""

    @property
    def total(self) -> int:
        """Sum of all fields."""
        return sum(asdict(self).values())

    def times(self, trials: int) -> MemoryEstimate:
        """The estimate of ``trials`` such federations that run each round together.

        >>> MemoryEstimate(1, 2, 3, 4).times(2)
        MemoryEstimate(bank=2, rows=4, images=6, work=8, embeddings=0)
        """
        return MemoryEstimate(*(trials * value for value in asdict(self).values()))

    def plus(self, other: MemoryEstimate) -> MemoryEstimate:
        """The sum of both, field by field.

        >>> MemoryEstimate(1, 2, 3, 4).plus(MemoryEstimate(1, 1, 1, 0))
        MemoryEstimate(bank=2, rows=3, images=4, work=4, embeddings=0)
        """
        other_values = asdict(other)
        return MemoryEstimate(**{name: value + other_values[name] for name, value in asdict(self).items()})


MIXTURE = 24
"""Bytes per weight of a mixture: three float64 copies exist at once."""


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
    """Peak memory of a run.

    Args:
        footprint: of the network.
        clients: number of images of each client, training and test.
        side: height and width of a stored image.
        rows: R, the number of models that the server keeps.
        step: images of a training step; twice the batch size if each is mixed with another. At least ``chunk`` if an
            adaptation takes steps on the images that are predicted.
        chunk: images that are predicted at once.
        at_once: models that train or predict at the same time: workers of the sequential engine, or clients of a slice.
        embeddings: bytes of a frozen backbone's embeddings of all images.

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
    """Number of clients that fit into memory at the same time; 0 if not even one does.

    Args:
        there: free bytes.
        fixed: bytes that do not depend on that number: bank, rows, images.
        each: bytes for each client that works at the same time, `Footprint.training` or `Footprint.evaluation`.
        clients: K, the largest possible number.

    >>> slice_size(there=1000, fixed=400, each=250, clients=8)
    2
    """
    return max(0, min(clients, (there - fixed) // each))


def free_bytes(device: str) -> int | None:
    """Bytes that this process may still allocate on a device; None if the system does not say.

    Processes that `torchrun` started on this machine have equal parts of its main memory.
    """
    if torch.device(device).type == "cuda":
        # Memory that torch has cached is free for this process, but counts as used on the device.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    free = free_memory()
    return None if free is None else free // count_local_ranks()


def human_size(count: int) -> str:
    """A number of bytes as text.

    >>> human_size(1_400_000), human_size(3_900_000_000)
    ('1.4 MB', '3.9 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def measure_peak_memory() -> int:
    """Peak of the main memory that this process has held, in bytes; 0 if the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage, whose peak a process inherits from its parent.
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(lines.get("VmHWM", "0").split()[0])
    if sys.platform == "win32":
        return 0
    from resource import RUSAGE_SELF, getrusage

    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class MeasuredMemory:
    """Growth of a device's peak memory since this object was created."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.before = self._peak() if self.device.type == "cuda" else self._held()
        self.earlier_peak = -1 if self.device.type == "cuda" else self._peak()

    def _peak(self) -> int:
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        return measure_peak_memory()

    def _held(self) -> int:
        statm = Path("/proc/self/statm")
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else self._peak()

    def growth(self) -> int | None:
        """Bytes between what was held at creation and the peak: of a GPU's tensors, or else of the whole process.

        None if the process held more before: the system only knows the peak of its whole life.
        """
        peak = self._peak()
        return peak - self.before if peak > self.earlier_peak else None
