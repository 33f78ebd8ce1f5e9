"""What the engines are measured against: their own training of LeNets, written by hand with the same kernels.

Images as bytes that become floats in every step, channels last in memory; flat rows with one fused update; no
components, no counters, no server. So it is as quick as an engine could be, on any CPU, and a ratio near 1 says what
the library around the kernels costs. Frozen: who changes it measures `gate.json` anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import torch
import torch.nn.functional as F
from beside import CLASSES, images
from plain import objective
from torch import Tensor

BATCH, LR, DECAY = 64, 1e-3, 1e-3
SHAPES = ((20, 3, 5, 5), (20,), (50, 20, 5, 5), (50,), (256, 1250), (256,), (256,), (256,))
"""Two convolutions, the bottleneck and its BatchNorm: weights and biases."""
SIZES = [prod(shape) for shape in SHAPES]


class Models:
    """LeNets as rows of one tensor, with a frozen classifier for all."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(0)
        self.rows = torch.randn(count, sum(SIZES), generator=draw) * 0.05
        self.momentum = torch.zeros_like(self.rows)
        self.mean, self.var = torch.zeros(count, 256), torch.ones(count, 256)
        self.classifier = torch.randn(CLASSES, 256, generator=draw) * 0.05, torch.zeros(CLASSES)


def descend(parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> None:
    """A step of SGD with momentum and weight decay."""
    with torch.no_grad():
        torch._fused_sgd_(
            parameters,
            gradients,
            momenta,
            weight_decay=DECAY,
            momentum=0.9,
            lr=LR,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


def pieces(row: Tensor) -> list[Tensor]:
    """The tensors of a model ``[P]``, as views."""
    return [own.view(shape) for own, shape in zip(row.split(SIZES), SHAPES, strict=True)]


def steps(count: int) -> Iterator[Tensor]:
    """Images of an epoch's steps, in an order of their own."""
    yield from torch.randperm(count).split(BATCH)


def scaled(own: Tensor) -> Tensor:
    """Bytes ``[B, 32, 32, 3]`` as what a network reads ``[B, 3, 32, 32]``."""
    return own.flatten(2).float().sub_(127.5).div_(127.5).view(own.shape).permute(0, 3, 1, 2)


def drops(*shape: int) -> Tensor:
    """A dropout mask."""
    return torch.empty(shape).bernoulli_(0.5).mul_(2)


def loop(clients: int, each: int) -> Callable[[], None]:
    """An epoch of one client after another."""
    data, models = images(clients, each).permute(0, 1, 3, 4, 2).contiguous(), Models(clients)
    labels, (weight, bias) = torch.arange(each) % CLASSES, models.classifier

    def train(client: int) -> None:
        leaves = [own.requires_grad_() for own in pieces(models.rows[client])]
        momenta = pieces(models.momentum[client].zero_())
        for here in steps(each):
            w1, b1, w2, b2, w3, b3, scale, shift = leaves
            x = F.relu(F.max_pool2d(F.conv2d(scaled(data[client].index_select(0, here)), w1, b1), 2))
            x = F.max_pool2d(F.conv2d(x, w2, b2), 2)
            z = F.linear(F.relu(x * drops(len(here), 50, 1, 1)).flatten(1), w3, b3)
            z = F.batch_norm(z, models.mean[client], models.var[client], scale, shift, training=True)
            logits = F.linear(z * drops(len(here), 256), weight, bias)
            found = torch.autograd.grad(objective(logits, labels[here]), leaves)
            descend([own.detach() for own in leaves], [own.contiguous() for own in found], momenta)

    return lambda: [train(client) for client in range(clients)] and None  # type: ignore[func-returns-value]


def stacked(clients: int, each: int) -> Callable[[], None]:
    """An epoch of all clients at once: their channels side by side, in groups."""
    data, models = images(clients, each).permute(0, 1, 3, 4, 2).flatten(0, 1).contiguous(), Models(clients)
    labels, (weight, bias) = torch.arange(each) % CLASSES, models.classifier
    first = torch.arange(clients)[:, None] * each

    def step(here: Tensor) -> None:
        batch = here.shape[1]
        leaf = models.rows.detach().requires_grad_()
        parts = zip(leaf.split(SIZES, 1), SHAPES, strict=True)
        w1, b1, w2, b2, w3, b3, scale, shift = (own.unflatten(1, shape) for own, shape in parts)
        x = scaled(data[(first + here).flatten()]).unflatten(0, (clients, batch))
        x = x.permute(1, 3, 4, 0, 2).contiguous().flatten(3).permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(F.conv2d(x, w1.flatten(0, 1), b1.flatten(), groups=clients), 2))
        x = F.max_pool2d(F.conv2d(x, w2.flatten(0, 1), b2.flatten(), groups=clients), 2)
        x = F.relu(x * drops(batch, clients * 50, 1, 1)).unflatten(1, (clients, 50)).transpose(0, 1).flatten(2)
        z = torch.baddbmm(b3[:, None], x, w3.transpose(1, 2))
        var, mean = torch.var_mean(z, 1, correction=0)
        factor = scale * torch.rsqrt(var + 1e-5)
        z = torch.addcmul((shift - mean * factor)[:, None], z, factor[:, None])
        with torch.no_grad():
            models.mean.lerp_(mean, 0.1)
            models.var.lerp_(var * (batch / (batch - 1)), 0.1)
        logits = F.linear(z * drops(clients, batch, 256), weight, bias)
        loss = torch.func.vmap(objective)(logits, labels[here]).sum()
        (found,) = torch.autograd.grad(loss, leaf)
        descend(*(list(own.unbind()) for own in (models.rows, found, models.momentum)))

    def work() -> None:
        models.momentum.zero_()
        for here in torch.stack([torch.randperm(each) for _ in range(clients)]).split(BATCH, 1):
            step(here)

    return work


BY_ENGINE = {"loop": loop, "stacked": stacked}
