"""Forward passes of many models of one network at once, with BatchNorm statistics as inputs and outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.core.component_answers import check_number
from fedwca.core.drawn_features import SPREAD
from fedwca.core.network import Network, call_module
from fedwca.core.training_settings import Precision
from fedwca.engine.device_copy import to_device
from fedwca.engine.differentiable_step import check_can_descend, normalize_weight
from fedwca.engine.masked_batch_norm import CountedRows, replace_batch_norm
from fedwca.engine.parameter_layout import CLASSIFIER, EXTRAS, Layout
from fedwca.engine.precision import Phase, compute_precision
from fedwca.engine.stacked.tuning.kernels import Kernels, channels_last_batch
from fedwca.engine.stacked.vmap import vmap_or_loop


@dataclass(frozen=True)
class StackedClassifiers:
    """Classifiers of G models: frozen ones of different source models, or trained ones."""

    weight: Tensor
    """``[G, q, M]``, transposed."""
    bias: Tensor
    """``[G, 1, M]``"""

    @classmethod
    def of(cls, networks: Sequence[Network], counts: Sequence[int]) -> StackedClassifiers:
        """Frozen classifiers of networks, each repeated for its number of models in ``counts``."""
        repeats = torch.tensor(counts)
        rows = to_device(torch.repeat_interleave(torch.arange(len(counts)), repeats), networks[0].class_vectors.device)
        weight = torch.stack([network.class_vectors for network in networks])
        bias = torch.stack([network.classifier.bias.detach() for network in networks])
        return cls(weight[rows].transpose(1, 2).contiguous(), bias[rows][:, None])

    @classmethod
    def among(cls, parameters: Mapping[str, Tensor]) -> StackedClassifiers:
        """Trained classifiers, from the models' parameters by name ``[G, …]``."""
        parts = _named_below(CLASSIFIER, parameters)
        if "weight" in parts:
            weight = parts["weight"]
        else:
            length, direction = parts["parametrizations.weight.original0"], parts["parametrizations.weight.original1"]
            weight = normalize_weight(length, direction)
        return cls(weight.transpose(1, 2), parts["bias"][:, None])

    def __getitem__(self, rows: slice | Tensor) -> StackedClassifiers:
        return StackedClassifiers(self.weight[rows], self.bias[rows])

    def __call__(self, features: Tensor) -> Tensor:
        """Logits ``[G, B, M]`` of features ``[G, B, q]``."""
        return torch.baddbmm(self.bias, features, self.weight)


