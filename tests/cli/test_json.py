"""JSON that commands print has the published shape."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedwca.aggregators.wca import WCA
from fedwca.results import json_output as shapes

from .conftest import SMALL, Run, call

ROOT = Path(__file__).parents[2]


def shaped(run: Run, shape: Any) -> Any:
    """A command's JSON, validated as the model ``shape``."""
    assert run.code == 0, run.err
    assert run.out.isascii()
    return shape.model_validate_json(run.out)


def test_the_published_schema_is_that_of_the_types() -> None:
    text = (ROOT / "docs" / "output.schema.json").read_text()
    assert text == shapes.published_schema() + "\n", "write it anew: published_schema()"


def test_every_shape_is_in_the_schema_and_on_the_page() -> None:
    definitions = json.loads(shapes.published_schema())["$defs"]
    page = (ROOT / "docs" / "json.md").read_text()
    for shape in shapes.SHAPES:
        assert shape.__name__ in definitions
        assert f"`{shape.__name__}`" in page


def test_every_field_is_described_by_a_sentence_of_its_own() -> None:
    definitions = json.loads(shapes.published_schema())["$defs"]
    fields = {f"{name}.{field}": value for name, d in definitions.items() for field, value in d["properties"].items()}
    assert [name for name, value in fields.items() if not value.get("description", "").endswith(".")] == []
    assert fields["MethodRun.worst"]["description"] != fields["MethodRun.f1"]["description"]


