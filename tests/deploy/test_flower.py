"""Over Flower: records and back, and its simulation; in an environment that has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedwca.deploy.client import Client
from fedwca.deploy.images import read_images
from fedwca.deploy.local import federate
from fedwca.deploy.protocol import Parcel
from fedwca.engine.bank import Layout
from fedwca.errors import FedwcaError

from ..shades import write_shades
from .processes import PARTS, expected, laid_out

pytest.importorskip("flwr")

from fedwca.deploy.flower.records import from_record, to_record, weigh
from fedwca.deploy.flower.simulate import QUIET, simulate

pytestmark = pytest.mark.filterwarnings("default")  # of Flower and Ray


@pytest.fixture(scope="module")
def shades(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shades(tmp_path_factory.mktemp("data") / "shades")


def test_a_parcel_survives_the_wire() -> None:
    parcel = Parcel(
        "upload", 3, {"model": {"w": torch.randn(2, 3).half()}}, {"beta": torch.tensor([0.5, 0.5])}, {"n": 1}
    )
    content = to_record(parcel)
    again = from_record(content)
    assert (again.kind, again.round, dict(again.notes)) == ("upload", 3, {"n": 1})
    assert torch.equal(again.models["model"]["w"], parcel.models["model"]["w"])
    assert torch.equal(again.report["beta"], parcel.report["beta"])
    assert weigh(content) == parcel.bytes + 2 * 128  # numpy's header of each array
    with pytest.raises(FedwcaError, match="holds 276 bytes of arrays; right is at most 100"):
        from_record(content, 100)
    content.config_records["notes"].pop("fedwca.round")
    with pytest.raises(FedwcaError, match="is not of the form of a fedwca message"):
        from_record(content)


def test_nothing_is_told_to_strangers() -> None:
    assert {QUIET[name] for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED")} == {"0"}
    assert QUIET["FLWR_DISABLE_UPDATE_CHECK"] == QUIET["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


@pytest.mark.parametrize("name", [*PARTS, "fedpcl_pl"])
@pytest.mark.timeout(600)
def test_flowers_simulation_ends_with_the_same_models(tmp_path: Path, shades: Path, name: str) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, name)
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    rows = expected(federation).rows
    if name == "fedpcl_pl":
        # Models stay where they are; each client has written its own.
        files = [tmp_path / "d" / "server" / f"client-{k}" / "model.safetensors" for k in range(4)]
        found = torch.stack([row_of(load_file(str(file)), Layout.of(session.network)) for file in files])
    else:
        found = session.memory.server.rows
    assert found.shape == rows.shape
    assert torch.allclose(found, rows, atol=1e-5)


def row_of(state: Mapping[str, Tensor], layout: Layout) -> Tensor:
    return torch.cat([state[slot.name].reshape(-1) for slot in (*layout.parameters, *layout.statistics)])


def test_thinned_uploads_over_flower(tmp_path: Path, shades: Path) -> None:
    pytest.importorskip("ray")
    federation = laid_out(tmp_path / "d", shades, "fedavg", "--top", "0.1", "--feedback")
    session = simulate(federation, tmp_path / "d" / "server", tmp_path / "d" / "data")
    clients = [Client(partial(read_images, tmp_path / "d" / "data" / f"client-{k}.npz")) for k in range(4)]
    alone = federation.session(tmp_path / "d" / "server" / "source.safetensors")
    federate(alone, clients, federation.rounds)
    assert torch.equal(session.memory.server.rows, alone.memory.server.rows)
    sent = [json.loads(line) for line in (tmp_path / "d" / "server" / "wire.jsonl").read_text().splitlines()]
    assert max(sent[0]["up"].values()) < 0.3 * max(sent[1]["down"].values())
