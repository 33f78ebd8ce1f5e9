"""A federation played by messages ends with the engine's models: all aggregators and baselines that can be deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedwca.aggregators import aggregators
from fedwca.clusterers.finch import Finch
from fedwca.clusterers.kmeans import KMeans
from fedwca.config.baselines import baseline_names
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout
from fedwca.federated.server import Server
from fedwca.objectives.proximal import Proximal
from tests.engine.federations import needed_rounds, trained

from .conftest import Federation, Pairs, delivered

NOT_SENT = ("afl", "scaffold", "fedper")
"""Aggregators that send models, but cannot be deployed."""


def deployed_baselines() -> list[str]:
    """Baselines that can be deployed; ``table5_pp_fp_tm_mu`` is FedWCA."""
    names = [name for name in baseline_names() if name not in ("ladd", "ladd_plus", "table5_pp_fp_tm_mu")]
    return [name for name in names if (made := trained(name)).aggregator.sends_models and made.pseudo_labeler]


SINGLE = ("fedwca", "ifca")
"""Baselines that are played here with clusters of which one has a single client, which the default rules refuse."""
IN_BASELINES = {trained(name).aggregator.name for name in deployed_baselines()}
CASES = [
    ("wca", 3),
    ("wca:ta=1,tb=1", 3),
    ("revised_wca:u=2,ta=1,tb=1", 4),
    ("one_hot:weighting=samples", 2),
    *(
        (name, 2)
        for name in aggregators.names()
        if aggregators.get(name).sends_models and name not in {*NOT_SENT, *IN_BASELINES}
    ),
]


def check_same_models(built: Federation, rounds: int, **rules: str) -> Server:
    """Check that messages and the engine give the same models; returns the server that messages end with."""
    session, clients = built.session(**rules), built.clients()
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
    return server


@pytest.mark.parametrize(("aggregator", "rounds"), CASES, ids=lambda value: str(value))
def test_same_models_as_the_engine(federation: Callable[..., Federation], aggregator: str, rounds: int) -> None:
    check_same_models(federation(aggregator), rounds)


@pytest.mark.parametrize("name", deployed_baselines())
def test_baselines_give_the_engines_models(network: Network, images: list[ClientImages], name: str) -> None:
    method, own = trained(name), compose(RunConfig(baselines=(name,)))[0][0].clusterer
    # FINCH would find one cluster of models that are hardly trained.
    found = KMeans(least=2, most=2) if name in SINGLE else Pairs()
    built = Federation(replace(method, clusterer=found if isinstance(own, Finch) else own), network, images, {})
    server = check_same_models(built, needed_rounds(method), **({"alone": "warn"} if name in SINGLE else {}))
    assert not isinstance(own, Finch) or server.state["labels"].unique().tolist() == [0, 1]


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
