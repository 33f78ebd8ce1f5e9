"""What an objective provides: a loss that clients minimise, and what it needs and uploads besides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor, nn

from fedwca.core.messages import Batch, Bounded, Predictions, Targets
from fedwca.registry import Component

ImageView = Literal["plain", "weak", "strong"]


class Objective(Component):
    """What one client minimises; several add up."""

    anchors: ClassVar[tuple[str, ...]] = ()
    """References whose parameters `penalty` compares with."""
    teachers: ClassVar[tuple[str, ...]] = ()
    """References whose predictions of the plain images a batch carries."""
    views: ClassVar[tuple[ImageView, ...]] = ("plain",)
    """Views of the images it reads; plain and weak are the images as training shows them, strong distorted ones."""
    adapts: ClassVar[bool] = False
    """Whether it reads ``batch.adapted_logits``: training then goes through a step of the method's adaptation."""
    on: ClassVar[Literal["own", "public"]] = "own"
    """Images it is minimised on: the client's own, or public ones; see `fedwca.core.public_objective`."""
    noise: ClassVar[int] = 0
    """Uniform numbers that it reads of each image in ``batch.noise``."""
    stays: ClassVar[tuple[str, ...]] = ()
    """Those of its `networks` that no model takes along: each client keeps and trains its own."""

    @property
    def feature_draws(self) -> int:
        """Draws of the features whose mean softmax is a prediction. Training draws once a step and image, from what is
        in ``batch.latent``. 0: features are not drawn.
        """
        return 0

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """Extra networks by name, freshly initialised, which it reads in ``batch.networks``: trained with the model,
        and sent with it unless they stay. They have no buffers, and draw nothing at random.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def rates(self) -> dict[str, float]:
        """Learning rate of each of them; one that is not named has the base network's."""
        return {}

    @property
    def observes(self) -> bool:
        """Whether there is something to `observe`, which takes a pass over all images."""
        return type(self).observe is not Objective.observe

    @property
    def penalizes(self) -> bool:
        """Whether there is a `penalty`, which takes a gradient of its own."""
        return type(self).penalty is not Objective.penalty

    @property
    def collects(self) -> bool:
        """Whether there is something to `collect`, which takes a pass over all images and is uploaded."""
        return type(self).collect is not Objective.collect

    @property
    def declares_uploads(self) -> bool:
        """Whether a server can know what `collect` may upload."""
        return type(self).declares is not Objective.declares

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """Loss of one batch ``[]`` in nats; 0 for an objective that is a penalty alone."""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """What it has to know of all of a client's images, measured whenever they are labelled; comes with each batch.

        Args:
            predictions: of the model that is trained, as it then is.
        """
        return {}

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """What a client uploads beside its model after training, by name; each the same shape at every client.

        Args:
            predictions: of the trained model, in eval mode, plain images.
            targets: of the last epoch.
        """
        return {}

    def declares(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """What `collect` uploads, by name, so that a server can refuse what does not fit; needed for real federations.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the server sends everybody of what was collected; reaches `__call__` as ``batch.shared``.

        Args:
            collected: what each client uploaded last, by the names `collect` gave, ``[K, …]``; zeros for one that never
                did.
        """
        return collected

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Loss of the model itself ``[]``, differentiable; None for none.

        Args:
            parameters: the client's trained parameters ``[P]``, without BatchNorm statistics.
            anchors: the same of the references named in ``anchors``.
        """
        return None
