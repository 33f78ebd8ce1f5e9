"""A federation played by messages ends with the engine's models, for every aggregator that can be deployed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedwca.aggregators import aggregators
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout
from fedwca.objectives.proximal import Proximal

from .conftest import Federation, delivered

ELSEWHERE = ("wca", "fedavg", "afl", "scaffold", "fedper")  # the last three cannot be deployed
CASES = [
    ("wca", 3),
    ("wca:ta=1,tb=1", 3),
    ("revised_wca:u=2,ta=1,tb=1", 4),
    ("fedavg", 2),
    ("one_hot:weighting=samples", 2),
    *((name, 2) for name in aggregators.names() if aggregators.get(name).sends_models and name not in ELSEWHERE),
]


@pytest.mark.parametrize(("aggregator", "rounds"), CASES, ids=lambda value: str(value))
def test_same_models_as_the_engine(federation: Callable[..., Federation], aggregator: str, rounds: int) -> None:
    built = federation(aggregator)
    alone = "warn" if built.method.aggregator.grouping.clients_choose else "refuse"
    session, clients = built.session(alone=alone), built.clients()
    run_in_process(session, clients, rounds)
    expected, server = built.simulated(rounds), session.state.server
    assert expected.rows.shape == server.rows.shape
    assert torch.allclose(server.rows, expected.rows, atol=1e-5)
    assert not torch.allclose(server.rows[0], server.source, atol=1e-3)
    for name, value in expected.state.items():
        assert torch.allclose(server.state[name].double(), value.double(), atol=1e-5, equal_nan=True), name
    for client, row in zip(clients, delivered(session), strict=True):
        assert client.final is not None
        assert torch.equal(client.final, row)


@pytest.mark.parametrize("statistics", ["pooled", "local", "recalibrated"])
def test_batch_norm_policies_give_the_engines_models(federation: Callable[..., Federation], statistics: str) -> None:
    built = federation(batch_norm=statistics)
    session = built.session()
    run_in_process(session, built.clients(), 3)
    assert torch.allclose(session.state.server.rows, built.simulated(3).rows, atol=1e-5)


def test_a_penalty_and_partial_participation_give_the_engines_models(federation: Callable[..., Federation]) -> None:
    built = federation("fedavg", Proximal(mu=0.5))
    session = built.session(participation=0.5)
    run_in_process(session, built.clients(), 3)
    assert torch.allclose(session.state.server.rows, built.simulated(3, 0.5).rows, atol=1e-5)


def test_half_precision_is_near(federation: Callable[..., Federation]) -> None:
    built, half = federation("fedavg"), federation("fedavg", transport="half")
    sessions = [variant.session() for variant in (built, half)]
    half_uploads: list[Parcel] = []

    def wire(client: int, parcel: Parcel) -> Parcel:
        half_uploads.append(parcel)
        return parcel

    run_in_process(sessions[0], built.clients(), 2)
    run_in_process(sessions[1], half.clients(), 2, wire)
    first, (answer, *_) = Layout.of(half.network).layers()[0], half_uploads
    for slot in first:
        assert answer.models["model"][slot.name].dtype == torch.float32
    assert answer.models["model"]["bottleneck.weight"].dtype == torch.float16
    full_rows, half_rows = (session.state.server.rows for session in sessions)
    assert not torch.equal(full_rows, half_rows)
    assert (full_rows - half_rows).abs().max() < 0.02


def test_messages_hold_these_models_and_bytes(federation: Callable[..., Federation]) -> None:
    built = federation("revised_wca:u=2,ta=1,tb=1")
    session, clients = built.session(), built.clients()
    layout = Layout.of(built.network)
    sent, bytes_up = [], []
    for _ in range(3):
        for client in range(4):
            session.admit(f"client-{client}", client)
        parcels = session.open(range(4))
        sent.append(sorted(parcels[0].models))
        for client, parcel in parcels.items():
            answer = clients[client].handle(parcel)
            assert set(answer.models["model"]) == {slot.name for slot in (*layout.parameters, *layout.statistics)}
            assert session.receive(client, answer) == ""
            bytes_up.append(answer.bytes)
        session.close()
    # Once the source model with its classifier, then C + 1 models, then two in a round that reuses the reports.
    assert sent == [["source"], ["sent-0", "sent-1", "sent-2"], ["sent-0", "sent-1"]]
    assert set(bytes_up) == {4 * layout.width, 4 * (layout.width + 4)}
    notes = " ".join(str(note) for parcel in parcels.values() for note in parcel.notes)
    assert not {"labels", "sizes", "cluster"} & set(notes.split())
