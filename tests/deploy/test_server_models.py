"""After the rounds of a deployment, on the server: models are exported from it, and more rounds are played."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from fedwca.core.deployment_files import CHECKPOINT, CONFIG_NAME, SOURCE
from fedwca.deploy.client import Client
from fedwca.deploy.client_images import read_images
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.in_process import run_in_process
from fedwca.deploy.session import Session
from fedwca.deploy.state_files import resume_session, save_final, save_session
from fedwca.export.load_model import open_model

from ..cli.conftest import call

pytestmark = pytest.mark.usefixtures("flower_installed")

SMALL = ["--set", "source_training.epochs=1", "--set", "model.bottleneck=8", "--insecure"]


def write_deployment(folder: Path, shades: Path, *method: str) -> None:
    arguments = ["--data", str(shades), "--deal", "2", "--samples", "20", "--epochs", "1", "--rounds", "2", *SMALL]
    run = call("deploy", "init", str(folder), *arguments, *method)
    assert run.code == 0, run.err


def play(folder: Path) -> tuple[Session, list[Client]]:
    """Play all rounds that are missing, as the processes of a server and its clients would."""
    server = folder / "server"
    deployment = DeploymentConfig.read(server / CONFIG_NAME)
    session = deployment.session(server / SOURCE)
    if (server / CHECKPOINT).exists():
        resume_session(session, server / CHECKPOINT)
    clients = [Client(partial(read_images, folder / "data" / f"client-{k}.npz")) for k in range(4)]
    run_in_process(session, clients, deployment.rounds)
    save_session(session, server / CHECKPOINT)
    return session, clients


@pytest.mark.parametrize(
    "method",
    [
        ["--aggregator", "wca:ta=1,tb=1", "--clusterer", "kmeans:least=2,most=2", "--half"],
        ["--baseline", "fedavg"],
        ["--aggregator", "ladd:start=1", "--clusterer", "kmeans:least=2,most=2"],
    ],
)
def test_models_are_exported_from_the_server(tmp_path: Path, shades: Path, method: list[str]) -> None:
    folder, out = tmp_path / "d", tmp_path / "model.safetensors"
    write_deployment(folder, shades, *method, "--rule", "alone=warn")
    refused = call("export", str(folder), "--client", "0", "--out", str(out))
    assert refused.code == 1
    assert "no round is done yet" in refused.err
    session, clients = play(folder)
    save_final(clients[2], tmp_path / "2")
    run = call("export", str(folder), "--client", "2", "--out", str(out))
    assert run.code == 0, run.err
    exported, delivered = open_model(out), open_model(tmp_path / "2" / "model.safetensors")
    assert exported.about.weights_hash == delivered.about.weights_hash
    assert (exported.about.holder, exported.about.rounds, exported.about.accuracy) == ("client 2", 2, None)
    run = call("export", str(folder), "--cluster", "0", "--out", str(out))
    assert run.code == 0, run.err
    exported = open_model(out)
    network = session.network
    session.layout.write(network, session.state.server.rows[0])
    images = clients[0].images(32, False)
    torch.testing.assert_close(exported.logits(images), network(network.prepare(images))[0])
    assert exported.about.holder == "cluster 0"
    members = session.state.shares[0].nonzero()[:, 0].tolist()
    assert list(exported.about.clients) == members
    clusters = int(session.state.server.state["labels"].max()) + 1
    refused = call("predict", str(folder), str(shades), "--client", "0")
    assert (refused.code, "is a deployment; write a model of it first" in refused.err) == (2, True)
    for arguments, sentence in (
        (["--cluster", str(clusters)], f"this deployment has clusters 0 to {clusters - 1}"),
        (["--client", "9"], "this deployment has clients 0 to 3"),
        ([], "say whose model: --client K or --cluster C"),
        (["--client", "0", "--round", "1"], "choose a model of it by --client or --cluster alone"),
    ):
        refused = call("export", str(folder), *arguments, "--out", str(out))
        assert (refused.code, sentence in refused.err) == (2, True), refused.err


def test_what_may_not_be_handed_on_is_not_exported(tmp_path: Path, shades: Path) -> None:
    folder, out = tmp_path / "d", str(tmp_path / "model.safetensors")
    write_deployment(
        folder, shades, "--aggregator", "one_hot", "--clusterer", "kmeans:least=3,most=3", "--rule", "alone=warn"
    )
    session, _ = play(folder)
    shares = session.state.shares
    single = next(row for row in range(len(shares)) if int((shares[row] > 0).sum()) == 1)
    arguments = ["export", str(folder), "--cluster", str(single), "--out", out]
    assert call(*arguments).code == 0
    file = folder / "server" / CONFIG_NAME
    file.write_text(file.read_text().replace('"alone": "warn"', '"alone": "refuse"'))
    refused = call(*arguments)
    assert refused.code == 1
    assert f"the model of cluster {single} is a single client's own" in refused.err
    (owner,) = shares[single].nonzero()[:, 0].tolist()
    # The client itself may have its model.
    assert call("export", str(folder), "--client", str(owner), "--out", out).code == 0


def test_models_that_stay_at_clients_are_not_at_the_server(tmp_path: Path, shades: Path) -> None:
    folder = tmp_path / "d"
    write_deployment(folder, shades, "--baseline", "fedpcl-pl", "--rule", "alone=warn")
    play(folder)
    refused = call("export", str(folder), "--client", "0", "--out", str(tmp_path / "model.safetensors"))
    assert refused.code == 2
    assert "models stay at the clients" in refused.err


def test_more_rounds_are_those_of_a_longer_run(tmp_path: Path, shades: Path) -> None:
    method = ["--aggregator", "wca:ta=1,tb=1", "--clusterer", "kmeans:least=2,most=2", "--rule", "alone=warn"]
    write_deployment(tmp_path / "short", shades, *method)
    write_deployment(tmp_path / "long", shades, *method)
    for name in ("short", "long"):
        file = tmp_path / name / "server" / CONFIG_NAME
        if name == "short":
            play(tmp_path / name)
        contents = json.loads(file.read_text())
        contents["config"]["rounds"] = 3
        file.write_text(json.dumps(contents))
    short, long = (play(tmp_path / name)[0].state for name in ("short", "long"))
    assert short.round == long.round == 3
    torch.testing.assert_close(short.server.rows, long.server.rows)
