"""Messages as Flower's records, the server's app, and Flower's simulation; needs Flower."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.deploy.read_answers import ReceivedAnswer, read_answer
from fedwca.deploy.state_files import read_final
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError
from fedwca.objectives.prototype_contrastive import PrototypeContrastive

from .conftest import Federation as Composed
from .processes import PARTS, call, laid_out, message_by_message, require_same, stacked

pytest.importorskip("flwr")

from flwr.app import DEFAULT_TTL, Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.processes import QUIET, flower_environment, server_command
from fedwca.deploy.flower.records import count_bytes, from_record, to_record, to_records
from fedwca.deploy.flower.simulation import simulate

pytestmark = pytest.mark.filterwarnings("default")  # of Flower and Ray


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """Collect the unclosed files and processes that Ray leaves in cycles: later, another test would fail for them."""
    yield
    gc.collect()


def test_what_several_parcels_have_is_packed_once() -> None:
    shared, own_models = {"w": torch.ones(2)}, [{"w": torch.full((2,), float(k))} for k in range(3)]
    parcels = [Parcel("train", 1, {"sent-0": own, "sent-1": shared}) for own in own_models]
    contents = to_records(parcels)
    assert len({id(content["model/sent-1"]) for content in contents}) == 1
    assert len({id(content["model/sent-0"]) for content in contents}) == 3
    for parcel, content in zip(parcels, contents, strict=True):
        unpacked = from_record(content)
        assert all(torch.equal(unpacked.models[name]["w"], parcel.models[name]["w"]) for name in parcel.models)


def test_a_parcel_survives_the_wire() -> None:
    parcel = Parcel(
        "upload",
        3,
        {"model": {"w": torch.randn(2, 3).half()}},
        {"beta": torch.tensor([0.5, 0.5])},
        {"o.x": torch.ones(2, 2)},
        {"n": 1},
    )
    content = to_record(parcel)
    unpacked = from_record(content)
    assert (unpacked.kind, unpacked.round, dict(unpacked.notes)) == ("upload", 3, {"n": 1})
    assert torch.equal(unpacked.models["model"]["w"], parcel.models["model"]["w"])
    assert torch.equal(unpacked.report["beta"], parcel.report["beta"])
    assert torch.equal(unpacked.beside["o.x"], parcel.beside["o.x"])
    files = [record["safetensors"].data for record in content.array_records.values()]
    headers = [8 + int.from_bytes(file[:8], "little") for file in files]
    assert count_bytes(content) == parcel.bytes + sum(headers)
    with pytest.raises(FedwcaError, match=r"holds \d+ bytes of arrays; right is at most 100"):
        from_record(content, 100)
    content["report"] = ArrayRecord({"beta": Array(np.ones(2)), "alpha": Array(np.ones(2))})
    with pytest.raises(FedwcaError, match="an array record has 2 arrays; right is one, named safetensors"):
        from_record(content)
    content["report"] = ArrayRecord({"safetensors": Array(np.ones(2))})
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)
    content["report"] = to_record(parcel)["report"]
    from_record(content)
    content.config_records["notes"].pop("fedwca.round")
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)


def test_what_is_beside_arrays_is_bounded_too() -> None:
    content = to_record(Parcel("upload", 3, notes={"samples": "1" * 20_000}))
    from_record(content)
    with pytest.raises(FedwcaError, match=r"holds 20,0.. characters beside arrays; right is at most 10,000"):
        from_record(content, 10**9)
    content = to_record(Parcel("upload", 3, notes={"samples": 1}))
    from_record(content, 10**9)
    content["report"] = to_record(Parcel("upload", 3, report={f"{k}": torch.zeros(0) for k in range(1_000)}))["report"]
    with pytest.raises(FedwcaError, match=r"holds \d\d,... characters beside arrays"):
        from_record(content, 10**9)
    content.pop("report")
    content["more"] = MetricRecord({"numbers": [0.5] * 9_000})
    with pytest.raises(FedwcaError, match=r"holds 45,... characters beside arrays"):
        from_record(content, 10**9)
    content["more"] = ConfigRecord({"n" * 20_000: 1})
    with pytest.raises(FedwcaError, match=r"holds 20,... characters beside arrays"):
        from_record(content, 10**9)


@pytest.mark.parametrize("method", ["fedavg", "prototypes"])
def test_a_whole_federation_survives_the_wire(federation: Callable[..., Composed], method: str) -> None:
    if method == "fedavg":
        built = federation("fedavg", top=0.1, feedback=True, transport="half")
    else:
        built = federation("local", PrototypeContrastive())
    final_models = []
    for wire in (lambda parcel, limit: parcel, lambda parcel, limit: from_record(to_record(parcel), limit)):
        session, clients = built.session(alone="warn"), built.clients()
        for number in range(4):
            session.admit(f"client-{number}", number)
        while session.state.round < 3:
            for client, parcel in session.open(range(4)).items():
                answer = clients[client].handle(wire(parcel, None))
                assert session.receive(client, wire(answer, session.context.max_answer_bytes)) == ""
            session.close()
        for client, parcel in session.final_parcels(session.participants).items():
            clients[client].handle(wire(parcel, None))
        final_models.append(stacked(clients))
    assert torch.equal(final_models[0], final_models[1])


def garble(file: bytes, draw: random.Random) -> bytes:
    """A file with a few bytes changed, mostly in its header; it may also be cut, or have bytes appended."""
    garbled = bytearray(file)
    header = 8 + int.from_bytes(file[:8], "little")
    for _ in range(draw.randint(1, 4)):
        garbled[draw.randrange(draw.choice([8, header, header, len(garbled)]))] = draw.randrange(256)
    end = draw.choice([len(garbled), len(garbled), draw.randrange(len(garbled))])
    return bytes(garbled[:end]) + draw.choice([b"", b"", bytes(7)])


@pytest.mark.parametrize("options", [{}, {"top": 0.1}, {"transport": "half"}], ids=str)
def test_garbled_answers_are_refused_or_hold_finite_models(
    federation: Callable[..., Composed], options: dict[str, Any]
) -> None:
    built = federation("wca:ta=1,tb=1", **options)
    session, clients = built.session(alone="warn"), built.clients()
    for number in range(4):
        session.admit(f"client-{number}", number)
    for _ in range(2):  # answers hold a report from round 1 on
        answers = {client: clients[client].handle(parcel) for client, parcel in session.open(range(4)).items()}
        expected, sent = dict(session.expected), to_record(answers[1])
        for client, answer in answers.items():
            assert session.receive(client, answer) == ""
        session.close()
    draw, accepted = random.Random(0), 0
    names = list(sent.array_records)
    assert len(names) > 1
    for _ in range(300):
        content = RecordDict(dict(sent))
        name = draw.choice(names)
        file = garble(sent.array_records[name]["safetensors"].data, draw)
        content[name] = ArrayRecord({"safetensors": Array("uint8", (len(file),), "safetensors", file)})
        try:
            parcel = from_record(content, session.context.max_answer_bytes)
        except FedwcaError:
            continue
        if isinstance(answer := read_answer(parcel, expected[1]), ReceivedAnswer):
            accepted += 1
            assert bool(torch.isfinite(answer.model).all())
    assert 0 < accepted < 300


def test_nothing_is_told_to_strangers() -> None:
    assert {QUIET[name] for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")} == {"0"}
    assert QUIET["FLWR_DISABLE_UPDATE_CHECK"] == QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


@pytest.mark.parametrize("asked_for", [False, True])
def test_packages_are_installed_at_run_time_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked_for: bool
) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

    name = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
    monkeypatch.delenv(name, raising=False)
    if asked_for:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv(name, flower_environment(tmp_path)[name])
    arguments = server_command(tmp_path, "127.0.0.1", 1, insecure=True)[3:]
    assert _parse_args_run_superlink().parse_args(arguments).runtime_dependency_install is asked_for


@pytest.mark.parametrize(
    ("upper", "lower", "expected"),
    [
        ("", "", "127.0.0.1,localhost,::1"),
        ("a.example", "", "a.example,127.0.0.1,localhost,::1"),
        ("a.example", "b.example", "b.example,127.0.0.1,localhost,::1"),  # as libraries do, lower case counts
        ("*", "", "*"),
    ],
)
def test_commands_of_one_machine_use_no_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, upper: str, lower: str, expected: str
) -> None:
    monkeypatch.setenv("NO_PROXY", upper)
    monkeypatch.setenv("no_proxy", lower)
    env = flower_environment(tmp_path)
    assert env["NO_PROXY"] == env["no_proxy"] == expected


@pytest.mark.parametrize("name", [*PARTS, "fedpcl_pl"])
@pytest.mark.timeout(600)
def test_flowers_simulation_ends_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, name)
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    rows = session.state.server.rows
    if name == "fedpcl_pl":
        # The server gets no models; each client has written its own.
        layout = Layout.of(session.network)
        rows = torch.stack([read_final(tmp_path / "d" / "server" / f"client-{k}", layout) for k in range(4)])
    require_same(rows, federation, tmp_path / "d")


@pytest.mark.timeout(600)
def test_a_client_that_diverges_ends_flowers_simulation(tmp_path: Path, shades: Path) -> None:
    pytest.importorskip("ray")
    size = ["--clients", "2", "--samples", "30", "--rounds", "2", "--preset", "default", "--lr", "1e30"]
    method = ["--aggregator", "fedavg", "--set", "model.bottleneck=8", "--set", "source_training.epochs=1"]
    output = ["--data", str(shades), "--backend", "flower", "--out", str(tmp_path / "d")]
    completed = call("bench", *size, *method, *output, timeout=500)
    assert completed.returncode == 1
    assert "a lower learning rate may help" in completed.stderr
    assert "there is no answer of client" in completed.stderr
    federation = DeploymentConfig.read(tmp_path / "d" / "server" / CONFIG_NAME)
    assert 10 * 3600 < federation.deadline < DEFAULT_TTL


@pytest.mark.timeout(600)
def test_thinned_uploads_over_flower(tmp_path: Path, shades: Path) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, "fedavg", "--top", "0.1", "--feedback")
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    in_process, _ = message_by_message(federation, tmp_path / "d")
    assert torch.equal(session.state.server.rows, in_process.state.server.rows)
    bytes_by_round = [json.loads(line) for line in (tmp_path / "d" / "server" / "wire.jsonl").read_text().splitlines()]
    assert max(bytes_by_round[0]["up"].values()) < 0.3 * max(bytes_by_round[1]["down"].values())
