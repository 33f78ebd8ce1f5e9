"""SGD over the flat rows of a crowd."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedwca.engine.layout import Layout
from fedwca.engine.sgd import sgd_step
from fedwca.engine.stacked.images import StepGroup
from fedwca.engine.task import Training


class StackedSgd:
    """SGD with momentum over the flat rows of a crowd, fresh each round: `torch.optim.SGD`, all models in one call."""

    def __init__(self, layout: Layout, training: Training, models: Tensor) -> None:
        self.layout, self.training, self.models = layout, training, models
        self.momentum = torch.zeros_like(models[:, : layout.trained])

    def leaf(self, span: StepGroup) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Of a span: the trained values ``[g, P]`` as one leaf, the same by name ``[g, …]``, BatchNorm statistics."""
        return split_leaves(self.layout, self.models[span.first : span.stop])

    def step(self, span: StepGroup, gradient: Tensor, fresh: Mapping[str, Tensor]) -> None:
        """One step of the clients of a span: ``gradient [g, P]``, new BatchNorm statistics by name."""
        here, training = slice(span.first, span.stop), self.training
        if training.clip is not None:
            gradient = gradient * (training.clip / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp_max(1)
        # A row is one long parameter.
        rows = self.models[here, : self.layout.trained].unbind()
        sgd_step(rows, gradient.unbind(), self.momentum[here].unbind(), training)
        for slot in self.layout.statistics:
            if slot.name in fresh:
                slot.of(self.models[here]).copy_(fresh[slot.name])


def split_leaves(layout: Layout, rows: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Of models ``[g, P]``: trained values as one leaf, the same by name ``[g, …]``, BatchNorm statistics by name."""
    leaf, slots = rows[:, : layout.trained].detach().requires_grad_(), layout.parameters
    # Split, not sliced: its gradient is put together once instead of added up from one whole row a tensor.
    parts = leaf.split([slot.stop - slot.start for slot in slots], 1)
    named = {slot.name: part.unflatten(1, slot.shape) for slot, part in zip(slots, parts, strict=True)}
    return leaf, named, {slot.name: slot.of(rows) for slot in layout.statistics}
