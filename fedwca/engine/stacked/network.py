"""One network's code run with many models at once, BatchNorm statistics as values that go in and come out."""

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
from fedwca.engine.differentiable_step import normalize_weight
from fedwca.engine.masked_batch_norm import CountedRows, replace_batch_norm
from fedwca.engine.parameter_layout import CLASSIFIER, EXTRAS, Layout
from fedwca.engine.precision import Phase, compute_precision
from fedwca.engine.stacked.tuning.kernels import Kernels, channels_last_batch
from fedwca.engine.stacked.vmap import vmap_or_loop


@dataclass(frozen=True)
class StackedClassifiers:
    """Classifiers of G models: frozen ones of different source models, or those that are trained."""

    weight: Tensor
    """``[G, q, M]``, transposed."""
    bias: Tensor
    """``[G, 1, M]``"""

    @classmethod
    def of(cls, networks: Sequence[Network], counts: Sequence[int]) -> StackedClassifiers:
        """Those of networks, each for so many models."""
        repeats = torch.tensor(counts)
        rows = to_device(torch.repeat_interleave(torch.arange(len(counts)), repeats), networks[0].class_vectors.device)
        weight = torch.stack([network.class_vectors for network in networks])
        bias = torch.stack([network.classifier.bias.detach() for network in networks])
        return cls(weight[rows].transpose(1, 2).contiguous(), bias[rows][:, None])

    @classmethod
    def among(cls, parameters: Mapping[str, Tensor]) -> StackedClassifiers:
        """Those of models whose classifiers are trained, by their parameters ``[G, …]``."""
        own = _named_below(CLASSIFIER, parameters)
        if "weight" in own:
            weight = own["weight"]
        else:
            length, direction = own["parametrizations.weight.original0"], own["parametrizations.weight.original1"]
            weight = normalize_weight(length, direction)
        return cls(weight.transpose(1, 2), own["bias"][:, None])

    def __getitem__(self, rows: slice | Tensor) -> StackedClassifiers:
        return StackedClassifiers(self.weight[rows], self.bias[rows])

    def __call__(self, features: Tensor) -> Tensor:
        """``[G, B, q]`` to logits ``[G, B, M]``."""
        return torch.baddbmm(self.bias, features, self.weight)


