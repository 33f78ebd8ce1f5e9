"""Steps of central training: the images that it sees, their order, the losses and the gradients.

A step takes B images of each source and of the target, in one pass, so that BatchNorm sees the domains together. Each
domain is repeated pass after pass, in an order of its own; an epoch has as many steps as the largest source needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NoReturn

import torch
from torch import Tensor, nn

from fedwca.core.central import Central, DomainBatch
from fedwca.core.component_answers import ROUNDING, check_number, describe_value
from fedwca.core.network import Network, initial_weights
from fedwca.core.training_settings import CentralTraining
from fedwca.engine.augmentation import pick_images, weak_views
from fedwca.engine.device_copy import to_device
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.randomness import fold_key, permutation
from fedwca.engine.sgd import SGD
from fedwca.errors import DataError, Diverged, FedwcaError


@dataclass(frozen=True, eq=False)
class CentralImages:
    """What central training may see: the training parts of the domains.

    Raises:
        DataError: a domain is empty, there is no source, or there is not one label for each image.
    """

    images: tuple[Tensor, ...]
    """Of each source ``[N_k, 3, H, W]`` uint8."""
    labels: tuple[Tensor, ...]
    """Of each source ``[N_k]`` int64, 0…M-1."""
    target: Tensor
    """``[N, 3, H, W]`` uint8, without labels."""
    target_labels: Tensor | None = None
    """``[N]`` int64, for an ORACLE only; None for every other method."""

    def __post_init__(self) -> None:
        pairs = [*zip(self.images, self.labels, strict=True), (self.target, self.target_labels)]
        for number, (images, labels) in enumerate(pairs, start=1):
            name = "the target" if number == len(pairs) else f"source {number}"
            if not len(images):
                raise DataError(f"{name} has no training image; central training needs at least one of each domain")
            if labels is not None and labels.shape != images.shape[:1]:
                raise DataError(f"{name} has {len(images)} images, but labels {list(labels.shape)}; one each is right")
        if not self.images:
            raise DataError("there is no labelled source; central training needs at least one")


def _endless_order(key: Sequence[int | str], images: int, batch: int) -> Iterator[Tensor]:
    """Yield the image positions ``[batch]`` of one step after another; each pass has a newly drawn order."""
    waiting = torch.zeros(0, dtype=torch.long)
    passes = count()
    while True:
        while len(waiting) < batch:
            waiting = torch.cat([waiting, permutation(fold_key([*key, next(passes)]), images)])
        yield waiting[:batch]
        waiting = waiting[batch:]


class CentralTrainer:
    """A network, the method's own parts, and the domains they are trained on."""

    def __init__(
        self,
        network: Network,
        central: Central,
        data: CentralImages,
        training: CentralTraining,
        epochs: int,
        seed: int,
    ) -> None:
        self.network, self.central, self.training, self.epochs = network, central, training, epochs
        device = network.classifier.weight.device
        images, labels, unlabeled = data.images, data.labels, [data.target]
        if central.oracle:
            assert data.target_labels is not None
            images, labels = (data.target,), (data.target_labels,)
        if central.pooled:
            images, labels, unlabeled = (torch.cat(images),), (torch.cat(labels),), []
        # Channels last in memory, as the network reads them.
        self.images = [x.to(device, memory_format=torch.channels_last) for x in (*images, *unlabeled)]
        self.labels = [x.to(device) for x in labels]
        self.batch = training.batch_size
        self.steps = max(math.ceil(len(x) / self.batch) for x in labels)
        self.keys = {purpose: fold_key([seed, f"central {purpose}"]) for purpose in ("dropout", "crop")}
        self.orders = [
            _endless_order((seed, "central order", domain), len(x), self.batch) for domain, x in enumerate(self.images)
        ]
        self.positions = torch.arange(len(self.images) * self.batch, device=device)
        with initial_weights(fold_key([seed, "central parts"]) >> 1):
            classifier = network.classifier
            parts: object = central.extra_modules(classifier.in_features, classifier.out_features, len(labels))
            if not isinstance(parts, nn.Module):
                self._refuse("extra_modules", parts, "a module")
            self.parts = parts.to(device)
        self.own = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.weights: list[Tensor] = []
        """Of the gradients of an epoch's steps."""
        trained = [*self.own, *self.parts.parameters()]
        self.optimiser = SGD(trained, training.lr, training.momentum, training.weight_decay)

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Train all epochs.

        Raises:
            Diverged: the model is not finite after an epoch.
        """
        progress(0, self.epochs)
        for epoch in range(self.epochs):
            for step in range(epoch * self.steps, (epoch + 1) * self.steps):
                self._step(step)
            self._check_weights()
            if not all(bool(torch.isfinite(value).all()) for value in self.network.state_dict().values()):
                raise Diverged(
                    f"central training of {self.central.name} gave values that are not finite; a lower learning rate "
                    "may help"
                )
            progress(epoch + 1, self.epochs)

    def _check_weights(self) -> None:
        """Check what `Central.gradient_weights` gave in an epoch, once, since the host waits for a device's values."""
        if not self.weights:
            return
        weights = torch.stack(self.weights)
        self.weights.clear()
        # Those that are not finite are of a model that diverged.
        unfit = (weights < 0).any(1) | ((weights.sum(1) - 1).abs() > ROUNDING)
        if refused := weights[unfit & weights.isfinite().all(1)].tolist():
            raise FedwcaError(
                f"central method {self.central.name!r}: gradient_weights gave {refused[0]}; right are weights of "
                "at least 0 that sum to 1"
            )

    def _refuse(self, answer_name: str, value: object, right: str) -> NoReturn:
        description = describe_value(value)
        raise FedwcaError(f"central method {self.central.name!r}: {answer_name} gave {description}; right is {right}")

    def _check_is_trained(self, loss: Tensor) -> None:
        if not loss.requires_grad:
            raise FedwcaError(
                f"central method {self.central.name!r}: the loss does not depend on the model, so nothing would be "
                "trained; make it of the step's logits or features, with torch and without detach"
            )

    def _step(self, step: int) -> None:
        network, size = self.network.train(), len(self.positions)
        indices = [to_device(next(order), self.positions.device) for order in self.orders]
        images = torch.cat(
            [pick_images(domain_images, rows) for domain_images, rows in zip(self.images, indices, strict=True)]
        )
        masks = dropout_masks(network.drops, self.keys["dropout"], step, self.positions, size)
        views = weak_views(network, images, self.keys["crop"], step, self.positions, size)
        logits, features = network(views, masks)
        sources, first_target = len(self.labels), len(self.labels) * self.batch
        losses = self.central(
            DomainBatch(
                features[:first_target].split(self.batch),
                logits[:first_target].split(self.batch),
                tuple(labels[rows] for labels, rows in zip(self.labels, indices[:sources], strict=True)),
                features[first_target:],
                logits[first_target:],
                step / (self.steps * self.epochs),
                self.parts,
            )
        )
        self.optimiser.zero_grad()
        if self.central.loss_per_source:
            if not isinstance(losses, Tensor) or losses.shape != (sources,):
                self._refuse("loss", losses, f"a loss for each of {sources} sources")
            self._check_is_trained(losses)
            self._mixed_gradient(losses, images[first_target:])
        else:
            loss = check_number(losses, f"central method {self.central.name!r}: loss")
            self._check_is_trained(loss)
            loss.backward()
        self.optimiser.step()

    def _mixed_gradient(self, losses: Tensor, target: Tensor) -> None:
        """Set the network's gradients to the weighted sum over sources, and those of the parts to the plain sum."""
        parts = list(self.parts.parameters())
        gradients = [
            torch.autograd.grad(loss, [*self.own, *parts], retain_graph=True, allow_unused=True, materialize_grads=True)
            for loss in losses
        ]
        features = self._target_features(target, gradients)
        weights: object = self.central.gradient_weights(features[0], features[1:], self.network.classifier.out_features)
        if not isinstance(weights, Tensor) or weights.shape != losses.shape:
            self._refuse("gradient_weights", weights, f"a weight for each of {len(losses)} sources")
        self.weights.append(weights)
        for number, parameter in enumerate([*self.own, *parts]):
            stack = torch.stack([source_gradients[number] for source_gradients in gradients])
            in_network = number < len(self.own)
            parameter.grad = torch.tensordot(weights.to(stack.dtype), stack, 1) if in_network else stack.sum(0)

    @torch.no_grad()
    def _target_features(self, target: Tensor, gradients: list[tuple[Tensor, ...]]) -> Tensor:
        """The target's features before, and after a plain SGD step on each source's gradient ``[1 + K, B, q]``."""
        network, views = self.network.eval(), self.network.prepare(target)
        names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        features = [network.extract(network.embed(views))]
        for source_gradients in gradients:
            moved = {
                name: parameter - self.training.lr * gradient
                for name, parameter, gradient in zip(names, self.own, source_gradients, strict=False)
            }
            features.append(torch.func.functional_call(network, moved, (views,))[1])
        return torch.stack(features)
