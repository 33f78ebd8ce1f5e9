"""How the inputs of a model's BatchNorm layers on a client's images differ from those in training."""

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
    """Sums of a layer's inputs minus its running mean, and of the squares, over images and positions, in float64."""

    def __init__(self, norm: _BatchNorm) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.mean, self.variance, self.eps = norm.running_mean.double(), norm.running_var.double(), norm.eps
        self.count, self.first, self.second = 0, torch.zeros_like(self.mean), torch.zeros_like(self.mean)

    def add(self, x: Tensor) -> None:
        """Add inputs ``[N, q, …]``."""
        centered = x.double().movedim(1, -1).reshape(-1, x.shape[1]) - self.mean
        self.count += len(centered)
        self.first += centered.sum(0)
        self.second += centered.square().sum(0)

    def shift(self) -> Tensor:
        """``[2q]``, see `moment_shift`."""
        mean = self.first / self.count
        variance = (self.second / self.count - mean.square()).clamp_min(0)
        return moment_shift(self.mean + mean, variance, self.mean, self.variance, self.eps)


def chosen_norms(network: Network, layers: NormLayers) -> list[_BatchNorm]:
    """The bottleneck's BatchNorm, or all BatchNorm layers in order.

    Raises:
        UsageError: there is none.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    if layers == "bottleneck":
        norms = [network.norm] if network.head == "bottleneck" else []
    if not norms:
        raise UsageError(
            f"a model with the head {network.head} has no BatchNorm there to read moments from; right is the head "
            "bottleneck, or another clusterer"
        )
    return norms


def count_moments(network: Network, layers: NormLayers) -> int:
    """F, the length of what `measure_moments` returns."""
    return sum(2 * norm.num_features for norm in chosen_norms(network, layers))


@torch.no_grad()
def measure_moments(network: Network, images: Tensor, layers: NormLayers = "bottleneck") -> Tensor:
    """Shift of the moments of a network's BatchNorm inputs since training ``[F]`` float64, without unit.

    Makes one pass in eval mode over plain images. F is twice the number of channels of the layers, whose values of
    `moment_shift` are concatenated.

    Args:
        network: the source model; not changed, but left in eval mode.
        images: of a client, uint8 ``[N, 3, H, W]``, N at least 1.
        layers: the bottleneck's BatchNorm, or all BatchNorm layers.
    """
    network.eval()
    sums = {norm: _InputSums(norm) for norm in chosen_norms(network, layers)}
    hooks = [norm.register_forward_pre_hook(lambda module, inputs: sums[module].add(inputs[0])) for norm in sums]
    device = network.class_vectors.device
    try:
        with limit_to_one_thread():
            for chunk in images.split(network.eval_batch_size):
                network(network.prepare(chunk.to(device)))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([input_sums.shift() for input_sums in sums.values()])
