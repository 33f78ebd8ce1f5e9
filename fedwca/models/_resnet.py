"""torchvision's residual networks without their classifier, shared by the files that name one each."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import WeightsEnum

from fedwca.core.network import Architecture, Backbone
from fedwca.core.tensor_files import file_digest, fill_module, read_tensors, refuse_others
from fedwca.errors import CheckpointError


class Residual(Backbone):
    """All of a torchvision ResNet up to and with its mean over places; ImageNet's scaling, crops of 7/8 in training."""

    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)
    augments = True

    def __init__(self, network: TorchvisionResNet, frozen: bool) -> None:
        super().__init__()
        self.width = network.fc.in_features
        self.frozen = frozen
        self.body = nn.Sequential(OrderedDict(part for part in network.named_children() if part[0] != "fc"))
        self.shortcuts = tuple(name for name, _ in self.named_modules() if name.endswith(".downsample"))

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return cast(Tensor, self.body(x).flatten(1))


class ResNet(Architecture):
    """A torchvision ResNet with pre-trained weights; images are kept at 8/7 of ``side`` and cropped."""

    side: Annotated[int, Field(ge=32, le=4096)] = 224
    """Height and width in pixels of the crops that the backbone reads."""
    weights: Literal["imagenet", "none"] | Path = "imagenet"
    """imagenet: torchvision's, downloaded once; none: random; or a .pth, .pt or .safetensors state dict."""
    frozen: bool = False
    """Whether only the bottleneck is trained and sent, the backbone staying as its weights are."""

    @property
    def stored(self) -> int:
        """256 for crops of 224, as in SHOT."""
        return round(self.side * 256 / 224)

    @abstractmethod
    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        """A network with random weights, and torchvision's name for its ImageNet weights."""

    def backbone(self) -> Residual:
        """The network without its classifier, random weights."""
        return Residual(self.torchvision()[0], self.frozen)

    def identity(self) -> dict[str, Any]:
        """As in the base class, with the content of a file of weights in place of its path."""
        found = super().identity()
        if isinstance(self.weights, Path):
            found["weights"] = file_digest(self.weights.expanduser())
        return found

    def load_pretrained(self, backbone: Backbone) -> None:
        """Put the weights on the backbone; those of torchvision's classifier (``fc``) are left out.

        Raises:
            CheckpointError: the file is missing, damaged or of another network, or the download failed.
        """
        if self.weights == "none":
            return
        if isinstance(self.weights, Path):
            path = self.weights.expanduser()
            tensors = read_tensors(path, "model.weights takes imagenet, none, or")
        else:
            path, tensors = self._download()
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("fc.")}
        body = cast(Residual, backbone).body
        fill_module(body, tensors, path)
        refuse_others(body, tensors, path)

    def _download(self) -> tuple[Path, dict[str, Tensor]]:
        """The ImageNet weights, from torchvision's cache where they are there."""
        weights = cast(Any, self.torchvision()[1])
        path = Path(torch.hub.get_dir()) / "checkpoints" / str(weights.url).rpartition("/")[2]
        try:
            # The hash is checked where the file is downloaded, not where it lies: what is in it must not run.
            return path, weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
        except (OSError, RuntimeError, pickle.UnpicklingError) as error:
            why = str(error).partition("\n")[0]
            raise CheckpointError(
                f"ImageNet weights of {self.name}: {weights.url} could not be downloaded to {path} ({why}); put the "
                f"file there yourself, or take --set model.weights=PATH or --set model.weights=none"
            ) from error
