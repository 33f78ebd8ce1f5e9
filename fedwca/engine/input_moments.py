"""What a model's BatchNorm layers are shown by a client's images, against what they were shown in training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedwca.core.messages import NormLayers
from fedwca.core.network import Network
from fedwca.engine.cpu_cores import limit_to_one_thread
from fedwca.errors import UsageError
from fedwca.functional import moment_shift


class _InputSums:
    """Sums of a layer's inputs over images and places, about its running mean, in float64."""

    def __init__(self, norm: _BatchNorm) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.mean, self.variance, self.eps = norm.running_mean.double(), norm.running_var.double(), norm.eps
        self.count, self.first, self.second = 0, torch.zeros_like(self.mean), torch.zeros_like(self.mean)

    def add(self, x: Tensor) -> None:
        """Inputs ``[N, q, …]``."""
        apart = x.double().movedim(1, -1).reshape(-1, x.shape[1]) - self.mean
        self.count += len(apart)
        self.first += apart.sum(0)
        self.second += apart.square().sum(0)

    def shift(self) -> Tensor:
        """``[2q]``, see `moment_shift`."""
        mean = self.first / self.count
        variance = (self.second / self.count - mean.square()).clamp_min(0)
        return moment_shift(self.mean + mean, variance, self.mean, self.variance, self.eps)


def chosen_norms(network: Network, layers: NormLayers) -> list[_BatchNorm]:
    """The bottleneck's BatchNorm, or all there are, in order.

    Raises:
        UsageError: there is none.
    """
    found = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    if layers == "bottleneck":
        found = [network.norm] if network.head == "bottleneck" else []
    if not found:
        raise UsageError(f"a model with the head {network.head} has no BatchNorm there to read moments from")
    return found


def count_moments(network: Network, layers: NormLayers) -> int:
    """F, numbers that `measure_moments` gives."""
    return sum(2 * norm.num_features for norm in chosen_norms(network, layers))


@torch.no_grad()
def measure_moments(network: Network, images: Tensor, layers: NormLayers = "bottleneck") -> Tensor:
    """How far the inputs of a network's BatchNorm are from where it was trained ``[F]`` float64, without unit.

    One pass in eval mode over plain images; F is twice the channels of the layers, one layer behind the other.

    Args:
        network: the source model; left as it is, in eval mode.
        images: of a client, uint8 ``[N, 3, H, W]``, N at least 1.
        layers: the bottleneck's BatchNorm, or all there are.
    """
    network.eval()
    sums = {norm: _InputSums(norm) for norm in chosen_norms(network, layers)}
    hooks = [norm.register_forward_pre_hook(lambda module, given: sums[module].add(given[0])) for norm in sums]
    device = network.class_vectors.device
    try:
        with limit_to_one_thread():
            for chunk in images.split(network.chunk):
                network(network.prepare(chunk.to(device)))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([own.shift() for own in sums.values()])
