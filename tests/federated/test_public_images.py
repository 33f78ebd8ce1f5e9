"""Rounds with public images: what clients learn from them, what is sent, and what new clients get from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedwca.adaptations.entropy import Entropy
from fedwca.adaptations.learned import Learned
from fedwca.aggregators.local import Local
from fedwca.core.adaptation import Adaptation
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.core.network import Network
from fedwca.core.public_objective import PublicObjective
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.differentiable_step import step_parameters
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import FedwcaError
from fedwca.federated.close_round import Outcome, close_round
from fedwca.federated.extra_networks import grow_network
from fedwca.federated.method import Method
from fedwca.federated.model_sizes import untrained_rows
from fedwca.federated.open_round import open_round
from fedwca.federated.public_images import FreshModels, NoLabels, holders_of, learn_from_predictions, upload_predictions
from fedwca.federated.round import init_server
from fedwca.federated.server import Server
from fedwca.functional import paired_distillation
from fedwca.models.mlp import Mlp
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.objectives.digest import Digest
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.runs.records.traffic import bytes_down, bytes_up

ENGINES = {"loop": SequentialEngine, "stacked": StackedEngine}
engines = pytest.mark.parametrize("name", ENGINES)
MODEL = Mlp(side=8, sizes=(3, 5, 6))
FEDTTA = Learned(lr=0.3, rate=0.02, layers=2, sizes=(3, 4, 6))
TRAINING = Training(steps=3, lr=0.05, batch_size=4, momentum=0.5, weight_decay=0.01, clip=10)
PLACES = torch.tensor([0, 1, 2, 0])
IMAGES = (7, 9, 6, 8)
COUNT = 11
HETERO = {
    "fedtta": ((AdaptedCrossEntropy(), Digest(batch_size=4)), FEDTTA),
    "tent": ((CrossEntropy(), Digest(lam=0, passes=2, batch_size=5)), Entropy(lr=0.1)),
}


def some(n: int, seed: int) -> Tensor:
    return torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


PUBLIC = some(COUNT, 99)


def grown(adaptation: Adaptation) -> Network:
    return grow_network(MODEL.build(3, seed=4, trains_classifier=True).double(), [adaptation], 4, sizes=3)


def for_each(call: Callable[[int], object], numbers: range) -> None:
    for number in numbers:
        call(number)


class Play:
    """A few rounds of a method on an engine."""

    def __init__(self, name: str, kind: str, participation: float = 1.0) -> None:
        objectives, adaptation = HETERO[kind]
        network, make = grown(adaptation), ENGINES[name]
        client_images = [ClientImages(some(n, k), some(3, k), labels=torch.arange(n) % 3) for k, n in enumerate(IMAGES)]
        self.engine: Engine = make(network, client_images)
        self.public: Engine = make(network, holders_of(PUBLIC, len(IMAGES)))
        self.method = Method(kind, kind, Local(), Argmax(), objectives, adaptation=adaptation)
        self.rows = untrained_rows(MODEL, [adaptation], network, 4)
        self.server = init_server(self.engine, own=self.rows[PLACES])
        self.participation = participation
        self.fresh = FreshModels(self.rows, PLACES, make(network, holders_of(PUBLIC, 3)), Keys(1), len(IMAGES))

    def round(self, number: int) -> Outcome:
        arguments = (number, self.server, self.method, self.engine, TRAINING, Keys(1), torch.zeros(len(IMAGES)).long())
        opened = learn_from_predictions(open_round(*arguments, self.participation), self.public)
        uploads = upload_predictions(opened, self.public, self.engine.run(opened))
        self.server, outcome = close_round(opened, uploads)
        return outcome

    def learned(self, server: Server | None = None) -> Tensor:
        return self.fresh.learn(self.method, (server or self.server).state, TRAINING, 1.0).clone()


@pytest.mark.parametrize("kind", HETERO)
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_engines_agree(kind: str, participation: float) -> None:
    plays = [Play(name, kind, participation) for name in ENGINES]
    for number in range(3):
        first, second = (play.round(number) for play in plays)
        assert torch.equal(first.present, second.present)
    first_play, second_play = plays
    assert torch.allclose(first_play.server.rows, second_play.server.rows, rtol=0, atol=1e-9)
    assert torch.allclose(first_play.learned(), second_play.learned(), rtol=0, atol=1e-9)
    for name, value in first_play.server.state.items():
        assert torch.allclose(value, second_play.server.state[name], rtol=0, atol=1e-9), name


@engines
@pytest.mark.parametrize("kind", HETERO)
def test_logits_of_public_images_travel_and_nothing_else(name: str, kind: str) -> None:
    play = Play(name, kind)
    outputs = 2 if kind == "fedtta" else 1
    for number in range(2):
        outcome = play.round(number)
        values = len(IMAGES) * outputs * COUNT * 3 * 8
        assert bytes_up(outcome, play.method, play.engine) == values
        assert bytes_down(outcome, play.method, play.engine, number == 0) == (values if number else 0)
        assert {name for upload in outcome.uploads.values() for name in upload.collected} == (
            {"digest.adapted", "digest.base"} if kind == "fedtta" else {"digest.adapted"}
        )
        assert {upload.passes for upload in outcome.uploads.values()} == {2}
    assert play.public.labels == [None] * len(IMAGES)


@engines
def test_uploads_are_what_trained_models_say_before_and_after_a_step(name: str) -> None:
    play = Play(name, "fedtta")
    outcome = play.round(0)
    replica = SequentialEngine(grown(FEDTTA), holders_of(PUBLIC, 1))._replicas.get()
    for client, upload in outcome.uploads.items():
        replica.bind(play.engine.bank[client].clone())
        logits, _ = replica.forward(replica.network.eval().prepare(PUBLIC))
        moved = step_parameters(replica.adaptation_loss(FEDTTA, logits), replica._base, FEDTTA, 0.3)
        assert torch.allclose(upload.collected["digest.base"], logits.detach(), atol=1e-12)
        state = {**dict(replica.network.named_buffers()), **moved}
        after = torch.func.functional_call(replica.network, state, (replica.network.prepare(PUBLIC),))[0]
        assert torch.allclose(upload.collected["digest.adapted"], after.detach(), atol=1e-12)


def test_means_are_sent_and_round_0_has_none() -> None:
    play = Play("loop", "fedtta")
    assert dict(play.round(0).shared) == {}
    before = {name: value.clone() for name, value in play.server.state.items() if name.startswith("collected")}
    shared = play.round(1).shared
    assert torch.equal(shared["base"], before["collected.digest.base"].mean(0))
    assert torch.equal(shared["adapted"], before["collected.digest.adapted"].mean(0))


def test_who_is_absent_keeps_its_model_and_its_last_word() -> None:
    play = Play("loop", "tent", 0.5)
    play.round(0)
    before, state = play.server.rows.clone(), dict(play.server.state)
    absent = ~play.round(1).present
    assert int(absent.sum()) == 2
    assert torch.equal(play.server.rows[absent], before[absent])
    assert bool((play.server.rows[~absent] != before[~absent]).any(1).all())
    name = "collected.digest.adapted"
    assert torch.equal(play.server.state[name][absent], state[name][absent])
    assert not torch.equal(play.server.state[name][~absent], state[name][~absent])


def loss_of(row: Tensor, teacher: dict[str, Tensor], lam: float) -> Tensor:
    """Eq. 14 for a row of the widest network on all public images, computed by torch alone."""
    layout = SequentialEngine(grown(FEDTTA), holders_of(PUBLIC, 1)).layout
    values = {slot.name: slot.of(row) for slot in layout.parameters}
    x = grown(FEDTTA).prepare(PUBLIC).flatten(1)

    def forward(p: dict[str, Tensor]) -> Tensor:
        z = x
        for layer in range(2):
            z = F.relu(F.linear(z, p[f"backbone.layers.{layer}.weight"], p[f"backbone.layers.{layer}.bias"]))
        return F.linear(z, p["classifier.weight"], p["classifier.bias"])

    base = {name: value for name, value in values.items() if not name.startswith("extras.")}
    logits = hidden = forward(base)
    for index in (0, 2, 4):
        head = f"extras.adaptation.{index}"
        hidden = F.linear(hidden, values[f"{head}.weight"], values[f"{head}.bias"])
        hidden = hidden if index == 4 else F.relu(hidden)
    gradients = torch.autograd.grad(hidden.square().sum().sqrt(), list(base.values()), create_graph=True)
    moved = {name: value - 0.3 * g for (name, value), g in zip(base.items(), gradients, strict=True)}
    return paired_distillation(forward(moved), logits, teacher["adapted"], teacher["base"], lam)


@engines
def test_the_gradient_of_eq_14_goes_through_the_step(name: str) -> None:
    play = Play(name, "fedtta")
    play.round(0)
    objectives = (AdaptedCrossEntropy(), Digest(lam=0.8, passes=2, new_passes=1, batch_size=COUNT))
    play.method = replace(play.method, objectives=objectives, adaptation=FEDTTA.model_copy(update={"rate": 1.0}))
    plain = Training(steps=3, lr=1, batch_size=4, momentum=0, weight_decay=0)
    learned = play.fresh.learn(play.method, play.server.state, plain, 1.0)[2]
    gradient = play.rows[2] - learned
    teacher = {n: play.server.state[f"collected.digest.{n}"].mean(0) for n in ("adapted", "base")}
    row = play.rows[2].clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss_of(row, teacher, 0.8), row)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-9)
    assert float(expected[play.engine.layout.extras["adaptation"]].norm()) > 0


class Counting(Digest):
    """Counts its steps."""

    name = "counting"
    steps: ClassVar[list[None]] = []

    def __call__(self, batch: Batch) -> Tensor:
        """Its loss."""
        self.steps.append(None)
        return super().__call__(batch)


def test_new_clients_have_passes_of_their_own() -> None:
    """11 public images in batches of 4 are 3 steps a pass: one pass at each of 4 clients, 3 for each of 3 sizes."""
    play = Play("loop", "tent")
    counting = Counting(lam=0, passes=1, new_passes=3, batch_size=4)
    play.method = replace(play.method, objectives=(CrossEntropy(), counting))
    play.round(0)
    Counting.steps.clear()
    play.round(1)
    assert len(Counting.steps) == 4 * 1 * 3
    play.learned()
    assert len(Counting.steps) == 12 + 3 * 3 * 3


@engines
def test_rates_on_public_images_follow_the_schedule(name: str) -> None:
    """In round 1 of rates that are a quarter after two all are halved: the training's, the loss's, the inner step's."""
    play = Play(name, "fedtta")
    play.round(0)
    settings = {"steps": 3, "batch_size": 4, "momentum": 0, "weight_decay": 0}
    state, halved = play.server.state, FEDTTA.model_copy(update={"rate": 0.01, "lr": 0.15})
    training = Training(lr=1, decay=0.25, decay_rounds=2, cosine=1, **settings)  # new clients follow no cosine
    learned = play.fresh.learn(play.method, state, training, 1).clone()
    plain = replace(play.method, adaptation=halved)
    assert torch.allclose(learned, play.fresh.learn(plain, state, Training(lr=0.5, **settings), 1), rtol=0, atol=1e-12)


