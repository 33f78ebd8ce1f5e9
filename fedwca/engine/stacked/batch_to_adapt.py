"""Many clients' images as `fedwca.engine.test_time_adaptation` asks for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.stacked.client_batch import ClientBatch
from fedwca.engine.stacked.vmap import vmap_or_loop


class BatchToAdapt:
    """A `fedwca.engine.test_time_adaptation.ModelsToAdapt` of the G clients of a batch, each of which has images."""

    def __init__(self, batch: ClientBatch) -> None:
        self.batch = batch
        self.sizes, self.base = batch.sizes, batch.layout.base

    def logits(self, models: Tensor) -> Tensor:
        """``[G, N, M]``"""
        return self.batch.outputs(models).logits

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """``[G]``; clients of one size after those of another."""
        parts = [vmap_or_loop("entropies", function, logits[g.first : g.stop, : g.images]) for g in self.batch.alike]
        return torch.cat(parts)

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """``[G]``; clients of one size after those of another."""
        parts = []
        for g in self.batch.alike:
            parameters, _ = self.batch.named(models[g.first : g.stop])
            own = logits[g.first : g.stop, : g.images]
            parts.append(self.batch.network.adaptation_losses(adaptation, parameters, own))
        return torch.cat(parts)

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """``[G, base]``"""
        return self.batch.pull_back(models, slopes)
