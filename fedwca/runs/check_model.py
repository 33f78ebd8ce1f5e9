"""A try of a model before anything is trained: what a backbone of one's own must be like."""

from __future__ import annotations

import copy
from contextlib import suppress

import torch
from torch import Tensor, nn

from fedwca.core.component_answers import describe_value
from fedwca.core.network import Network
from fedwca.errors import FedwcaError


def check_model(network: Network, name: str) -> None:
    """See that a backbone gives features as it says, and draws nothing by itself.

    Args:
        network: freshly built.
        name: of its architecture.

    Raises:
        FedwcaError: it does not; says what, and what would be right.
    """
    backbone, side = network.backbone, network.side
    pattern = torch.arange(2 * 3 * side * side).remainder(251).to(torch.uint8)
    images, dtype = pattern.view(2, 3, side, side), network.class_vectors.dtype
    with torch.no_grad():
        was, found = network.training, None
        try:
            found = backbone.eval()(network.prepare(images), [])
        except Exception as error:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise FedwcaError(
                f"model {name!r}: a pass over two images of {side}×{side} pixels raises {what}"
            ) from error
        finally:
            network.train(was)
    right = f"right is {dtype} of shape (2, {backbone.width}), its `width`"
    if not isinstance(found, Tensor) or found.shape != (2, backbone.width) or found.dtype != dtype:
        raise FedwcaError(f"model {name!r}: its backbone gives {describe_value(found)} for two images; {right}")
    check_norms(network, name)
    if _draws(network, images):
        raise FedwcaError(
            f"model {name!r}: its backbone draws random numbers while it is trained, as nn.Dropout does, which no seed "
            "decides; name the place in `drops` and multiply by the mask that forward is given (docs/interfaces.md)"
        )
    if not bool(torch.isfinite(found).all()):
        raise FedwcaError(f"model {name!r}: its backbone gives values that are not finite for two images")


def check_norms(network: Network, name: str) -> None:
    """See that layers keep of a batch only what is mixed and sent with a model: BatchNorm's running statistics.

    Args:
        network: freshly built.
        name: of its architecture.

    Raises:
        FedwcaError: a layer has none, or others; names it.
    """
    left_alone = set(network.backbone.modules()) if network.backbone.frozen else set()
    for place, norm in network.named_modules():
        if norm in left_alone:
            continue
        kind = f"model {name!r}: {place} is {type(norm).__name__}"
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and (
            norm.momentum is None or not norm.affine or not norm.track_running_stats
        ):
            raise FedwcaError(
                f"{kind} without momentum, weights or running statistics; right is one with all three, as by default"
            )
        if isinstance(norm, nn.modules.instancenorm._InstanceNorm) and norm.track_running_stats:
            raise FedwcaError(f"{kind} with running statistics, which only BatchNorm may have; right is one without")


def _draws(network: Network, images: Tensor) -> bool:
    """Whether a pass of the backbone in training, of which a copy is taken, moves torch's own random numbers."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), suppress(Exception):  # what fails here fails in training
        backbone = copy.deepcopy(network.backbone).train()
        masks = [torch.ones(len(images), *drop.shape, dtype=network.class_vectors.dtype) for drop in backbone.drops]
        before = torch.get_rng_state()
        backbone(network.prepare(images), masks)
        return not torch.equal(torch.get_rng_state(), before)
    return False
