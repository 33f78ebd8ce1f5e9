"""Clients that leave, return, join late or lie, and a server that is killed: rounds go on with the other clients."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from fedwca._version import __version__
from fedwca.clusterers.finch import Finch
from fedwca.core.interfaces import Objective
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition, read_composition
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.protect_single_clients import check_not_single_model
from fedwca.deploy.read_answers import ReceivedAnswer
from fedwca.deploy.server_round import assign_late_client
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.deploy.session_state import ClusteredClients
from fedwca.deploy.state_files import (
    SESSION_FORMAT,
    read_state,
    resume_client,
    resume_session,
    save_client,
    save_session,
    write_state,
)
from fedwca.deploy.wire_messages import VERSION, Parcel, tensors_to_row
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import CheckpointError, FedwcaError, UsageError
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import Server
from fedwca.federated.upload_checks import Upload
from fedwca.models import models
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from ..conftest import SMALL_MODEL, a_network, some_images
from .conftest import TRAINING, Federation, composed, delivered

Build = Callable[..., Federation]
FIRST = "backbone.conv1.weight"
VARIANCE, MEAN = "norm.running_var", "norm.running_mean"


def bent(parcel: Parcel, **tensors: torch.Tensor) -> Parcel:
    return replace(parcel, models={"model": {**parcel.models["model"], **tensors}})


def without(parcel: Parcel, name: str) -> Parcel:
    return replace(parcel, models={"model": {k: v for k, v in parcel.models["model"].items() if k != name}})


def reported(parcel: Parcel, **values: torch.Tensor) -> Parcel:
    return replace(parcel, report={**parcel.report, **values})


def noted(parcel: Parcel, **notes: Any) -> Parcel:
    return replace(parcel, notes={**parcel.notes, **notes})


def weight(parcel: Parcel) -> torch.Tensor:
    return next(iter(parcel.models["model"].values()))


def name(parcel: Parcel) -> str:
    return next(iter(parcel.models["model"]))


HOSTILE: dict[str, tuple[Callable[[Parcel], Parcel], str]] = {
    "nan": (lambda p: bent(p, **{name(p): weight(p) * torch.nan}), "not finite"),
    "shape": (lambda p: bent(p, **{name(p): weight(p)[:1]}), "is torch.float32 of shape"),
    "huge": (lambda p: bent(p, **{name(p): torch.zeros(1).expand(10**9)}), r"of shape \(1000000000,\); right is"),
    "missing": (lambda p: without(p, name(p)), "lacks the tensor"),
    "strange": (lambda p: bent(p, **{"classifier.weight": weight(p)}), "which this model does not have"),
    "type": (lambda p: bent(p, **{name(p): weight(p).double()}), "is torch.float64"),
    "models": (lambda p: replace(p, models={**p.models, "more": {}}), "holds 2 models"),
    "sum": (lambda p: reported(p, alpha=torch.tensor([0.9, 0.9])), "must sum to 1, not 1.8"),
    "negative": (lambda p: reported(p, beta=torch.tensor([1.5, -0.5])), "must be finite and not negative"),
    "complex": (
        lambda p: reported(p, alpha=torch.tensor([1.0, 0.0]).cfloat()),
        "is torch.complex64; right is torch.float32",
    ),
    "unsigned": (
        lambda p: reported(p, beta=torch.tensor([1, 0]).to(torch.uint16)),
        "is torch.uint16; right is torch.float32",
    ),
    "variance": (lambda p: bent(p, **{VARIANCE: p.models["model"][VARIANCE] * 0 - 1e3}), "has variances below 0"),
    "nearly 0": (lambda p: bent(p, **{VARIANCE: p.models["model"][VARIANCE] * 0 - 0.01}), "has variances below 0"),
    "squares": (lambda p: bent(p, **{MEAN: p.models["model"][MEAN] * 0 - 1e9}), r"means beyond 3\.16e\+07"),
    "mean": (lambda p: bent(p, **{MEAN: p.models["model"][MEAN] * 0 + 1e20}), r"statistics beyond 1e\+15"),
    "size": (lambda p: reported(p, alpha=torch.tensor([1.0])), r"must have shape \(2,\)"),
    "undeclared": (lambda p: reported(p, gamma=torch.tensor([1.0])), "is no report that the aggregator declares"),
    "silent": (lambda p: replace(p, report={}), "reports no alpha, beta"),
    "label": (lambda p: reported(p, label=torch.tensor([0])), "chooses a cluster in a method where clients do not"),
    "replayed": (lambda p: replace(p, round=p.round - 1), "is for round 0; this is round 1"),
    "token": (lambda p: noted(p, token="0"), "answers another task"),
    "samples": (lambda p: noted(p, samples=10**12), "names 1000000000000 training images"),
    "grown": (lambda p: noted(p, samples=999), "names 999 training images after 20"),
    "text": (lambda p: noted(p, samples="many"), "names 'many' training images"),
    "long": (lambda p: noted(p, samples="m" * 10**6), r"names 'm{79} training images"),
    "kind": (lambda p: replace(p, kind="done"), "is a 'done', not an upload"),
}


def played(answer: Callable[[Parcel], Parcel | None], aggregator: str = "wca:ta=1,tb=1") -> Server:
    """The server after two rounds; in the second, where clusters are known, ``answer`` changes client 1's upload."""
    built = Federation(composed(aggregator), a_network(), some_images(), {})
    session = built.session(alone="warn")
    wire = lambda client, parcel: answer(parcel) if client == 1 and parcel.round == 1 else parcel  # noqa: E731
    run_in_process(session, built.clients(), 2, wire)
    return session.state.server


