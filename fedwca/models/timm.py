"""Any backbone of the library timm, in front of the usual bottleneck and classifier."""

from __future__ import annotations

import difflib
import fnmatch
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from fedwca.core.files import expand_home
from fedwca.core.network import Backbone
from fedwca.core.tensor_files import fill_module, open_tensors
from fedwca.errors import CheckpointError, UsageError, first_line
from fedwca.models import register
from fedwca.models._pretrained_backbone import PretrainedArchitecture, PretrainedBackbone

_WIDTHS: dict[tuple[str, int], int] = {}
"""Number of features by network and side, as measured so far."""


@register("timm")
class Timm(PretrainedArchitecture):
    """A backbone of timm by its name there, as timm:vit_tiny_patch16_224, with timm's scaling and size of images.

    Source: Wightman, PyTorch Image Models, doi:10.5281/zenodo.4414861; needs ``pip install 'fedwca[timm]'``.
    """

    label = "timm"
    paper = "Wightman, doi:10.5281/zenodo.4414861"
    positional_field = "network"

    network: str
    """Its name in timm, with or without the tag of its weights: resnet18 or resnet18.a1_in1k."""
    side: Annotated[int, Field(ge=8, le=4096)] = 224
    """Height and width in pixels of the crops that the backbone reads; unset: what its weights were trained on."""
    weights: Literal["pretrained", "none"] | Path = "pretrained"
    """pretrained: timm's, downloaded once from the Hugging Face hub; none: random; or a .safetensors state dict."""

    @field_validator("network")
    @classmethod
    def _is_known(cls, value: str) -> str:
        known_names = _names()
        name, _, tag = value.partition(".")
        # Other names may have a prefix by which timm would fetch settings from elsewhere.
        if value not in known_names and (tag or name not in known_names):
            close = difflib.get_close_matches(value, known_names, 3)
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ";"
            raise ValueError(f"timm has no network of that name{hint} fedwca list models 'timm:*' names all")
        return value

    @model_validator(mode="before")
    @classmethod
    def _has_its_own_side(cls, values: Any) -> Any:
        if isinstance(values, dict) and "side" not in values and values.get("network") in _names():
            return {**values, "side": int(_description(values["network"]).input_size[-1])}
        return values

    @classmethod
    def positional_values(cls, pattern: str) -> list[str]:
        """Names of timm's networks; with the tags of their weights where the pattern has a dot.

        Raises:
            UsageError: timm is not installed.
        """
        return [name for name in fnmatch.filter(_names(), pattern) if ("." in name) == ("." in pattern)]

    def identity(self) -> dict[str, Any]:
        """As in the base class, with the weights' repository on the hub, which may differ between versions of timm."""
        weights = {"weights": _description(self.network).hf_hub_id} if self.weights == "pretrained" else {}
        return {**super().identity(), **weights}

    def backbone(self) -> PretrainedBackbone:
        """The network without its classifier and without dropout, with random weights.

        Raises:
            UsageError: the network cannot be built, or cannot read images of that side.
        """
        import timm

        description = _description(self.network)
        size_option = {"img_size": self.side} if description.fixed_input_size else {}
        try:
            body = timm.create_model(self.network, pretrained=False, num_classes=0, **size_option)
            body = _plain_modules(body, fused=self.frozen)
            width = _measure_width(body, (self.network, self.side))
        except Exception as error:  # each network raises exceptions of its own
            reason = first_line(error)
            raise UsageError(
                f"timm:{self.network} cannot be made for images of {self.side}×{self.side} pixels ({reason}); its own "
                f"side is {description.input_size[-1]}"
            ) from error
        settings = (self.frozen, self.augment, tuple(description.mean), tuple(description.std))
        backbone = PretrainedBackbone(body, width, *settings)
        from timm.models.resnet import BasicBlock, Bottleneck

        blocks = (name for name, module in backbone.named_modules() if isinstance(module, BasicBlock | Bottleneck))
        backbone.shortcuts = tuple(f"{name}.downsample" for name in blocks)
        return backbone

    def load_pretrained(self, backbone: Backbone) -> None:
        """Load the weights into the backbone, as timm converts them; those of its classifier are left out.

        Raises:
            CheckpointError: the file is missing, damaged, a pickle or of another network, or the download failed.
        """
        if self.weights == "none":
            return
        path = expand_home(self.weights) if isinstance(self.weights, Path) else self._download()
        if path.suffix != ".safetensors":
            raise CheckpointError(
                f"{path}: weights for timm are read from .safetensors files alone, which hold no code"
            )
        if not path.is_file():
            raise CheckpointError(f"{path}: no such file; model.weights takes pretrained, none, or a .safetensors file")
        tensors, body = open_tensors(path).tensors(), cast(PretrainedBackbone, backbone).body
        convert = getattr(sys.modules[type(body).__module__], "checkpoint_filter_fn", None)
        try:
            tensors = tensors if convert is None else convert(tensors, body)
        except Exception as error:  # exceptions of many kinds for another network's tensors
            raise CheckpointError(f"{path}: not weights of timm:{self.network} ({error})") from error
        classifier = _description(self.network).classifier or ()
        left_out = tuple(f"{name}." for name in ([classifier] if isinstance(classifier, str) else classifier))
        tensors = _renamed(body, {name: tensor for name, tensor in tensors.items() if not name.startswith(left_out)})
        fill_module(body, tensors, path)

    def _download(self) -> Path:
        """Path of the file of weights, in the hub's cache; downloaded if it is not there."""
        location = _description(self.network).hf_hub_id
        hint = "take --set model.weights=PATH of a .safetensors file, or --set model.weights=none"
        if not location:
            raise CheckpointError(f"timm has no weights of {self.network}; {hint}")
        from huggingface_hub import hf_hub_download

        repository, _, revision = location.partition("@")
        try:
            return Path(hf_hub_download(repository, "model.safetensors", revision=revision or None))
        except Exception as error:  # those of the hub, of network and system
            reason = first_line(error)
            raise CheckpointError(f"weights of timm:{self.network} could not be fetched ({reason}); {hint}") from error


