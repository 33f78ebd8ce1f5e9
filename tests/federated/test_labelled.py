"""Clients with labels and one without: what each trains towards, who is averaged, asked and adapted."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.mdmgb import MDMGB
from fedwca.core.interfaces import Aggregator, PseudoLabeler
from fedwca.core.messages import Bounded, Predictions, Targets
from fedwca.core.training_settings import FinishTraining, Training, Trains
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import FedwcaError
from fedwca.federated.close_round import Outcome
from fedwca.federated.last_phase import close_last_phase, final_models, measure_shift, open_last_phase
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.functional import centroid_weights
from fedwca.models.lenet import LeNet
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.trusted import Trusted
from fedwca.runs.records.round_diagnostics import measure_evidence
from tests.engine.federations import Thin, some

UNLABELED = 1
SIZES = (12, 14, 9, 17)
DOMAINS = torch.arange(len(SIZES))
TRAINING = Training(epochs=2, lr=0.01, batch_size=8)
ENGINES = {"loop": SequentialEngine, "stacked": StackedEngine}


def labels(n: int) -> Tensor:
    return torch.arange(n) % 3


def clients() -> list[ClientImages]:
    return [
        ClientImages(some(n, k), some(4, k), labels=None if k == UNLABELED else labels(n)) for k, n in enumerate(SIZES)
    ]


def make(name: str = "loop", classifier: str = "linear") -> Engine:
    network = Thin(bottleneck=8, classifier=classifier).build(3, seed=1, trains_classifier=True).double()
    return ENGINES[name](network, clients())


def method(aggregator: Aggregator, trains: Trains = "classifier", labeler: PseudoLabeler | None = None) -> Method:
    finish = FinishTraining(epochs=2, lr=0.05, batch_size=8, trains=trains)
    labeler = labeler or Prototype(renew="epoch", append_one=True)
    objectives = (CrossEntropy(smoothing=0.1),)
    return Method("own", "Own", aggregator, labeler, objectives, finish=(Shot(),), finish_training=finish)


def play(engine: Engine, composed: Method, count: int = 2) -> tuple[Server, list[Outcome]]:
    server, outcomes = init_server(engine), []
    for number in range(count):
        server, outcome = run_round(number, server, composed, engine, TRAINING, Keys(1), DOMAINS)
        outcomes.append(outcome)
    return server, outcomes


@pytest.mark.parametrize("name", ENGINES)
def test_a_client_that_nobody_trusts_trains_nothing_in_the_last_phase(name: str) -> None:
    engine, composed = make(name), method(FedAvg(), "all", Trusted(least=2))
    server, _ = play(engine, composed, 1)
    opened = open_last_phase(1, server, composed, engine, Keys(1), DOMAINS)
    close_last_phase(opened, engine.run(opened))
    trained = slice(0, engine.layout.trained)
    assert torch.equal(engine.bank[UNLABELED, trained], server.rows[0, trained])


def test_the_largest_batch_may_be_that_of_the_last_phase() -> None:
    composed = method(FedAvg())
    assert composed.largest_batch(Training(batch_size=64)) == 64
    larger = replace(composed, finish_training=FinishTraining(batch_size=128))
    assert larger.largest_batch(Training(batch_size=64)) == 128


class NoLabels(PseudoLabeler):
    """A labeler that must not be asked."""

    def __call__(self, predictions: Mapping[str, Predictions], draws: Tensor) -> Targets:
        raise AssertionError("a client with labels asked a labeler")


@pytest.mark.parametrize("name", ENGINES)
def test_labelled_clients_train_towards_their_labels_and_ask_nobody(name: str) -> None:
    engine = make(name)
    _, outcomes = play(engine, method(FedAvg(), labeler=NoLabels()), 1)
    assert sorted(outcomes[0].uploads) == [0, 2, 3]
    for client, upload in outcomes[0].uploads.items():
        assert torch.equal(upload.targets.labels, labels(SIZES[client]))
    trained = {k: not torch.equal(engine.bank[k], engine.layout.read(engine.network)) for k in range(4)}
    assert trained == {0: True, 1: False, 2: True, 3: True}


def test_an_unlabeled_client_of_huge_norm_changes_no_mean() -> None:
    engine, other_engine = make(), make()
    server, _ = play(engine, method(MDMGB()), 1)
    start = init_server(other_engine)
    other_engine.bank[UNLABELED] = 1e20
    other_server, _ = run_round(0, start, method(MDMGB()), other_engine, TRAINING, Keys(1), DOMAINS)
    assert torch.equal(server.rows, other_server.rows)


@pytest.mark.parametrize("classifier", ["linear", "wn"])
def test_a_trained_classifier_is_the_last_of_a_row_and_moves(classifier: str) -> None:
    engine = make(classifier=classifier)
    layout, before = engine.layout, engine.layout.read(engine.network)
    head = [slot.name for slot in layout.parameters if slot.start >= layout.classifier.start]
    assert head
    assert all(slot.startswith("classifier.") for slot in head)
    assert layout.classifier.stop == layout.trained
    frozen = LeNet(bottleneck=8, classifier=classifier).build(3, seed=1)
    assert [len(layer) for layer in layout.layers()] == [2, 2, 2]
    assert type(layout).of(frozen).classifier == slice(type(layout).of(frozen).trained, type(layout).of(frozen).trained)
    server, _ = play(engine, method(FedAvg()), 1)
    assert not torch.equal(server.rows[0, layout.classifier], before[layout.classifier])


@pytest.mark.parametrize("aggregator", [FedAvg(), MDMGB(), MDMGB(temperature=0.5, centroids="labels")], ids=repr)
@pytest.mark.parametrize("classifier", ["linear", "wn"])
@pytest.mark.parametrize("trains", ["all", "classifier", "extractor"])
def test_engines_agree(aggregator: Aggregator, classifier: str, trains: Trains) -> None:
    composed, results = method(aggregator, trains), []
    for name in ENGINES:
        engine = make(name, classifier)
        server, outcomes = play(engine, composed)
        opened = open_last_phase(2, server, composed, engine, Keys(1), DOMAINS)
        closed, _ = close_last_phase(opened, engine.run(opened))
        assert torch.equal(closed.rows, server.rows)
        results.append((final_models(composed, server, engine), outcomes[-1].gathered))
        as_sent = [torch.equal(model, server.rows[0]) for model in results[-1][0]]
        assert as_sent == [k != UNLABELED for k in range(4)], "others end with what the rounds gave them"
    (models, gathered), (other_models, other_gathered) = results
    torch.testing.assert_close(models, other_models)
    if aggregator.queries_clients:
        assert gathered is not None
        assert other_gathered is not None
        torch.testing.assert_close(gathered, other_gathered)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("trains", ["classifier", "extractor"])
def test_the_other_part_keeps_its_bits(name: str, trains: Trains) -> None:
    engine, composed = make(name), method(FedAvg(), trains)
    server, _ = play(engine, composed)
    opened = open_last_phase(2, server, composed, engine, Keys(1), DOMAINS)
    engine.run(opened)
    row, head = engine.bank[UNLABELED], engine.layout.classifier
    frozen = torch.ones(len(row), dtype=torch.bool)
    frozen[head] = False
    if trains == "extractor":
        frozen = ~frozen
    assert torch.equal(row[frozen], server.rows[0][frozen])
    assert not torch.equal(row[~frozen], server.rows[0][~frozen])


def test_weights_are_those_of_centroids_under_the_uniform_mean() -> None:
    engine = make()
    server, (outcome,) = play(engine, method(MDMGB()), 1)
    mean_answers, gathered = outcome.mean_answers, outcome.gathered
    assert mean_answers is not None
    assert gathered is not None
    centroids = mean_answers.answers["centroids"]
    assert centroids.shape == (4, 3, 9)
    alpha = centroid_weights(centroids[[0, 2, 3]], centroids[UNLABELED])
    assert gathered.tolist() == [[0.0, float(alpha[0]), 0.0, float(alpha[1]), float(alpha[2])]]
    torch.testing.assert_close(server.rows[0], gathered[0, 1:].to(engine.bank) @ engine.bank)


def test_the_second_mean_may_keep_a_share_of_the_row_before_the_round() -> None:
    class Half(MDMGB):
        name = "half"

        def regather(self, *given: Any) -> Tensor:
            weights = super().regather(*given) / 2
            weights[:, 0] = 0.5
            return weights

    engine = make()
    start = engine.layout.read(engine.network)
    server, (outcome,) = play(engine, method(Half()), 1)
    assert outcome.gathered is not None
    torch.testing.assert_close(server.rows[0], start / 2 + outcome.gathered[0, 1:].to(start) @ engine.bank)


class WrongAnswers(MDMGB):
    """Gives something else than it should about the mean, at one place."""

    name = "wrong_answers"
    at: str = ""

    def answer(self, predictions: Predictions, labels: Tensor | None) -> Mapping[str, Tensor]:
        """Centroids, or nothing."""
        nothing: Any = None
        return nothing if self.at == "answer" else super().answer(predictions, labels)  # type: ignore[no-any-return]

    def answer_bounds(self, classes: int, features: int) -> Mapping[str, Bounded]:
        """Theirs, or a number."""
        bounds: Any = {"centroids": 1.0} if self.at == "answer_bounds" else super().answer_bounds(classes, features)
        return bounds  # type: ignore[no-any-return]

    def regather(self, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor) -> Tensor:
        """The weights, after a change in place."""
        if self.at == "regather":
            gather.mul_(1)
        return super().regather(answers, gather, present, unlabeled)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("answer", "answer gave nothing; right is a mapping of names to tensors"),
        ("answer_bounds", "answer_bounds gave 'centroids' as a float; right is a mapping of names to Bounded"),
        ("regather", "regather changed what it was given in place"),
    ],
)
def test_answers_about_the_mean_are_checked(name: str, at: str, said: str) -> None:
    with pytest.raises(FedwcaError, match=f"aggregator 'wrong_answers': {said}"):
        play(make(name), method(WrongAnswers(at=at)), 1)


def centroids_by_hand(features: Tensor, outputs: Tensor) -> Tensor:
    """Eqs. 5-9 ``[M, q+1]``: output-weighted centroids, labels by the nearest of them, then the centroids by label."""
    ones = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    first = (outputs.T @ ones) / outputs.sum(0)[:, None]
    nearest = F.cosine_similarity(ones[:, None], first[None], dim=-1).argmax(1)
    means = [ones[nearest == label].mean(0) if bool((nearest == label).any()) else 0 * ones[0] for label in range(3)]
    return torch.stack(means)


def test_centroids_are_of_training_images_under_the_uniform_mean() -> None:
    engine = make()
    _, (outcome,) = play(engine, method(MDMGB()), 1)
    assert outcome.mean_answers is not None
    network = copy.deepcopy(engine.network).eval()
    engine.layout.write(network, engine.bank[[0, 2, 3]].mean(0))
    for client, images in enumerate(engine.images):
        with torch.no_grad():
            logits, features = network(network.prepare(images))
        expected = centroids_by_hand(features, logits.softmax(1))
        torch.testing.assert_close(outcome.mean_answers.answers["centroids"][client], expected)


def test_a_step_of_the_last_phase_by_hand() -> None:
    engine = make()
    composed = replace(
        method(MDMGB()),
        finish_training=FinishTraining(epochs=1, lr=0.05, batch_size=32, momentum=0, weight_decay=0),
        finish=(Shot(lam=0.1),),
    )
    server, _ = play(engine, composed, 1)
    engine.run(open_last_phase(1, server, composed, engine, Keys(1), DOMAINS))
    network = copy.deepcopy(engine.network).eval()
    engine.layout.write(network, server.rows[0])
    logits, features = network(network.prepare(engine.images[UNLABELED]))
    z, p, eps = features.detach(), logits.softmax(1), 1e-5
    ones = torch.cat([z, torch.ones_like(z[:, :1])], 1)
    centroids = centroids_by_hand(z, p.detach())
    similarity = F.cosine_similarity(ones[:, None], centroids[None], dim=-1)
    similarity[:, (centroids == 0).all(1)] = -2  # a class without images is nobody's label
    mean = p.mean(0)
    # Eqs. 17-20: entropy, less the entropy of the mean output, and beta times cross-entropy.
    loss = -(p * (p + eps).log()).sum(1).mean() + (mean * (mean + eps).log()).sum()
    loss = loss + 0.1 * F.cross_entropy(logits, similarity.argmax(1))
    slots = {slot.name: slot for slot in engine.layout.parameters}
    for name in ("classifier.weight", "classifier.bias"):
        parameter = network.get_parameter(name)
        (gradient,) = torch.autograd.grad(loss, parameter, retain_graph=True)
        torch.testing.assert_close(slots[name].of(engine.bank[UNLABELED]), parameter.detach() - 0.05 * gradient)


def test_several_clients_without_labels_count_by_their_mean_likeness() -> None:
    centroids = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    present, unlabeled = torch.tensor([True, True, False, False]), torch.tensor([False, False, True, True])
    answers, gather = {"centroids": centroids}, torch.zeros(1, 5, dtype=torch.float64)
    weights = MDMGB().regather(answers, gather, present, unlabeled)
    cosine = torch.cosine_similarity(centroids[:2, None], centroids[None, 2:], dim=-1).sum(-1).mean(1) + 3
    torch.testing.assert_close(weights[0, 1:3], cosine / cosine.sum())
    assert weights[0, [0, 3, 4]].tolist() == [0, 0, 0]


class Wrong(MDMGB):
    """Gives an invalid answer at clients with a given number of images."""

    images: int
    shape: tuple[int, ...] = (3, 9)
    value: float | None = None

    def answer(self, predictions: Predictions, labels: Tensor | None) -> Mapping[str, Tensor]:
        if len(predictions.logits) == self.images:
            return {"centroids": torch.full(self.shape, math.nan if self.value is None else self.value)}
        return super().answer(predictions, labels)


@pytest.mark.parametrize(
    ("values", "client", "why"),
    [
        ({"images": SIZES[2]}, 2, "not finite"),
        ({"images": SIZES[3], "shape": (2, 9), "value": 1.0}, 3, "right is"),
        ({"images": SIZES[UNLABELED]}, UNLABELED, "not finite"),
    ],
)
def test_an_answer_that_is_not_in_order_is_left_out_and_the_round_goes_on(
    values: dict[str, object], client: int, why: str
) -> None:
    _, (outcome,) = play(make(), method(Wrong(**values)), 1)
    assert outcome.mean_answers is not None
    assert outcome.gathered is not None
    assert list(outcome.mean_answers.refused) == [client]
    assert why in outcome.mean_answers.refused[client]
    weights = outcome.gathered[0, 1:]
    assert float(weights.sum()) == pytest.approx(1)
    if client == UNLABELED:  # without its centroids nothing can be compared, so the weights are uniform
        torch.testing.assert_close(weights, torch.tensor([1, 0, 1, 1]).double() / 3)
    else:
        assert float(weights[client]) == 0
        assert int((weights > 0).sum()) == 2


def test_what_the_last_phase_did_is_read_from_images_alone() -> None:
    engine, composed = make(), method(FedAvg())
    server, _ = play(engine, composed)
    opened = open_last_phase(2, server, composed, engine, Keys(1), DOMAINS)
    engine.run(opened)
    (shift,) = measure_shift(opened).values()
    assert int(shift.before.sum()) == int(shift.after.sum()) == SIZES[UNLABELED]
    assert 0 <= shift.agreement <= 1
    copied = replace(opened, offer=opened.offer)
    engine.bank[UNLABELED] = server.rows[0]
    assert measure_shift(copied)[UNLABELED].agreement == 1


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_said_of_the_last_phase_is_of_the_models_that_clients_end_with(name: str) -> None:
    tested = [replace(client, test=client.train) for client in clients()]
    network = Thin(bottleneck=8).build(3, seed=1, trains_classifier=True).double()
    engine, composed = ENGINES[name](network, tested, batch_norm="recalibrated"), method(FedAvg(), "all")
    server, _ = play(engine, composed, 1)
    opened = open_last_phase(1, server, composed, engine, Keys(1), DOMAINS)
    close_last_phase(opened, engine.run(opened))
    (shift,) = measure_shift(opened).values()
    assert torch.equal(shift.after, engine.predict_tests()[UNLABELED].classes.bincount(minlength=3))
    models, as_they_are = final_models(composed, server, engine), ENGINES[name](network, tested)
    evidence, expected = (
        measure_evidence(server, composed, each, TRAINING, models)["entropy"] for each in (engine, as_they_are)
    )
    assert evidence == pytest.approx(expected, nan_ok=True)