@pytest.fixture(scope="module")
def silent() -> Server:
    return played(lambda parcel: None)


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_upload_is_refused_and_the_round_goes_on(
    silent: Server, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    change, sentence = HOSTILE[lie]
    with caplog.at_level(logging.WARNING, "fedwca.deploy"):
        server = played(change)
    # The same as if the client had been away: nothing that it sent is in the models or in the state.
    assert torch.equal(server.rows, silent.rows)
    for key, value in silent.state.items():
        assert torch.equal(server.state[key].nan_to_num(), value.nan_to_num())
    assert caplog.messages[0].startswith("round 1: client 1 (client-1) refused: ")
    assert re.search(sentence, caplog.messages[0])


@pytest.fixture(scope="module")
def silent_in_clusters() -> Server:
    return played(lambda parcel: None, "ifca:clusters=2")


@pytest.mark.parametrize("choice", [[2], [-1], [0, 1], [], 0, [0.0], [True], None], ids=str)
def test_a_cluster_that_is_none_is_refused(
    federation: Build, silent_in_clusters: Server, choice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("ifca:clusters=2")

    def chosen(client: int, parcel: Parcel) -> Parcel:
        assert parcel.round == 0 or parcel.report["label"].shape == (1,)
        if (client, parcel.round) != (1, 1):
            return parcel
        report = {key: value for key, value in parcel.report.items() if key != "label"}
        return replace(parcel, report=report if choice is None else {**report, "label": torch.tensor(choice)})

    session = built.session(alone="warn")
    run_in_process(session, built.clients(), 2, chosen)
    assert torch.equal(session.state.server.rows, silent_in_clusters.rows)
    (refusal,) = [text for text in caplog.messages if "refused" in text]
    assert refusal.startswith("round 1: client 1 (client-1) refused: ")
    assert "cluster" in refusal


def test_an_answer_is_taken_once(federation: Build) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    parcels = session.open(range(3))
    answer = clients[0].handle(parcels[0])
    assert session.receive(0, answer) == ""
    assert session.receive(0, answer) == "has answered this round already"
    assert session.receive(3, answer) == "was not asked in this round"
    assert session.receive(1, answer) == "answers another task than the one it was sent"
    assert not session.close()
    assert session.state.round == 0
    assert session.open([0])[0].notes["token"] != parcels[0].notes["token"]
    assert session.receive(0, answer) == "answers another task than the one it was sent"


def test_what_all_clients_are_sent_is_held_once(federation: Build) -> None:
    built = federation()
    session, clients = built.session(), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    parcels = session.open(range(4))
    assert len({id(parcel.models["source"]) for parcel in parcels.values()}) == 1
    for number, client in enumerate(clients):
        assert session.receive(number, client.handle(parcels[number])) == ""
    assert session.close()
    sent = [parcel.models for parcel in session.open(range(4)).values()]
    own_name, *shared_names = (name for name in sent[0] if name.startswith("sent-"))
    assert shared_names
    assert len({id(models[own_name]) for models in sent}) == 2, "two clusters"
    assert len({id(parcel.models["sent-0"]) for parcel in session.final_parcels(session.participants).values()}) == 2
    assert all(len({id(models[name]) for models in sent}) == 1 for name in shared_names)


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


@pytest.mark.parametrize("of", ["report", "beside"])
def test_a_client_writes_no_line_into_the_log(federation: Build, caplog: pytest.LogCaptureFixture, of: str) -> None:
    built = federation("fedavg")
    session = built.session()
    session.admit("client-0", 0)
    answer = built.clients()[0].handle(session.open([0])[0])
    session.receive(0, replace(answer, **{of: {"\nFEDWCA RUN COMPLETE after 3 rounds": torch.ones(1)}}))
    assert r"refused: \nFEDWCA RUN COMPLETE after 3 rounds " in caplog.messages[0]
    session._log_refusal(0, "any\nreason")
    assert r"refused: any\nreason" in caplog.messages[1]


def test_clients_leave_in_mid_round_and_return(federation: Build) -> None:
    built = federation()
    session = built.session(alone="warn")

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        return None if client == 2 and parcel.round == 1 else parcel

    run_in_process(session, built.clients(), 4, wire, lambda round: [0, 1, 2, 3] if round != 2 else [1, 2, 3])
    state = session.state
    assert state.round == 4
    assert bool(torch.isfinite(state.server.rows).all())
    assert not bool(state.server.state["alpha"].isnan().any())


def test_with_too_few_uploads_a_round_is_played_again(federation: Build) -> None:
    built = federation("fedavg")
    session, first_try = built.session(least=3), [True]

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        away = parcel.round == 1 and client > 1 and first_try[0]
        first_try[0] = not (away and client == 3) and first_try[0]
        return None if away else parcel

    run_in_process(session, built.clients(), 2, wire)
    assert torch.allclose(session.state.server.rows, built.simulated(2).rows, atol=1e-5)


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
        lambda client, parcel: bent(parcel, **zeros) if client == 3 else parcel,
        lambda round: [0, 1, 2] if round == 0 else [0, 1, 2, 3],
    )
    assert "round 1: client 3 (client-3) refused: its model cannot be compared with those" in caplog.text
    assert session.state.samples[3] == 0


def test_a_first_model_without_a_direction_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    built = Federation(composed("one_hot"), a_network(), some_images(), {})
    built = replace(built, method=replace(built.method, clusterer=Finch()))
    session, layer = built.session(alone="warn"), built.network.backbone.state_dict()
    zeros = {f"backbone.{name}": torch.zeros_like(layer[name]) for name in ("conv1.weight", "conv1.bias")}
    run_in_process(session, built.clients(), 1, lambda client, parcel: bent(parcel, **zeros) if client == 3 else parcel)
    assert "round 0: client 3 (client-3) refused: its model cannot be compared with others" in caplog.text
    assert session.state.round == 1


def test_a_mean_that_is_not_finite_is_not_kept(federation: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    built = federation("fedavg")
    session = built.session()
    monkeypatch.setattr("fedwca.deploy.server_round.robust_means", lambda rows, *rest: rows * torch.inf)
    with pytest.raises(FedwcaError, match="round 0: a mean of the clients' models is not finite; it is not kept"):
        run_in_process(session, built.clients(), 1)
    assert session.state.round == 0


def test_who_lost_its_folder_is_told_again_at_the_end(federation: Build) -> None:
    built = federation("fedavg")
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    new_client = built.clients()[2]
    parcel = session.final_parcels([2])[2]
    assert "source" not in parcel.models
    answer = new_client.handle(parcel)
    assert answer.kind == "lost"
    assert session.receive(2, answer) == "does not know the source model; it is sent again"
    assert new_client.handle(session.final_parcels([2])[2]).kind == "done"
    assert new_client.final is not None
    assert clients[2].final is not None
    assert torch.equal(new_client.final, clients[2].final)


def test_who_lost_its_statistics_gets_those_of_its_images(federation: Build) -> None:
    local = federation("fedavg", batch_norm="local")
    session = local.session()
    run_in_process(session, local.clients(), 1)
    new_client, parcel = local.clients()[2], session.final_parcels([2])[2]
    session.receive(2, new_client.handle(parcel))
    new_client.handle(session.final_parcels([2])[2])
    assert new_client.final is not None
    engine = SequentialEngine(local.network, local.images[2:3], "cpu", 1, "recalibrated")
    row = tensors_to_row(parcel.models["sent-0"], engine.layout)
    assert torch.equal(new_client.final, engine.deliver(torch.ones(1, 1, dtype=torch.float64), row[None])[0])
    assert not torch.equal(new_client.final, row)


@pytest.mark.parametrize(("version", "said"), [("9.0", "which has 9.0, asks"), (None, "which has an earlier version")])
def test_a_client_of_another_version_is_told_which_to_install(
    federation: Build, version: str | None, said: str
) -> None:
    built = federation()
    session = built.session()
    session.admit("client-0", 0)
    parcel = session.open([0])[0]
    later_composition = {**json.loads(str(parcel.notes["composition"])), "from_later": 1}
    notes = {**parcel.notes, "composition": json.dumps(later_composition), VERSION: version}
    if version is None:
        del notes[VERSION]
    with pytest.raises(FedwcaError, match=f"this client has fedwca {__version__} and cannot do .*{said}.*from_later"):
        built.clients()[0].handle(replace(parcel, notes=notes))
    with pytest.raises(FedwcaError, match=r"^composition: from_later"):
        built.clients()[0].handle(replace(parcel, notes={**notes, VERSION: __version__}))


def test_what_late_clients_are_compared_with_outlives_the_server(federation: Build, tmp_path: Path) -> None:
    built, path = federation("one_hot"), tmp_path / "server.safetensors"
    session, restarted = built.session(), built.session()
    run_in_process(session, built.clients(), 1)
    save_session(session, path)
    resume_session(restarted, path)
    saved, resumed = session.state.clustered, restarted.state.clustered
    assert saved is not None
    assert resumed is not None
    assert torch.equal(saved.vectors, resumed.vectors)
    assert (
        (saved.numbers.tolist(), saved.metric) == (resumed.numbers.tolist(), resumed.metric) == ([0, 1, 2, 3], "cosine")
    )
    width = sum(slot.stop - slot.start for slot in session.layout.layers()[0])
    assert saved.vectors.shape == (4, width)


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


def test_a_server_restarts_from_its_checkpoint(federation: Build, tmp_path: Path) -> None:
    built, path = federation("revised_wca:u=2,ta=1,tb=1"), tmp_path / "server.safetensors"
    uninterrupted, first, clients = built.session(), built.session(), built.clients()
    run_in_process(uninterrupted, built.clients(), 4)
    for number in range(4):
        first.admit(f"client-{number}", number)
    while first.state.round < 2:
        for client, parcel in first.open(range(4)).items():
            first.receive(client, clients[client].handle(parcel))
        first.close()
    save_session(first, path)
    first.open(range(4))  # killed in mid-round
    second = built.session()
    resume_session(second, path)
    assert second.state.round == 2
    assert second.admit("client-3") == 3
    run_in_process(second, clients, 4)
    assert torch.equal(second.state.server.rows, uninterrupted.state.server.rows)
    with pytest.raises(CheckpointError, match="of another composition"):
        resume_session(federation("fedavg").session(), path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        resume_session(built.session(), path)


def test_a_checkpoint_of_another_source_model_or_clusterer(federation: Build, tmp_path: Path) -> None:
    path, network = tmp_path / "server.safetensors", a_network(seed=2)
    built = federation("one_hot")
    built = replace(built, method=replace(built.method, clusterer=Finch()))
    save_session(built.session(), path)
    with pytest.raises(CheckpointError, match="of another source model; remove it, or run what it was made by"):
        resume_session(replace(built, network=network).session(), path)
    coarser = replace(built, method=replace(built.method, clusterer=Finch(level=1)))
    with pytest.raises(CheckpointError, match="of another clusterer; remove it"):
        resume_session(coarser.session(), path)
    with pytest.raises(CheckpointError, match="of another composition or seed and another clusterer; remove it"):
        resume_session(federation("fedavg").session(), path)
    # Checkpoints of earlier versions hold neither of the two, or lack a field of the clusterer.
    tensors, notes = read_state(path, SESSION_FORMAT)
    write_state(path, tensors, {**notes, "clusterer": {"name": "finch"}}, SESSION_FORMAT)
    resume_session(built.session(), path)
    for name in ("source checksum", "clusterer"):
        del notes[name]
    write_state(path, tensors, notes, SESSION_FORMAT)
    resume_session(replace(coarser, network=network).session(), path)


def test_a_checkpoint_of_a_version_that_knew_fewer_fields(
    federation: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = federation("wca:ta=1,tb=1", names=("ape", "bee", "cat"), stretch=True)
    path = tmp_path / "server.safetensors"
    session, client, upgraded = built.session(), built.clients()[0], built.clients()[0]
    session.admit("client-0", 0)
    client.handle(session.open([0])[0])
    composition = json.loads(session.composition.model_dump_json())
    assert composition.pop("moments", 0) is None  # its default
    for field in ("method", "label", "names", "stretch"):
        del composition[field]
    del composition["aggregator"]["weighting"]
    monkeypatch.setattr(type(session.composition), "model_dump_json", lambda _: json.dumps(composition))
    save_session(session, path)
    save_client(client, tmp_path / "client.safetensors")
    monkeypatch.undo()
    resumed, path_of_names = built.session(), tmp_path / "names.safetensors"
    resume_session(resumed, path)
    save_session(session, path_of_names)
    with pytest.raises(CheckpointError, match="of another composition"):
        resume_session(replace(built, options={"names": ("ant", "bee", "cat")}).session(), path_of_names)
    assert not resumed.composition.stretch  # 0.1.0 cropped
    save_session(resumed, path)
    again = built.session()
    resume_session(again, path)
    assert again.composition == again.context.composition == resumed.composition

    resume_client(upgraded, tmp_path / "client.safetensors")
    resumed.admit("client-0", 0)
    parcel, engine = resumed.open([0])[0], upgraded.engine
    assert "source" in parcel.models
    upgraded.handle(replace(parcel, round=1))  # round 0 would begin with the source model
    assert upgraded.engine is engine  # what it kept
    assert upgraded.composition == session.composition.model_copy(update={"stretch": False})


@pytest.mark.parametrize("kept", [True, False])
def test_a_client_that_starts_anew_goes_on(federation: Build, tmp_path: Path, kept: bool) -> None:
    built = federation(batch_norm="local" if kept else "mixed")
    session, originals = built.session(), built.clients()
    answer_kinds: list[str] = []
    trust: dict[int, set[float | None]] = {}

    class RestartedClient(Client):
        """Handles every message as a new process does: it remembers only what is in its file."""

        number = 0

        def handle(self, parcel: Parcel) -> Parcel:
            client, path = Client(self.images), tmp_path / f"{self.number}.safetensors"
            if kept and path.exists():
                resume_client(client, path)
                assert client.trust is not None
            answer = client.handle(parcel)
            trust.setdefault(self.number, set()).add(client.trust)
            answer_kinds.append(answer.kind)
            save_client(client, path)
            return answer

    clients = []
    for number, client in enumerate(originals):
        clients.append(RestartedClient(client.images))
        clients[-1].number = number
    run_in_process(session, clients, 2)
    assert ("lost" in answer_kinds) is not kept
    if kept:
        assert all(len(values) == 1 for values in trust.values()), "it is asked once, by the source model as it came"
    assert torch.allclose(session.state.server.rows, built.simulated(2).rows, atol=1e-5)


@pytest.mark.parametrize("away", ["silent", "refused", "unreachable"])
def test_where_nobody_is_away_a_client_without_an_answer_ends_the_run(federation: Build, away: str) -> None:
    built = federation()
    session = built.session(least=1)
    session.needs_all_answers = True

    def wire(client: int, parcel: Parcel) -> Parcel | None:
        if (client, parcel.round) != (2, 1) or away == "unreachable":
            return parcel
        return noted(parcel, token="0") if away == "refused" else None

    def available(round: int) -> list[int]:
        return [0, 1, 3] if round and away == "unreachable" else [0, 1, 2, 3]

    with pytest.raises(FedwcaError, match="round 1: there is no answer of client 2 that counts"):
        run_in_process(session, built.clients(), 2, wire, available)
    partial = built.session(least=1, participation=0.25, alone="warn")
    partial.needs_all_answers = True
    run_in_process(partial, built.clients(), 3)
    assert partial.state.round == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"clients": 4, "participation": 0.25}, "asks 1 of 4 clients in a round, and by rule least=2 it needs 2"),
        ({"clients": 4, "participation": 0.5, "least": 3}, "asks 2 of 4 clients in a round, and by rule least=3"),
        ({"clients": 4, "participation": 0.5}, ""),
        ({"clients": 4, "participation": 0.25, "least": 1}, ""),
        ({"clients": 1, "participation": 0.1}, ""),
    ],
)
def test_more_answers_are_not_waited_for_than_are_asked_for(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence) if sentence else nullcontext():
        Rules(**given)


