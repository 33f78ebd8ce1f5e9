"""A pseudo-labeler whose answer is invalid is named in the error, with what would be valid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.core.messages import Predictions, Targets
from fedwca.engine.check_targets import check_targets
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError
from fedwca.federated.round import init_server, run_round
from fedwca.pseudo_labelers.argmax import Argmax
from tests.engine.test_adaptation import clients, network
from tests.federated.test_server_rules import ENGINES, SIZES, TRAINING, engines, method


class Columns(Argmax):
    """Labels in a column."""

    name = "columns"

    def __call__(self, predictions: Any, draws: Tensor) -> Targets:
        """On two axes."""
        start: Predictions = predictions["start"]
        return Targets.of_labels(start.logits.argmax(1)[:, None])


def test_invalid_targets_are_refused() -> None:
    right = Targets.of_labels(torch.tensor([1, 0, 2]))
    assert check_targets(right, 3, "mine") is right
    for invalid, sentence in [
        (right.labels, "gave torch.int64 of shape (3,); right are Targets"),
        (
            replace(right, labels=right.labels[:, None]),
            "labels torch.int64 of shape (3, 1); right are int64 of shape (3,)",
        ),
        (
            replace(right, labels=right.labels.float()),
            "labels torch.float32 of shape (3,); right are int64 of shape (3,)",
        ),
        (
            replace(right, weights=right.weights[:2]),
            "weights torch.float32 of shape (2,); right are numbers of shape (3,)",
        ),
        (replace(right, partner_weights=None), "partner_weights nothing; right are numbers of shape (3,)"),
        (replace(right, notes={"seen": [1]}), "notes gave 'seen' as a list; right is a mapping of names to tensors"),
    ]:
        with pytest.raises(FedwcaError, match=r"pseudo-labeler 'mine':? .*gave ") as error:
            check_targets(invalid, 3, "mine")  # type: ignore[arg-type]
        assert sentence in str(error.value)


@engines
def test_invalid_targets_are_refused_in_a_round(name: str) -> None:
    unlabeled = ENGINES[name](network(None), clients(SIZES, known=False))
    server, composed = init_server(unlabeled), replace(method(FedAvg()), pseudo_labeler=Columns())
    with pytest.raises(FedwcaError, match=r"pseudo-labeler 'columns' gave labels torch.int64 of shape \(\d+, 1\)"):
        run_round(0, server, composed, unlabeled, TRAINING, Keys(1), torch.zeros(4, dtype=torch.int64))


class Wrong(Argmax):
    """Targets with one value that cannot be."""

    name = "wrong"
    field: str = ""
    value: float = 0.0

    def __call__(self, predictions: Any, draws: Tensor) -> Targets:
        """The last one."""
        targets = super().__call__(predictions, draws)
        mix = targets.partner_weights + 0.5 if self.field == "partners" else targets.partner_weights
        changed = getattr(targets, self.field).clone() if self.field != "partner_weights" else mix.clone()
        changed[-1] = self.value
        return replace(targets, **{"partner_weights": mix, self.field: changed})

    @property
    def mixes(self) -> bool:
        """Where it says so."""
        return self.field == "partners"


@engines
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("labels", 3, "labels that are no class; right are 0 to 2 (for 1 of "),
        ("labels", -1, "labels that are no class; right are 0 to 2 (for 1 of "),
        ("weights", -0.5, "weights that are not from 0 to 1 (for 1 of "),
        ("weights", 1.5, "weights that are not from 0 to 1"),
        ("partner_weights", 1.5, "partner_weights that are not from 0 to 1"),
        ("partner_weights", 0.5, "images to mix, and says by mixes = False that there are none"),
        ("partners", 50, "partners that the client has not; right are 0 to "),
    ],
)
def test_invalid_target_values_are_refused(name: str, field: str, value: float, said: str) -> None:
    unlabeled = ENGINES[name](network(None), clients(SIZES, known=False))
    server, composed = init_server(unlabeled), replace(method(FedAvg()), pseudo_labeler=Wrong(field=field, value=value))
    with pytest.raises(FedwcaError) as error:
        run_round(0, server, composed, unlabeled, TRAINING, Keys(1), torch.zeros(4, dtype=torch.int64))
    assert str(error.value).startswith(f"pseudo-labeler 'wrong' gave {said}")