class Plain(PublicObjective):
    """Learns what all clients say, without a step of an adaptation, or pools it to something else."""

    name = "plain"
    pooled: str = "mean"

    def __call__(self, batch: Batch) -> Tensor:
        """The squared distance to the others' logits."""
        return (batch.logits - batch.reference_logits["said"]).square().mean()

    def collect(self, predictions: Predictions, targets: Targets) -> dict[str, Tensor]:
        """Logits, or nothing."""
        assert predictions.adapted_logits is None
        nothing: Any = None
        return nothing if self.pooled == "nothing" else {"said": predictions.logits}  # type: ignore[no-any-return]

    def pool(self, collected: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean, or all of them."""
        return {"said": collected["said"].mean(0)} if self.pooled == "mean" else dict(collected)


@engines
def test_no_step_is_taken_where_no_objective_adapts(name: str) -> None:
    play = Play(name, "tent")
    play.method = Method("plain", "Plain", Local(), Argmax(), (CrossEntropy(), Plain()))
    for number in range(2):
        outcome = play.round(number)
    assert outcome.shared["said"].shape == (COUNT, 3)
    assert play.learned().shape == play.rows.shape


@engines
@pytest.mark.parametrize(
    ("pooled", "said"),
    [
        ("nothing", "'plain': collect gave nothing; right is a mapping of names to tensors"),
        (
            "all",
            r"'plain': pool gave said torch.float64 of shape \(4, 11, 3\); right are predictions of 11 public images",
        ),
    ],
)
def test_predictions_of_public_images_are_a_row_for_each(name: str, pooled: str, said: str) -> None:
    play = Play(name, "tent")
    play.method = Method("plain", "Plain", Local(), Argmax(), (CrossEntropy(), Plain(pooled=pooled)))
    with pytest.raises(FedwcaError, match=f"objective {said}"):
        for_each(play.round, range(2))


@engines
def test_new_clients_learn_from_fresh_models_of_their_size_and_change_nothing(name: str) -> None:
    play, other_play = Play(name, "fedtta"), Play(name, "fedtta")
    assert torch.equal(play.learned(), play.rows)  # no client has uploaded predictions yet
    for number in range(2):
        play.round(number)
        other_play.round(number)
        learned = play.learned()
        assert torch.equal(learned, play.learned())
    assert torch.equal(play.server.rows, other_play.server.rows)
    assert play.fresh.weights.argmax(1).tolist() == PLACES.tolist()
    for size in range(3):
        padding = play.rows[size] == 0
        assert bool((learned[size][padding] == 0).all())
        assert not torch.equal(learned[size], play.rows[size])


class InPlace(Digest):
    """Changes what it is given."""

    name = "in_place"

    def collect(self, predictions: Predictions, targets: Targets) -> dict[str, Tensor]:
        """Logits, twice as large from now on."""
        predictions.logits.mul_(2)
        return super().collect(predictions, targets)


@engines
def test_collecting_of_public_images_only_reads(name: str) -> None:
    play = Play(name, "tent")
    play.method = replace(play.method, objectives=(CrossEntropy(), InPlace(lam=0, batch_size=5)))
    with pytest.raises(FedwcaError, match="objective 'in_place': collect changed"):
        play.round(0)


def test_labels_are_nobodys() -> None:
    targets = NoLabels()({}, torch.rand(5))
    assert (targets.weights.tolist(), targets.labels.tolist()) == ([0.0] * 5, [0] * 5)
    assert not NoLabels().mixes


def test_clients_share_the_time_with_public_images() -> None:
    play = Play("loop", "tent")
    opened = open_round(0, play.server, play.method, play.engine, TRAINING, Keys(1), torch.zeros(len(IMAGES)).long())
    uploads = upload_predictions(replace(opened, public_seconds=1e6), play.public, play.engine.run(opened))
    assert all(upload.seconds["public"] == pytest.approx(1e6 / len(IMAGES), rel=1e-3) for upload in uploads)


def test_keys_of_public_images_are_their_own() -> None:
    """A client's own draws are the same with public images and without."""
    banks: dict[str, list[Any]] = {"with": [], "without": []}
    for variant, variant_banks in banks.items():
        play = Play("loop", "tent")
        if variant == "without":
            play.method = replace(play.method, objectives=(CrossEntropy(),))
        arguments = (0, play.server, play.method, play.engine, TRAINING, Keys(1), torch.zeros(len(IMAGES)).long())
        opened = open_round(*arguments)
        if variant == "with":
            opened = learn_from_predictions(opened, play.public)
            upload_predictions(opened, play.public, play.engine.run(opened))
        else:
            play.engine.run(opened)
        variant_banks.append(play.engine.bank.clone())
    assert torch.equal(banks["with"][0], banks["without"][0])
