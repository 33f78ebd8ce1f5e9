"""An objective whose answer is invalid is named in the error, with what would be valid."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Bounded, Predictions, Targets
from fedwca.errors import FedwcaError, UsageError
from fedwca.federated.mean_answers import mean_answer_problem
from fedwca.federated.method import Method
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from tests.federated.test_server_rules import engines, make, method, play


class Unsummed(Objective):
    """A loss for each image."""

    name = "unsummed"

    def __call__(self, batch: Batch) -> Tensor:
        """Not averaged."""
        return torch.nn.functional.cross_entropy(batch.logits, batch.labels, reduction="none")


@engines
def test_a_loss_for_each_image_is_refused(name: str) -> None:
    """Without the check the stacked engine would sum them, so a step would be larger by a factor of the batch size."""
    with pytest.raises(
        FedwcaError, match=r"objective 'unsummed' gave torch.float64 of shape \(8,\); right is one numb"
    ):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Unsummed(),)))


class PenaltyAlone(Objective):
    """0, as a number of Python or as a tensor of one entry."""

    name = "penalty_alone"
    entries: int = 0

    def __call__(self, batch: Batch) -> Tensor:
        """Nothing."""
        return torch.zeros(1) if self.entries else 0.0  # type: ignore[return-value]


@engines
@pytest.mark.parametrize("entries", [0, 1])
def test_one_number_is_a_loss_in_any_form(name: str, entries: int) -> None:
    alone, _ = play(make(name), method(FedAvg()), 1)
    beside, _ = play(make(name), method(FedAvg(), PenaltyAlone(entries=entries)), 1)
    assert torch.equal(alone.rows, beside.rows)


@pytest.mark.parametrize("answer", [torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)])
def test_an_answer_about_the_mean_that_has_no_fractions_does_not_count(answer: Tensor) -> None:
    assert "right is torch.float32" in mean_answer_problem({"counts": answer}, {"counts": Bounded((2,), 9)})


def test_an_objective_on_public_images_is_of_their_class() -> None:
    class Elsewhere(CrossEntropy):
        """Says that it is minimised on public images."""

        name = "elsewhere"
        trained_on = "public"

    with pytest.raises(UsageError, match="objective 'elsewhere' says trained_on='public'; right is 'public' for a"):
        method(FedAvg(), Elsewhere())


class Observing(CrossEntropy):
    """Measures and collects a value under a name of its own, or the other objective's."""

    name = "observing"
    observed: str = "a"
    collected: str = "a"
    changes: str = ""

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """The mean logit."""
        if self.changes == "observe":
            predictions.logits.mul_(2)
        return {self.observed: predictions.logits.mean()}

    def collect(self, trained: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """The mean feature."""
        if self.changes == "collect":
            trained.features.mul_(2)
        return {self.collected: trained.features.mean()}

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """One number."""
        return {self.collected: Bounded((), 1e9)}


class Other(Observing):
    """Likewise."""

    name = "other_observing"
    observed: str = "b"
    collected: str = "b"


@engines
def test_two_objectives_do_not_read_each_others_values(name: str) -> None:
    play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Observing(), Other())))
    wrong = {
        "'other_observing': observe gave 'a', as another objective does; give it another name": Other(observed="a"),
        "'other_observing': pool gave 'a', as another objective does": Other(collected="a"),
        "observe,? changed what it was given in place": Other(changes="observe"),
        "'other_observing': collect changed what it was given in place": Other(changes="collect"),
    }
    for sentence, objective in wrong.items():
        with pytest.raises(FedwcaError, match=sentence):
            play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Observing(), objective)))


@engines
def test_a_loss_that_no_model_is_behind(name: str) -> None:
    alone = Method("own", "Own", FedAvg(), Argmax(), (PenaltyAlone(),))
    with pytest.raises(FedwcaError, match="objective 'penalty_alone': the loss does not depend on the model"):
        play(make(name), alone)


class Careless(CrossEntropy):
    """Gives an invalid answer at one place."""

    name = "careless"
    at: str = ""

    def penalty(self, parameters: Tensor, anchors: Mapping[str, Tensor]) -> Tensor | None:
        """A number, one for each parameter, or nothing."""
        if self.at == "forgotten":
            return None
        return parameters if self.at == "penalty" else parameters.sum() * 0

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """Nothing, or a tensor without a name."""
        return predictions.logits if self.at == "observe" else {}  # type: ignore[return-value]

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        """A mean, or a float."""
        mean = predictions.logits.mean(0)
        return {"mean": 1.0 if self.at == "collect" else mean}  # type: ignore[dict-item]

    def upload_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Of the mean, or a shape alone."""
        return {"mean": (classes,)} if self.at == "bounds" else {"mean": Bounded((classes,), 1e9)}  # type: ignore[dict-item]

    def pool(self, collected: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What was collected, or a tensor of it."""
        return collected["mean"] if self.at == "pool" else collected  # type: ignore[return-value]


@engines
@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("penalty", r"penalty gave torch.float\d+ of shape \(\d+,\); right is one number"),
        ("forgotten", "penalty gave nothing; right is one number"),
        ("observe", "observe gave torch.float.* of shape .*; right is a mapping of names to tensors"),
        ("collect", "collect gave 'mean' as a float; right is a mapping of names to tensors"),
        ("bounds", "upload_bounds gave 'mean' as a tuple; right is a mapping of names to Bounded"),
        ("pool", "pool gave torch.float.* of shape .*; right is a mapping of names to tensors"),
    ],
)
def test_an_objectives_answer_is_named(name: str, at: str, said: str) -> None:
    with pytest.raises(FedwcaError, match=f"objective 'careless': {said}"):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Careless(at=at),)))


@engines
def test_a_careful_objective_is_taken(name: str) -> None:
    play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Careless(),)))
