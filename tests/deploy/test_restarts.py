"""A server or a client that ends and starts again: what it kept, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedwca._version import __version__
from fedwca.clusterers.finch import Finch
from fedwca.deploy.client import Client
from fedwca.deploy.in_process import run_in_process
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
from fedwca.errors import CheckpointError, FedwcaError

from ..conftest import a_network
from .conftest import Build


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
