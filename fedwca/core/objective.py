"""The base class of objectives: a loss that clients minimise, and what it needs and uploads for that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor, nn

from fedwca.component import Component
from fedwca.core.messages import Batch, Bounded, Predictions, Targets

ImageView = Literal["plain", "weak", "strong"]


class Objective(Component):
    """A loss that a client minimises; several objectives are summed."""

    anchors: ClassVar[tuple[str, ...]] = ()
    """References whose parameters `penalty` compares with."""
    teachers: ClassVar[tuple[str, ...]] = ()
    """References whose predictions of the plain images a batch carries."""
    views: ClassVar[tuple[ImageView, ...]] = ("plain",)
    """Views of the images it reads; plain and weak are the images as in training, strong are distorted images."""
    adapts: ClassVar[bool] = False
    """Whether it reads ``batch.adapted_logits``: training then goes through a step of the method's adaptation."""
    trained_on: ClassVar[Literal["own", "public"]] = "own"
    """Images it is minimised on: the client's own, or public ones; see `fedwca.core.public_objective`."""
    noise_per_image: ClassVar[int] = 0
    """How many uniform random numbers it reads for each image from ``batch.noise``."""
    local_networks: ClassVar[tuple[str, ...]] = ()
    """Names of those of its `networks` that are not sent with models: each client keeps and trains its own."""

    @property
    def feature_draws(self) -> int:
        """Number of feature draws whose mean softmax is a prediction; 0: features are not drawn.

        Training draws once for each step and image, from ``batch.latent``.
        """
        return 0

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """Extra networks by name, freshly initialised, which it reads from ``batch.networks``.

        They are trained with the model, and sent with it unless ``local_networks`` names them. They have no buffers,
        and their forward pass draws nothing at random.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def learning_rates(self) -> dict[str, float]:
        """Learning rates of its networks in training, by name; the others have the base network's."""
        return {}

    @property
    def observes(self) -> bool:
        """Whether `observe` is overridden, which takes a pass over all images."""
        return type(self).observe is not Objective.observe

    @property
    def penalizes(self) -> bool:
        """Whether `penalty` is overridden, which takes a gradient of its own."""
        return type(self).penalty is not Objective.penalty

    @property
    def collects(self) -> bool:
        """Whether `collect` is overridden, which takes a pass over all images and an upload."""
        return type(self).collect is not Objective.collect

    @property
    def has_upload_bounds(self) -> bool:
        """Whether `upload_bounds` is overridden, so that a server knows what `collect` may upload."""
        return type(self).upload_bounds is not Objective.upload_bounds

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """Loss of one batch ``[]`` in nats; 0 for an objective that is a penalty alone."""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """Values measured on all of a client's images whenever these are labelled; each batch carries them.

        Args:
            predictions: the current predictions of the model that is trained.
        """
        return {}

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """Tensors that a client uploads beside its model after training, by name; of the same shapes at all clients.

        Args:
            predictions: of the trained model, in eval mode, plain images.
            targets: of the last epoch.
        """
        return {}

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Shapes and bounds of `collect`'s tensors, by name, so that a server can refuse invalid ones.

        Real federations need them.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Tensors that the server makes of the collected ones and sends to all clients: their ``batch.pooled_uploads``.

        Args:
            collected: each client's last upload, by the names of `collect`, ``[K, …]``; zeros for a client that never
                uploaded, which a real federation leaves out.
        """
        return collected

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """Loss ``[]`` on the model's parameters themselves, differentiable; where it is overridden, always a number.

        Args:
            parameters: the client's trained parameters ``[P]``, without BatchNorm statistics.
            anchors: the same of the references named in ``anchors``.
        """
        return None
