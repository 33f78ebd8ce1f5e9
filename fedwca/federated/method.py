"""What a federation plays: components put together."""

from __future__ import annotations

from dataclasses import dataclass

from fedwca.core.adaptation import Adaptation
from fedwca.core.central import Central
from fedwca.core.component_answers import describe_value
from fedwca.core.interfaces import Aggregator, Clusterer, Objective, PseudoLabeler
from fedwca.core.public_objective import PublicObjective
from fedwca.core.training_settings import FinishTraining, Training
from fedwca.errors import UsageError
from fedwca.registry import Component


@dataclass(frozen=True)
class Method:
    """A composition of components: what one row of a table is."""

    name: str
    label: str
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    clusterer: Clusterer | None = None
    """Only where the aggregator's grouping needs one."""
    finish: tuple[Objective, ...] = ()
    """What clients without labels minimise in a last phase, after the rounds of those that have labels; none: there is
    no such phase."""
    start: Central | None = None
    """What trains the model that is started from, where all domains are at one place; None: the run's own."""
    training: Training | None = None
    """How its clients train in a round; None: as the run says."""
    finish_training: FinishTraining | None = None
    """How they train in the last phase; None where there is none."""
    adaptation: Adaptation | None = None
    """The steps that clients without labels take on the images they predict, and that objectives with ``adapts`` train
    through; None: models predict as they are."""

    def __post_init__(self) -> None:
        """Refuse what is no component, before a round finds it out.

        Raises:
            UsageError: names the part and what would be right.
        """
        given = {"aggregator": self.aggregator, "pseudo_labeler": self.pseudo_labeler}
        given |= {} if self.clusterer is None else {"clusterer": self.clusterer}
        for part, value in given.items():
            if not isinstance(value, Component):
                raise UsageError(
                    f"method {self.name!r}: {part} is {describe_value(value)}; right is a component's instance"
                )
        if not isinstance(self.objectives, tuple) or not all(isinstance(one, Component) for one in self.objectives):
            raise UsageError(f"method {self.name!r}: objectives are no tuple of objectives, such as (Shot(),)")

    @property
    def own_objectives(self) -> tuple[Objective, ...]:
        """What clients minimise on their own images."""
        return tuple(objective for objective in self.objectives if objective.on == "own")

    @property
    def public_objective(self) -> PublicObjective | None:
        """What they minimise on public images before that; None: nothing."""
        found = [objective for objective in self.objectives if isinstance(objective, PublicObjective)]
        return found[0] if found else None

    @property
    def trained(self) -> tuple[Adaptation | Objective, ...]:
        """The parts that may put networks of their own beside the model, each once."""
        own = () if self.adaptation is None else (self.adaptation,)
        return tuple(dict.fromkeys((*own, *self.objectives, *self.finish)))

    def training_in(self, run: Training) -> Training:
        """How its clients train in a round: its own values, or those of the run."""
        return self.training or run

    def largest_batch(self, run: Training) -> int:
        """The most images of a step, in its rounds or in its last phase."""
        own = self.training_in(run).batch_size
        return max(own, self.finish_training.batch_size) if self.finish_training else own

    def is_last_phase(self, round: int, rounds: int) -> bool:
        """Whether a round is the last phase: it takes the place of one more round."""
        return bool(self.finish) and round == rounds - 1
