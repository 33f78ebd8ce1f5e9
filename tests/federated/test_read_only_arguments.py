"""Components may only read what they are given; one that changes it in place is named in the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Offer, Predictions, State, Targets
from fedwca.errors import FedwcaError
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.method import Method
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from tests.engine.test_adaptation import clients, network
from tests.federated.test_server_rules import ENGINES, SIZES, engines, make, method, play


class InPlace(FedAvg):
    """Sets one thing that it is shown to 0."""

    name = "in_place"
    at: str = ""
    position: int = 0

    def _blank(self, answer: str, *shown: Any) -> None:
        if answer == self.at:
            value = shown[self.position]
            (value if isinstance(value, Tensor) else value["labels"]).zero_()

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """After a change in place."""
        self._blank("offer", state, rows)
        return super().offer(state, round, rows)

    def client_weights(self, sizes: Tensor) -> Tensor:
        """After a change in place."""
        self._blank("client_weights", sizes)
        return super().client_weights(sizes)

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Before a change in place."""
        weights = super().gather(state, labels, sizes, present, rows)
        self._blank("gather", labels, sizes, present)
        return weights

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """After a change in place."""
        self._blank("server_step", rows, weights, models)
        return mixed.add_(0)

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """After a change in place."""
        self._blank("next_state", labels, present)
        return super().next_state(state, labels, report, present)

    def deliver(self, state: State, rows: int) -> Tensor:
        """After a change in place."""
        self._blank("deliver", state)
        return super().deliver(state, rows)


@engines
@pytest.mark.parametrize(
    ("at", "count"),
    [("offer", 2), ("gather", 3), ("client_weights", 1), ("server_step", 3), ("next_state", 2), ("deliver", 1)],
)
def test_an_aggregator_may_only_read_what_it_is_given(name: str, at: str, count: int) -> None:
    server, _ = play(make(name), method(InPlace()))
    for position in range(count):
        wrong = InPlace(at=at, position=position)
        with pytest.raises(FedwcaError, match=f"aggregator 'in_place': {at} changed what it was given in place"):
            deliver_mixtures(wrong, server.state, 1) if at == "deliver" else play(make(name), method(wrong))


class InPlaceLoss(Objective):
    """A loss, after a change in place of one field of the batch."""

    name = "in_place_loss"
    field: str = ""

    def __call__(self, batch: Batch) -> Tensor:
        """Cross-entropy."""
        with torch.no_grad():
            value = getattr(batch, self.field) if self.field else None
            if value is not None:
                (value if isinstance(value, Tensor) else value["source"]).mul_(0)
        return torch.nn.functional.cross_entropy(batch.logits, batch.labels)

    @property
    def teachers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The source model."""
        return ("source",)


@engines
@pytest.mark.parametrize("field", ["weights", "labels", "logits", "target_logits", "reference_logits"])
def test_an_objective_may_only_read_the_batch(name: str, field: str) -> None:
    for right in (CrossEntropy(), InPlaceLoss()):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (InPlaceLoss(), right)))
    with pytest.raises(FedwcaError, match="objective 'in_place_loss' changed what it was given in place; it may only"):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (CrossEntropy(), InPlaceLoss(field=field))))


class InPlaceLabels(Argmax):
    """Labels, after a change in place of what it reads."""

    name = "in_place_labels"
    at: str = ""

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        """The predicted classes."""
        given = {"logits": predictions["start"].logits, "features": predictions["start"].features, "draws": draws}
        if self.at in given:
            given[self.at].mul_(2)
        return super().__call__(predictions, draws)

    @property
    def selects_clients(self) -> bool:  # type: ignore[override]
        """Where `trust` is what changes something."""
        return self.at == "trust"

    def trust(self, predictions: Predictions) -> Tensor:
        """All, after a change in place."""
        predictions.logits.mul_(2)
        return torch.ones(())


@engines
@pytest.mark.parametrize("at", ["logits", "features", "draws", "trust"])
def test_a_labeler_may_only_read_predictions(name: str, at: str) -> None:
    def label(labeler: Argmax) -> None:
        engine = ENGINES[name](network(None, whole=False), clients(SIZES, known=False))
        play(engine, Method("own", "Own", FedAvg(), labeler, (CrossEntropy(),)), 1)

    label(InPlaceLabels())
    with pytest.raises(FedwcaError, match=r"pseudo-labeler 'in_place_labels'.* changed what it was given in place"):
        label(InPlaceLabels(at=at))
