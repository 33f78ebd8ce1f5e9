"""One client's images, as `fedwca.engine.test_time_adaptation` uses them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.engine.sequential.replica import Replica


class ImagesToAdapt:
    """A `fedwca.engine.test_time_adaptation.ModelsToAdapt` for one client, G = 1.

    Args:
        replica: runs the client's model.
        images: uint8 ``[N, 3, H, W]``, or their embeddings from `fedwca.engine.embeddings`.
    """

    def __init__(self, replica: Replica, images: Tensor) -> None:
        self.replica, self.images = replica, images
        self.sizes, self.base = [len(images)], replica.layout.base

    def logits(self, models: Tensor) -> Tensor:
        """Logits ``[1, N, M]`` in eval mode, without gradient."""
        self.replica.bind(models[0])
        if not len(self.images):
            return models.new_zeros(1, 0, len(self.replica.class_vectors))
        return self.replica.predict(self.images).logits[None]

    def each(self, function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
        """Value ``[1]`` of ``function``."""
        return function(logits[0])[None]

    def losses(self, adaptation: Adaptation, models: Tensor, logits: Tensor) -> Tensor:
        """The adaptation's loss ``[1]``."""
        self.replica.bind(models[0])
        return self.replica.adaptation_loss(adaptation, logits[0])[None]

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient ``[1, base]``, given the derivatives of the loss by the logits, ``slopes [1, N, M]``."""
        self.replica.bind(models[0])
        return self.replica.pull_back(self.images, slopes[0])[None]
