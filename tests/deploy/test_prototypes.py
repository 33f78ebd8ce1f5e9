"""Uploads that are no models (FedPCL's prototypes): the engine's numbers, and what is refused of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch, Predictions, Targets
from fedwca.deploy.client import Client
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.state_files import (
    read_final,
    resume_client,
    resume_session,
    save_client,
    save_final,
    save_session,
)
from fedwca.deploy.wire_messages import Parcel
from fedwca.errors import CheckpointError, UsageError
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from ..conftest import a_network, some_images
from .conftest import Build, Federation, composed

NAME = "prototype_contrastive.prototypes"


def finals(clients: list[Client]) -> Tensor:
    return torch.stack([client.final for client in clients if client.final is not None])


def test_clients_end_with_the_engines_models(federation: Build) -> None:
    built = federation("local", PrototypeContrastive())
    session, clients, sizes = built.session(alone="warn"), built.clients(), []

    def wire(client: int, parcel: Parcel) -> Parcel:
        sizes.append((sorted(parcel.models), parcel.bytes))
        return parcel

    run_in_process(session, clients, 3, wire)
    expected = built.simulated(3)
    assert torch.allclose(finals(clients), expected.rows, atol=1e-5)
    assert not torch.allclose(finals(clients), federation("local").simulated(3).rows, atol=1e-5)
    key = f"collected.{NAME}"
    assert torch.allclose(session.state.server.state[key], expected.state[key], atol=1e-5)
    # Prototypes of 3 classes and 16 features, and no model, in float32.
    assert set(map(str, sizes)) == {str(([], 3 * 16 * 4))}
    assert len(session.state.server.rows) == 1


@pytest.mark.parametrize("aggregator", ["wca:ta=1,tb=1", "fedavg"])
def test_prototypes_beside_models_give_the_engines_models(federation: Build, aggregator: str) -> None:
    built = federation(aggregator, PrototypeContrastive())
    session = built.session(alone="warn")
    run_in_process(session, built.clients(), 3)
    assert torch.allclose(session.state.server.rows, built.simulated(3).rows, atol=1e-5)


def changed(change: Callable[[Tensor], Tensor]) -> Callable[[Parcel], Parcel]:
    return lambda parcel: replace(parcel, beside={NAME: change(parcel.beside[NAME])})


HOSTILE: dict[str, tuple[Callable[[Parcel], Parcel], str]] = {
    "nan": (changed(lambda x: x * torch.nan), "has values that are not finite"),
    "long": (changed(lambda x: x + 10), r"has a vector of length .*; right is at most 1"),
    "shape": (changed(lambda x: x[1:]), r"is torch.float32 of shape \(2, 16\); right is torch.float32 of \(3, 16\)"),
    "type": (changed(lambda x: x.double()), "is torch.float64 of shape"),
    "huge": (changed(lambda x: x[:1, :1].expand(10**5, 10**5)), r"of shape \(100000, 100000\)"),
    "missing": (lambda p: replace(p, beside={}), f"uploads no {NAME}"),
    "more": (
        lambda p: replace(p, beside={**p.beside, "other.x": torch.zeros(1)}),
        "other.x is declared by no objective",
    ),
    "model": (lambda p: replace(p, models={"model": {}}), "holds 1 models; in this method none is uploaded"),
}


def played(answer: Callable[[Parcel], Parcel | None]) -> Tensor:
    """The models that clients end with after three rounds; ``answer`` changes client 1's upload in the second one."""
    built = Federation(composed("local", PrototypeContrastive()), a_network(), some_images(), {})
    clients = built.clients()
    wire = lambda client, parcel: answer(parcel) if client == 1 and parcel.round == 1 else parcel  # noqa: E731
    run_in_process(built.session(alone="warn"), clients, 3, wire)
    return finals(clients)


