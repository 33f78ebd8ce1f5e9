"""Checks of a model before training: what a user-defined backbone must satisfy."""

from __future__ import annotations

import copy
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

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
        FedwcaError: it gives something else, so the engines would disagree, or the backbone has BatchNorm, of which it
            is not given the running statistics.
    """
    for path, module in network.backbone.named_modules():
        if isinstance(module, _BatchNorm):
            raise FedwcaError(
                f"model {name!r}: backbone.{path} is {type(module).__name__}, whose running statistics forward_stacked "
                "is not given; right is a backbone without BatchNorm, or without forward_stacked"
            )
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
    """Check that BatchNorm layers are torch's own, and that no other layers keep running statistics.

    Only BatchNorm's are sent and averaged with a model, and the stacked engine computes all BatchNorm layers itself.
    Modules of a frozen backbone are not checked.

    Args:
        network: a newly built network.
        name: name of its architecture.

    Raises:
        FedwcaError: a BatchNorm layer lacks momentum, weights or running statistics, has a forward of its own, or does
            not follow the network's train() and eval(), or an InstanceNorm layer has running statistics; the message
            names the layer.
    """
    copied = copy.deepcopy(network)
    modes = [{path: module.training for path, module in copied.train(mode).named_modules()} for mode in (True, False)]
    for path, module in network.trained_modules():
        if fault := _fault_of_norm(module, [mode[path] for mode in modes]):
            raise FedwcaError(f"model {name!r}: {path} is {type(module).__name__} {fault}")


def _fault_of_norm(module: nn.Module, modes: list[bool]) -> str:
    """What is wrong with a normalization layer, and what would be right; empty if nothing is, or for other layers.

    Args:
        module: any module.
        modes: its ``training`` after the network's train() and after its eval().
    """
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
        return "with running statistics, which only BatchNorm may have; right is one without"
    if not isinstance(module, _BatchNorm):
        return ""
    if module.momentum is None or not module.affine or not module.track_running_stats:
        return "without momentum, weights or running statistics; right is one with all three, as by default"
    if type(module).forward is not _BatchNorm.forward:
        return (
            "with a forward of its own, which the stacked engine would not run; right is torch's nn.BatchNorm1d, 2d or "
            "3d, with what is added to it in a module beside it"
        )
    if modes != [True, False]:
        return (
            "that does not follow the model's train() and eval(), as the stacked engine lets it; right is one that "
            "does, or the attribute `frozen`, which keeps the whole backbone as it is"
        )
    return ""


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
