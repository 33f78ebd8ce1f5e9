"""One network's code run with many models at once, BatchNorm statistics as values that go in and come out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedwca.core.network import Network
from fedwca.engine.layout import Layout
from fedwca.engine.precision import Phase, Precision, compute_precision
from fedwca.engine.stacked.heads import StackedClassifiers
from fedwca.engine.stacked.norm import replace_batch_norm
from fedwca.engine.stacked.tuning.kernels import Kernels, channels_last_batch


class _Extractor(nn.Module):
    """A network up to its classifier, so that autocast may end there; from the bottleneck on where that is done."""

    def __init__(self, network: Network, begun: bool) -> None:
        super().__init__()
        self.network, self.begun = network, begun

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return self.network.finish(x, masks) if self.begun else self.network.extract(x, masks)


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
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.layout, self.precision = layout, precision
        self.norms = replace_batch_norm(self.network)
        for module in self.network.modules():
            # What is done in place has no rule for many models at once.
            if isinstance(getattr(module, "inplace", None), bool):
                module.inplace = False  # type: ignore[assignment]
        self.by_hand = by_hand and self.network.backbone.by_hand
        self._extractor = _Extractor(self.network, self.by_hand)
        self.kernels = kernels

    def __call__(
        self,
        parameters: dict[str, Tensor],
        statistics: dict[str, Tensor],
        x: Tensor,
        masks: Sequence[Tensor] = (),
        rows: Tensor | None = None,
        training: bool = False,
        momentum: Tensor | None = None,
        phase: Phase | None = None,
        heads: StackedClassifiers | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Logits ``[G, B, M]``, features ``[G, B, q]`` and the new running statistics by name.

        Args:
            parameters: trained parameters by name ``[G, …]``.
            statistics: BatchNorm statistics by name ``[G, …]``.
            x: prepared images ``[G, B, 3, H, W]``.
            masks: dropout masks, one for each entry of ``drops`` ``[G, B, …]``; empty: nothing is dropped.
            rows: which of a batch's rows are real ``[G, B]``; None: all.
            training: whether BatchNorm uses and measures the batch.
            momentum: share of the batch in new statistics ``[G]``; None: as the modules say.
            phase: what it is for, which decides the precision; None: in full.
            heads: each model's own classifier; None: that of the network for all.
        """
        for norm in self.norms.values():
            norm.train(training)
        some = () if rows is None else (rows,)
        share = () if momentum is None else (momentum,)
        if self.kernels == "channels-last":
            x = channels_last_batch(x)
        with nullcontext() if phase is None else compute_precision(self.precision, phase, x.device):
            features, fresh = self._each(parameters, statistics, x, tuple(masks), some, share)
        return self.network.classifier(features) if heads is None else heads(features), features, fresh

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
            for norm in self.norms.values():
                norm.rows = rows[0] if rows else None
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
            own = {name.removeprefix("backbone."): value for name, value in parameters.items()}
            z = self.network.backbone.together(own, x, masks[:-1])
            weight, bias = parameters["bottleneck.weight"], parameters["bottleneck.bias"]
            x, masks = torch.baddbmm(bias[:, None], z, weight.transpose(1, 2)), masks[-1:]
        try:
            found: tuple[Tensor, dict[str, Tensor]] = vmap(one)(parameters, statistics, x, masks, rows, share)
        finally:
            for norm in self.norms.values():
                # Tensors of a finished vmap must not be met again.
                norm.rows, norm.momentum, norm.fresh = None, norm.standard, None
        return found
