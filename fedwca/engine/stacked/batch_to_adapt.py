"""Many clients' images, as `fedwca.engine.test_time_adaptation` uses them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.stacked.client_batch import ClientBatch
from fedwca.engine.stacked.vmap import vmap_or_loop


class BatchToAdapt:
    """A `fedwca.engine.test_time_adaptation.ModelsToAdapt` for the G clients of a batch, each of which has images."""

    def __init__(self, batch: ClientBatch) -> None:
        self.batch = batch
        self.sizes, self.base = batch.sizes, batch.layout.base

    def logits(self, models: Tensor) -> Tensor:
        """Logits ``[G, N, M]`` in eval mode, without gradient."""
        return self.batch.outputs(models).logits

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """Values ``[G]`` of ``function``, computed for all clients of the same size at once."""
        parts = [
            vmap_or_loop("entropies", function, logits[group.first : group.stop, : group.images])
            for group in self.batch.alike
        ]
        return torch.cat(parts)

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """The adaptation's losses ``[G]``, computed for all clients of the same size at once."""
        parts = []
        for group in self.batch.alike:
            parameters, _ = self.batch.named(models[group.first : group.stop])
            group_logits = logits[group.first : group.stop, : group.images]
            parts.append(self.batch.network.adaptation_losses(adaptation, parameters, group_logits))
        return torch.cat(parts)

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient ``[G, base]``, given the derivatives of the losses by the logits, ``slopes [G, N, M]``."""
        return self.batch.pull_back(models, slopes)