def _named_below(prefix: str, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of the part of a network below ``prefix``, by their names in that part."""
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def _linear(parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Outputs ``[G, B, out]`` of a fully connected layer of G models for inputs ``[G, B, in]``."""
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


class _Extractor(nn.Module):
    """A network up to its classifier, where autocast may end; if ``begun``, only what follows the bottleneck layer."""

    def __init__(self, network: Network, begun: bool) -> None:
        super().__init__()
        self.network, self.begun = network, begun

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return self.network.activate(x, masks) if self.begun else self.network.extract(x, masks)


@dataclass(frozen=True)
class StackedInput:
    """A batch of images of each of G models."""

    x: Tensor
    """Prepared images ``[G, B, C, H, W]``, or a frozen backbone's embeddings of them ``[G, B, out_features]``."""
    masks: Sequence[Tensor] = ()
    """Dropout masks, one for each of the network's dropout layers ``[G, B, …]``; empty: no dropout."""
    rows: Tensor | None = None
    """Which of a batch's rows are real ``[G, B]``; None: all."""


class StackedNetwork:
    """Runs G models of one architecture on G batches, by `torch.func.vmap` or by the backbone's own batched code.

    Args:
        network: gives the code, the frozen parts and the classifier.
        layout: where a model's tensors lie in its row.
        precision: in which it computes.
        kernels: how training steps are carried out; see `fedwca.engine.stacked.tuning.kernels`.
        by_hand: whether to use the backbone's own batched code if it has any; False: always vmap.
    """

    def __init__(
        self,
        network: Network,
        layout: Layout,
        precision: Precision = "fp32",
        kernels: Kernels = "eager",
        by_hand: bool = True,
    ) -> None:
        self.origin = network
        """The network that this was made from; trials may share its classifier."""
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.layout, self.precision = layout, precision
        self.norms = replace_batch_norm(self.network)
        for module in self.network.modules():
            # In-place operations have no vmap rule.
            if isinstance(getattr(module, "inplace", None), bool):
                module.inplace = False  # type: ignore[assignment]
            module.__class__ = getattr(module, "for_many", type(module))  # the class for many models, if it names one
        self.by_hand = by_hand and self.network.backbone.has_forward_stacked
        self._extractor = _Extractor(self.network, self.by_hand)
        self.kernels = kernels

    def __call__(
        self,
        parameters: dict[str, Tensor],
        statistics: dict[str, Tensor],
        batch: StackedInput,
        training: bool = False,
        momentum: Tensor | None = None,
        phase: Phase | None = None,
        classifiers: StackedClassifiers | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Logits ``[G, B, M]``, features ``[G, B, q]`` and the new running statistics by name.

        Args:
            parameters: trained parameters by name ``[G, …]``.
            statistics: BatchNorm statistics by name ``[G, …]``.
            batch: images, dropout masks, and which images count.
            training: whether BatchNorm uses the batch's statistics and updates its own.
            momentum: weight of the batch in new statistics ``[G]``; None: as the modules say.
            phase: what the pass is for, which decides the precision; None: full precision.
            classifiers: each model's own frozen classifier; None: the network's for all. Trained ones are among the
                parameters.
        """
        # With ``momentum`` statistics are re-estimated: only BatchNorm is in training mode then, the rest in eval mode.
        if self.network.training != (trains := training and momentum is None):
            self.network.train(trains)
        for norm in self.norms.values():
            norm.train(training)
        rows = () if batch.rows is None else (batch.rows,)
        share = () if momentum is None else (momentum,)
        channels_last = self.kernels == "channels-last" and not self.network.backbone.frozen
        x = channels_last_batch(batch.x) if channels_last else batch.x
        with nullcontext() if phase is None else compute_precision(self.precision, phase, x.device):
            features, new_statistics = self._each(parameters, statistics, x, tuple(batch.masks), rows, share)
        if self.network.trains_classifier:
            classifiers = StackedClassifiers.among(parameters)
        classifier = self.network.classifier if classifiers is None else classifiers
        return *self.network.classify(features, classifier, batch.masks), new_statistics

    def adaptation_losses(self, adaptation: Adaptation, parameters: Mapping[str, Tensor], logits: Tensor) -> Tensor:
        """An adaptation's loss of each model's logits ``[G, N, M] -> [G]``, with its own extra networks.

        Args:
            adaptation: defines the loss.
            parameters: by name ``[G, …]``; only those of extra networks are read.
            logits: all rows count.
        """

        def loss(logits: Tensor, tensors: Mapping[str, dict[str, Tensor]]) -> Tensor:
            return check_number(
                adaptation.loss(logits, self.bind_extras(tensors)), f"adaptation {adaptation.name!r}: loss"
            )

        losses: Tensor = vmap_or_loop(
            f"the loss of {adaptation.name!r}",
            loss,
            *(logits, self.extra_parameters(parameters)),
            check=lambda losses: check_can_descend(losses, adaptation),
        )
        return losses

    def extra_parameters(self, parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """Parameters of each extra network: by the network's name, then by their names in it."""
        return {name: _named_below(f"{EXTRAS}{name}.", parameters) for name in self.network.extras}

    def bind_extras(self, parameters: Mapping[str, dict[str, Tensor]]) -> ExtraNetworks:
        """Extra networks of one model by name, with parameters in the form of `extra_parameters`."""
        return {name: partial(call_module, module, parameters[name]) for name, module in self.network.extras.items()}

    def _each(
        self,
        parameters: dict[str, Tensor],
        statistics: dict[str, Tensor],
        x: Tensor,
        masks: tuple[Tensor, ...],
        rows: tuple[Tensor, ...],
        share: tuple[Tensor, ...],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Features ``[G, B, q]`` and new statistics; arguments as for `__call__`, with optional ones in tuples."""

        def forward_one(
            p: dict[str, Tensor],
            s: dict[str, Tensor],
            x: Tensor,
            masks: tuple[Tensor, ...],
            rows: tuple[Tensor, ...],
            share: tuple[Tensor, ...],
        ) -> tuple[Tensor, dict[str, Tensor]]:
            dtypes = [norm.running_mean.dtype for norm in self.norms.values()]
            counted = CountedRows.of(rows[0], dtypes[0]) if rows and dtypes else None
            for norm in self.norms.values():
                norm.rows = counted
                norm.momentum = share[0] if share else norm.standard
                norm.fresh = None
            tensors = {f"network.{name}": value for name, value in (*p.items(), *s.items())}
            features: Tensor = functional_call(self._extractor, tensors, (x, masks))
            new_statistics = {}
            for name, norm in self.norms.items():
                if norm.fresh is not None:
                    new_statistics[f"{name}.running_mean"], new_statistics[f"{name}.running_var"] = norm.fresh
            return features, new_statistics

        if self.by_hand:
            backbone_parameters = _named_below("backbone.", parameters)
            backbone_drops = len(self.network.backbone.drops)
            x = self.network.backbone.forward_stacked(backbone_parameters, x, masks[:backbone_drops])
            masks = masks[backbone_drops : len(self.network.drops)]
            backbone_features = x
            if self.network.head != "direct":
                x = _linear(parameters, "bottleneck", backbone_features)
            if self.network.draws is not None:
                x = torch.cat([x, _linear(parameters, f"{EXTRAS}{SPREAD}", backbone_features)], -1)
        try:
            arguments = (parameters, statistics, x, masks, rows, share)
            outputs: tuple[Tensor, dict[str, Tensor]] = vmap_or_loop("the backbone", forward_one, *arguments)
        finally:
            for norm in self.norms.values():
                # Tensors of a finished vmap must not be used again.
                norm.rows, norm.momentum, norm.fresh = None, norm.standard, None
        return outputs
