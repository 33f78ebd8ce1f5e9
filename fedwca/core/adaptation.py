"""What an adaptation provides: a loss on outputs alone, by which a model is fitted to images without labels.

A client that has images alone takes some steps on it; objectives with ``adapts`` train through one such step. Like all
components it is frozen, holds no state, and sees no engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, Self

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from fedwca.registry import Component

ExtraNetworks = Mapping[str, Callable[[Tensor], Tensor]]
"""Extra networks by name, each a function of what it reads."""


class Adaptation(Component):
    """Steps of gradient descent on a loss of a model's outputs on all images of one client, in eval mode.

    They move the base network's trained parameters alone; extra networks and BatchNorm statistics stay. Source: TENT
    (Wang et al., ICLR 2021); FedTTA, eqs. 10-12.
    """

    by_client: ClassVar[bool] = False
    """Whether it generates each client's whole model from the client's images, in place of steps; see `generate`. The
    model itself then stays with the client, and the networks that generate it travel. Such clients work one by one."""

    lr: PositiveFloat | None = None
    """Step size (eta_inner); unset: the learning rate of the training."""
    steps: PositiveInt = 1
    """Steps (E); with patience at most so many."""
    patience: PositiveInt | None = None
    """Steps in a row without a new least entropy of the outputs after which it ends; the model of least entropy is
    taken (FedTTA++). Unset: all steps, and the model after the last."""
    candidates: Literal["adapted", "all", "unadapted"] = "adapted"
    """With patience: which models may be taken, those after a step (adapted), the one as it was sent too (all), or that
    one alone (unadapted), so that steps are made and none is used."""
    clip: PositiveFloat | None = None
    """Largest length of a step's gradient; unset: any."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 decay of the parameters that a step moves, not cut by ``clip``."""

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.candidates != "adapted" and self.patience is None:
            raise ValueError("candidates says which model is taken, which patience decides; set patience too")
        return self

    @abstractmethod
    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """What a step descends ``[]``; twice differentiable in the logits and in the networks' parameters.

        Args:
            logits: of one client's images ``[N, M]``; images act through these alone.
            networks: those that `networks` makes, by name, with the client's parameters.
        """

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """Extra networks by name, freshly initialised: trained by objectives with ``adapts``, sent with the model.

        They have no buffers, and draw nothing at random.

        Args:
            classes: M.
            features: q.
        """
        return {}

    def at_size(self, place: int, sizes: int) -> Self:
        """As it is beside models of one of several sizes; by default all have the same networks.

        Args:
            place: of the size, from 0, the smallest.
            sizes: how many there are.

        Raises:
            UsageError: it is made for another number of sizes.
        """
        return self

    def generators(self, shapes: Mapping[str, tuple[int, ...]], image: tuple[int, int]) -> dict[str, nn.Module]:
        """Networks by name, freshly initialised, that `generate` reads; asked where ``by_client``.

        Args:
            shapes: of the trained parameters of the network that predicts, in the order of a row.
            image: channels of a prepared image, and its height and width.
        """
        return {}

    def generate(self, networks: ExtraNetworks, images: Tensor) -> Tensor:
        """A client's model: all trained parameters, end to end ``[P]``, differentiable; asked where ``by_client``.

        Args:
            networks: those that `generators` makes, by name, with the client's parameters.
            images: all of the client's, prepared ``[N, C, side, side]``, N at least 1.
        """
        raise NotImplementedError(f"{type(self).__name__} is by_client, but generates nothing")

    def rates(self) -> dict[str, float]:
        """Learning rate of each of them in training; one that is not named has the base network's."""
        return {}
