"""A component that answers what is no answer is named, with what would be right; engines would multiply it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.scaffold import Scaffold
from fedwca.clusterers.single import Single
from fedwca.core.interfaces import Aggregator, Objective
from fedwca.core.messages import Batch, Blend, Offer, Predictions, State, Targets, View
from fedwca.engine.client_program import check_targets
from fedwca.engine.randomness import Keys
from fedwca.errors import FedwcaError
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.pseudo_labelers.argmax import Argmax
from tests.engine.test_adaptation import clients, network
from tests.federated.test_server_rules import ENGINES, SIZES, TRAINING, engines, make, method, play

Change = Callable[[Any], Any]


class Changed(FedAvg):
    """FedAvg, of which one answer is changed."""

    name = "changed"
    at: str = ""
    part: str = ""

    def _change(self, where: str, value: Any) -> Any:
        return CHANGES[self.part](value) if self.at == where else value

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """Both parts."""
        found = super().offer(state, round, rows)
        changed: Offer = self._change("offer", replace(found, personal=self._change("personal", found.personal)))
        return changed

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """Mixtures."""
        found: Tensor = self._change("gather", super().gather(state, labels, sizes, present, rows))
        return found

    def blend(self, round: int, view: View) -> Blend:
        """The start, and a reference."""
        found = Blend(self._change("start", view.own), {"cluster": self._change("reference", view.own)})
        blend: Blend = self._change("blend", found)
        return blend

    def learn(self, *given: Any) -> State:
        """What is remembered."""
        state: State = self._change("learn", super().learn(*given))
        return state


CHANGES: dict[str, Change] = {
    "": lambda value: value,
    "twice": lambda value: 2 * value,
    "shorter": lambda value: value[..., 1:],
    "flat": lambda value: value[0],
    "nothing": lambda _: None,
    "whole": lambda value: value.long(),
    "number": lambda _: {"labels": 1},
}


@engines
@pytest.mark.parametrize(
    ("at", "part", "said"),
    [
        ("personal", "twice", "offer's personal gave weights that sum to 2; each row must sum to 1"),
        ("personal", "flat", "offer's personal gave torch.float64 of shape (1, 1); right are weights on 3 axes"),
        ("offer", "nothing", "offer gave nothing; right is an Offer"),
        ("gather", "twice", "gather gave weights that sum to 2; each row must sum to 1"),
        ("gather", "shorter", "the last of length 5, one for each row of the server and client"),
        ("gather", "whole", "gather gave torch.int64 of shape (1, 5); right are weights on 2 axes"),
        ("start", "twice", "blend's start gave weights that sum to 2; each row must sum to 1"),
        ("start", "shorter", "the last of length 1, one for each model that was sent"),
        ("reference", "twice", "blend's cluster gave weights that sum to 2"),
        ("blend", "nothing", "blend gave nothing; right is a Blend"),
        ("learn", "nothing", "learn gave nothing; right is a mapping of names to tensors"),
        ("learn", "number", "learn gave a dict; right is a mapping of names to tensors"),
    ],
)
def test_an_aggregators_answer_is_no_mixture(name: str, at: str, part: str, said: str) -> None:
    with pytest.raises(FedwcaError) as error:
        play(make(name), method(Changed(at=at, part=part)))
    assert str(error.value).startswith("aggregator 'changed': ")
    assert said in str(error.value)


def test_nothing_is_said_of_what_is_right() -> None:
    play(make("loop"), method(Changed()))


def test_rows_behind_the_first_need_not_be_models() -> None:
    class Doubled(Scaffold):
        """Scaffold whose control variate counts twice."""

        def gather(self, *given: Any) -> Tensor:
            """Twice, behind the first row."""
            found = super().gather(*given)
            return torch.cat([found[:1], 2 * found[1:]])

    play(make("loop"), method(Doubled()))


class Unsummed(Objective):
    """A loss for each image."""

    name = "unsummed"

    def __call__(self, batch: Batch) -> Tensor:
        """Not averaged."""
        return torch.nn.functional.cross_entropy(batch.logits, batch.labels, reduction="none")


@engines
def test_a_loss_for_each_image_is_refused(name: str) -> None:
    """The stacked engine would add them up, and its steps be as many times as large as there are images in one."""
    with pytest.raises(
        FedwcaError, match=r"objective 'unsummed' gave torch.float64 of shape \(8,\); right is one numb"
    ):
        play(make(name), Method("own", "Own", FedAvg(), Argmax(), (Unsummed(),)))


class Columns(Argmax):
    """Labels in a column."""

    name = "columns"

    def __call__(self, predictions: Any, draws: Tensor) -> Targets:
        """On two axes."""
        own: Predictions = predictions["start"]
        return Targets.of_labels(own.logits.argmax(1)[:, None])


def test_targets() -> None:
    right = Targets.of_labels(torch.tensor([1, 0, 2]))
    assert check_targets(right, 3, "mine") is right
    for wrong, said in [
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
        (replace(right, mix=None), "mix nothing; right are numbers of shape (3,)"),
    ]:
        with pytest.raises(FedwcaError) as error:
            check_targets(wrong, 3, "mine")  # type: ignore[arg-type]
        assert "pseudo-labeler 'mine' gave " in str(error.value)
        assert said in str(error.value)


@engines
def test_targets_in_a_round(name: str) -> None:
    unlabeled = ENGINES[name](network(None), clients(SIZES, known=False))
    server, own = init_server(unlabeled), replace(method(FedAvg()), pseudo_labeler=Columns())
    with pytest.raises(FedwcaError, match=r"pseudo-labeler 'columns' gave labels torch.int64 of shape \(\d+, 1\)"):
        run_round(0, server, own, unlabeled, TRAINING, Keys(1), torch.zeros(4, dtype=torch.int64))


class Listed(Single):
    """A list in place of a tensor."""

    name = "listed"

    def __call__(self, signatures: Any) -> Any:
        """One cluster."""
        return [0] * int(signatures.clients)


def test_a_clusterer_that_gives_a_list() -> None:
    with pytest.raises(FedwcaError, match="clusterer 'listed' gave a list; right would be 4 int64 labels"):
        play(make("loop"), replace(method(Aggregator()), clusterer=Listed()))
