"""One network that can be bound to any row without a copy, and the two uses of it: to predict and to step."""

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
from fedwca.engine.batch_norm import recalibration_order
from fedwca.engine.device_copy import to_device
from fedwca.engine.differentiable_step import check_can_descend, normalize_weight, step_parameters
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import Phase, compute_precision
from fedwca.engine.sgd import clip_together, separate_gradients, sgd_step


class _Forward(nn.Module):
    """A network's forward pass in the precision of a phase; a module, so that its parameters can be replaced."""

    def __init__(self, network: Network, precision: Precision) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, x: Tensor, masks: Sequence[Tensor], phase: Phase | None, twice: bool) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]``; see `Replica.forward`."""
        with nullcontext() if phase is None else compute_precision(self.precision, phase, x.device):
            features = self.network.extract(x, masks)
        classifier: Any = self.network.classifier
        if twice and is_parametrized(classifier, "weight"):
            parametrization: Any = classifier.get_submodule("parametrizations.weight")
            weight, bias = normalize_weight(parametrization.original0, parametrization.original1), classifier.bias
            return self.network.classify(features, lambda z: torch.nn.functional.linear(z, weight, bias), masks)
        return self.network.classify(features, classifier, masks)


def _freeze(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function that calls a module with its parameters at that time as constants."""
    return lambda x: call_module(module, {name: parameter.detach() for name, parameter in module.named_parameters()}, x)


