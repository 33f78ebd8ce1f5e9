"""Models as rows: where each tensor of a network lies in a flat row, and how rows are mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedwca.core.network import Network
from fedwca.core.training_settings import Trains
from fedwca.engine.cpu_cores import limit_to_one_thread
from fedwca.engine.device_copy import to_device
from fedwca.engine.precision import matmul_precision
from fedwca.errors import CheckpointError

CLASSIFIER = "classifier."
"""What names of the classifier's tensors begin with."""
EXTRAS = "extras."
"""What names of extra networks' tensors begin with; the network's name follows."""


@dataclass(frozen=True)
class Slot:
    """One tensor's place in a row."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """First position behind it."""
        return self.start + torch.Size(self.shape).numel()

    def of(self, rows: Tensor) -> Tensor:
        """The tensor as a view: ``[..., P] -> [..., *shape]``."""
        return rows[..., self.start : self.stop].view(*rows.shape[:-1], *self.shape)


@dataclass(frozen=True)
class Layout:
    """The order of a row: trained parameters first, BatchNorm statistics after.

    A classifier that is trained is the last of the base network's parameters; one that is frozen is not in it. Behind
    the base network come extra ones.
    """

    parameters: tuple[Slot, ...]
    statistics: tuple[Slot, ...]
    shortcuts: tuple[str, ...] = ()
    """Prefixes of tensors beside the main path, which do not count as layers."""
    stays: tuple[str, ...] = ()
    """Parts that each client has of its own; they are in every row, and no mixture takes them along."""

    @classmethod
    def of(cls, network: Network) -> Layout:
        """The layout of a network; a frozen backbone, and a classifier unless the network is whole, are not in it."""
        left_out = (*(() if network.whole else (CLASSIFIER,)), *(("backbone.",) if network.backbone.frozen else ()))
        position = 0

        def place(named: Any) -> tuple[Slot, ...]:
            nonlocal position
            slots = []
            for name, tensor in named:
                slots.append(Slot(name, tuple(tensor.shape), position))
                position = slots[-1].stop
            return tuple(slots)

        taken = [(n, p) for n, p in network.named_parameters() if not n.startswith(left_out)]
        parameters = place(
            sorted(taken, key=lambda named: (named[0].startswith(EXTRAS), named[0].startswith(CLASSIFIER)))
        )
        statistics = place((n, b) for n, b in _statistics(network) if not n.startswith(left_out))
        shortcuts = tuple(f"backbone.{name}." for name in network.backbone.shortcuts)
        return cls(parameters, statistics, shortcuts, network.stays)

    @property
    def norms(self) -> list[tuple[Slot, Slot]]:
        """Running mean and variance of each BatchNorm layer, in the order of a row."""
        by_name = {slot.name: slot for slot in self.statistics}
        layers = [name.removesuffix("running_mean") for name in by_name if name.endswith("running_mean")]
        return [(by_name[f"{layer}running_mean"], by_name[f"{layer}running_var"]) for layer in layers]

    @property
    def trained(self) -> int:
        """Trained parameters: the first positions of a row."""
        return self.parameters[-1].stop

    @property
    def head(self) -> slice:
        """Positions of the classifier in a row; none where it is frozen."""
        own = [slot.start for slot in self.parameters if slot.name.startswith(CLASSIFIER)]
        return slice(min(own, default=self.base.stop), self.base.stop)

    def last_layers(self, count: int) -> slice:
        """Trained positions of so many last layers of the network that predicts, with what is between them.

        Args:
            count: counted from the classifier, which is the last one if it is trained.
        """
        starts = [weight.start for weight, *_ in self.layers()]
        starts += [self.head.start] if self.head.start < self.head.stop else []
        return slice(starts[-count:][0], self.base.stop)

    def statistics_of(self, trained: slice) -> list[slice]:
        """Positions of the BatchNorm statistics of modules whose parameters are among some trained positions."""
        own = {slot.name.rpartition(".")[0] for slot in self.parameters if trained.start <= slot.start < trained.stop}
        return [slice(s.start, s.stop) for s in self.statistics if s.name.rpartition(".")[0] in own]

    @property
    def base(self) -> slice:
        """Positions of the network that predicts, without the extra ones behind it."""
        own = [slot.stop for slot in self.parameters if not slot.name.startswith(EXTRAS)]
        return slice(0, max(own, default=0))

    @property
    def parts(self) -> dict[str, slice]:
        """Positions of the trained parts by name: ``backbone``, ``bottleneck`` (with its BatchNorm), ``classifier``, as
        far as they are trained, then extra networks.
        """
        found: dict[str, slice] = {}
        for slot in self.parameters:
            first, _, rest = slot.name.partition(".")
            name = rest.partition(".")[0] if f"{first}." == EXTRAS else {"norm": "bottleneck"}.get(first, first)
            begun = found.get(name)
            found[name] = slice(slot.start if begun is None else begun.start, slot.stop)
        return found

    @property
    def staying(self) -> list[slice]:
        """Positions of the parts that stay with clients."""
        return [own for name, own in self.parts.items() if name in self.stays]

    @property
    def sent(self) -> int:
        """Values of a model that is sent: all but those that stay."""
        stay: int = sum(own.stop - own.start for own in self.staying)
        return self.width - stay

    def without_extras(self, rows: Tensor) -> Tensor:
        """Rows ``[..., P]`` as they are where there are no extra networks."""
        return torch.cat([rows[..., self.base], rows[..., self.trained :]], -1) if self.extras else rows

    @property
    def extras(self) -> dict[str, slice]:
        """Positions of the extra networks by name."""
        return {name: own for name, own in self.parts.items() if own.start >= self.base.stop}

    def positions(self, trains: Trains) -> slice:
        """Positions of a row that training changes."""
        return {"all": slice(0, self.trained), "classifier": self.head, "extractor": slice(0, self.head.start)}[trains]

    @property
    def least_images(self) -> int:
        """Images that a step needs: two where BatchNorm measures them."""
        return 2 if self.statistics else 1

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All tensors of a model, in the order of its row."""
        return (*self.parameters, *self.statistics)

    @property
    def width(self) -> int:
        """P, all positions of a row."""
        return (self.statistics or self.parameters)[-1].stop

    def read(self, network: Network) -> Tensor:
        """A network's row ``[P]``, a copy."""
        state = network.state_dict()
        return torch.cat([state[slot.name].detach().reshape(-1) for slot in self.slots])

    def write(self, network: Network, row: Tensor) -> None:
        """Copy a row ``[P]`` into a network.

        Raises:
            CheckpointError: the row has another width.
        """
        if row.shape != (self.width,):
            raise CheckpointError(f"a model row has {tuple(row.shape)} values; this network needs ({self.width},)")
        state = network.state_dict()
        with torch.no_grad():
            for slot in self.slots:
                state[slot.name].copy_(slot.of(row))

    def layers(self) -> list[list[Slot]]:
        """Convolutions and linear layers of the feature extractor's main path in order, each its weight and, where it
        has one, its bias.
        """
        beside = (*self.shortcuts, CLASSIFIER, EXTRAS)
        counted = (slot for slot in self.parameters if not slot.name.startswith(beside))
        weights = [slot for slot in counted if slot.name.endswith(".weight") and len(slot.shape) >= 2]
        bias = {slot.name: slot for slot in self.parameters if slot.name.endswith(".bias")}
        paired = [(w, bias.get(w.name.removesuffix("weight") + "bias")) for w in weights]
        return [[w, b] if b is not None else [w] for w, b in paired]


def _statistics(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Floating-point buffers that a checkpoint holds: running means and variances, not counters."""
    saved = network.state_dict().keys()
    return [(n, b) for n, b in network.named_buffers() if n in saved and b.is_floating_point()]


def mix_rows(weights: Tensor, rows: Tensor) -> Tensor:
    """Mixtures of models: ``[..., R] @ [R, P] -> [..., P]``; BatchNorm statistics like parameters.

    Where each is one of the rows, as where clients keep their models, these are copied: a product takes K² P steps.
    """
    if weights.device.type == "cpu":
        values = weights.detach().double().numpy()
        if not values.any():
            return rows.new_zeros(*weights.shape[:-1], rows.shape[1])
        if ((values == 0) | (values == 1)).all() and (values.sum(-1) == 1).all():
            picked = to_device(weights.argmax(-1).reshape(-1), rows.device)
            return rows.index_select(0, picked).reshape(*weights.shape[:-1], rows.shape[1])
    # `--precision tf32` is for what clients compute; the order of a product's sums depends on the number of threads.
    with matmul_precision("fp32", rows.device), limit_to_one_thread():
        return to_device(weights.to(rows.dtype), rows.device) @ rows
