"""`fedwca deploy init` without a network, a client's images, and the errors where something is missing or wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePath

import numpy as np
import pytest
import torch
from PIL import Image

from fedwca.cli.client import count_images
from fedwca.config.baselines import baseline, baseline_names
from fedwca.config.run_config import RunConfig
from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.deploy.client import Client
from fedwca.deploy.client_images import check_images, read_images
from fedwca.deploy.flower.config import DeploymentConfig
from fedwca.deploy.flower.deployment_folder import point_app_here
from fedwca.deploy.flower.processes import client_command, toml_string
from fedwca.deploy.make_deployment import DeployRequest, make_deployment
from fedwca.deploy.server_rules import Rules
from fedwca.errors import DataError, InvalidConfig, UsageError
from fedwca.runs.run_request import RunRequest

from ..cli.conftest import call

SMALL = ["--set", "source_training.epochs=1", "--set", "model.bottleneck=8", "--insecure"]


def test_missing_flower_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run = call("deploy", "run", "anywhere")
    assert run.code == 2
    assert "pip install 'fedwca[flower]'" in run.err


@pytest.mark.usefixtures("flower_installed")
def test_options_of_runs_that_cannot_be_deployed_are_not_in_the_help_and_are_refused(shades: Path) -> None:
    options = set(re.findall(r"--[a-z-]+", call("deploy", "init", "--help", columns=200).out.split("Options")[1]))
    assert "--objective" in options
    assert not {"--new-clients", "--adaptation", "--finish", "--validation"} & options
    run = call("deploy", "init", "never", "--data", str(shades), "--clients", "4", "--insecure", "--target", "amber")
    assert (run.code, "its clients have labels" in run.err) == (2, True)
    run = call("deploy", "init", "never", "--data", str(shades), "--clients", "4", *SMALL, "--adaptation", "entropy")
    assert (run.code, "deployments have no step yet" in run.err) == (2, True)
    run = call("deploy", "init", "never", "--data", str(shades), "--clients", "4", *SMALL, "--samples", "60")
    assert (run.code, "--samples is of the images that --deal writes" in run.err) == (2, True)
    for words in (["unit-domains"], ["skewed-domains:alpha=0.1"]):
        run = call("deploy", "init", "never", "--data", str(shades), "--clients", "4", *SMALL, "--partition", *words)
        assert run.code == 2
        assert re.search("--partition (unit|skewed)_domains deals the images that --deal writes", run.err)
    run = call("deploy", "key", ".")
    assert (run.code, ". is a folder; name the key's file in it" in run.err) == (2, True)


def test_clients_train_as_their_method_does() -> None:
    values = {"composed": True, "baselines": (), "methods": {"wca": {"training": {"epochs": 7, "lr": 0.5}}}}
    config = RunConfig(**values).model_dump(mode="json")
    training = DeploymentConfig(config=config, classes=("a", "b"), rules=Rules(clients=2)).composition.training
    assert (training.epochs, training.lr) == (7, 0.5)


@pytest.mark.usefixtures("flower_installed")
def test_a_deployment_is_written(tmp_path: Path, shades: Path) -> None:
    folder = tmp_path / "d"
    arguments = ["deploy", "init", str(folder), "--data", str(shades), "--deal", "2", "--rounds", "3", *SMALL]
    run = call(*arguments, "--aggregator", "wca:ta=0.5", "--rule", "alone=warn", "--rule", "norm-bound=3")
    assert run.code == 0, run.err
    federation = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
    assert (federation.rules.clients, federation.rules.alone, federation.rules.norm_bound) == (4, "warn", 3.0)
    session = federation.session(folder / "server" / "source.safetensors")
    assert session.composition.aggregator["ta"] == 0.5
    app = tomllib.loads((folder / "app" / "pyproject.toml").read_text())
    assert app["tool"]["flwr"]["app"]["config"] == {"folder": str((folder / "server").resolve())}
    copy = shutil.copytree(folder, tmp_path / "copy")
    point_app_here(copy)
    app = tomllib.loads((copy / "app" / "pyproject.toml").read_text())
    assert app["tool"]["flwr"]["app"]["config"] == {"folder": str((copy / "server").resolve())}
    with np.load(folder / "data" / "client-3.npz") as archive:
        assert archive.files == ["images"]
    one_client = ["deploy", "init", str(tmp_path / "one"), "--data", str(shades), "--clients", "1", *SMALL]
    assert call(*one_client, "--aggregator", "fedavg").code == 0
    assert DeploymentConfig.read(tmp_path / "one" / "server" / CONFIG_NAME).rules.clients == 1
    assert call(*arguments).code == 2


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.parametrize("insecure", [True, False], ids=["insecure", "TLS"])
def test_the_lines_that_init_prints_work_as_they_stand(
    tmp_path: Path,
    shades: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    insecure: bool,
) -> None:
    if not insecure:
        request.getfixturevalue("counted_here")
    started: list[list[str]] = []

    def start(command: list[str], *ignored: object) -> int:
        started.append(command)
        return 0

    processes = "fedwca.deploy.flower.processes"
    monkeypatch.setattr(f"{processes}.run_until_stopped", start)
    monkeypatch.setattr(f"{processes}.run_with_restarts", start)
    folder = tmp_path / "a trial"
    small = SMALL if insecure else [word for word in SMALL if word != "--insecure"]
    run = call("deploy", "init", str(folder), "--data", str(shades), "--deal", "1", *small)
    assert run.code == 0, run.err
    assert "(client 1 likewise)" in run.out
    lines = [shlex.split(line) for line in run.out.splitlines() if line.startswith("  fedwca ")]
    server, client, _ = (line[1:] for line in lines)
    assert lines[2][1:] == ["deploy", "run", str(folder), *(["--insecure"] if insecure else [])]
    for line in (server, client):
        result = call(*line)
        assert result.code == 0, result.err
    settings = started[1][started[1].index("--node-config") + 1]
    data, state = folder / "data" / "client-0.npz", folder / "clients" / "0"
    assert settings == f'data={json.dumps(str(data))} state={json.dumps(str(state))} device="cpu" number=0'
    assert [("--insecure" in command) for command in started] == [insecure, insecure]


@pytest.mark.parametrize("name", ["plain", "Bilder für später", "a 😀", "it's = here", "back\\slash", "\x7f\ttab"])
def test_a_path_reaches_flower_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    config = {"device": "cpu", "number": 3, "clip": 0.5}
    command = client_command(tmp_path / name, tmp_path / name, "here:1", True, config)
    settings = command[command.index("--node-config") + 1]
    # As Flower parses it.
    pairs = re.findall(r"(\S+?)=(\'[^\']*\'|\"[^\"]*\"|\S+)", settings)
    parsed = tomllib.loads("\n".join(f"{key} = {value}" for key, value in pairs))
    path = str((tmp_path / name).resolve())
    assert parsed == {"data": path, "state": path, **config}


@pytest.mark.parametrize(("name", "why"), [('a "b"', "has a double quote"), ("caf\udce9", "is not UTF-8")])
def test_a_path_that_flower_cannot_be_told_is_refused(tmp_path: Path, name: str, why: str) -> None:
    try:
        (tmp_path / name).mkdir()
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    with pytest.raises(UsageError, match=f"{why}.*; rename the file or folder"):
        client_command(tmp_path, tmp_path / name, "here:1", True, {})


@pytest.mark.parametrize("text", ["plain", 'a "b"', "a 😀 für", "\x7f\x01\n\\", ""])
def test_a_string_is_read_from_toml_as_it_was(text: str) -> None:
    assert tomllib.loads(f"folder = {toml_string(text)}") == {"folder": text}


@pytest.mark.usefixtures("flower_installed")
def test_a_deployment_in_a_folder_of_any_name(tmp_path: Path, shades: Path) -> None:
    folder = tmp_path / 'a 😀 "b"'
    run = call("deploy", "init", str(folder), "--data", str(shades), "--clients", "2", *SMALL)
    assert run.code == 0, run.err
    app = tomllib.loads((folder / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    assert app["tool"]["flwr"]["app"]["config"] == {"folder": str((folder / "server").resolve())}


@pytest.mark.usefixtures("flower_installed")
def test_init_says_what_to_put_for_images_that_it_did_not_deal(tmp_path: Path, shades: Path) -> None:
    run = call("deploy", "init", str(tmp_path / "d"), "--data", str(shades), "--clients", "3", *SMALL)
    assert run.code == 0, run.err
    assert "(clients 1 to 2 likewise; IMAGES is the folder of a client's own images)" in run.out
    assert f"fedwca client {tmp_path}/d/clients/0 --data IMAGES --number 0 --insecure\n" in run.out


@pytest.mark.usefixtures("flower_installed")
def test_a_baseline_is_deployed_as_it_is(tmp_path: Path, shades: Path) -> None:
    arguments = ["--data", str(shades), "--baseline", "fedavg", "--clients", "4", "--aggregator", "one-hot", *SMALL]
    run = call("deploy", "init", str(tmp_path / "fed"), *arguments)
    assert run.code == 2
    assert "baseline 'fedavg' is deployed as it is; leave aggregator out" in run.err


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.parametrize("name", baseline_names())
def test_every_baseline_is_deployed_or_says_why_not(tmp_path: Path, shades: Path, name: str) -> None:
    folder = tmp_path / "d"
    run = call("deploy", "init", str(folder), "--data", str(shades), "--baseline", name, "--clients", "4", *SMALL)
    refusals = {
        "local": "each client can adapt it alone",
        "shot": "each client can adapt it alone",
        "source_only": "hand the source model out",
        "fedpcl_pl": "allow it with --rule alone=warn",
        "ifca": "aggregator 'ifca' puts 4 clients into groups of 1, 1, 1, 1 in round 0, and a group of one stops",
        "ladd": "clusters by the style of clients' images, which do not leave them",
        "ladd_plus": "clusters by the style of clients' images, which do not leave them",
    }
    if name in refusals:
        assert run.code == 2
        assert refusals[name] in run.err
        assert not (folder / "server").exists()
        if name not in ("fedpcl_pl", "ifca"):
            return
        arguments = ["--data", str(shades), "--baseline", name, "--clients", "4", "--rule", "alone=warn", *SMALL]
        assert call("deploy", "init", str(folder), *arguments).code == 0
        assert DeploymentConfig.read(folder / "server" / CONFIG_NAME).session(folder / "server" / "source.safetensors")
    else:
        assert run.code == 0, run.err
        deployed = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
        assert deployed.session(folder / "server" / "source.safetensors")
        default_rounds = RunConfig().rounds
        assert deployed.composition.label == baseline(name).label
        assert deployed.config["rounds"] == min(default_rounds, baseline(name).rounds or default_rounds)
        longer = deployed.model_copy(update={"config": {**deployed.config, "rounds": 1000}})
        assert longer.rounds == (baseline(name).rounds or 1000), "more rounds than the method has are not played"


@pytest.mark.usefixtures("flower_installed")
def test_a_server_without_a_gpu_deploys_for_clients_that_have_one(tmp_path: Path, shades: Path) -> None:
    folder, words = (
        tmp_path / "d",
        ["--precision", "tf32", "--device", "cpu", "--partition", "skewed-domains:source_ratio=2"],
    )
    run = call("deploy", "init", str(folder), "--data", str(shades), "--clients", "4", *words, *SMALL)
    assert run.code == 0, run.err
    deployed = DeploymentConfig.read(folder / "server" / CONFIG_NAME)
    assert deployed.composition.precision == "tf32"
    session = deployed.session(folder / "server" / "source.safetensors")
    session.admit("client", 0)
    sentence = "take fp32 in `fedwca deploy init` at the server, or start this client with another --device"
    with pytest.raises(UsageError, match=sentence):
        Client(lambda side, stretch: torch.zeros(8, 3, side, side, dtype=torch.uint8)).handle(session.open([0])[0])


@pytest.mark.usefixtures("flower_installed")
def test_groups_of_round_0_that_are_large_enough_are_deployed(tmp_path: Path, shades: Path) -> None:
    for number, words in enumerate(
        (["--baseline", "ifca", "--clients", "8"], ["--clusterer", "each", "--clients", "1"])
    ):
        run = call("deploy", "init", str(tmp_path / str(number)), "--data", str(shades), *words, *SMALL)
        assert run.code == 0, run.err


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--clusterer", "true", "--clients", "4"], "reads the true domains, which no server knows"),
        (["--clusterer", "ladd", "--clients", "4"], "clusters by the style of clients' images"),
        (
            ["--clusterer", "each", "--clients", "3"],
            "clusterer 'each' puts 3 clients into 3 groups or more in round 0, and a group of one stops the run",
        ),
        (
            ["--clusterer", "kmeans:least=3", "--clients", "5"],
            "clusterer 'kmeans' puts 5 clients into 3 groups or more in round 0, and a group of one stops the run",
        ),
        (["--baseline", "ifca", "--clients", "6"], "'ifca' puts 6 clients into groups of 1, 1, 2, 2 in round 0"),
        ([], "--clients is needed"),
        (["--clients", "4", "--rule", "robust=mode"], "--rule robust: Input should be 'mean', 'median' or 'trimmed'"),
        (["--clients", "4", "--rule", "robust"], "not of the form name=value"),
        (["--clients", "4", "--rule", "clients=9"], "--rule clients: say how many clients take part with --clients"),
        (["--clients", "2", "--rule", "robust=median"], "acts on means of 3 clients or more; there are 2"),
        (["--clients", "4", "--deadline", "0"], "deadline: Input should be greater than 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_setting_is_refused(tmp_path: Path, shades: Path, arguments: list[str], sentence: str) -> None:
    run = call("deploy", "init", str(tmp_path / "d"), "--data", str(shades), *SMALL, *arguments)
    assert run.code == 2
    assert sentence in run.err


def test_clipping_to_nothing_is_a_mistake(tmp_path: Path) -> None:
    run = call("client", str(tmp_path), "--data", str(tmp_path), "--clip", "0", "--noise", "1", "--insecure")
    assert run.code == 2
    assert "--clip 0 leaves nothing of an update" in run.err
    run = call("client", str(tmp_path), "--data", str(tmp_path), "--clip", "1", "--noise-moments", "1", "--insecure")
    assert run.code == 2
    assert "--noise-moments is in units of --clip-moments, which is not given" in run.err


def test_images_are_read_from_folders_and_archives(tmp_path: Path) -> None:
    hidden = ".hidden.png", ".thumbnails/b.png", "__MACOSX/deep/b.png"
    for number, name in enumerate(("b.png", "deep/er/a.png", *hidden)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (number, 0, 0)).save(path)
    (tmp_path / "notes.txt").write_text("no image")
    images = read_images(tmp_path, 32)
    assert images.shape == (2, 3, 32, 32)
    assert images[:, 0].float().mean((1, 2)).tolist() == [0.0, 1.0]
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 20, 20, 3), np.uint8))
    assert read_images(tmp_path / "x.npz", 32).shape == (5, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last), "an engine needs no copy"


def test_images_of_a_client_have_the_same_order_where_paths_ignore_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for brightness, name in enumerate(("B.png", "C.png", "a.png")):
        Image.fromarray(np.full((32, 32, 3), brightness, np.uint8)).save(tmp_path / name)
    monkeypatch.setattr(PurePath, "__lt__", lambda path, other: str(path).lower() < str(other).lower())  # as on Windows
    assert read_images(tmp_path, 32)[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_a_damaged_configuration_is_named_with_its_folder(tmp_path: Path) -> None:
    for content in (b"{}", b"\xff"):
        (tmp_path / "federation.json").write_bytes(content)
        with pytest.raises(InvalidConfig, match=re.escape(f"{tmp_path / 'federation.json'}: ")):
            DeploymentConfig.read(tmp_path / "federation.json")


def test_fields_of_0_1_0_are_read(tmp_path: Path) -> None:
    path, old = tmp_path / CONFIG_NAME, {"config": {}, "classes": ["a", "b"], "rules": {"clients": 2}}
    path.write_text(json.dumps({**old, "join": 30.0, "patience": 2}))
    with pytest.warns(FutureWarning, match=r"'(join|patience)' in federation\.json is now '(wait|repeats)'") as caught:
        deployment = DeploymentConfig.read(path)
    assert len(caught) == 2
    assert (deployment.wait, deployment.repeats) == (30.0, 2)
    path.write_text(deployment.text())
    assert DeploymentConfig.read(path) == deployment
    path.write_text(json.dumps({**old, "rules": {"clients": 1, "least": 2}}))
    assert DeploymentConfig.read(path).rules.least == 1


@pytest.mark.usefixtures("flower_installed")
@pytest.mark.filterwarnings("default::FutureWarning")
def test_old_names_of_options_are_hidden_and_warn(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"config": {}, "methods": {}}')
    for command, new, old, words, problem in (
        (["client"], "--number", "--seat", [str(tmp_path), "--data", "x", "--clip", "0"], "--clip 0 leaves nothing"),
        (["deploy", "init"], "--wait", "--join", [str(tmp_path), "--clients", "2"], "holds a run already"),
    ):
        shown = call(*command, "--help").out
        assert (new in shown, old in shown) == (True, False)
        run = call(*command, *words, old, "3")
        assert f"{old} is now {new}; the old name goes in fedwca" in run.err
        assert problem in run.err
        assert f"{old} is the old name of {new}; leave it out" in call(*command, *words, old, "3", new, "5").err


def test_a_folder_with_a_configuration_of_the_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"rounds": 2}')
    with pytest.raises(UsageError, match=r"holds a config\.json that is no run's; name another folder"):
        make_deployment(DeployRequest(tmp_path, RunRequest({}), clients=2))


def test_images_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; --data takes a folder"):
        read_images(tmp_path / "none", 32)
    with pytest.raises(DataError, match="does not exist; --data takes a folder"):
        read_images(tmp_path / "none.npz", 32)
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"notes\.txt is a file that is no \.npz; --data takes a folder"):
        read_images(tmp_path / "notes.txt", 32)
    with pytest.raises(DataError, match="holds no images"):
        read_images(tmp_path, 32)
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 20, 20, 2), np.uint8))
    with pytest.raises(DataError, match=r"images must be uint8 \[N, H, W\] or \[N, H, W, 3\]"):
        read_images(tmp_path / "x.npz", 32)
    np.savez(tmp_path / "y.npz", image=np.zeros((5, 20, 20, 3), np.uint8))
    with pytest.raises(DataError, match="lacks the key images: uint8"):
        read_images(tmp_path / "y.npz", 32)
    np.savez(tmp_path / "grey.npz", images=np.full((5, 20, 20), 7, np.uint8))
    grey = read_images(tmp_path / "grey.npz", 32)
    assert (list(grey.shape), set(grey.flatten().tolist())) == ([5, 3, 32, 32], {7})


def test_images_are_counted_before_a_client_starts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images"):
        count_images(tmp_path)
    for name in ("a.png", "b.png"):
        Image.new("RGB", (40, 30)).save(tmp_path / name)
    assert check_images(tmp_path) == 2
    np.savez(tmp_path / "x.npz", images=np.zeros((5, 20, 20), np.uint8))
    assert check_images(tmp_path / "x.npz") == 5
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a\.png"):
        check_images(tmp_path)


def test_a_federation_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="make it by fedwca deploy init"):
        DeploymentConfig.read(tmp_path / CONFIG_NAME)
    (tmp_path / CONFIG_NAME).write_text("{}")
    with pytest.raises(InvalidConfig, match=r"federation\.json: config"):
        DeploymentConfig.read(tmp_path / CONFIG_NAME)


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from fedwca.deploy.flower.client_secret import identity
    from fedwca.deploy.flower.keys import certify, make_key

    old_umask = os.umask(0o022)
    try:
        make_key(tmp_path / "key")
        certify(tmp_path, ["fed.example.org"])
        identity(tmp_path)
    finally:
        os.umask(old_umask)
    private = {file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077 == 0}
    assert private == {"key", "server.key", "identity"}


WAITING = [
    *("fedwca.cli.client", "fedwca.cli.server", "fedwca.deploy.flower.server_control"),
    *("fedwca.deploy.flower.supernode", "fedwca.deploy.flower.app_process", "fedwca.deploy.flower.flwr_process"),
]


@pytest.mark.parametrize("module", WAITING)
def test_processes_that_only_wait_do_not_load_torch(module: str) -> None:
    code = f"import sys, {module}, fedwca.deploy.flower.processes; print('torch' in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "False"