def test_a_run_and_its_continuation_print_the_summary(
    bench: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    blend = WCA.blend

    def print_and_blend(self: WCA, *arguments: Any) -> Any:
        sys.stdout.write("blended\n")
        return blend(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(WCA, "blend", print_and_blend)
        run = bench("--json")
    assert "blended\n" in run.err
    summary = shaped(run, shapes.RunSummary)
    assert summary.methods["wca"].runs[0].mean == pytest.approx(summary.methods["wca"].mean)
    assert json.loads(run.out) == run.summary
    assert shaped(call("resume", str(run.folder), "--json"), shapes.RunSummary) == summary


def test_lists_of_runs_have_their_shapes(plain: Run, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    (tmp_path / "fine").symlink_to(plain.folder)
    run = call("runs", "--root", str(tmp_path), "--json")
    damaged, fine = json.loads(run.out)
    shapes.DamagedRun.model_validate(damaged)
    shapes.ListedRun.model_validate(fine)
    shown = shaped(call("runs", "show", str(plain.folder), "--json"), shapes.ShownRun)
    assert list(shown.methods) == list(plain.summary["methods"])
    difference = call("runs", "diff", str(plain.folder), str(plain.folder), "--json")
    shapes.RunDifferences.model_validate_json(difference.out)


def test_components_and_baselines_have_their_shapes() -> None:
    assert shaped(call("show", "aggregator", "wca", "--json"), shapes.ShownComponent).kind == "aggregator"
    assert shaped(call("show", "finish-training", "--json"), shapes.ShownTable).name == "finish_training"
    assert shaped(call("show", "baseline", "fedwca", "--json"), shapes.ShownBaseline).label == "FedWCA"
    assert shaped(call("show", "baseline", "dan", "--json"), shapes.ShownBaseline).central == "dan"


def test_a_comparison_has_its_shape(shades: Path, tmp_path: Path) -> None:
    small = ["--data", str(shades), *SMALL, "--rounds", "1", "--source", "all", "--out", str(tmp_path)]
    run = call("compare", "fedavg", "local", *small, "--format", "json")
    assert shaped(run, shapes.PrintedComparison).reference == "fedavg"


def test_a_simulation_prints_the_shape_of_a_run(shades: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The backend's own tests need Flower; here its rounds are played in this process."""
    from fedwca.cli import deployment_options
    from fedwca.deploy import make_deployment
    from fedwca.deploy.client import Client
    from fedwca.deploy.flower.config import DeploymentConfig
    from fedwca.deploy.in_process import run_in_process
    from fedwca.deploy.session import Session
    from fedwca.deploy.state_files import save_final

    def play(federation: DeploymentConfig, server: Path, data: Path) -> Session:
        session = federation.session(server / "source.safetensors")
        arrays = [np.load(data / f"client-{k}.npz")["images"] for k in range(federation.rules.clients)]
        images = [torch.from_numpy(x).permute(0, 3, 1, 2) for x in arrays]
        clients = [Client(lambda side, stretch, x=x: x) for x in images]
        run_in_process(session, clients, federation.rounds)
        for number, client in enumerate(clients):
            save_final(client, server / f"client-{number}")
        return session

    monkeypatch.setattr(deployment_options, "check_flower", lambda: None)
    monkeypatch.setattr(make_deployment, "simulate", play)
    arguments = ["--data", str(shades), *SMALL, "--backend", "flower", "--out", str(tmp_path / "x")]
    summary = shaped(call("bench", *arguments, "--json"), shapes.RunSummary)
    assert list(summary.methods) == ["wca"]
    assert len(summary.methods["wca"].runs) == 1
    small = ["--data", str(shades), *SMALL, "--backend", "flower", "--rounds", "1"]
    sentence = "after round 0 a cluster's model was a single client's own: a deployment stops in round 0"
    for clusterer, warned in {"each": True, "single": False}.items():
        run = call("bench", *small, "--clusterer", clusterer, "--out", str(tmp_path / clusterer))
        assert (run.code, sentence in " ".join(run.err.split())) == (0, warned)


def test_a_simulation_is_on_the_cpu_and_refuses_what_that_cannot_do_before_training(
    shades: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from fedwca.cli import deployment_options
    from fedwca.deploy import make_deployment

    monkeypatch.setattr(deployment_options, "check_flower", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(make_deployment, "source_model", lambda *arguments: pytest.fail("a source model was trained"))
    arguments = ["--data", str(shades), *SMALL, "--backend", "flower", "--out", str(tmp_path / "x")]
    run = call("bench", *arguments, "--precision", "tf32")
    assert run.code == 2
    assert "precision tf32: only GPUs since Ampere have TensorFloat-32, not cpu; take fp32" in run.err


def test_a_checked_data_set_has_its_shape(shades: Path) -> None:
    checked = shaped(call("data", "check", shades.name, "--data", str(shades.parent), "--json"), shapes.CheckedDataset)
    printed = call("data", "check", shades.name, "--data", str(shades.parent)).out
    assert f"digest of {checked.name}: {checked.digest}" in printed
    assert checked.expected is None
    assert {len(counts) for counts in checked.counts.values()} == {len(checked.classes)}


def test_predictions_have_their_shape(plain: Run, shades: Path, tmp_path: Path) -> None:
    model, broken = tmp_path / "model.safetensors", tmp_path / "broken.png"
    assert call("export", str(plain.folder), "--client", "0", "--out", str(model)).code == 0
    broken.write_bytes(b"")
    Image.new("RGB", (8, 8)).save(tmp_path / "é.png")
    run = call("predict", str(model), str(tmp_path / "é.png"), str(broken), "--top", "2", "--json")
    assert (run.code, run.out.isascii()) == (0, True)
    read, unread = map(shapes.PrintedPrediction.model_validate, json.loads(run.out))
    assert (read.file, read.error, len(read.best)) == (str(tmp_path / "é.png"), None, 2)
    assert read.best[0].probability >= read.best[1].probability
    assert (unread.file, unread.best) == (str(broken), [])
    assert unread.error is not None
    assert "1 of 2 could not be read; error says why" in run.err
    refused = call("predict", str(model), str(broken), "--json", "--out", str(tmp_path / "x.csv"))
    assert refused.code == 2
    assert "--json prints to standard output" in refused.err
    run = call("predict", str(model), str(broken), "--json")
    assert (run.code, len(json.loads(run.out))) == (1, 1)


def test_what_a_component_is_called_is_ascii_too() -> None:
    run = call("show", "baseline", "local", "--json")
    assert run.out.isascii()
    assert "R·E" in json.loads(run.out)["reading"]
