"""One network on which any row can be put without a copy, and the two things done with it: predict and step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.core.component_answers import check_number
from fedwca.core.messages import Predictions
from fedwca.core.network import Network, call_module
from fedwca.core.training_settings import Precision, Training, Trains
from fedwca.engine.differentiable_step import normalize_weight, step_parameters
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import Phase, compute_precision
from fedwca.engine.sgd import clip_together, sgd_step


class _Forward(nn.Module):
    """A network's pass in the precision of a phase, as a module, so that other parameters can be put in its place."""

    def __init__(self, network: Network, precision: Precision) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, x: Tensor, masks: Sequence[Tensor], phase: Phase | None, twice: bool) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]``; see `Replica.forward`."""
        with nullcontext() if phase is None else compute_precision(self.precision, phase, x.device):
            features = self.network.extract(x, masks)
        classifier: Any = self.network.classifier
        if twice and is_parametrized(classifier, "weight"):
            stored: Any = classifier.get_submodule("parametrizations.weight")
            weight, bias = normalize_weight(stored.original0, stored.original1), classifier.bias
            return self.network.classify(features, lambda z: torch.nn.functional.linear(z, weight, bias), masks)
        return self.network.classify(features, classifier, masks)


def _freeze(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A module whose parameters, as they are when it is called, count as constants."""
    return lambda x: call_module(module, {name: own.detach() for name, own in module.named_parameters()}, x)


