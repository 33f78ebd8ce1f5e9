"""A finished run opened again: its models give the numbers that its table shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from fedwca.core.mean import mean
from fedwca.errors import CheckpointError, FedwcaError, UsageError
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.read_run_files import read_records
from fedwca.results.saved_checkpoint import SavedCheckpoint
from fedwca.results.unit import Unit
from fedwca.runs import open_run as opening
from fedwca.runs.open_run import open_run
from fedwca.runs.records.measure_delivered import list_accuracies
from fedwca.runs.resources.choose_device import has_device

from ..cli.conftest import SMALL, call


@pytest.fixture(scope="module")
def run(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reopen") / "run"
    options = ["--data", str(shades), *SMALL, "--trials", "2", "--keep", "all", "--batch-norm", "local"]
    result = call("bench", *options, "--baseline", "source-only", "--out", str(out), "--json")
    assert result.code == 0, result.err
    return out


@pytest.mark.parametrize("method", [None, "source_only", "Source-Only"])
@pytest.mark.parametrize("trial", [0, 1])
def test_the_models_are_those_of_the_table(run: Path, method: str | None, trial: int) -> None:
    opened = open_run(run, method, trial=trial)
    name = opened.method.name
    assert name == ("source_only" if method else "wca")
    assert opened.finished
    records = [r for r in read_records(run) if r["method"] == name and r["trial"] == trial]
    last = records[-1]
    assert opened.round == last["round"]
    assert opened.labels.tolist() == last.get("labels", [0, 0, 0, 0])
    assert opened.delivered.shape == opened.engine.bank.shape == (4, opened.layout.width)
    for client, row in enumerate(opened.delivered):
        opened.engine.bank[client] = row
    assert list_accuracies(opened.federation.metrics, opened.engine.predict_tests()) == last["accuracy"]
    assert torch.equal(opened.layout.read(opened.network), opened.server.source)
    assert (opened.source, opened.federation.metrics.domains[0]) == ("amber", "brass")


@pytest.mark.parametrize(
    ("other_name", "sentence"),
    [("network.classifier.scale", "lacks 'classifier.weight'"), ("", r"lacks 'classifier.weight' \(1 tensor missing")],
)
def test_a_network_that_is_not_the_checkpoints_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, other_name: str, sentence: str
) -> None:
    original = SavedCheckpoint.tensors

    def renamed(saved: SavedCheckpoint) -> dict[str, torch.Tensor]:
        tensors = original(saved)
        weight = tensors.pop("network.classifier.weight")
        return {**tensors, **({other_name: weight} if other_name else {})}

    monkeypatch.setattr(SavedCheckpoint, "tensors", renamed)
    with pytest.raises(CheckpointError, match=sentence):
        open_run(run)


def test_a_run_that_was_made_on_a_gpu_opens_without_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "has_device", lambda name: name != "cpu")
    reopened = open_run(run)
    assert reopened.config.device == "auto"
    assert torch.equal(reopened.delivered.cpu(), open_run(run).delivered.cpu())
    assert [has_device(name) for name in ("cpu", "auto", "cuda:99", "cuda:128", "tpu")] == [
        *(True, True, False, False, False)
    ]
    original = opening.validate
    settings = {"device": "cuda:7", "precision": "tf32", "engine": "stacked", "kernels": "graphs"}
    monkeypatch.setattr(opening, "validate", lambda values: original(values).model_copy(update=settings))
    monkeypatch.setattr(opening, "has_device", lambda name: not name.startswith("cuda"))
    opened = open_run(run)
    assert (opened.config.device, opened.config.precision) == ("auto", "fp32")
    if not torch.cuda.is_available():
        assert opened.config.kernels == "eager"
        assert opened.delivered.shape == opened.engine.bank.shape
    settings["device"] = "cpu" if torch.cuda.is_available() else "auto"
    assert open_run(run).config.precision == "fp32"


def test_the_bank_is_that_of_the_last_round(run: Path) -> None:
    last = read_records(run)[-1]
    opened = open_run(run, trial=1)
    assert mean(list_accuracies(opened.federation.metrics, opened.engine.predict_tests())) == mean(
        last["accuracy_local"]
    )


def test_an_unfinished_method_opens_at_its_latest_round(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "checkpoints/0-0-wca/000002.safetensors").unlink()
    with pytest.warns(UserWarning, match="FedWCA, moments is unfinished; 1 of 2 rounds are done"):
        opened = open_run(copy)
    assert (opened.round, opened.finished) == (0, False)
    (copy / "checkpoints/0-0-wca/000001.safetensors").unlink()
    with pytest.warns(UserWarning, match="no round of it is done"):
        assert torch.equal(open_run(copy).delivered, opened.server.source.expand(4, -1))


def test_a_damaged_checkpoint_gives_way_only_when_the_one_before_is_asked_for(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    file = copy / "checkpoints/0-0-wca/000002.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"000002\.safetensors: cut off, damaged.* take it with --round 1"):
        open_run(copy)
    with pytest.raises(CheckpointError, match=r"000002\.safetensors: cut off, damaged"):
        open_run(copy, round=2)
    assert open_run(copy, round=1).round == 0
    with pytest.raises(UsageError, match="no checkpoint of wca after round 7; those that are kept: 0, 1, 2"):
        open_run(copy, round=7)


@pytest.mark.parametrize(("round", "opened_round"), [(None, 1), (1, None)])
def test_files_that_a_run_removes_while_they_are_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round: int | None, opened_round: int | None
) -> None:
    """A method ends: its last checkpoint is saved, and all others are removed."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    folder, read, removed = copy / "checkpoints/0-0-wca", Checkpoints.read, []
    newest = (folder / "000002.safetensors").rename(tmp_path / "newest")

    def read_late(store: Checkpoints, path: Path, unit: Unit) -> SavedCheckpoint:
        if not removed:
            removed.extend(folder.iterdir())
            for file in removed:
                file.unlink()
            newest.rename(folder / "000002.safetensors")
        return read(store, path, unit)

    monkeypatch.setattr(Checkpoints, "read", read_late)
    if opened_round is None:
        with pytest.raises(UsageError, match="no checkpoint of wca after round 1; those that are kept: 2"):
            open_run(copy, round=round)
    else:
        assert open_run(copy, round=round).round == opened_round
    assert len(removed) == 2


def test_what_cannot_be_opened_is_said_in_a_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no method 'wac'; did you mean 'wca'"):
        open_run(run, "wac")
    with pytest.raises(UsageError, match="no trial 2; the run has 2, counted from 0"):
        open_run(run, trial=2)
    with pytest.raises(UsageError, match="no source model -1"):
        open_run(run, source_model=-1)
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(CheckpointError, match=r"no checkpoint of wca .* is kept; run it again with --keep last$"):
        open_run(copy)
    (copy / "summary.json").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=r"--keep last, or continue with: fedwca resume "):
        open_run(copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "schema": 99}))
    with pytest.raises(FedwcaError, match="written by a later fedwca"):
        open_run(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(FedwcaError, match=r"config\.json: cannot be read"):
        open_run(copy)


def test_checkpoints_of_another_run_are_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    config["config"]["seed"] = 9
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        open_run(copy)


def test_an_earlier_round_says_how_many_there_are(run: Path) -> None:
    first = open_run(run, round=1)
    assert (first.round, first.last, first.finished) == (0, 1, True)
