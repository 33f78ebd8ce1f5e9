"""What the engines are measured against: their own training of LeNets, written by hand with the same kernels.

Images are stored as bytes and converted to floats in every step, channels last in memory; models are flat rows that one
fused SGD step updates; there are no components, no counters and no server. So this is as fast as an engine could be on
any CPU, and an engine's CPU time over this one's says what the library around the kernels costs (1: nothing). Frozen:
after a change here, `gate.json` has to be measured again.
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
    """LeNets as the rows of one tensor, with one frozen classifier for all."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = torch.randn(count, sum(SIZES), generator=generator) * 0.05
        self.momentum = torch.zeros_like(self.rows)
        self.mean, self.var = torch.zeros(count, 256), torch.ones(count, 256)
        self.classifier = torch.randn(CLASSES, 256, generator=generator) * 0.05, torch.zeros(CLASSES)


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
    """The weights and biases of a model ``[P]``, as views of it."""
    return [part.view(shape) for part, shape in zip(row.split(SIZES), SHAPES, strict=True)]


def steps(count: int) -> Iterator[Tensor]:
    """Yield the image indices of each step of an epoch, in random order."""
    yield from torch.randperm(count).split(BATCH)


def scaled(pixels: Tensor) -> Tensor:
    """Bytes ``[B, 32, 32, 3]`` as floats from -1 to 1, ``[B, 3, 32, 32]``, for a network."""
    return pixels.flatten(2).float().sub_(127.5).div_(127.5).view(pixels.shape).permute(0, 3, 1, 2)


def drops(*shape: int) -> Tensor:
    """A dropout mask: 0 or 2, each with probability 0.5."""
    return torch.empty(shape).bernoulli_(0.5).mul_(2)


def loop(clients: int, images_per_client: int) -> Callable[[], None]:
    """A function that trains the clients for one epoch, one after another."""
    data, models = images(clients, images_per_client).permute(0, 1, 3, 4, 2).contiguous(), Models(clients)
    labels, (weight, bias) = torch.arange(images_per_client) % CLASSES, models.classifier

    def train(client: int) -> None:
        leaves = [tensor.requires_grad_() for tensor in pieces(models.rows[client])]
        momenta = pieces(models.momentum[client].zero_())
        for indices in steps(images_per_client):
            w1, b1, w2, b2, w3, b3, scale, shift = leaves
            x = F.relu(F.max_pool2d(F.conv2d(scaled(data[client].index_select(0, indices)), w1, b1), 2))
            x = F.max_pool2d(F.conv2d(x, w2, b2), 2)
            z = F.linear(F.relu(x * drops(len(indices), 50, 1, 1)).flatten(1), w3, b3)
            z = F.batch_norm(z, models.mean[client], models.var[client], scale, shift, training=True)
            logits = F.linear(z * drops(len(indices), 256), weight, bias)
            gradients = torch.autograd.grad(objective(logits, labels[indices]), leaves)
            descend([tensor.detach() for tensor in leaves], [tensor.contiguous() for tensor in gradients], momenta)

    return lambda: [train(client) for client in range(clients)] and None  # type: ignore[func-returns-value]


def stacked(clients: int, images_per_client: int) -> Callable[[], None]:
    """A function that trains all clients for one epoch at once: their channels are groups of one convolution."""
    data, models = images(clients, images_per_client).permute(0, 1, 3, 4, 2).flatten(0, 1).contiguous(), Models(clients)
    labels, (weight, bias) = torch.arange(images_per_client) % CLASSES, models.classifier
    offsets = torch.arange(clients)[:, None] * images_per_client

    def step(indices: Tensor) -> None:
        batch_size = indices.shape[1]
        leaf = models.rows.detach().requires_grad_()
        parts = zip(leaf.split(SIZES, 1), SHAPES, strict=True)
        w1, b1, w2, b2, w3, b3, scale, shift = (tensor.unflatten(1, shape) for tensor, shape in parts)
        x = scaled(data[(offsets + indices).flatten()]).unflatten(0, (clients, batch_size))
        x = x.permute(1, 3, 4, 0, 2).contiguous().flatten(3).permute(0, 3, 1, 2)
        x = F.relu(F.max_pool2d(F.conv2d(x, w1.flatten(0, 1), b1.flatten(), groups=clients), 2))
        x = F.max_pool2d(F.conv2d(x, w2.flatten(0, 1), b2.flatten(), groups=clients), 2)
        x = F.relu(x * drops(batch_size, clients * 50, 1, 1)).unflatten(1, (clients, 50)).transpose(0, 1).flatten(2)
        z = torch.baddbmm(b3[:, None], x, w3.transpose(1, 2))
        var, mean = torch.var_mean(z, 1, correction=0)
        factor = scale * torch.rsqrt(var + 1e-5)
        z = torch.addcmul((shift - mean * factor)[:, None], z, factor[:, None])
        with torch.no_grad():
            models.mean.lerp_(mean, 0.1)
            models.var.lerp_(var * (batch_size / (batch_size - 1)), 0.1)
        logits = F.linear(z * drops(clients, batch_size, 256), weight, bias)
        loss = torch.func.vmap(objective)(logits, labels[indices]).sum()
        (gradients,) = torch.autograd.grad(loss, leaf)
        descend(*(list(tensor.unbind()) for tensor in (models.rows, gradients, models.momentum)))

    def run_epoch() -> None:
        models.momentum.zero_()
        for indices in torch.stack([torch.randperm(images_per_client) for _ in range(clients)]).split(BATCH, 1):
            step(indices)

    return run_epoch


BY_ENGINE = {"loop": loop, "stacked": stacked}
