"""Clients that join after the first round, and who takes part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedwca.clusterers.finch import Finch
from fedwca.core.interfaces import Objective
from fedwca.deploy.composition import Composition, read_composition
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.read_answers import ReceivedAnswer
from fedwca.deploy.server_round import assign_late_client
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.deploy.session_state import ClusteredClients
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import FedwcaError
from fedwca.federated.upload_checks import Upload
from fedwca.models import models
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from ..conftest import SMALL_MODEL, a_network, some_images
from .conftest import TRAINING, Build, Federation, composed, delivered, with_tensors


@pytest.mark.parametrize("aggregator", ["wca:ta=1,tb=1", "fedavg"])
@pytest.mark.parametrize("options", [{"batch_norm": "local"}, {"top": 0.05, "feedback": True}], ids=str)
def test_of_a_first_answer_that_came_too_late_nothing_is_left(
    federation: Build, aggregator: str, options: dict[str, Any]
) -> None:
    built = federation(aggregator, **options)
    session, clients = built.session(alone="warn"), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    parcels = session.open(range(4))
    for number in range(3):
        assert session.receive(number, clients[number].handle(parcels[number])) == ""
    clients[3].handle(parcels[3])
    assert session.close()
    late = session.open([3])[3]
    assert (late.notes["first"], late.notes["samples"]) == (aggregator != "fedavg", 0)
    fresh = built.clients()[3]
    fresh.set_up(read_composition(parcels[3]), 3, dict(parcels[3].models["source"]))
    expected, actual = fresh.handle(late), clients[3].handle(late)
    for name, tensor in expected.models["model"].items():
        assert torch.equal(actual.models["model"][name], tensor), name
    if "feedback" in options and aggregator == "fedavg":  # this update is averaged, so what it leaves out is kept
        assert fresh.residual is not None
        assert torch.equal(clients[3].residual, fresh.residual)
    else:
        assert clients[3].residual is None


@pytest.mark.parametrize("aggregator", ["wca:ta=1,tb=1", "revised_wca:u=3,ta=1,tb=1", "one_hot", "fedavg", "fedamp"])
def test_a_client_joins_late(federation: Build, aggregator: str) -> None:
    built = federation(aggregator)
    session, clients = built.session(alone="warn"), built.clients()
    run_in_process(session, clients, 5, available=lambda round: [0, 1, 2] if round < 2 else [0, 1, 2, 3])
    state = session.state
    assert state.samples == tuple(len(client_images.train) for client_images in built.images)
    assert not state.waiting
    assert clients[3].final is not None
    assert bool(torch.isfinite(state.server.rows).all())
    label = int(state.server.state["labels"][3])
    assert bool((state.shares[label, 3:] > 0).all())


def test_a_late_client_joins_the_nearest_client_not_the_nearest_mean(federation: Build) -> None:
    session = federation("one_hot").session(clients=5)
    model = session.state.server.source.clone()
    first_layer = session.layout.layers()[0]
    width = sum(slot.stop - slot.start for slot in first_layer)

    def direction(degrees: float) -> torch.Tensor:
        angle = torch.tensor(degrees, dtype=torch.float64).deg2rad()
        return torch.cat([torch.stack([angle.cos(), angle.sin()]), torch.zeros(width - 2, dtype=torch.float64)])

    # Cluster 0 lies at 0 and 90 degrees, its mean at 45; cluster 1 at 60 and 64.
    vectors = torch.stack([direction(degrees) for degrees in (0, 90, 60, 64)])
    server = replace(session.state.server, state={"labels": torch.tensor([0, 0, 1, 1, 0])})
    clustered = ClusteredClients(torch.arange(4), vectors, "cosine")
    state = replace(session.state, round=1, server=server, clustered=clustered)
    start = 0
    for slot in first_layer:
        size = slot.stop - slot.start
        model[slot.start : slot.stop] = direction(80)[start : start + size].float()
        start += size
    answers = [ReceivedAnswer(factor * model, model, Upload(), 1) for factor in (1, 0)]
    assert [assign_late_client(session.context, state, answer) for answer in answers] == [0, None]


@pytest.mark.parametrize("further", [(), (PrototypeContrastive(),)], ids=["rates", "what others uploaded"])
def test_a_late_client_is_compared_by_a_training_of_round_0(federation: Build, further: tuple[Objective, ...]) -> None:
    """Learning rates that fall to 0 would leave it where the source model is, and in round 0 nothing is pooled."""
    built, schedule = federation("one_hot", *further), TRAINING.model_copy(update={"cosine": 2})
    composition = Composition.of(built.method, models.build(SMALL_MODEL), 3, training=schedule, seed=1)
    rules, uploads = Rules(clients=4, alone="warn"), dict[tuple[int, int], torch.Tensor]()

    def wire(client: int, parcel: Parcel) -> Parcel:
        if parcel.kind == "upload":
            uploads[client, parcel.round] = torch.cat([x.flatten() for x in parcel.models["model"].values()])
        return parcel

    sessions = [Session(built.method, built.network, composition, rules) for _ in range(2)]
    for session, late in zip(sessions, (2, 0), strict=True):
        run_in_process(session, built.clients(), late + 1, wire, lambda round, late=late: range(3 + (round == late)))
    assert torch.equal(uploads[3, 2], uploads[3, 0])


def test_a_late_model_without_a_direction_is_refused(federation: Build, caplog: pytest.LogCaptureFixture) -> None:
    built = federation("one_hot")
    session, layer = built.session(alone="warn"), built.network.backbone.state_dict()
    zeros = {f"backbone.{name}": torch.zeros_like(layer[name]) for name in ("conv1.weight", "conv1.bias")}
    run_in_process(
        session,
        built.clients(),
        2,
        lambda client, parcel: with_tensors(parcel, **zeros) if client == 3 else parcel,
        lambda round: [0, 1, 2] if round == 0 else [0, 1, 2, 3],
    )
    assert "round 1: client 3 (client-3) refused: its model cannot be compared with those" in caplog.text
    assert session.state.samples[3] == 0


def test_a_first_model_without_a_direction_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    built = Federation(composed("one_hot"), a_network(), some_images(), {})
    built = replace(built, method=replace(built.method, clusterer=Finch()))
    session, layer = built.session(alone="warn"), built.network.backbone.state_dict()
    zeros = {f"backbone.{name}": torch.zeros_like(layer[name]) for name in ("conv1.weight", "conv1.bias")}
    run_in_process(
        session, built.clients(), 1, lambda client, parcel: with_tensors(parcel, **zeros) if client == 3 else parcel
    )
    assert "round 0: client 3 (client-3) refused: its model cannot be compared with others" in caplog.text
    assert session.state.round == 1


def test_a_mean_that_is_not_finite_is_not_kept(federation: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    built = federation("fedavg")
    session = built.session()
    monkeypatch.setattr("fedwca.deploy.server_round.robust_means", lambda rows, *rest: rows * torch.inf)
    with pytest.raises(FedwcaError, match="round 0: a mean of the clients' models is not finite; it is not kept"):
        run_in_process(session, built.clients(), 1)
    assert session.state.round == 0


def test_numbers_are_limited_and_kept(federation: Build, caplog: pytest.LogCaptureFixture) -> None:
    session = federation().session()
    assert [session.admit(name) for name in "abcab"] == [0, 1, 2, 0, 1]
    assert session.admit("d", 1) is None
    assert session.admit("d", 3) == 3
    assert session.admit("e") is None
    assert session.admit("f", 4) is None
    assert [record.getMessage() for record in caplog.records] == [
        "client d is turned away: it asks for number 1 (--number), which is client b's",
        "client e is turned away: all 4 numbers are taken",
        "client f is turned away: it asks for number 4 (--number); the last is 3",
    ]


def test_late_clients_alone_are_not_enough(federation: Build) -> None:
    built = federation("one_hot")
    session, clients = built.session(clients=6), built.clients()
    run_in_process(session, clients, 1)
    session.open([0, 1, 4])
    assert session.can_close
    session.open([0, 4, 5])
    assert (sorted(session.expected), session.can_close) == ([0, 4, 5], False)


@pytest.mark.parametrize("aggregator", ["one_hot", "revised_wca:u=3,ta=1,tb=1"])
def test_late_clients_hold_up_no_round(federation: Build, aggregator: str) -> None:
    """Two of four clients are there from the start; late ones are asked in addition to those that are drawn."""
    built = federation(aggregator)
    session = built.session(clients=8, participation=0.25, alone="warn")
    run_in_process(session, built.clients(), 8, available=lambda round: [0, 1, 2, 3] if round else [0, 1])
    assert session.state.round == 8
    assert all(session.state.samples[:4])


@pytest.mark.parametrize(
    ("aggregator", "objectives"),
    [
        *((name, ()) for name in ("fedamp", "ifca", "one_hot", "wca:ta=1,tb=1", "fedavg")),
        ("fedavg", (PrototypeContrastive(),)),
    ],
    ids=str,
)
def test_numbers_that_nobody_takes_change_nothing(
    federation: Build, aggregator: str, objectives: tuple[Objective, ...]
) -> None:
    built = federation(aggregator, *objectives)
    models = []
    for numbers in (4, 7):
        session = built.session(clients=numbers, alone="warn")
        run_in_process(session, built.clients(), 3)
        models.append(delivered(session)[:4])
    assert torch.equal(*models)
