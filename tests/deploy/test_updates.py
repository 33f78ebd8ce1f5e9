"""Uploads that leave small changes out: what is sent, what the server reads from it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.deploy.client import Client
from fedwca.deploy.compression import TopKCompressor
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.model_from_deployment import model_of_deployment
from fedwca.deploy.state_files import resume_client, save_client
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout, Slot
from fedwca.errors import UsageError

from ..conftest import a_network, some_images
from .conftest import Build, Federation, composed

SMALL = Layout(
    (Slot("first.weight", (1, 2), 0), Slot("second.weight", (2, 2), 2)), (Slot("norm.running_mean", (1,), 6),)
)
OWN = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 5.0])
ROW = torch.tensor([2.0, 3.0, 0.5, -4.0, 0.25, 2.0, 6.0])


def test_compression_by_hand() -> None:
    compressor = TopKCompressor(SMALL, 0.5)
    assert compressor.sparse_positions.tolist() == [2, 3, 4, 5]
    models, residual = compressor.compress(ROW, OWN)
    assert {name: tensor.flatten().tolist() for name, tensor in models["model"].items()} == {
        "first.weight": [2.0, 3.0],
        "norm.running_mean": [6.0],
    }
    assert models["largest"]["positions"].tolist() == [1, 3]
    assert models["largest"]["values"].tolist() == [-4.0, 2.0]
    assert residual.tolist() == [0.5, 0.0, 0.25, 0.0]
    assert compressor.models_problem(models) == ""
    assert compressor.decompress(models, OWN).tolist() == [2.0, 3.0, 0.0, -4.0, 0.0, 2.0, 6.0]


def test_what_was_left_out_comes_later() -> None:
    compressor = TopKCompressor(SMALL, 0.25)
    models, residual = compressor.compress(ROW, OWN, torch.tensor([0.0, 0.0, 4.0, 3.0]))
    assert models["largest"]["positions"].tolist() == [3]
    assert models["largest"]["values"].tolist() == [5.0]
    assert residual.tolist() == [0.5, -4.0, 4.25, 0.0]


def test_half_precision_is_left_out_too() -> None:
    compressor = TopKCompressor(SMALL, 0.25, "half")
    row = OWN + torch.tensor([0, 0, 0, 1 / 3, 0, 0, 0])
    models, residual = compressor.compress(row, OWN)
    assert models["largest"]["values"].dtype == models["model"]["norm.running_mean"].dtype == torch.float16
    assert models["model"]["first.weight"].dtype == torch.float32
    assert float(residual[1]) == pytest.approx(1 / 3 - float(torch.tensor(1 / 3).half()), abs=1e-7)
    assert compressor.models_problem(models) == ""


def largest(**changes: Tensor) -> Callable[[Parcel], Parcel]:
    def change(parcel: Parcel) -> Parcel:
        return replace(parcel, models={**parcel.models, "largest": {**parcel.models["largest"], **changes}})

    return change


def bent(change: Callable[[Tensor], Tensor], name: str) -> Callable[[Parcel], Parcel]:
    return lambda parcel: largest(**{name: change(parcel.models["largest"][name])})(parcel)


HOSTILE: dict[str, tuple[Callable[[Parcel], Parcel], str]] = {
    "nan": (bent(lambda x: x * torch.nan, "values"), "values has values that are not finite"),
    "fewer": (bent(lambda x: x[1:], "values"), r"values is \S+ of shape \(\d+,\); right is"),
    "more": (bent(lambda x: torch.zeros(1, dtype=x.dtype).expand(10**9), "positions"), r"shape \(1000000000,\)"),
    "type": (bent(lambda x: x.long(), "positions"), r"positions is torch.int64 .* right is torch.int32"),
    "negative": (bent(lambda x: x - x[0] - 1, "positions"), "positions do not ascend"),
    "beyond": (bent(lambda x: x + 10**6, "positions"), "positions do not ascend"),
    "twice": (bent(lambda x: torch.cat([x[:1], x[:-1]]), "positions"), "positions do not ascend"),
    "order": (bent(lambda x: x.flip(0), "positions"), "positions do not ascend"),
    "whole": (lambda p: replace(p, models={"model": p.models["model"]}), "holds 1 models by other names"),
    "extra": (largest(more=torch.zeros(1)), "holds 3 lists of largest entries"),
    "first": (
        lambda p: replace(p, models={**p.models, "model": {k: v[:1] for k, v in p.models["model"].items()}}),
        "of shape",
    ),
}


def played(answer: Callable[[Parcel], Parcel | None]) -> Tensor:
    """The server's rows after two rounds; in the second ``answer`` changes client 1's upload."""
    built = Federation(composed("fedavg"), a_network(), some_images(), {"top": 0.1})
    session = built.session()
    wire = lambda client, parcel: answer(parcel) if client == 1 and parcel.round == 1 else parcel  # noqa: E731
    run_in_process(session, built.clients(), 2, wire)
    return session.state.server.rows


@pytest.fixture(scope="module")
def silent() -> Tensor:
    return played(lambda parcel: None)


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_upload_is_refused(silent: Tensor, lie: str, caplog: pytest.LogCaptureFixture) -> None:
    change, sentence = HOSTILE[lie]
    assert torch.equal(played(change), silent)
    assert re.search(sentence, caplog.messages[0])


@pytest.mark.parametrize("transport", ["full", "half"])
def test_the_server_goes_on_with_what_was_sent(federation: Build, transport: str) -> None:
    built = federation("wca:ta=1,tb=1", top=0.1, transport=transport)
    session, clients = built.session(), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    for round in range(2):
        answers = {client: clients[client].handle(parcel) for client, parcel in session.open(range(4)).items()}
        expected = dict(session.expected)
        for client, answer in answers.items():
            compressor = expected[client].compressor
            assert compressor is not None
            start, trained = expected[client].starts[0], clients[client].engine.bank[0]
            row = compressor.decompress(answer.models, start)
            exact = transport == "full"
            for slot in compressor.whole_slots:
                bitwise = exact or slot in session.layout.layers()[0]
                assert torch.allclose(slot.of(row), slot.of(trained), rtol=0, atol=0 if bitwise else 1e-2)
            positions = compressor.sparse_positions[answer.models["largest"]["positions"].long()]
            assert torch.allclose(row[positions], trained[positions], atol=1e-6 if exact else 1e-3)
            assert int((row - start)[compressor.sparse_positions].count_nonzero()) <= compressor.count
            assert session.receive(client, answer) == ""
            values, sparse = compressor.count * (4 + (4 if exact else 2)), len(compressor.sparse_positions)
            assert values < answer.bytes < values + 4 * (len(row) - sparse + 4 * bool(round)) + 1
        assert session.close()


def test_the_more_travels_the_nearer_it_is(federation: Build) -> None:
    distances = []
    exact = federation("fedavg").simulated(2).rows[0]
    for top in (0.01, 0.1, 0.4):
        built = federation("fedavg", top=top)
        session = built.session()
        run_in_process(session, built.clients(), 2)
        distances.append(float((session.state.server.rows[0] - exact).norm()))
    assert distances[0] > distances[1] > distances[2]


def test_what_a_client_left_out_outlives_its_process(federation: Build, tmp_path: Path) -> None:
    built = federation("fedavg", top=0.05, feedback=True)
    session, clients = built.session(), built.clients()
    run_in_process(session, clients, 1)
    residual = clients[0].residual
    assert residual is not None
    assert bool(residual.any())
    path = tmp_path / "client.safetensors"
    save_client(clients[0], path)
    restarted = Client(clients[0].images)
    resume_client(restarted, path)
    assert restarted.residual is not None
    assert torch.equal(restarted.residual, residual)
    without_feedback: Any = federation("fedavg", top=0.05)
    forgetful_clients = without_feedback.clients()
    run_in_process(without_feedback.session(), forgetful_clients, 1)
    assert forgetful_clients[0].residual is None


def test_the_first_layer_is_whole(network: Network) -> None:
    layout = Layout.of(network)
    compressor = TopKCompressor(layout, 0.1)
    first = {slot.name for slot in layout.layers()[0]}
    assert first == {"backbone.conv1.weight", "backbone.conv1.bias"}
    assert first < {slot.name for slot in compressor.whole_slots}


def test_an_update_is_measured_from_the_model_that_was_chosen(federation: Build) -> None:
    """IFCA: with a second model far from the first, a client of either one sends a small update."""
    built = federation("ifca:clusters=2", top=0.1)
    session, clients = built.session(alone="warn", norm_bound=3.0), built.clients()
    run_in_process(session, clients, 1)
    rows, trained, chosen = session.state.server.rows, session.layout.trained, []
    rows[1, :trained] = 3 * rows[0, :trained]
    for client, parcel in session.open(range(4)).items():
        answer = clients[client].handle(parcel)
        label = int(answer.report["label"])
        start = rows[label]
        compressor = session.expected[client].compressor
        assert compressor is not None
        update = (clients[client].engine.bank[0] - start)[compressor.sparse_positions]
        exact = update[answer.models["largest"]["positions"].long()]
        assert torch.allclose(answer.models["largest"]["values"], exact, atol=1e-6)
        assert float(exact.abs().min()) >= float(update.abs().sort().values[-compressor.count]) - 1e-6
        chosen.append(label)
        if client == 3:  # as one that chose the other model would send it
            whole_slots = compressor.whole_slots
            other_model = {slot.name: slot.of(rows[1 - label]) for slot in whole_slots}
            forged_model = {
                slot.name: answer.models["model"][slot.name] - slot.of(start) + other_model[slot.name]
                for slot in whole_slots
            }
            answer = replace(
                answer, models={**answer.models, "model": forged_model}, report={"label": torch.tensor([1 - label])}
            )
        assert session.receive(client, answer) == ""
    session.close()
    assert session.state.server.state["labels"].tolist() == [*chosen[:3], 1 - chosen[3]], "nobody moved too far"


def test_a_cluster_that_is_not_there_is_refused(federation: Build) -> None:
    built = federation("ifca:clusters=2", top=0.1)
    session, clients = built.session(alone="warn"), built.clients()
    run_in_process(session, clients, 1)
    parcel = session.open(range(4))[0]
    answer = replace(clients[0].handle(parcel), report={"label": torch.tensor([2])})
    assert "chooses no cluster from 0 to 1" in session.receive(0, answer)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_left_out_is_restored_where_a_round_is_played_again(
    federation: Build, restarted: bool, tmp_path: Path
) -> None:
    built = federation("fedavg", top=0.05, feedback=True)

    def play(lost: bool) -> tuple[Tensor, list[Tensor | None]]:
        session, clients = built.session(least=4, alone="warn"), built.clients()
        for number in range(4):
            session.admit(f"client-{number}", number)
        while session.state.round < 3:
            for client, parcel in session.open(range(4)).items():
                answer = clients[client].handle(parcel)
                save_client(clients[client], tmp_path / f"{client}.safetensors")
                if not (lost and session.state.round == 1 and client == 2):
                    session.receive(client, answer)
            lost = lost and session.state.round != 1
            session.close()
            if restarted:
                clients = built.clients()
                for number, client in enumerate(clients):
                    resume_client(client, tmp_path / f"{number}.safetensors")
        return session.state.server.rows, [client.residual for client in clients]

    (rows, left), (expected_rows, expected_left) = play(True), play(False)
    assert torch.equal(rows, expected_rows)
    assert all(torch.equal(*pair) for pair in zip(left, expected_left, strict=True))


def test_a_place_that_nobody_took_has_no_model(federation: Build) -> None:
    built = federation("fedamp")
    session = built.session(clients=7, alone="warn")
    run_in_process(session, built.clients(), 1)
    assert model_of_deployment(session, cluster=3)[1].clients == (3,)
    with pytest.raises(UsageError, match="--cluster 6: this deployment has clusters 0 to 3"):
        model_of_deployment(session, cluster=6)
