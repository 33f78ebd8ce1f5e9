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
from fedwca.errors import CheckpointError, UsageError

CLASSIFIER = "classifier."
"""Prefix of the names of the classifier's tensors."""
BASE_PARTS = ("backbone", "bottleneck", "classifier")
"""Names of the parts of the base network; extra networks have other names."""
EXTRAS = "extras."
"""Prefix of the names of extra networks' tensors; the network's name follows."""


@dataclass(frozen=True)
class Slot:
    """One tensor's place in a row."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """First position after it."""
        return self.start + torch.Size(self.shape).numel()

    def of(self, rows: Tensor) -> Tensor:
        """The tensor as a view: ``[..., P] -> [..., *shape]``."""
        return rows[..., self.start : self.stop].view(*rows.shape[:-1], *self.shape)


@dataclass(frozen=True)
class Layout:
    """The order of a row: trained parameters first, then BatchNorm statistics.

    The base network, which predicts, comes before extra networks. Its last parameters are those of the classifier if
    that is trained; a frozen classifier is in no row.
    """

    parameters: tuple[Slot, ...]
    statistics: tuple[Slot, ...]
    shortcuts: tuple[str, ...] = ()
    """Name prefixes of tensors that are not on the main path; they do not count as layers."""
    local_parts: tuple[str, ...] = ()
    """Names of parts that each client keeps for itself; they have places in every row, but are not sent or mixed."""

    @classmethod
    def of(cls, network: Network) -> Layout:
        """The layout of a network, without a frozen backbone, and without the classifier unless clients train it.

        Raises:
            UsageError: nothing of the network is trained.
        """
        shared_classifier = () if network.trains_classifier else (CLASSIFIER,)
        excluded = (*shared_classifier, *(("backbone.",) if network.backbone.frozen else ()))
        position = 0

        def place(tensors: Any) -> tuple[Slot, ...]:
            nonlocal position
            slots = []
            for name, tensor in tensors:
                slots.append(Slot(name, tuple(tensor.shape), position))
                position = slots[-1].stop
            return tuple(slots)

        included = [(n, p) for n, p in network.named_parameters() if not n.startswith(excluded)]
        if not included:
            raise UsageError(
                "nothing of the model is trained: its backbone and its classifier are frozen, and it has no bottleneck "
                "between them; leave out frozen=true, or take a head with a bottleneck"
            )
        parameters = place(
            sorted(included, key=lambda item: (item[0].startswith(EXTRAS), item[0].startswith(CLASSIFIER)))
        )
        statistics = place((n, b) for n, b in _statistics(network) if not n.startswith(excluded))
        shortcuts = tuple(f"backbone.{name}." for name in network.backbone.shortcuts)
        return cls(parameters, statistics, shortcuts, network.local_parts)

    @property
    def norms(self) -> list[tuple[Slot, Slot]]:
        """Slots of the running mean and variance of each BatchNorm layer, in the order of a row."""
        by_name = {slot.name: slot for slot in self.statistics}
        layers = [name.removesuffix("running_mean") for name in by_name if name.endswith("running_mean")]
        return [(by_name[f"{layer}running_mean"], by_name[f"{layer}running_var"]) for layer in layers]

    @property
    def trained(self) -> int:
        """Number of trained parameters, which are the first positions of a row."""
        return self.parameters[-1].stop

    @property
    def classifier(self) -> slice:
        """Positions of the classifier in a row; empty if it is frozen."""
        starts = [slot.start for slot in self.parameters if slot.name.startswith(CLASSIFIER)]
        return slice(min(starts, default=self.base.stop), self.base.stop)

    def last_layers(self, count: int) -> slice:
        """Positions of the last ``count`` trained layers of the base network, and of all parameters between them.

        Args:
            count: number of layers; the classifier is the last one if it is trained.
        """
        starts = [weight.start for weight, *_ in self.layers()]
        starts += [self.classifier.start] if self.classifier.start < self.classifier.stop else []
        return slice(starts[-count:][0], self.base.stop)

    def statistics_of(self, trained: slice) -> list[slice]:
        """Positions of the BatchNorm statistics of modules that have parameters in the positions ``trained``."""
        names = {slot.name.rpartition(".")[0] for slot in self.parameters if trained.start <= slot.start < trained.stop}
        return [slice(s.start, s.stop) for s in self.statistics if s.name.rpartition(".")[0] in names]

    @property
    def base(self) -> slice:
        """Positions of the base network's parameters, without those of extra networks, which follow."""
        stops = [slot.stop for slot in self.parameters if not slot.name.startswith(EXTRAS)]
        return slice(0, max(stops, default=0))

    @property
    def parts(self) -> dict[str, slice]:
        """Positions of the trained parts by name.

        These are ``backbone``, ``bottleneck`` (with its BatchNorm) and ``classifier``, as far as they are trained, then
        the extra networks.
        """
        parts: dict[str, slice] = {}
        for slot in self.parameters:
            module, _, remainder = slot.name.partition(".")
            name = remainder.partition(".")[0] if f"{module}." == EXTRAS else {"norm": "bottleneck"}.get(module, module)
            earlier = parts.get(name)
            parts[name] = slice(slot.start if earlier is None else earlier.start, slot.stop)
        return parts

    @property
    def staying(self) -> list[slice]:
        """Positions of the parts that stay with clients."""
        return [positions for name, positions in self.parts.items() if name in self.local_parts]

    @property
    def sent(self) -> int:
        """Number of values in a model that is sent: all but those that stay with clients."""
        staying_values: int = sum(positions.stop - positions.start for positions in self.staying)
        return self.width - staying_values

    def without_extras(self, rows: Tensor) -> Tensor:
        """Rows ``[..., P]`` without the positions of extra networks."""
        return torch.cat([rows[..., self.base], rows[..., self.trained :]], -1) if self.extras else rows

    @property
    def extras(self) -> dict[str, slice]:
        """Positions of the extra networks by name."""
        return {name: positions for name, positions in self.parts.items() if positions.start >= self.base.stop}

    def positions(self, trains: Trains) -> slice:
        """Positions of a row that training changes."""
        extractor = slice(0, self.classifier.start)
        return {"all": slice(0, self.trained), "classifier": self.classifier, "extractor": extractor}[trains]

    @property
    def least_images(self) -> int:
        """Smallest number of images in a step: two if there is BatchNorm, which takes their variance."""
        return 2 if self.statistics else 1

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All tensors of a model, in the order of its row."""
        return (*self.parameters, *self.statistics)

    @property
    def width(self) -> int:
        """P, the number of values in a row."""
        return (self.statistics or self.parameters)[-1].stop

    def read(self, network: Network) -> Tensor:
        """A network's row ``[P]``, a copy."""
        state = network.state_dict()
        return torch.cat([state[slot.name].detach().reshape(-1) for slot in self.slots])

    def read_others(self, network: Network) -> dict[str, Tensor]:
        """A network's tensors that are in no row, by name, such as a frozen classifier's; not copies."""
        names_in_row = {slot.name for slot in self.slots}
        return {name: value for name, value in network.state_dict().items() if name not in names_in_row}

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
        """Convolutions and linear layers of the feature extractor's main path, in order.

        Each is a list of its weight and, if it has one, its bias.
        """
        excluded = (*self.shortcuts, CLASSIFIER, EXTRAS)
        slots = (slot for slot in self.parameters if not slot.name.startswith(excluded))
        weights = [slot for slot in slots if slot.name.endswith(".weight") and len(slot.shape) >= 2]
        biases = {slot.name: slot for slot in self.parameters if slot.name.endswith(".bias")}
        pairs = [(w, biases.get(w.name.removesuffix("weight") + "bias")) for w in weights]
        return [[w, b] if b is not None else [w] for w, b in pairs]


def _statistics(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Floating-point buffers that a checkpoint holds: running means and variances, not counters."""
    saved = network.state_dict().keys()
    return [(n, b) for n, b in network.named_buffers() if n in saved and b.is_floating_point()]


def mix_rows(weights: Tensor, rows: Tensor) -> Tensor:
    """Mixtures of models: ``[..., R] @ [R, P] -> [..., P]``; BatchNorm statistics are mixed like parameters.

    If each mixture is just one of the rows, as when clients keep their models, rows are copied instead: a matrix
    product would take K² P operations.
    """
    if weights.device.type == "cpu":
        values = weights.detach().double().numpy()
        if not values.any():
            return rows.new_zeros(*weights.shape[:-1], rows.shape[1])
        if ((values == 0) | (values == 1)).all() and (values.sum(-1) == 1).all():
            indices = to_device(weights.argmax(-1).reshape(-1), rows.device)
            return rows.index_select(0, indices).reshape(*weights.shape[:-1], rows.shape[1])
    # `--precision tf32` is only for what clients compute. The number of threads would change the order of summation.
    with matmul_precision("fp32", rows.device), limit_to_one_thread():
        return to_device(weights.to(rows.dtype), rows.device) @ rows
