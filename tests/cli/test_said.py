"""Unexpected situations are reported: clients without test images, incomplete settings of ranks, empty pictures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.objectives import objectives
from fedwca.results.pictures.bars import draw_bars
from fedwca.results.pictures.clusters import clusters
from fedwca.results.pictures.confusion import NOTHING, confusion
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.style import looks

from ..fork_server import CommandLine, ForkServer
from .conftest import SMALL, Run, call


@pytest.mark.parametrize(("samples", "words"), [("2", "no client has test images"), ("3", None)])
def test_clients_without_test_images_are_said(bench: Callable[..., Run], samples: str, words: str | None) -> None:
    run = bench("--samples", samples, "--baseline", "none", "--rounds", "1")
    assert run.code == 0, run.err
    if words:
        assert words in run.err
    assert ("test images" in run.err) is (words is not None)


def test_a_method_without_several_clusters_is_not_said_to_have_them(plain: Run, tmp_path: Path) -> None:
    run = call("plot", str(plain.folder), "weights", "--method", "fedavg", "--to", str(tmp_path))
    assert run.code == 1
    assert "FedAvg has no second round with more than one cluster model" in run.err


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"WORLD_SIZE": "y"}, "WORLD_SIZE is 'y'"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        ({"WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK is 'x'"),
    ],
)
def test_variables_of_a_scheduler_end_in_a_sentence(
    environment: dict[str, str], words: str, tmp_path: Path, fork_server: ForkServer
) -> None:
    command = ["bench", "--rounds", "1", "--out", str(tmp_path / "x")]
    ended = fork_server.run(CommandLine(command, str(tmp_path), {**os.environ, **environment}))
    assert ended.code in (1, 2)
    output = ended.out + ended.err
    assert words in output
    assert "Traceback" not in output
    assert "unexpected" not in output


def test_clusters_show_every_domain() -> None:
    domains = ["printed"] * 10 + ["street"] * 10 + ["neon"] * 8 + ["photo"] * 2
    shades = {"printed": 10, "street": 60, "neon": 110, "photo": 160}
    images = [np.full((3, 4, 4, 3), shades[domain], np.uint8) for domain in domains]
    figure = clusters([0] * 30, images, domains, "title")
    (axis,) = figure.axes
    assert set(np.unique(axis.images[0].get_array())) == {*shades.values(), 255}
    assert "1 more domain" in axis.get_ylabel()


def test_halves_are_rounded_up() -> None:
    entry = {"label": "x", "mean": 62.5, "std": None, "n": 1, "domains": {"a": 67.5}, "domain_stds": {"a": None}}
    texts = {text.get_text() for axis in draw_bars({"x": entry}, "title").axes for text in axis.texts}
    assert {"63", "68"} <= texts


def test_a_class_without_test_images_is_not_drawn_as_0_percent() -> None:
    truth, predicted, unused = [np.array([0, 0])], [np.array([0, 1])], [[]]
    figure = confusion(Models("title", ["a", "b"], ["photo"], [0], unused, truth, predicted, *[unused] * 3))
    axis = figure.axes[0]
    percentages = axis.images[0].get_array()
    assert percentages.mask.tolist() == [[False, False], [True, True]]
    assert "grey: no test image of that class" in figure.get_suptitle().replace("\n", " ")
    from matplotlib.colors import to_rgba

    assert axis.get_facecolor() == to_rgba(NOTHING)


def test_a_method_has_one_look_in_all_pictures() -> None:
    names = ["fedavg", "ifca", "ladd", "fedprox", "one_hot", "wca"]
    look_by_name = looks(names)
    assert looks(["local", *names])["fedavg"] == look_by_name["fedavg"] == looks(["fedavg", "wca"])["fedavg"]
    assert len({(look["color"], look["linestyle"]) for look in look_by_name.values()}) == len(names)


def test_a_pickled_checkpoint_is_refused_without_advice_to_run_it(bench: Callable[..., Run], tmp_path: Path) -> None:
    import pickle

    import torch

    (tmp_path / "model.pt").write_bytes(pickle.dumps({"a": 1}))
    torch.save({"model": np.random.default_rng(0)}, tmp_path / "other.pt")
    for name in ("model.pt", "other.pt"):
        run = bench("--checkpoint", str(tmp_path / name), small=False)
        assert run.code == 1
        assert "weights_only" not in run.err
        assert "safetensors" in run.err


def test_a_warning_is_printed_once(shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(Objective):
        """Reads a value of one client, which vmap cannot."""

        def __call__(self, batch: Batch) -> Tensor:
            """Cross-entropy of scaled outputs."""
            return torch.nn.functional.cross_entropy(batch.logits / batch.logits.max().item(), batch.labels)

    monkeypatch.setitem(objectives._classes, "scaled", Scaled)
    objectives("scaled")(Scaled)
    words = [
        "--data",
        str(shades),
        *SMALL,
        "--objective",
        "scaled",
        "--engine",
        "stacked",
        "--out",
        str(tmp_path / "a"),
    ]
    run = call("bench", *words)
    assert run.code == 0
    assert run.err.count("the loss of 'scaled' cannot be run for all clients at once, so it runs one by one: ") == 1
