"""Base class of torchvision's residual networks without their classifier."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import WeightsEnum

from fedwca.core.files import expand_home
from fedwca.core.network import Backbone
from fedwca.core.tensor_files import fill_module, read_tensors
from fedwca.errors import CheckpointError, first_line
from fedwca.models._pretrained_backbone import PretrainedArchitecture, PretrainedBackbone
from fedwca.models._small_map_convolution import use_small_map_convolutions


class ResNet(PretrainedArchitecture):
    """A torchvision ResNet with pre-trained weights."""

    weights: Literal["imagenet", "none"] | Path = "imagenet"
    """imagenet: torchvision's, downloaded once; none: random; or a .pth, .pt or .safetensors state dict."""

    @abstractmethod
    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        """A network with random weights, and torchvision's name for its ImageNet weights."""

    def backbone(self) -> PretrainedBackbone:
        """The network up to and including global average pooling, with random weights."""
        network = self.torchvision()[0]
        body = nn.Sequential(OrderedDict(part for part in network.named_children() if part[0] != "fc"))
        body.avgpool = _MeanOverPlaces()
        use_small_map_convolutions(body)
        backbone = PretrainedBackbone(body, network.fc.in_features, self.frozen, self.augment)
        backbone.shortcuts = tuple(name for name, _ in backbone.named_modules() if name.endswith(".downsample"))
        return backbone

    def load_pretrained(self, backbone: Backbone) -> None:
        """Load the weights into the backbone; those of torchvision's classifier (``fc``) are left out.

        Raises:
            CheckpointError: the file is missing, damaged or of another network, or the download failed.
        """
        if self.weights == "none":
            return
        if isinstance(self.weights, Path):
            path = expand_home(self.weights)
            tensors = read_tensors(path, "model.weights takes imagenet, none, or")
        else:
            path, tensors = self._download()
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("fc.")}
        body = cast(PretrainedBackbone, backbone).body
        fill_module(body, tensors, path)

    def _download(self) -> tuple[Path, dict[str, Tensor]]:
        """The ImageNet weights, from torchvision's cache if they are there, and the path of their file."""
        weights = cast(Any, self.torchvision()[1])
        path = Path(torch.hub.get_dir()) / "checkpoints" / str(weights.url).rpartition("/")[2]
        if path.exists():
            # Its hash is not checked, as torch does it only on download, so no code in the file may run.
            try:
                return path, read_tensors(path, "torchvision's cache has")
            except CheckpointError as error:
                raise CheckpointError(
                    f"ImageNet weights of {self.name}: {path} is damaged, holds no weights or cannot be read; remove "
                    "it, so that it is downloaded again"
                ) from error
        try:
            return path, weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
        except (OSError, RuntimeError, pickle.UnpicklingError) as error:
            reason = first_line(error)
            raise CheckpointError(
                f"ImageNet weights of {self.name}: {weights.url} could not be downloaded to {path} ({reason}); put the "
                f"file there yourself, or take --set model.weights=PATH or --set model.weights=none"
            ) from error


class _MeanOverPlaces(nn.Module):
    """Global average pooling ``[B, C, H, W] -> [B, C]``, in a form that `torch.func.vmap` supports."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))