def _named_below(prefix: str, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of a part of a network, by their names in it."""
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def _linear(parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """What fully connected layers of G models give ``[G, B, out]`` of ``[G, B, in]``."""
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


class _Extractor(nn.Module):
    """A network up to its classifier, so that autocast may end there; from the bottleneck on where that is done."""

    def __init__(self, network: Network, begun: bool) -> None:
        super().__init__()
        self.network, self.begun = network, begun

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return self.network.activate(x, masks) if self.begun else self.network.extract(x, masks)


@dataclass(frozen=True)
class StackedInput:
    """A batch of images of each of G models."""

    x: Tensor
    """Prepared images ``[G, B, C, H, W]``, or what a frozen backbone made of them ``[G, B, width]``."""
    masks: Sequence[Tensor] = ()
    """Dropout masks, one for each of the network's drops ``[G, B, …]``; empty: nothing is dropped."""
    rows: Tensor | None = None
    """Which of a batch's rows are real ``[G, B]``; None: all."""


class StackedNetwork:
    """Runs G models of one architecture on G batches, by `torch.func.vmap` or as their backbone does it by hand.

    Args:
        network: gives the code, the frozen parts and the classifier.
        layout: where a model's tensors lie in its row.
        precision: in which it computes.
        kernels: how training steps are carried out; see `fedwca.engine.stacked.tuning.kernels`.
        by_hand: False: by vmap even where the backbone could do it by hand.
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
        """What it was made of; trials may share its classifier."""
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.layout, self.precision = layout, precision
        self.norms = replace_batch_norm(self.network)
        for module in self.network.modules():
            # What is done in place has no rule for many models at once.
            if isinstance(getattr(module, "inplace", None), bool):
                module.inplace = False  # type: ignore[assignment]
            module.__class__ = getattr(module, "for_many", type(module))  # as a module says that is made for one
        self.by_hand = by_hand and self.network.backbone.by_hand
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
        heads: StackedClassifiers | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Logits ``[G, B, M]``, features ``[G, B, q]`` and the new running statistics by name.

        Args:
            parameters: trained parameters by name ``[G, …]``.
            statistics: BatchNorm statistics by name ``[G, …]``.
            batch: images, dropout masks, and which images count.
            training: whether BatchNorm uses and measures the batch.
            momentum: share of the batch in new statistics ``[G]``; None: as the modules say.
            phase: what it is for, which decides the precision; None: in full.
            heads: each model's own frozen classifier; None: that of the network for all. One that is trained is among
                the parameters.
        """
        # Where statistics are re-estimated, BatchNorm alone is in training; all else is as in prediction.
        if self.network.training != (trains := training and momentum is None):
            self.network.train(trains)
        for norm in self.norms.values():
            norm.train(training)
        some = () if batch.rows is None else (batch.rows,)
        share = () if momentum is None else (momentum,)
        in_order = self.kernels == "channels-last" and not self.network.backbone.frozen
        x = channels_last_batch(batch.x) if in_order else batch.x
        with nullcontext() if phase is None else compute_precision(self.precision, phase, x.device):
            features, fresh = self._each(parameters, statistics, x, tuple(batch.masks), some, share)
        if self.network.whole:
            heads = StackedClassifiers.among(parameters)
        classifier = self.network.classifier if heads is None else heads
        return *self.network.classify(features, classifier, batch.masks), fresh

    def adaptation_losses(self, adaptation: Adaptation, parameters: Mapping[str, Tensor], logits: Tensor) -> Tensor:
        """An adaptation's loss of each model's outputs ``[G, N, M] -> [G]``, by its own extra networks.

        Args:
            adaptation: says the loss.
            parameters: by name ``[G, …]``; those of extra networks are read.
            logits: outputs, all rows of which count.
        """

        def loss(logits: Tensor, own: Mapping[str, dict[str, Tensor]]) -> Tensor:
            return check_number(adaptation.loss(logits, self.bind_extras(own)), f"adaptation {adaptation.name!r}: loss")

        what = f"the loss of {adaptation.name!r}"
        found: Tensor = vmap_or_loop(what, loss, logits, self.extra_parameters(parameters))
        return found

    def extra_parameters(self, parameters: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """Those of each extra network by its name, by their names in it."""
        return {name: _named_below(f"{EXTRAS}{name}.", parameters) for name in self.network.extras}

    def bind_extras(self, own: Mapping[str, dict[str, Tensor]]) -> ExtraNetworks:
        """Extra networks of one model by name, with parameters as `extra_parameters` gives them."""
        return {name: partial(call_module, module, own[name]) for name, module in self.network.extras.items()}

    def _each(
        self,
        parameters: dict[str, Tensor],
        statistics: dict[str, Tensor],
        x: Tensor,
        masks: tuple[Tensor, ...],
        rows: tuple[Tensor, ...],
        share: tuple[Tensor, ...],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Features ``[G, B, q]`` and new statistics; arguments as of a call, what may be absent in tuples."""

        def one(
            p: dict[str, Tensor],
            s: dict[str, Tensor],
            x: Tensor,
            masks: tuple[Tensor, ...],
            rows: tuple[Tensor, ...],
            share: tuple[Tensor, ...],
        ) -> tuple[Tensor, dict[str, Tensor]]:
            types = [norm.running_mean.dtype for norm in self.norms.values()]
            counted = CountedRows.of(rows[0], types[0]) if rows and types else None
            for norm in self.norms.values():
                norm.rows = counted
                norm.momentum = share[0] if share else norm.standard
                norm.fresh = None
            named = {f"network.{name}": value for name, value in (*p.items(), *s.items())}
            features: Tensor = functional_call(self._extractor, named, (x, masks))
            fresh = {}
            for name, norm in self.norms.items():
                if norm.fresh is not None:
                    fresh[f"{name}.running_mean"], fresh[f"{name}.running_var"] = norm.fresh
            return features, fresh

        if self.by_hand:
            own = _named_below("backbone.", parameters)
            inside = len(self.network.backbone.drops)
            x = self.network.backbone.together(own, x, masks[:inside])
            masks = masks[inside : len(self.network.drops)]
            read = x
            if self.network.head != "direct":
                x = _linear(parameters, "bottleneck", read)
            if self.network.draws is not None:
                x = torch.cat([x, _linear(parameters, f"{EXTRAS}{SPREAD}", read)], -1)
        try:
            given = (parameters, statistics, x, masks, rows, share)
            found: tuple[Tensor, dict[str, Tensor]] = vmap_or_loop("the backbone", one, *given)
        finally:
            for norm in self.norms.values():
                # Tensors of a finished vmap must not be met again.
                norm.rows, norm.momentum, norm.fresh = None, norm.standard, None
        return found
