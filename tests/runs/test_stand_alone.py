"""A run folder stands alone: images are needed only for what is measured again, and then have to be the same ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedwca.aggregators import aggregators
from fedwca.aggregators.wca import WCA
from fedwca.config.run_config import RunConfig
from fedwca.errors import DataError, UsageError
from fedwca.export import model_from_run
from fedwca.models import models
from fedwca.models.lenet import LeNet
from fedwca.runs.open_run import open_run
from fedwca.runs.run_images import describe_places, locate_paths
from tests.read_rounds import read_rounds

from ..cli.conftest import SMALL, Run, call
from ..shades import write_shades

BENCH = ["bench", "--data", "shades", *SMALL, "--clusterer", "true", "--baseline", "fedavg", "--out", "runs/mine"]
REFUSED = "the images of shades are not those the run began with"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the images in it."""
    place = tmp_path / "place"
    place.mkdir()
    write_shades(place / "shades")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def plugin() -> Iterator[str]:
    """The name of an aggregator of a plugin, which tests may remove from the registry."""

    @aggregators("borrowed")
    class Borrowed(WCA):
        label = "Borrowed"

    yield "borrowed"
    aggregators._classes.pop("borrowed", None)


def well(*words: str) -> Run:
    """Run a command that has to succeed without warnings, but for two."""
    run = call(*words)
    # With so few images the source model is seldom confident; what is exported cannot be measured without images.
    expected = "the source model says little about", "the accuracy of the exported model is not measured"
    warnings = [line for line in run.err.splitlines() if not any(words in line for words in expected)]
    assert (run.code, warnings) == (0, []), run
    return run


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_finished_run_needs_no_images_no_directory_and_no_plugins(
    place: Path, tmp_path: Path, plugin: str, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    well(*BENCH, "--aggregator", plugin, "--engine", engine, "--quiet")
    run = str(tmp_path / "elsewhere/mine")
    for option in ("--client", "--cluster"):
        well("export", "runs/mine", option, "1", "--out", f"{tmp_path}/before{option}.safetensors")
    resumed = json.loads(well("resume", "runs/mine", "--json").out)
    shutil.move(place / "runs", tmp_path / "elsewhere")
    shutil.rmtree(place / "shades")
    monkeypatch.chdir(tmp_path)
    aggregators._classes.pop(plugin)
    assert json.loads(well("resume", run, "--json").out) == resumed
    table = call("resume", run)
    assert table.code == 0
    assert "shades, source amber" in table.out
    assert "Borrowed" in table.out
    for words in (["runs", "show", run], ["report", run], ["runs", "export", run], ["plot", run, "bars", "accuracy"]):
        well(*words)
    for option in ("--client", "--cluster"):
        well("export", run, option, "1", "--out", f"after{option}.safetensors")
        for suffix in ("", ".md"):
            file_before, file_after = (tmp_path / f"{when}{option}.safetensors{suffix}" for when in ("before", "after"))
            assert file_after.read_bytes() == file_before.read_bytes().replace(b"before--", b"after--")
    card = (tmp_path / "after--client.safetensors.md").read_text()
    assert re.search(r"this model \| [\d.]+ % \| 6 ", card)
    for words in (["join", run, "--data", run], ["plot", run, "confusion"]):
        refused = call(*words)
        assert refused.code in (1, 2)
        assert "unexpected" not in refused.err


def test_images_that_are_gone_are_missed_only_where_they_are_looked_at(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well(*BENCH, "--quiet", "--batch-norm", "recalibrated")
    newcomer = shutil.copy("shades/coral.npz", tmp_path / "new.npz")
    shutil.rmtree("shades")
    for words in (
        ["plot", "runs/mine", "confusion"],
        ["join", "runs/mine", "--data", str(newcomer)],
        [
            "export",
            "runs/mine",
            "--client",
            "0",
            "--out",
            "m.safetensors",
        ],  # its BatchNorm statistics are recomputed from its images
    ):
        run = call(*words)
        assert run.code == 1
        assert (
            f"the folder {place / 'shades'} does not exist" in run.err or "the folder shades does not exist" in run.err
        )
    assert not (place / "joined").exists()
    well("export", "runs/mine", "--cluster", "0", "--out", "m.safetensors")
    assert "Its accuracy was not measured: " in (place / "m.safetensors.md").read_text()


@pytest.mark.parametrize("moved", ["neither", "run", "both"])
def test_images_are_found_from_elsewhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    well(*BENCH, "--quiet")
    run = place / "runs/mine"
    records = read_rounds(run, without=["seconds"])
    if moved == "run":
        run = Path(shutil.move(run, tmp_path / "other"))
    if moved == "both":
        run = Path(shutil.move(place, tmp_path / "moved")) / "runs/mine"
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    well("plot", str(run), "confusion")
    assert len(open_run(run).federation) == 4
    (run / "summary.json").unlink()
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (run / "rounds.jsonl").write_text("".join(lines[:-1]))
    (run / "checkpoints/0-0-wca/000002.safetensors").unlink()
    assert call("resume", str(run), "--quiet").code == 0
    assert read_rounds(run, without=["seconds"]) == records


def test_runs_beside_the_images_of_the_working_directory_are_no_domain(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place / "shades")
    for _ in range(2):
        well("bench", "--data", ".", *SMALL, "--baseline", "none", "--quiet")
    assert len(list(Path("runs").iterdir())) == 2


def test_images_of_the_working_directory_have_its_name_from_elsewhere_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = place / "mine"
    monkeypatch.chdir(place / "shades")
    well("bench", "--data", ".", *SMALL, "--baseline", "none", "--out", "../mine", "--quiet")
    assert json.loads((run / "config.json").read_text())["dataset_name"] == "shades"
    records = read_rounds(run, without=["seconds"])
    (run / "summary.json").unlink()
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (run / "rounds.jsonl").write_text("".join(lines[:-1]))
    monkeypatch.chdir(place)
    well("resume", "mine", "--quiet")
    assert read_rounds(run, without=["seconds"]) == records


def test_other_images_are_refused_wherever_they_are_read(place: Path, tmp_path: Path) -> None:
    well(*BENCH, "--quiet")
    well("export", "runs/mine", "--client", "1", "--out", "one.safetensors")
    shutil.rmtree("shades")
    write_shades(place / "shades", images=50)
    for words in (
        ["plot", "runs/mine", "confusion", "mistakes"],
        ["join", "runs/mine", "--data", "shades/coral.npz"],
    ):
        run = call(*words)
        assert run.code == 1, words
        assert REFUSED in run.err
    assert not (place / "joined").exists()
    assert "not drawn: clusters: runs/mine: " + REFUSED in call("plot", "runs/mine").out
    for attribute in ("dataset", "federation", "engine"):
        with pytest.raises(DataError, match=REFUSED):
            getattr(open_run("runs/mine"), attribute)
    # A model's card shows what was measured in the run, whatever became of the images.
    well("export", "runs/mine", "--client", "1", "--out", "two.safetensors")
    first_card, second_card = (Path(f"{name}.safetensors.md").read_text() for name in ("one", "two"))
    assert second_card == first_card.replace("one.safetensors", "two.safetensors")
    (place / "runs/mine/summary.json").unlink()
    assert REFUSED in call("resume", "runs/mine").err


def test_a_card_says_that_nothing_was_measured(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well(*BENCH, "--quiet")
    (place / "runs/mine/rounds.jsonl").unlink()
    shutil.rmtree("shades")
    run = well("export", "runs/mine", "--client", "1", "--out", "m.safetensors")
    assert "accuracy not measured" in run.out
    assert "is not measured: the folder shades does not exist" in run.err
    card = Path("m.safetensors.md").read_text()
    assert "Its accuracy was not measured: where it was exported, its images could not be read." in card
    assert "shades does not exist" not in card + Path("m.safetensors").read_bytes().decode(errors="replace")
    monkeypatch.setattr(model_from_run, "measure_accuracy", Mock(side_effect=UsageError("the library is missing")))
    exported = well("export", "runs/mine", "--cluster", "0", "--out", "n.safetensors")
    assert "is not measured: the library is missing" in exported.err


def test_a_comparison_does_not_stand_on_two_sets_of_images(place: Path) -> None:
    options = ["--data", "shades", *SMALL, "--out", "runs"]
    assert call("compare", "fedavg", *options).code == 0
    shutil.rmtree("shades")
    write_shades(place / "shades", images=50)
    run = call("compare", "fedavg", "local", *options)
    assert run.code == 1
    assert REFUSED in run.err


def test_a_missing_plugin_of_the_model_is_named(place: Path) -> None:
    models("borrowed")(type("Borrowed", (LeNet,), {"__module__": __name__}))
    well(*BENCH, "--model", "borrowed", "--quiet")
    models._classes.pop("borrowed")
    file = place / "runs/mine/environment.json"
    environment = json.loads(file.read_text())
    environment["versions"] |= {"trial-parts": "0.1.0"}
    file.write_text(json.dumps(environment))
    refused = call("export", "runs/mine", "--cluster", "0", "--out", "model.safetensors")
    assert (refused.code, "no model 'borrowed'; the run was begun with trial-parts 0.1.0" in refused.err) == (2, True)


def test_a_missing_plugin_is_named(place: Path, plugin: str) -> None:
    well(*BENCH, "--aggregator", plugin, "--quiet")
    aggregators._classes.pop(plugin)
    run = place / "runs/mine"
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (run / "rounds.jsonl").write_text("".join(lines[:-1]))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"complete": False}))
    environment = json.loads((run / "environment.json").read_text())
    for command in (["resume", "runs/mine"], ["join", "runs/mine", "--data", "shades"]):
        assert "install that" in call(*command).err
    environment["versions"] |= {"trial-parts": "0.1.0", "scikit-learn": "1.0"}
    (run / "environment.json").write_text(json.dumps(environment))
    for command in (["resume", "runs/mine"], ["join", "runs/mine", "--data", "shades"]):
        refused = call(*command)
        assert refused.code == 2
        assert (
            "mine: no aggregator 'borrowed'; the run was begun with trial-parts 0.1.0, which is not installed here: "
            "install it" in refused.err
        ), refused.err


def test_paths_are_found_where_a_run_is_on_another_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    monkeypatch.setattr("os.path.relpath", Mock(side_effect=ValueError("path is on mount 'C:', start on mount 'D:'")))
    places = describe_places(tmp_path / "run")
    assert places == {"directory": str(Path.cwd()), "from_run": None}
    for data in (tmp_path / "images", tmp_path / "gone"):
        assert locate_paths(RunConfig(data=data), {"places": places}, tmp_path / "run").data == data
