"""`fedwca reproduce upfl-figure5`: its rows, its plan, and a small run with its picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedwca.config.resolve_config import resolve_plan
from fedwca.core.adaptation import Adaptation
from fedwca.objectives.digest import Digest
from fedwca.reproduce.definitions import definition, layered_settings
from tests.cli.conftest import call


def test_rows_of_figure_5_are_those_of_the_paper() -> None:
    figure = definition("upfl-figure5")
    plan = resolve_plan(layered_settings(figure, "cifar10", False, {}), (), "upfl")
    lams = []
    for method, rounds in plan.methods[1:]:
        assert rounds == 1000
        digest, adaptation = method.public_objective, method.adaptation
        assert isinstance(digest, Digest)
        assert isinstance(adaptation, Adaptation)
        lams.append(digest.lam)
        assert (adaptation.lr, adaptation.learning_rates()) == (0.5, {"adaptation": 0.005})
        assert method.training is not None
        assert (method.training.lr, method.training.clip) == (0.1, 10)
        assert (digest.passes, digest.new_passes, digest.batch_size) == (1, 2, 100)
    assert lams == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert plan.methods[0][0].name == "hetero_tent"
    assert plan.config.components["model"]["convnet"]["sizes"] == [16, 32, 64]
    small = layered_settings(figure, "cifar10", True, {})
    assert small["components"]["model"]["convnet"]["sizes"] == [4, 8, 16]


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    labels = np.arange(200, dtype=np.int64) % 10
    images = np.random.default_rng(0).integers(0, 255, (200, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "cifar10.npz", images=images, labels=labels)
    return folder


def test_figure_5_runs_small_and_draws_curves(noise: Path, tmp_path: Path) -> None:
    quick = (
        "--quick --clients 3 --rounds 2 --samples 10 --device cpu --set training.steps=1 --set partition.public=0.05"
    )
    rows = ["--row", "TENT", "--row", "λ = 0.8"]
    small = ["--set", "model.bottleneck=8", "--set", "objective.digest.new_passes=1"]
    out = tmp_path / "out"
    words = ["upfl-figure5", "--data", str(noise), "--out", str(out), *rows, *quick.split(), *small, "--format", "json"]
    run = call("reproduce", *words)
    assert run.code == 0, run.err
    values = json.loads(run.out)["values"]
    assert [(entry["group"], entry["row"]) for entry in values] == [
        (group, row) for group in ("training clients", "new clients") for row in ("TENT", "λ = 0.8")
    ]
    assert (out / "upfl_figure5-cifar10-shards-quick.png").is_file()
