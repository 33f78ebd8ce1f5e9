"""One network on which any row can be put without a copy, and the two things done with it: predict and step."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedwca.engine.bank import Layout
from fedwca.engine.randomness import uniform
from fedwca.engine.task import Training
from fedwca.network import Drop, Network
from fedwca.types import Predictions


class Replica:
    """A private copy of the network; its feature extractor's tensors are views of whatever row is bound.

    Training steps therefore change the bound row in place: parameters by SGD, BatchNorm statistics by the modules.
    """

    def __init__(self, network: Network, layout: Layout) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.layout = layout
        self.drops = network.drops
        self.class_vectors = self.network.class_vectors
        like = self.class_vectors
        self.gradient = torch.zeros(layout.trained, dtype=like.dtype, device=like.device)
        self.momentum = torch.zeros_like(self.gradient)
        owners = dict(self.network.named_modules())
        self._parameters = [(slot, self.network.get_parameter(slot.name)) for slot in layout.parameters]
        for slot, parameter in self._parameters:
            parameter.requires_grad_(True)
            parameter.grad = slot.of(self.gradient)
        self._buffers: list[tuple[nn.Module, str, int]] = [
            (owners[slot.name.rpartition(".")[0]], slot.name.rpartition(".")[2], index)
            for index, slot in enumerate(layout.statistics)
        ]

    def bind(self, row: Tensor) -> None:
        """Put the model ``row [P]`` on the network; nothing is copied."""
        self.row = row
        for slot, parameter in self._parameters:
            parameter.data = slot.of(row)
        for module, name, index in self._buffers:
            # .data: a version counter of its own, else updating one statistic makes autograd distrust the others.
            module._buffers[name] = self.layout.statistics[index].of(row).data

    @torch.no_grad()
    def predict(self, images: Tensor, batch: int | None = None) -> Predictions:
        """Predictions for uint8 images ``[N, 3, H, W]`` in eval mode, no augmentation, in batches."""
        self.network.eval()
        chunks = images.split(batch or self.network.chunk)
        parts = [self.network(self.network.prepare(chunk)) for chunk in chunks]
        logits, features = zip(*parts, strict=True)
        return Predictions(torch.cat(logits), torch.cat(features))

    @torch.no_grad()
    def recalibrate(self, images: Tensor, batch: int | None = None) -> None:
        """Replace the bound row's BatchNorm statistics by those of these images, one pass, no dropout."""
        kept = set(self.network.backbone.modules()) if self.network.backbone.frozen else set()
        found = (m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
        norms = [norm for norm in found if norm not in kept]
        if not norms or len(images) < 2:
            return
        before = [norm.momentum for norm in norms]
        self.network.eval()
        for norm in norms:
            norm.train()
        seen = 0
        for chunk in images.split(batch or self.network.chunk):
            if len(chunk) < 2:
                continue
            seen += len(chunk)
            for norm in norms:
                # A running mean over chunks: each moves the statistics by its share of what was seen so far.
                norm.momentum = len(chunk) / seen
            self.network(self.network.prepare(chunk))
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum

    def begin(self) -> None:
        """Fresh momentum and training mode: the start of a client's round."""
        self.network.train()
        self.momentum.zero_()

    def step(self, loss: Tensor, pull: Tensor | None, training: Training) -> None:
        """One SGD step on the bound row: g + wd·w, momentum without dampening, as torch.optim.SGD does it.

        Args:
            loss: what the network's outputs cost ``[]``.
            pull: further gradient of the parameters ``[P]``, for penalties on the model itself.
            training: learning rate, momentum, weight decay, and the largest length of the gradient.
        """
        self.gradient.zero_()
        loss.backward()
        if pull is not None:
            self.gradient.add_(pull)
        if training.clip is not None:
            # As torch.nn.utils.clip_grad_norm_ does it, on the parameters of all layers together.
            self.gradient.mul_((training.clip / (self.gradient.norm() + 1e-6)).clamp_max(1))
        parameters = self.row[: self.layout.trained]
        decay, mu = training.weight_decay, training.momentum
        self.momentum.mul_(mu).add_(self.gradient).add_(parameters, alpha=decay)
        if training.nesterov:
            self.gradient.add_(parameters, alpha=decay).add_(self.momentum, alpha=mu)
            parameters.add_(self.gradient, alpha=-training.lr)
        else:
            parameters.add_(self.momentum, alpha=-training.lr)


def masks(drops: Sequence[Drop], key: int, step: int, positions: Tensor, stride: int) -> list[Tensor]:
    """Dropout masks for the given positions of a step, scaled by 1/(1-p).

    Args:
        drops: the places of the network where units are dropped.
        key: key of this training's dropout.
        step: number of the step within the training.
        positions: places in the step ``[B]`` int64; a mixed image's place is ``batch size + place of its sample``.
        stride: places per step.

    Returns:
        One float32 mask for each entry of ``drops``, ``[B, *shape]``.
    """
    counts = [torch.Size(drop.shape).numel() for drop in drops]
    base = (step * stride + positions)[:, None] * sum(counts)
    drawn = uniform(key, base + torch.arange(sum(counts), device=positions.device)).split(counts, 1)
    return [
        ((u >= drop.p).float() / (1 - drop.p)).unflatten(1, drop.shape) for u, drop in zip(drawn, drops, strict=True)
    ]