class Replica:
    """A private copy of the network; the tensors that are in a row are views of whatever row is bound.

    Training steps therefore change the bound row in place: parameters by SGD, BatchNorm statistics by the modules.
    """

    def __init__(self, network: Network, layout: Layout, precision: Precision = "fp32") -> None:
        self.precision = precision
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._forward = _Forward(self.network, precision)
        self.layout = layout
        self.drops = network.drops
        like = self.class_vectors
        self.momentum = torch.zeros(layout.trained, dtype=like.dtype, device=like.device)
        self._momenta = [slot.of(self.momentum) for slot in layout.parameters]
        owners = dict(self.network.named_modules())
        self._leaves = [self.network.get_parameter(slot.name) for slot in layout.parameters]
        for parameter in self._leaves:
            parameter.requires_grad_(True)
        base = [i for i, slot in enumerate(layout.parameters) if slot.stop <= layout.base.stop]
        self._base = {layout.parameters[i].name: self._leaves[i] for i in base}
        own = {
            name: [i for i, slot in enumerate(layout.parameters) if here.start <= slot.start < here.stop]
            for name, here in layout.extras.items()
        }
        self._parts: dict[str | None, set[int]] = {None: set(base), **{name: set(some) for name, some in own.items()}}
        self.extras: ExtraNetworks = dict(self.network.extras.items())
        self.frozen: ExtraNetworks = {name: _freeze(module) for name, module in self.network.extras.items()}
        """The same, giving no gradient to their parameters."""
        self._buffers: list[tuple[nn.Module, str, int]] = [
            (owners[slot.name.rpartition(".")[0]], slot.name.rpartition(".")[2], index)
            for index, slot in enumerate(layout.statistics)
        ]

    @property
    def class_vectors(self) -> Tensor:
        """The classifier's weight rows ``[M, q]``; of the bound row where classifiers are trained."""
        return self.network.class_vectors

    def bind(self, row: Tensor) -> None:
        """Put the model ``row [P]`` on the network; nothing is copied."""
        self.row = row
        for slot, parameter in zip(self.layout.parameters, self._leaves, strict=True):
            parameter.data = slot.of(row)
        for module, name, index in self._buffers:
            # .data: a version counter of its own, else updating one statistic makes autograd distrust the others.
            module._buffers[name] = self.layout.statistics[index].of(row).data

    def forward(
        self, x: Tensor, masks: Sequence[Tensor] = (), phase: Phase | None = None, twice: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]`` of images.

        Args:
            x: the images, as `Network.extract` reads them.
            masks: of dropout.
            phase: what it is for, which decides the precision; None: in full.
            twice: whether they are differentiated twice; decides nothing but last digits.
        """
        return self._forward(x, masks, phase, twice)  # type: ignore[no-any-return]

    def forward_adapted(
        self, logits: Tensor, x: Tensor, masks: Sequence[Tensor], adaptation: Adaptation, lr: float
    ) -> Tensor:
        """Logits ``[N, M]`` of a training step's images after one differentiable step of an adaptation.

        BatchNorm's running statistics stay as they are.

        Args:
            logits: of the images that the step is made on ``[B, M]``, by the bound row.
            x: all images of the training step, as `Network.extract` reads them.
            masks: of dropout, those that gave ``logits``.
            adaptation: its loss is descended.
            lr: step size.
        """
        moved = step_parameters(self.adaptation_loss(adaptation, logits), self._base, adaptation, lr)
        # Copies, which the modules may change.
        moved |= {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        named = {f"network.{name}": value for name, value in moved.items()}
        found: Tensor = functional_call(self._forward, named, (x, masks, None, True))[0]
        return found

    def adaptation_loss(self, adaptation: Adaptation, logits: Tensor) -> Tensor:
        """An adaptation's loss of outputs ``[N, M] -> []``, by the bound row's extra networks."""
        return check_number(adaptation.loss(logits, self.extras), f"adaptation {adaptation.name!r}: loss")

    def pull_back(self, images: Tensor, slopes: Tensor) -> Tensor:
        """Gradient of the bound row's base network ``[P_base]`` in eval mode, chunk by chunk.

        Args:
            images: uint8 ``[N, 3, H, W]``, or what `fedwca.engine.embeddings` made of them.
            slopes: derivatives of what is descended in their logits ``[N, M]``.
        """
        self.network.eval()
        leaves = list(self._base.values())
        for leaf in leaves:
            leaf.requires_grad_(True)
        total = [torch.zeros_like(leaf) for leaf in leaves]
        chunk = self.network.chunk
        for here, own in zip(images.split(chunk), slopes.split(chunk), strict=True):
            logits, _ = self.forward(self.network.show(here))
            found = torch.autograd.grad(logits, leaves, own, allow_unused=True, materialize_grads=True)
            torch._foreach_add_(total, found)
        return torch.cat([one.reshape(-1) for one in total])

    @torch.no_grad()
    def predict(self, images: Tensor, batch: int | None = None, phase: Phase | None = None) -> Predictions:
        """Predictions for uint8 images ``[N, 3, H, W]``, or for what `fedwca.engine.embeddings` made of them, in eval
        mode, no augmentation, in batches.
        """
        self.network.eval()
        chunks = images.split(batch or self.network.chunk)
        parts = [self.forward(self.network.show(chunk), phase=phase) for chunk in chunks]
        logits, features = zip(*parts, strict=True)
        return Predictions(torch.cat(logits), torch.cat(features))

    @torch.no_grad()
    def recalibrate(self, images: Tensor) -> None:
        """Replace the bound row's BatchNorm statistics by those of these images, one pass, no dropout."""
        kept = set(self.network.backbone.modules()) if self.network.backbone.frozen else set()
        found = (m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
        norms = [norm for norm in found if norm not in kept]
        if not norms or len(images) < 2:
            return
        before = [norm.momentum for norm in norms]
        self.network.eval()
        for norm in norms:
            norm.train()
        seen = 0
        for chunk in images.split(max(2, self.network.chunk)):
            if len(chunk) < 2:
                continue
            seen += len(chunk)
            for norm in norms:
                # A running mean over chunks: each moves the statistics by its share of what was seen so far.
                norm.momentum = len(chunk) / seen
            self.network.extract(self.network.show(chunk))
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum

    def begin(self, trains: Trains = "all", extras: bool = True) -> None:
        """Fresh momentum and training mode: the start of a client's round; ``extras``: whether they are trained."""
        self.prepare_training(trains, extras)
        self.momentum.zero_()

    def train_extras(self) -> dict[str, list[Tensor]]:
        """The bound row's parameters of each extra network, which alone are differentiated."""
        for i, parameter in enumerate(self._leaves):
            parameter.requires_grad_(i not in self._parts[None])
        return {name: [self._leaves[i] for i in sorted(self._parts[name])] for name in self.layout.extras}

    def prepare_training(self, trains: Trains, extras: bool = True) -> None:
        """Training mode for a part of the model; where that is the classifier, all else is as in prediction."""
        self.network.train(trains != "classifier")
        here = self.layout.positions(trains)
        for i, (slot, parameter) in enumerate(zip(self.layout.parameters, self._leaves, strict=True)):
            parameter.requires_grad_(here.start <= slot.start < here.stop and (extras or i in self._parts[None]))

    def step(self, loss: Tensor, pull: Tensor | None, training: Training, rates: Mapping[str, float]) -> None:
        """One SGD step on what is trained of the bound row: g + wd·w, momentum without dampening, as torch.optim.SGD.

        The base network and each extra one take it apart, each with a gradient of its own length.

        Args:
            loss: what the network's outputs cost ``[]``.
            pull: further gradient of the parameters ``[P]``, for penalties on the model itself.
            training: learning rate, momentum, weight decay, and the largest length of the gradient.
            rates: learning rates of extra networks that are not the base network's.
        """
        chosen = [i for i, parameter in enumerate(self._leaves) if parameter.requires_grad]
        leaves = [self._leaves[i] for i in chosen]
        if loss.requires_grad:
            found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        else:  # a penalty is all there is
            found = tuple(torch.zeros_like(leaf) for leaf in leaves)
        with torch.no_grad():
            gradients = [gradient.contiguous() for gradient in found]
            if pull is not None:
                for gradient, i in zip(gradients, chosen, strict=True):
                    gradient.add_(self.layout.parameters[i].of(pull))
            for name, inside in self._parts.items():
                own = [place for place, i in enumerate(chosen) if i in inside]
                if not own:
                    continue
                some = [gradients[place] for place in own]
                clip_together(some, training.clip)
                momenta = [self._momenta[chosen[place]] for place in own]
                lr = None if name is None else rates.get(name)
                sgd_step([leaves[place] for place in own], some, momenta, training.of(name), lr)