def _names() -> dict[str, None]:
    """Names of all networks of timm, then names with the tags of their weights."""
    try:
        import timm
    except ImportError:
        raise UsageError("needs the library timm, which is not installed: pip install 'fedwca[timm]'") from None
    return dict.fromkeys((*timm.list_models(), *timm.list_models(pretrained=True)))


def _description(name: str) -> Any:
    """Timm's description of a network and its weights."""
    from timm.models import get_pretrained_cfg

    return get_pretrained_cfg(name)


class _Nothing(nn.Identity):
    """Replaces dropout: draws nothing, so that every engine computes the same."""

    p = drop_prob = 0.0


def _plain_modules(body: nn.Module, fused: bool) -> nn.Module:
    """Replace, in place, the modules of a network that cannot be computed for many models at once.

    Args:
        body: the network.
        fused: whether attention may use a fused kernel.
    """
    from timm.layers import BatchNormAct2d, DropPath

    for name, module in list(body.named_modules()):
        if isinstance(module, nn.modules.dropout._DropoutNd | DropPath):
            _put(body, name, _Nothing())
        elif isinstance(module, BatchNormAct2d):
            norm = nn.BatchNorm2d(module.num_features, module.eps, module.momentum, module.affine)
            norm.load_state_dict({key: tensor for key, tensor in module.state_dict().items() if "." not in key})
            _put(body, name, nn.Sequential(OrderedDict(norm=norm, act=module.act)))
        if not fused and hasattr(module, "fused_attn"):
            module.fused_attn = False
    return body


def _put(body: nn.Module, name: str, module: nn.Module) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(body.get_submodule(owner), attribute, module)


def _renamed(body: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of normalisations that `_plain_modules` split into a normalisation and an activation."""
    norm_names = {
        name for name, module in body.named_modules() if name.endswith(".norm") and isinstance(module, nn.BatchNorm2d)
    }
    owners = {name.removesuffix(".norm") for name in norm_names}
    parts = ((name.rpartition("."), tensor) for name, tensor in tensors.items())
    return {
        f"{owner}.norm.{key}" if owner in owners else f"{owner}{dot}{key}": tensor
        for (owner, dot, key), tensor in parts
    }


@torch.no_grad()
def _measure_width(body: nn.Module, network_and_side: tuple[str, int]) -> int:
    """Number of features of an image, measured by a forward pass and remembered."""
    if network_and_side not in _WIDTHS:
        _WIDTHS[network_and_side] = (
            body.eval()(torch.zeros(1, 3, network_and_side[1], network_and_side[1])).flatten(1).shape[1]
        )
        body.train()
    return _WIDTHS[network_and_side]