def test_who_takes_part_is_drawn_from_those_that_are_there(federation: Build) -> None:
    built = federation("fedavg")
    session = built.session(clients=8, participation=0.5)  # four of the numbers are never taken
    run_in_process(session, built.clients(), 6)
    assert session.state.round == 6
    session.open([0, 3])
    assert (sorted(session.expected), session.can_close) == ([0, 3], True)
    session.open([3])
    assert (sorted(session.expected), session.can_close) == ([3], False)


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


def test_a_client_is_sent_its_own_model(federation: Build) -> None:
    session = federation("fedamp").session()
    context = session.context
    state = replace(session.state, shares=torch.eye(2, dtype=torch.float64))
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    check_not_single_model(context, state, first, "a model", 0)
    for receiver in (1, None):
        with pytest.raises(FedwcaError, match="a model is a single client's own"):
            check_not_single_model(context, state, first, "a model", receiver)


def test_one_clients_model_is_not_handed_on(federation: Build, caplog: pytest.LogCaptureFixture) -> None:
    built = federation("one_hot")
    with pytest.raises(FedwcaError, match=r"round 0: of clusters \[1\] a single client was heard"):
        run_in_process(built.session(), built.clients()[:3], 2)
    session = built.session()
    run_in_process(session, built.clients(), 2, available=lambda round: [0, 1, 2, 3] if round == 0 else [0, 1, 2])
    assert "round 1: of clusters [1] a single client was heard; the cluster keeps its model" in caplog.text
    assert session.state.shares.tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert session.single_rounds == []
    session = built.session(alone="warn")
    run_in_process(session, built.clients(), 2, available=lambda round: [0, 1, 2, 3] if round == 0 else [0, 1, 2])
    assert session.single_rounds == [1]


