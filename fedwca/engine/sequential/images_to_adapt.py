"""One client's images as `fedwca.engine.test_time_adaptation` asks for them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.sequential.replica import Replica


class ImagesToAdapt:
    """A `fedwca.engine.test_time_adaptation.ModelsToAdapt` of G = 1.

    Args:
        replica: runs its model.
        images: uint8 ``[N, 3, H, W]``, or what `fedwca.engine.embeddings` made of them.
    """

    def __init__(self, replica: Replica, images: Tensor) -> None:
        self.replica, self.images = replica, images
        self.sizes, self.base = [len(images)], replica.layout.base

    def logits(self, models: Tensor) -> Tensor:
        """``[1, N, M]``"""
        self.replica.bind(models[0])
        if not len(self.images):
            return models.new_zeros(1, 0, len(self.replica.class_vectors))
        return self.replica.predict(self.images).logits[None]

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """``[1]``"""
        return function(logits[0])[None]

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """``[1]``"""
        self.replica.bind(models[0])
        return self.replica.adaptation_loss(adaptation, logits[0])[None]

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """``[1, base]``"""
        self.replica.bind(models[0])
        return self.replica.pull_back(self.images, slopes[0])[None]
