"""Networks as domain adaptation splits them: a feature extractor (backbone, bottleneck) and a classifier."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

from fedwca._deprecated import forward_names
from fedwca.core.backbone import Backbone, Drop
from fedwca.core.drawn_features import SPREAD, classify_draws
from fedwca.errors import UsageError
from fedwca.functional.crops import center_crop, crop_and_flip, crop_corners

__all__ = ["Backbone", "Drop", "Head", "Network", "call_module", "initial_weights"]

_RENAMED = {"Architecture": "fedwca.core.architecture.Architecture"}
if not TYPE_CHECKING:  # type checkers would otherwise accept any name
    __getattr__ = forward_names(__name__, _RENAMED)

Head = Literal["bottleneck", "hidden", "direct"]
"""The layers between backbone and classifier: bottleneck, a fully connected layer with BatchNorm and optional ReLU;
hidden, a fully connected layer with ReLU; direct, none. Optional dropout follows each of them."""


class Network(nn.Module):
    """A backbone, a head and a linear classifier.

    `extract` returns the features ``[N, q]`` that ``classifier`` reads. Images come as uint8, at least ``side``
    pixels high and wide; `prepare` crops and scales them, and makes them grey for a backbone of one channel.
    """

    def __init__(
        self,
        backbone: Backbone,
        bottleneck: int,
        dropout: float,
        classes: int,
        classifier: Literal["linear", "wn"],
        side: int,
        activation: Literal["none", "relu"] = "none",
        trains_classifier: bool = False,
        head: Head = "bottleneck",
    ) -> None:
        super().__init__()
        self.side = side
        self.activation = "relu" if head == "hidden" else activation
        self.head = head
        self.trains_classifier = trains_classifier
        """Whether the classifier is trained and sent like the rest, as some partitions of the data require."""
        self.backbone = backbone
        features = backbone.out_features
        if head != "direct":
            self.bottleneck, features = nn.Linear(backbone.out_features, bottleneck), bottleneck
        if head == "bottleneck":
            self.norm = nn.BatchNorm1d(features)
        self.classifier = nn.Linear(features, classes)
        if head == "bottleneck":  # the others keep torch's initial weights
            for layer in (self.bottleneck, self.classifier):
                if not layer.weight.is_meta:  # which has no values, and torch would import its compiler for it
                    nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)
        if classifier == "wn":
            weight_norm(self.classifier)
        self.extras = nn.ModuleDict()
        """Networks beside the one that predicts, by name; trained and sent with it, see
        `fedwca.federated.extra_networks.add_extras`."""
        self.local_parts: tuple[str, ...] = ()
        """Names, as in a row, of the parts that each client keeps to itself; they are not sent with models."""
        self.is_generated = False
        """Whether extra networks generate the one that predicts from each client's images."""
        self.register_buffer("draws", None, persistent=False)
        self.draws: Tensor | None
        """Standard normal draws ``[S, q]`` of the features, the same for all images, over which predictions are
        averaged; None: features are not drawn. See `fedwca.federated.extra_networks.grow_network`."""
        head_drops = (Drop(dropout, (features,)),) if head == "bottleneck" or dropout else ()
        self.drops = (*(() if backbone.frozen else backbone.drops), *head_drops)
        self.channels = len(backbone.mean)
        """Number of channels of a prepared image: 3, or 1 where colours are made grey."""
        self.register_buffer("mean", torch.tensor(backbone.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(backbone.std).view(-1, 1, 1), persistent=False)
        if backbone.frozen:
            backbone.requires_grad_(False).eval()

    @property
    def augments(self) -> bool:
        """Whether `weak_view` differs from `prepare`."""
        return self.backbone.augments

    @property
    def eval_batch_size(self) -> int:
        """Images per pass without gradient, so that activations stay bounded: 256 up to 90×90 pixels, 41 at 224×224."""
        return max(1, min(256, 1448**2 // self.side**2))

    def prepare(self, images: Tensor) -> Tensor:
        """The backbone's inputs ``[N, C, side, side]``: the scaled centre crops of uint8 images ``[N, 3, H, W]``.

        Raises:
            UsageError: the images are smaller than ``side``.
        """
        self._check(images)
        return self._scaled(center_crop(images, self.side))

    def weak_view(self, images: Tensor, draws: Tensor) -> Tensor:
        """The training view: a random crop, mirrored half of the time, scaled; `prepare` where nothing is augmented.

        Args:
            images: uint8 ``[B, 3, H, W]``.
            draws: uniform numbers in [0, 1) ``[B, 4]``: top, left, mirror; the fourth is not used.
        """
        if not self.augments:
            return self.prepare(images)
        self._check(images)
        top, left = crop_corners(draws[:, :2], images.shape[2], images.shape[3], self.side)
        return self._scaled(crop_and_flip(images, top, left, draws[:, 2] < 0.5, self.side))

    def _check(self, images: Tensor) -> None:
        height, width = images.shape[2:]
        if min(height, width) < self.side:
            raise UsageError(
                f"images of {height}×{width} pixels are too small for a network that reads {self.side}×{self.side}; "
                "load the data set at the size that the architecture calls `stored_side`"
            )

    def _scaled(self, images: Tensor) -> Tensor:
        # On whole rows of pixels: three values at a time would take six times as long.
        count, _, height, width = images.shape
        channels = self.channels
        mean, std = ((255 * cast(Tensor, x).view(channels)).expand(width, -1).flatten() for x in (self.mean, self.std))
        if channels < images.shape[1]:  # exact where all channels are alike
            x = images.to(mean.dtype).mean(1)
        else:  # a copy of floats, too, since it is scaled in place
            x = images.permute(0, 2, 3, 1).reshape(count, height, width * channels).to(mean.dtype, copy=True)
        return x.sub_(mean).div_(std).view(count, height, width, channels).permute(0, 3, 1, 2)

    def trained_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Modules by name, without those of a frozen backbone."""
        frozen = set(self.backbone.modules()) if self.backbone.frozen else set()
        return ((name, module) for name, module in self.named_modules() if module not in frozen)

    @property
    def features(self) -> int:
        """q, the number of features that the classifier reads."""
        return self.classifier.in_features

    def embed(self, x: Tensor) -> Tensor:
        """Outputs ``[N, out_features]`` of a frozen backbone on prepared images, without gradient.

        If the backbone is trained, the images are returned as they are, because `extract` runs it.
        """
        if not self.backbone.frozen:
            return x
        with torch.no_grad():
            embedded: Tensor = self.backbone(x, ())
        return embedded

    def plain_inputs(self, images: Tensor) -> Tensor:
        """Plain images as `extract` reads them: prepared and embedded, unless they are ``[N, out_features]``."""
        return images.to(self.class_vectors.device) if images.ndim == 2 else self.embed(self.prepare(images))

    def extract(self, x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Features ``[N, q]`` of prepared images; for a frozen backbone, of the outputs of `embed` on these images.

        In training there is one mask per entry of ``drops``, otherwise none.
        """
        drop_count = len(self.drops)
        backbone_drops = 0 if self.backbone.frozen else len(self.backbone.drops)
        embedding = x if self.backbone.frozen else self.backbone(x, masks[:backbone_drops])
        z = embedding if self.head == "direct" else self.bottleneck(embedding)
        if self.draws is not None:
            z = torch.cat([z, self.extras[SPREAD](embedding)], -1)
        return self.activate(z, masks[backbone_drops:drop_count])

    def activate(self, z: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Apply what follows the fully connected layer, ``[N, q]`` to features ``[N, q]``, with its mask in training.

        Where features are drawn, their mean and spread ``[N, 2q]`` become mean and standard deviation.
        """
        if self.draws is None:
            return self._activate(z, masks)
        mean, spread = z.chunk(2, -1)
        mean = self._activate(mean, masks)
        return torch.cat([mean, nn.functional.softplus(spread.to(mean.dtype))], -1)

    def _activate(self, z: Tensor, masks: Sequence[Tensor]) -> Tensor:
        # Under autocast the fully connected layer gives bfloat16; what follows uses the network's own precision.
        if self.head == "bottleneck":
            z = self.norm(z.to(self.norm.weight.dtype))
        else:
            z = z.to(cast(Tensor, self.mean).dtype)
        z = torch.relu(z) if self.activation == "relu" else z
        return z * masks[0] if masks else z

    def classify(
        self, extracted: Tensor, classifier: Callable[[Tensor], Tensor], masks: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor]:
        """Logits ``[..., M]`` and features ``[..., q]``, given the output of `extract`.

        Where features are drawn, the features are their means, and the softmax of the logits is the mean over draws.
        With the draw of a training step in ``masks``, the logits are of that draw, and features, means and standard
        deviations are concatenated ``[..., 3q]``; `split_latent` splits them.

        Args:
            extracted: output of `extract`: ``[..., q]``, or means and standard deviations ``[..., 2q]``.
            classifier: ``[..., q]`` to ``[..., M]``.
            masks: as for `extract`; after them, standard normal numbers ``[..., q]`` for the draw of a training step.
        """
        if self.draws is None:
            return classifier(extracted), extracted
        return classify_draws(extracted, classifier, self.draws, masks[len(self.drops) :])

    def split_latent(self, features: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Features ``[..., q]``, and the means and standard deviations that they were drawn from, if they were."""
        if self.draws is None or features.shape[-1] == self.features:
            return features, None
        drawn, mean, std = features.chunk(3, -1)
        return drawn, (mean, std)

    def forward(self, x: Tensor, masks: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]`` of prepared images; see `classify`."""
        return self.classify(self.extract(self.embed(x), masks), self.classifier, masks)

    @property
    def class_vectors(self) -> Tensor:
        """The classifier's effective weight rows ``[M, q]`` (w_m of eq. 1)."""
        return self.classifier.weight.detach()


_BUILDING = threading.Lock()


@contextmanager
def initial_weights(seed: int) -> Iterator[None]:
    """Draw the initial weights of modules made inside the block from ``seed``; the global generator stays as it was."""
    # torch initialises from one global generator, so only one thread may build at a time.
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def call_module(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The output of a module with the given parameters."""
    output: Tensor = functional_call(module, dict(parameters), (x,))
    return output
