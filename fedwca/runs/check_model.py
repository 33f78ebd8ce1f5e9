"""Checks of a model before training: what a user-defined backbone must satisfy."""

from __future__ import annotations

import copy
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedwca.core.component_answers import describe_value
from fedwca.core.network import Network
from fedwca.errors import FedwcaError


def check_model(network: Network, name: str) -> None:
    """Check that a backbone returns finite features of the shape and dtype it declares, and draws no random numbers.

    Args:
        network: a newly built network.
        name: name of its architecture.

    Raises:
        FedwcaError: it does not; the message says what is wrong and what is expected.
    """
    backbone, side = network.backbone, network.side
    pattern = torch.arange(2 * 3 * side * side).remainder(251).to(torch.uint8)
    images, dtype = pattern.view(2, 3, side, side), network.class_vectors.dtype
    with torch.no_grad():
        was_training, features = network.training, None
        try:
            features = backbone.eval()(network.prepare(images), [])
        except Exception as error:
            cause = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise FedwcaError(
                f"model {name!r}: a pass over two images of {side}×{side} pixels raises {cause}"
            ) from error
        finally:
            network.train(was_training)
    expected = f"right is {dtype} of shape (2, {backbone.out_features}), its `out_features`"
    if not isinstance(features, Tensor) or features.shape != (2, backbone.out_features) or features.dtype != dtype:
        raise FedwcaError(f"model {name!r}: its backbone gives {describe_value(features)} for two images; {expected}")
    check_norms(network, name)
    check_gradients(network, name)
    if _draws(network, images):
        raise FedwcaError(
            f"model {name!r}: its backbone draws random numbers while it is trained, as nn.Dropout does, which no seed "
            "decides; name the place in `drops` and multiply by the mask that forward is given (docs/interfaces.md)"
        )
    if not bool(torch.isfinite(features).all()):
        raise FedwcaError(f"model {name!r}: its backbone gives values that are not finite for two images")
    if backbone.has_forward_stacked:
        check_stacked(network, network.prepare(images), name)


def check_stacked(network: Network, images: Tensor, name: str) -> None:
    """Check that a backbone's `forward_stacked` gives what `forward` gives, for two backbones with different weights.

    Without masks, and in training mode with masks that differ between backbones and images.

    Args:
        network: a newly built network.
        images: prepared ``[2, C, side, side]``.
        name: name of its architecture.

    Raises:
        FedwcaError: it gives something else; the engines would disagree.
    """
    backbone, random = copy.deepcopy(network.backbone), torch.Generator().manual_seed(0)
    weights = [{key: scale * value.detach() for key, value in backbone.named_parameters()} for scale in (1.0, 0.5)]
    stacked_weights = {key: torch.stack([each[key] for each in weights]) for key in weights[0]}
    drawn = [(torch.rand(2, len(images), *drop.shape, generator=random), 1 - drop.p) for drop in backbone.drops]
    drop_masks = [((draws >= 0.5) / kept).to(images.dtype) for draws, kept in drawn]
    for masks, mode in (([], "eval"), (drop_masks, "training")):
        backbone.train(mode == "training")
        with torch.no_grad():
            passes = [(each, (images, [mask[i] for mask in masks])) for i, each in enumerate(weights)]
            expected = torch.stack([functional_call(backbone, *arguments) for arguments in passes])
            features = backbone.forward_stacked(stacked_weights, torch.stack([images, images]), masks)
        fits = isinstance(features, Tensor) and (features.shape, features.dtype) == (expected.shape, expected.dtype)
        # Sums in another order differ by some hundred roundings, other weights or masks by far more.
        tolerance = torch.finfo(expected.dtype).eps ** 0.5
        if not fits or not torch.allclose(features, expected, tolerance, tolerance * float(expected.abs().max())):
            description = f"other features than its forward in {mode} mode" if fits else describe_value(features)
            raise FedwcaError(f"model {name!r}: forward_stacked of its backbone gives {description}")


def check_norms(network: Network, name: str) -> None:
    """Check that only BatchNorm layers keep running statistics, since no others are sent and averaged with a model.

    Modules of a frozen backbone are not checked.

    Args:
        network: a newly built network.
        name: name of its architecture.

    Raises:
        FedwcaError: a BatchNorm layer lacks momentum, weights or running statistics, or an InstanceNorm layer has
            running statistics; the message names the layer.
    """
    for path, module in network.trained_modules():
        prefix = f"model {name!r}: {path} is {type(module).__name__}"
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (
            module.momentum is None or not module.affine or not module.track_running_stats
        ):
            raise FedwcaError(
                f"{prefix} without momentum, weights or running statistics; right is one with all three, as by default"
            )
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            raise FedwcaError(f"{prefix} with running statistics, which only BatchNorm may have; right is one without")


def check_gradients(network: Network, name: str) -> None:
    """Check that no part of a backbone is set constant: clients train the whole backbone, or none of a frozen one.

    Args:
        network: a newly built network.
        name: name of its architecture.

    Raises:
        FedwcaError: a parameter of a backbone that is not frozen needs no gradient; the message names it.
    """
    constant = [path for path, value in network.backbone.named_parameters() if not value.requires_grad]
    if constant and not network.backbone.frozen:
        raise FedwcaError(
            f"model {name!r}: backbone.{constant[0]} has requires_grad=False, and clients would train it all the same; "
            "right is True, or the attribute `frozen`, which keeps the whole backbone as it is"
        )


def _draws(network: Network, images: Tensor) -> bool:
    """Whether a forward pass of a copy of the backbone in training mode advances torch's global random generator."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), suppress(Exception):  # an error here shows up in training
        backbone = copy.deepcopy(network.backbone).train()
        masks = [torch.ones(len(images), *drop.shape, dtype=network.class_vectors.dtype) for drop in backbone.drops]
        rng_state = torch.get_rng_state()
        backbone(network.prepare(images), masks)
        return not torch.equal(torch.get_rng_state(), rng_state)
    return False
