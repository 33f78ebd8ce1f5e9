"""The base class of adaptations: a loss on a model's outputs alone, which fits the model to unlabeled images.

A client without labels takes a few gradient steps on it; objectives with ``adapts`` train through one such step. Like
all components, an adaptation is frozen, holds no state, and sees no engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from fedwca.component import Component

ExtraNetworks = Mapping[str, Callable[[Tensor], Tensor]]
"""Extra networks by name, each a function from its input to its output."""


class Adaptation(Component):
    """Gradient descent on a loss of the model's outputs on all images of one client, in eval mode.

    The steps change only the base network's trained parameters; extra networks and BatchNorm statistics stay as they
    are. Source: TENT (Wang et al., ICLR 2021); FedTTA, eqs. 10-12.
    """

    generates_models: ClassVar[bool] = False
    """Whether it generates each client's whole model from the client's images instead of taking steps; see `generate`.
    The model then stays at the client, and the networks that generate it are sent. Such clients are processed one at a
    time."""

    lr: PositiveFloat | None = None
    """Step size (eta_inner); unset: the learning rate of the training."""
    steps: PositiveInt = 1
    """Number of steps (E); with patience, the most that are taken."""
    patience: PositiveInt | None = None
    """Stop after so many steps in a row without a new lowest entropy of the outputs, and take the model of lowest
    entropy (FedTTA++). Unset: all steps, and the model after the last."""
    candidates: Literal["adapted", "all", "unadapted"] = "adapted"
    """With patience, the models to choose from: those after a step (adapted), these and the model as it was sent (all),
    or only the model as it was sent (unadapted), so that steps are computed and none is used."""
    clip: PositiveFloat | None = None
    """Largest norm of a step's gradient; unset: no clipping."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 decay of the parameters that a step changes; ``clip`` does not cut it."""

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.candidates != "adapted" and self.patience is None:
            raise ValueError("candidates says which model is taken, which patience decides; set patience too")
        return self

    @abstractmethod
    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """The loss ``[]`` that a step reduces; twice differentiable in the logits and in the networks' parameters.

        Args:
            logits: of one client's images ``[N, M]``; the loss depends on the images only through them.
            networks: the networks made by `networks`, by name, with the client's parameters.
        """

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """Extra networks by name, freshly initialised: trained by objectives with ``adapts``, sent with the model.

        They have no buffers, and their forward pass draws nothing at random.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def at_size(self, index: int, sizes: int) -> Self:
        """The adaptation for models of one of several sizes; by default it is the same for all sizes.

        Args:
            index: of the size; 0 is the smallest.
            sizes: number of sizes.

        Raises:
            UsageError: the adaptation is configured for another number of sizes.
        """
        return self

    def generators(self, shapes: Mapping[str, tuple[int, ...]], image: tuple[int, int]) -> dict[str, nn.Module]:
        """Networks by name, freshly initialised, that `generate` uses; called only if ``generates_models``.

        Args:
            shapes: shapes by name of the predicting network's trained parameters, in their order in a row.
            image: number of channels of a prepared image, and its side (height and width).
        """
        return {}

    def generate(self, networks: ExtraNetworks, images: Tensor) -> Tensor:
        """A client's model: all trained parameters, concatenated ``[P]``, differentiable.

        Called only if ``generates_models``.

        Args:
            networks: the networks made by `generators`, by name, with the client's parameters.
            images: all images of the client, prepared ``[N, C, side, side]``, N at least 1.
        """
        raise NotImplementedError(f"{type(self).__name__} sets generates_models, but generates nothing")

    def learning_rates(self) -> dict[str, float]:
        """Learning rates of its networks in training, by name; the others have the base network's."""
        return {}