@pytest.fixture(scope="module")
def silent() -> Tensor:
    return played(lambda parcel: None)


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_upload_is_refused(silent: Tensor, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    change, sentence = HOSTILE[lie]
    assert torch.equal(played(change), silent)
    assert re.search(sentence, caplog.messages[0])


def test_what_no_objective_declares_is_refused_beside_a_model_too(
    federation: Build, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("fedavg")
    session, silent = built.session(), built.session()
    undeclared = {"x.y": torch.zeros(1)}
    run_in_process(session, built.clients(), 1, lambda client, p: replace(p, beside=undeclared) if client == 1 else p)
    run_in_process(silent, built.clients(), 1, lambda client, p: None if client == 1 else p)
    assert "x.y is declared by no objective" in caplog.text
    assert torch.equal(session.state.server.rows, silent.state.server.rows)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_round_that_is_played_again_starts_where_it_did(federation: Build, restarted: bool, tmp_path: Path) -> None:
    built = federation("local", PrototypeContrastive())
    session, clients, lost = built.session(least=4, alone="warn"), built.clients(), [True]
    for number in range(4):
        session.admit(f"client-{number}", number)
    while session.state.round < 3:
        for client, parcel in session.open(range(4)).items():
            answer = clients[client].handle(parcel)
            save_client(clients[client], tmp_path / f"{client}.safetensors")
            if not (session.state.round == 1 and client == 2 and lost[0]):
                session.receive(client, answer)
        lost[0] = lost[0] and session.state.round != 1
        session.close()
        if restarted:
            save_session(session, tmp_path / "server.safetensors")
            session = built.session(least=4, alone="warn")
            resume_session(session, tmp_path / "server.safetensors")
            clients = built.clients()
            for number, client in enumerate(clients):
                resume_client(client, tmp_path / f"{number}.safetensors")
    for client, parcel in session.final_parcels(session.participants).items():
        clients[client].handle(parcel)
    assert torch.allclose(finals(clients), built.simulated(3).rows, atol=1e-5)


class Talking(Objective):
    """An objective that uploads a tensor that it does not declare."""

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.square().mean()

    def collect(self, predictions: Predictions, targets: Targets) -> Mapping[str, Tensor]:
        return {"seen": torch.zeros(1)}


def test_an_upload_must_be_declared_and_allowed(federation: Build) -> None:
    with pytest.raises(UsageError, match="does not declare by upload_bounds what it uploads, so a server"):
        federation("fedavg", Talking()).session(alone="warn")
    with pytest.raises(UsageError, match="sends clients what other clients uploaded, without a mean of two"):
        federation("local", PrototypeContrastive()).session()
    with pytest.raises(UsageError, match="rules norm_bound and robust are about models"):
        federation("local", PrototypeContrastive()).session(alone="warn", norm_bound=2.0)
    with pytest.raises(UsageError, match="--top is about models, and in this method none is uploaded"):
        federation("local", PrototypeContrastive(), top=0.1).session(alone="warn")


@pytest.mark.parametrize("statistics", ["local", "recalibrated"])
def test_the_model_a_client_ends_with_has_its_statistics(federation: Build, statistics: str) -> None:
    built = federation("fedavg", batch_norm=statistics)
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 2)
    models, row = finals(clients), session.state.server.rows[0]
    trained = session.layout.trained
    assert torch.equal(models[:, :trained], row[:trained].expand(4, -1))
    assert not torch.allclose(models[0, trained:], row[trained:], atol=1e-5)
    if statistics == "local":
        assert torch.equal(models[:, trained:], torch.stack([client.engine.bank[0, trained:] for client in clients]))


def test_a_clients_last_model_is_a_file(federation: Build, tmp_path: Path) -> None:
    built = federation("local", PrototypeContrastive())
    session, clients = built.session(alone="warn"), built.clients()
    run_in_process(session, clients, 2)
    save_final(clients[1], tmp_path)
    assert clients[1].final is not None
    assert torch.equal(read_final(tmp_path, session.layout), clients[1].final)
    with pytest.raises(CheckpointError, match="is missing: this client has no model of its own"):
        read_final(tmp_path / "none", session.layout)
