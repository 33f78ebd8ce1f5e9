"""SGD over the flat rows of a crowd."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from fedwca.engine.bank import Layout
from fedwca.engine.stacked.pile import Span
from fedwca.engine.task import Training


class Sgd:
    """SGD with momentum over the flat rows of a crowd, fresh each round: `torch.optim.SGD`, all models in one call."""

    def __init__(self, layout: Layout, training: Training, models: Tensor) -> None:
        self.layout, self.training, self.models = layout, training, models
        self.momentum = torch.zeros_like(models[:, : layout.trained])
        # One pass over memory where torch has it; a row is one long parameter.
        self._fused = models.device.type in ("cpu", "cuda")

    def leaf(self, span: Span) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Of a span: the trained values ``[g, P]`` as one leaf, the same by name ``[g, …]``, BatchNorm statistics."""
        rows, slots = self.models[span.first : span.stop], self.layout.parameters
        leaf = rows[:, : self.layout.trained].detach().requires_grad_()
        # Split, not sliced: its gradient is put together once instead of added up from one whole row a tensor.
        parts = leaf.split([slot.stop - slot.start for slot in slots], 1)
        named = {slot.name: part.unflatten(1, slot.shape) for slot, part in zip(slots, parts, strict=True)}
        return leaf, named, {slot.name: slot.of(rows) for slot in self.layout.statistics}

    def step(self, span: Span, gradient: Tensor, fresh: Mapping[str, Tensor]) -> None:
        """One step of the clients of a span: ``gradient [g, P]``, new BatchNorm statistics by name."""
        here, training = slice(span.first, span.stop), self.training
        if training.clip is not None:
            gradient = gradient * (training.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp_max(1)
        sgd(
            list(self.models[here, : self.layout.trained].unbind()),
            list(gradient.unbind()),
            list(self.momentum[here].unbind()),
            foreach=not self._fused,
            fused=self._fused,
            weight_decay=training.weight_decay,
            momentum=training.momentum,
            lr=training.lr,
            dampening=0.0,
            nesterov=training.nesterov,
            maximize=False,
        )
        for slot in self.layout.statistics:
            if slot.name in fresh:
                slot.of(self.models[here]).copy_(fresh[slot.name])