class Replica:
    """A private copy of the network; its tensors that belong to a row are views of the row that is bound.

    Training steps therefore change the bound row in place: parameters by SGD, BatchNorm statistics by the modules.
    """

    def __init__(self, network: Network, layout: Layout, precision: Precision = "fp32") -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._forward = _Forward(self.network, precision)
        self.layout = layout
        self.drops = network.drops
        like = self.class_vectors
        self.momentum = torch.zeros(layout.trained, dtype=like.dtype, device=like.device)
        self._momenta = [slot.of(self.momentum) for slot in layout.parameters]
        modules = dict(self.network.named_modules())
        self._leaves = [self.network.get_parameter(slot.name) for slot in layout.parameters]
        for parameter in self._leaves:
            parameter.requires_grad_(True)
        base_indices = [i for i, slot in enumerate(layout.parameters) if slot.stop <= layout.base.stop]
        self._base = {layout.parameters[i].name: self._leaves[i] for i in base_indices}
        extra_indices = {
            name: [i for i, slot in enumerate(layout.parameters) if positions.start <= slot.start < positions.stop]
            for name, positions in layout.extras.items()
        }
        self._parts: dict[str | None, set[int]] = {
            None: set(base_indices),
            **{name: set(indices) for name, indices in extra_indices.items()},
        }
        self.extras: ExtraNetworks = dict(self.network.extras.items())
        self.frozen: ExtraNetworks = {name: _freeze(module) for name, module in self.network.extras.items()}
        """The same networks, with no gradient for their parameters."""
        self._buffers: list[tuple[nn.Module, str, int]] = [
            (modules[slot.name.rpartition(".")[0]], slot.name.rpartition(".")[2], index)
            for index, slot in enumerate(layout.statistics)
        ]

    @property
    def class_vectors(self) -> Tensor:
        """The classifier's weight rows ``[M, q]``; those of the bound row if classifiers are trained."""
        return self.network.class_vectors

    def bind(self, row: Tensor) -> None:
        """Make the network's tensors views of the model ``row [P]``; nothing is copied."""
        self.row = row
        for slot, parameter in zip(self.layout.parameters, self._leaves, strict=True):
            parameter.data = slot.of(row)
        for module, name, index in self._buffers:
            # .data has a version counter of its own: else updating one statistic in place invalidates the others.
            module._buffers[name] = self.layout.statistics[index].of(row).data

    def forward(
        self, x: Tensor, masks: Sequence[Tensor] = (), phase: Phase | None = None, twice: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]`` of images.

        Args:
            x: the images, as `Network.extract` reads them.
            masks: of dropout.
            phase: what the pass is for, which decides the precision; None: full precision.
            twice: whether the outputs are differentiated twice; changes only the last digits.
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
            adaptation: its loss is minimised.
            lr: step size.
        """
        adapted = step_parameters(self.adaptation_loss(adaptation, logits), self._base, adaptation, lr)
        # Copies, because the modules may change them in place.
        adapted |= {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        tensors = {f"network.{name}": value for name, value in adapted.items()}
        adapted_logits: Tensor = functional_call(self._forward, tensors, (x, masks, None, True))[0]
        return adapted_logits

    def adaptation_loss(self, adaptation: Adaptation, logits: Tensor) -> Tensor:
        """An adaptation's loss of logits ``[N, M] -> []``, with the bound row's extra networks.

        Raises:
            FedwcaError: it is not one number, or does not depend on the logits.
        """
        loss = check_number(adaptation.loss(logits, self.extras), f"adaptation {adaptation.name!r}: loss")
        return check_can_descend(loss, adaptation)

    def pull_back(self, images: Tensor, slopes: Tensor) -> Tensor:
        """Gradient of the bound row's base network ``[P_base]`` in eval mode, computed chunk by chunk.

        Args:
            images: uint8 ``[N, 3, H, W]``, or their embeddings from `fedwca.engine.embeddings`.
            slopes: derivatives of the loss with respect to the logits of these images ``[N, M]``.
        """
        self.network.eval()
        leaves = list(self._base.values())
        for leaf in leaves:
            leaf.requires_grad_(True)
        total = [torch.zeros_like(leaf) for leaf in leaves]
        chunk_size = self.network.eval_batch_size
        for chunk_images, chunk_slopes in zip(images.split(chunk_size), slopes.split(chunk_size), strict=True):
            logits, _ = self.forward(self.network.plain_inputs(chunk_images))
            gradients = torch.autograd.grad(logits, leaves, chunk_slopes, allow_unused=True, materialize_grads=True)
            torch._foreach_add_(total, gradients)
        return torch.cat([gradient.reshape(-1) for gradient in total])

    @torch.no_grad()
    def predict(self, images: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions in eval mode, without augmentation, ``eval_batch_size`` images at a time.

        Args:
            images: uint8 ``[N, 3, H, W]``, or their embeddings from `fedwca.engine.embeddings`.
            phase: as for `forward`.
        """
        self.network.eval()
        chunks = images.split(self.network.eval_batch_size)
        outputs = [self.forward(self.network.plain_inputs(chunk), phase=phase) for chunk in chunks]
        logits, features = zip(*outputs, strict=True)
        return Predictions(torch.cat(logits), torch.cat(features))

    @torch.no_grad()
    def recalibrate(self, images: Tensor) -> None:
        """Replace the bound row's BatchNorm statistics by those of these images, in one pass without dropout."""
        norms = [m for _, m in self.network.trained_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if not norms or len(images) < 2:
            return
        momenta = [norm.momentum for norm in norms]
        self.network.eval()
        for norm in norms:
            norm.train()
        seen, size = 0, max(2, self.network.eval_batch_size)
        for places in to_device(recalibration_order(len(images), size), images.device).split(size):
            if len(places) < 2:
                continue
            seen += len(places)
            for norm in norms:
                # A running mean over chunks: the weight of each chunk is its share of the images seen so far.
                norm.momentum = len(places) / seen
            self.network.extract(self.network.plain_inputs(images[places]))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def begin(self, trains: Trains = "all", extras: bool = True) -> None:
        """Reset the momentum and set training mode, at the start of a client's round; see `prepare_training`."""
        self.prepare_training(trains, extras)
        self.momentum.zero_()

    def train_extras(self) -> dict[str, list[Tensor]]:
        """Make only extra networks trainable, and return the bound row's parameters of each."""
        for i, parameter in enumerate(self._leaves):
            parameter.requires_grad_(i not in self._parts[None])
        return {name: [self._leaves[i] for i in sorted(self._parts[name])] for name in self.layout.extras}

    def prepare_training(self, trains: Trains, extras: bool) -> None:
        """Set training mode for a part of the model.

        Args:
            trains: that part; for the classifier, the network stays in eval mode.
            extras: whether extra networks are trained.
        """
        self.network.train(trains != "classifier")
        trained = self.layout.positions(trains)
        for i, (slot, parameter) in enumerate(zip(self.layout.parameters, self._leaves, strict=True)):
            parameter.requires_grad_(trained.start <= slot.start < trained.stop and (extras or i in self._parts[None]))

    def step(self, loss: Tensor, pull: Tensor | None, training: Training, rates: Mapping[str, float]) -> None:
        """One SGD step on the trained part of the bound row: g + wd·w, momentum without dampening, as torch.optim.SGD.

        The base network and each extra network make separate steps, each with its own gradient clipped by its own norm.

        Args:
            loss: of the network's outputs ``[]``.
            pull: additional gradient of the parameters ``[P]``, from penalties on the model itself.
            training: learning rate, momentum, weight decay, and the largest gradient norm.
            rates: learning rates of extra networks that are not the base network's.
        """
        chosen = [i for i, parameter in enumerate(self._leaves) if parameter.requires_grad]
        leaves = [self._leaves[i] for i in chosen]
        if loss.requires_grad:
            loss_gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        else:  # only a penalty depends on the model
            loss_gradients = tuple(torch.zeros_like(leaf) for leaf in leaves)
        with torch.no_grad():
            gradients = separate_gradients(loss_gradients)
            if pull is not None:
                for gradient, i in zip(gradients, chosen, strict=True):
                    gradient.add_(self.layout.parameters[i].of(pull))
            for name, members in self._parts.items():
                places = [place for place, i in enumerate(chosen) if i in members]
                if not places:
                    continue
                part_gradients = [gradients[place] for place in places]
                clip_together(part_gradients, training.clip)
                momenta = [self._momenta[chosen[place]] for place in places]
                lr = None if name is None else rates.get(name)
                sgd_step([leaves[place] for place in places], part_gradients, momenta, training.of(name), lr)