def test_a_cluster_that_keeps_its_model_adds_nothing_to_its_teacher(
    federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("ladd:start=1")
    session = built.session()
    run_in_process(session, built.clients(), 4, available=lambda round: [0, 1, 2] if round == 2 else [0, 1, 2, 3])
    assert session.state.server.state["averaged"].tolist() == [3, 2]
    assert "round 2: of clusters [1] a single client was heard" in caplog.text


@pytest.mark.parametrize(
    ("aggregator", "sentence"),
    [
        ("local", "no model is sent after the source model"),
        ("afl", "aggregator 'afl' asks clients in round 0 already"),
        ("fedper", "aggregator 'fedper' has layers stay with clients"),
        ("scaffold", "aggregator 'scaffold' has clients keep control variates"),
    ],
)
def test_what_cannot_be_deployed_says_why(federation: Build, aggregator: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        federation(aggregator).session()


def test_oracles_and_image_styles_stay_at_home(federation: Build) -> None:
    from fedwca.clusterers import clusterers

    built = federation("one_hot")
    for clusterer, sentence in (("true", "no server knows"), ("ladd", "do not leave them")):
        built.method = replace(built.method, clusterer=clusterers.build(clusterer))
        with pytest.raises(UsageError, match=sentence):
            built.session()


def test_a_client_refuses_what_does_not_fit(federation: Build) -> None:
    built = federation("fedavg")
    session, (client, *_) = built.session(), built.clients()
    session.admit("client-0", 0)
    parcel = session.open([0])[0]
    source = dict(parcel.models["source"])
    source.popitem()
    with pytest.raises(FedwcaError, match="the source model that was sent is no 'convnet' of 3 classes"):
        client.handle(replace(parcel, models={"source": source}))
    with pytest.raises(UsageError, match="composition"):
        client.handle(noted(parcel, composition='{"classes": 0}'))
    client.handle(parcel)
    with pytest.raises(FedwcaError, match="model 0 that was sent lacks"):
        client.handle(replace(parcel, models={"sent-0": {}}))


def test_a_repeated_round_asks_others(federation: Build) -> None:
    built = federation("fedavg")
    session, clients = built.session(participation=0.5, least=2), built.clients()
    run_in_process(session, clients, 1)
    asked = []
    for _ in range(6):
        asked.append(sorted(session.open(range(4))))
        assert not session.close()
    assert asked[0] == sample_clients(1, 4, 0.5, session.context.keys, 2), "as in the simulation"
    assert len({tuple(numbers) for numbers in asked}) > 1
    assert {len(numbers) for numbers in asked} == {2}
    for client, parcel in session.open(range(4)).items():
        session.receive(client, clients[client].handle(parcel))
    assert session.close()
    assert sorted(session.open(range(4))) == sample_clients(2, 4, 0.5, session.context.keys, 2)
