"""Residual networks in whole runs, from a folder of images to accuracies."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedwca.config.resolve_config import resolve_plan
from fedwca.errors import CheckpointError
from fedwca.models.resnet18 import ResNet18
from fedwca.runs.check_components import dry_run_components
from fedwca.runs.load_data import build_network, load
from fedwca.runs.open_run import open_run
from fedwca.runs.run_trials_and_methods import run_bench
from fedwca.runs.split_trials import TrialSplits

from ..cli.conftest import call
from ..engine.federations import ShortResNet

RUN = {"source": "day", "clients": 1, "rounds": 2, "baselines": [], "training": {"epochs": 1}, "workers": 1}
RUN |= {"device": "cpu", "source_training": {"epochs": 1}}


@pytest.fixture(autouse=True)
def few_channels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ResNet-18 with a fifteenth of the weights, but where its own are read."""
    if request.function is not test_real_pictures:
        monkeypatch.setattr(ResNet18, "torchvision", ShortResNet.torchvision)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains of pictures that are not square, in two classes."""
    root, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for shade, domain in enumerate(("day", "fog", "night")):
        for label, name in enumerate(("cat", "dog")):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = random.integers(0, 256 >> shade, (40, 60, 3), dtype=np.uint8) // (1 + label)
                Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return root


@pytest.mark.parametrize("frozen", [False, True])
def test_a_folder_alone_is_enough(photos: Path, frozen: bool) -> None:
    plan = resolve_plan(
        {**RUN, "data": photos, "model": f"resnet18:side=32,weights=none,frozen={frozen}", "clusterer": "finch"}
    )
    dataset, source = load(plan.config)
    network = build_network(plan.config, len(dataset.classes))
    assert dataset.domains["fog"].images.shape == (16, 37, 37, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dry_run_components(plan.config, plan.methods, network, dataset.classes, clients=2)
    assert [str(item.message)[:22] for item in caught] == ["the backbone is frozen"] * frozen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = list(run_bench(plan.config, plan.methods, TrialSplits(plan.config, dataset, source)))
    assert [record["round"] for record in records] == [-1, 0, 1]
    parameters = 256 * 256 + 256 + 2 * 256 + 2 * 256
    width = parameters if frozen else parameters + 693_864 + 1872  # the backbone's BatchNorm statistics
    assert records[2]["bytes_up"] == 2 * 4 * (width + 1 + 2)  # two clients; α of one cluster and β
    assert all(0 <= accuracy <= 100 for accuracy in records[2]["accuracy"])


def test_weights_are_looked_at_before_images(tmp_path: Path) -> None:
    plan = resolve_plan({**RUN, "data": tmp_path / "nowhere", "model": "resnet18:weights=absent.pth"})
    with pytest.raises(CheckpointError, match=r"absent\.pth: no such file"):
        load(plan.config)


def test_a_finished_run_needs_no_file_of_weights(photos: Path, tmp_path: Path) -> None:
    weights, run = tmp_path / "weights.pth", tmp_path / "run"
    torch.save(ResNet18(weights="none").torchvision()[0].state_dict(), weights)
    options = ["--model", f"resnet18:weights={weights},side=32,frozen=true", "--clusterer", "finch", "--keep", "last"]
    options += ["--rounds", "1", "--clients", "1", "--source", "day", "--set", "source_training.epochs=0"]
    result = call("bench", "--data", str(photos), *options, "--workers", "1", "--out", str(run))
    assert result.code == 0, result.err
    weights.unlink()
    assert [len(client.train) for client in open_run(run).federation.clients] == [10, 10]
    config = json.loads((run / "config.json").read_text())
    del config["classes"]  # as in runs of earlier releases
    (run / "config.json").write_text(json.dumps(config))
    assert open_run(run).classes == ("cat", "dog")
    config["data_digest"] = "0" * 64  # as where 0.1.0 read some files in other ways
    (run / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match=r"does not store its class names, .* those of photos\d* as it is now"):
        assert open_run(run).classes == ("cat", "dog")


def test_real_pictures(shared_data: Path, tmp_path: Path) -> None:
    weights = shared_data / "weights" / "resnet18_imagenet_fp16.pth"
    if not (weights.is_file() and (shared_data / "pacs").is_dir()):
        pytest.skip("PACS or the file of ImageNet weights is not here")
    for folder in (shared_data / "pacs").glob("*/*"):
        target = tmp_path / "pacs" / folder.parent.name / folder.name
        target.mkdir(parents=True)
        for file in sorted(folder.iterdir())[:3]:
            (target / file.name).symlink_to(file)
    fields = {"model": {"resnet18": {"weights": str(weights), "side": 32}}}
    layer = {**RUN, "source": "photo", "data": tmp_path, "dataset": "pacs", "components": fields}
    plan = resolve_plan({**layer, "model": "resnet18", "source_training": {"epochs": 0}})
    with pytest.warns(UserWarning, match="photo has 21 of 1670"):
        dataset, source = load(plan.config)
    assert dataset.domains["sketch"].images.shape == (21, 37, 37, 3)
    records = list(run_bench(plan.config, plan.methods, TrialSplits(plan.config, dataset, source)))
    assert len(records[2]["accuracy"]) == 3
    assert torch.tensor(records[2]["accuracy"]).isfinite().all()
