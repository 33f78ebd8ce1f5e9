"""A method of federated learning, composed of components."""

from __future__ import annotations

from dataclasses import dataclass

from fedwca.component import Component
from fedwca.core.adaptation import Adaptation
from fedwca.core.central import Central
from fedwca.core.component_answers import describe_value
from fedwca.core.interfaces import Aggregator, Clusterer, Objective, PseudoLabeler
from fedwca.core.public_objective import PublicObjective
from fedwca.core.training_settings import FinishTraining, Training
from fedwca.errors import UsageError


@dataclass(frozen=True)
class Method:
    """A composition of components; each row of a table is one such method."""

    name: str
    """Name in records and on the command line."""
    label: str
    """Name in tables."""
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    """Losses that clients minimise in a round; their sum counts."""
    clusterer: Clusterer | None = None
    """Only where the aggregator's grouping needs one."""
    finish: tuple[Objective, ...] = ()
    """What clients without labels minimise in a last phase, after the rounds of those that have labels; none: there is
    no such phase."""
    central: Central | None = None
    """Trains the initial model centrally, with all domains at one place; None: the initial model is the run's."""
    training: Training | None = None
    """How its clients train in a round; None: as set for the run."""
    finish_training: FinishTraining | None = None
    """How clients without labels train in the last phase; None where there is none."""
    adaptation: Adaptation | None = None
    """The steps that clients without labels take on the images they predict, and that objectives with ``adapts`` train
    through; None: models predict as they are."""

    def __post_init__(self) -> None:
        """Refuse parts that are no components, before a round fails on them.

        Raises:
            UsageError: names the part and what would be right.
        """
        components: dict[str, object] = {"aggregator": self.aggregator, "pseudo_labeler": self.pseudo_labeler}
        components |= {} if self.clusterer is None else {"clusterer": self.clusterer}
        for part, value in components.items():
            if not isinstance(value, Component):
                raise UsageError(
                    f"method {self.name!r}: {part} is {describe_value(value)}; right is a component's instance"
                )
        if not isinstance(self.objectives, tuple) or not all(
            isinstance(objective, Component) for objective in self.objectives
        ):
            raise UsageError(f"method {self.name!r}: objectives are no tuple of objectives, such as (Shot(),)")
        for objective in self.objectives:
            if (objective.trained_on == "public") != isinstance(objective, PublicObjective):
                raise UsageError(
                    f"method {self.name!r}: objective {objective.name!r} says trained_on={objective.trained_on!r}; "
                    "right is 'public' for a PublicObjective and 'own' for any other"
                )

    @property
    def own_objectives(self) -> tuple[Objective, ...]:
        """What clients minimise on their own images."""
        return tuple(objective for objective in self.objectives if objective.trained_on == "own")

    @property
    def public_objective(self) -> PublicObjective | None:
        """What clients minimise on public images before that; None: nothing."""
        objectives = [objective for objective in self.objectives if isinstance(objective, PublicObjective)]
        return objectives[0] if objectives else None

    @property
    def trained(self) -> tuple[Adaptation | Objective, ...]:
        """The parts that may add networks of their own to the model, each once."""
        adaptations = () if self.adaptation is None else (self.adaptation,)
        return tuple(dict.fromkeys((*adaptations, *self.objectives, *self.finish)))

    def training_in(self, run: Training) -> Training:
        """How its clients train in a round: the method's own settings, or those of the run."""
        return self.training or run

    def largest_batch(self, run: Training) -> int:
        """The largest number of images of a step, in its rounds or in its last phase."""
        batch_size = self.training_in(run).batch_size
        return max(batch_size, self.finish_training.batch_size) if self.finish_training else batch_size

    def is_last_phase(self, round: int, rounds: int) -> bool:
        """Whether a round, of ``rounds`` in all, is the last phase, which counts as the last round."""
        return bool(self.finish) and round == rounds - 1
