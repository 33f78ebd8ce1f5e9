"""`fedwca compare`: what is run, what is reused, and what the table says."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.config.added_fields import with_added_fields
from fedwca.config.run_config import RunConfig
from fedwca.core.tensor_files import file_digest
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.results.read_run import read_run
from fedwca.runs.resuming.reuse_runs import comparable_settings

from ..engine.federations import ShortResNet
from .conftest import SIZE, SMALL, Run, call


def compare(shades: Path, out: Path, *arguments: str) -> Run:
    return call("compare", *arguments, "--data", str(shades), *SMALL, "--rounds", "1", "--out", str(out))


@pytest.fixture(scope="module")
def first(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    out = tmp_path_factory.mktemp("compare") / "runs"
    sources = ["--source", "amber", "--source", "brass"]
    options = ["--keep", "none", "--quiet", "--json"]
    return out, compare(shades, out, "source-only", "fedavg", *sources, "--trials", "2", *options)


def test_one_run_folder_a_source(first: tuple[Path, Run]) -> None:
    out, run = first
    assert run.code == 0, run.err
    assert {line.split(":")[0] for line in run.err.splitlines()} <= {"Warning"}
    assert sorted(path.name for path in out.iterdir()) == ["shades-amber", "shades-brass"]
    assert not list(out.rglob("*.safetensors"))
    comparison = json.loads(run.out)
    assert comparison["reference"] == "fedavg"
    assert [row["n"] for row in comparison["rows"]] == [2, 2, 4] * 2
    for row in comparison["rows"]:
        assert (row["difference"] is None) == (row["method"] == "fedavg")
    config = json.loads((out / "shades-amber/config.json").read_text())["config"]
    assert config["composed"] is False
    assert RunConfig(**config).model_dump(mode="json") == config


def test_finished_methods_are_reused_and_only_the_new_one_is_run(first: tuple[Path, Run], shades: Path) -> None:
    out, first_run = first
    times = {path: path.stat().st_mtime_ns for path in out.rglob("rounds.jsonl")}
    arguments = ["fedavg", "Fast=fedwca:ta=0.5/clusterer=single", "source-only", "--source", "amber", "--trials", "2"]
    run = compare(shades, out, *arguments, "--format", "csv")
    assert run.code == 0, run.err
    assert "not run again" in run.err
    assert {path: path.stat().st_mtime_ns for path in times} == times
    config = json.loads((out / "shades-amber-2/config.json").read_text())
    assert list(config["methods"]) == ["fast"]
    assert {part["kind"]: part["name"] for part in config["methods"]["fast"]["components"]}["clusterer"] == "single"
    entries = list(csv.DictReader(io.StringIO(run.out)))
    assert [entry["label"] for entry in entries] == ["FedAvg", "Fast", "Source Only"]
    earlier = {(row["method"], row["source"]): row["mean"] for row in json.loads(first_run.out)["rows"]}
    assert float(entries[0]["mean"]) == earlier["fedavg", "amber"]


def test_a_checkpoint_that_holds_another_model_makes_other_runs(shades: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "runs", tmp_path / "own.pt"

    def put(seed: int) -> None:
        torch.save(LeNet(bottleneck=8).build(2, seed=seed).state_dict(), file)

    put(1)
    arguments = ["source-only", "fedavg", "--checkpoint", str(file), "--source", "amber", "--format", "csv"]
    small = [*SIZE.split(), "--set", "model.bottleneck=8", "--rounds", "1", "--data", str(shades), "--out", str(out)]
    first = call("compare", *arguments, *small)
    assert first.code == 0, first.err
    put(2)
    refused = call("compare", *arguments, *small)
    assert (refused.code, refused.out) == (1, "")
    assert f"began from another model than {file} holds now" in refused.err
    file.unlink()
    without_file = call("compare", *arguments, *small)
    assert (without_file.code, without_file.out) == (0, first.out)
    assert "is not there, so it is not known whether it is still the same" in without_file.err
    put(1)
    assert call("compare", *arguments, *small).out == first.out


def test_a_file_of_weights_with_other_content_makes_other_runs(
    shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, file = tmp_path / "runs", tmp_path / "own.pth"
    monkeypatch.setattr(ResNet18, "torchvision", ShortResNet.torchvision)

    def put(seed: int) -> None:
        torch.manual_seed(seed)
        torch.save(ResNet18(weights="none").torchvision()[0].state_dict(), file)

    put(1)
    model = ["--model", f"resnet18:side=32,frozen=true,weights={file}", "--set", "source_training.epochs=1"]
    small = [*SIZE.split(), "--clients", "1", "--samples", "20", "--rounds", "1", "--keep", "none"]
    words = [*model, *small, "--source", "amber", "--format", "csv", "--data", str(shades), "--out", str(out)]
    first = call("compare", "source-only", *words)
    assert first.code == 0, first.err
    assert json.loads(next(out.glob("*/config.json")).read_text())["weights_digest"] == file_digest(file)
    put(2)
    refused = call("compare", "source-only", *words)
    assert (refused.code, refused.out) == (1, "")
    assert f"began from another model than {file} holds now" in refused.err
    put(1)
    assert call("compare", "source-only", *words).out == first.out


def test_a_dry_run_says_what_is_missing_and_runs_nothing(first: tuple[Path, Run], shades: Path) -> None:
    out, _ = first
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    arguments = ["fedavg", "source-only", "fedwca:ta=0.25", "--source", "amber", "--source", "coral", "--trials", "2"]
    run = compare(shades, out, *arguments, "--dry-run", "--quiet")
    assert (run.code, run.out) == (0, "")
    assert "source amber: 2 runs, 2 rounds" in run.err
    assert "2 of 3 methods are there already" in run.err
    assert "source coral: 6 runs" in run.err
    assert "In all 8 runs (methods × source models × trials)" in run.err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    assert "All runs are there" in compare(shades, out, "fedavg", "--source", "brass", "--trials", "2", "--dry-run").err


def test_a_run_from_before_a_field_is_reused_at_its_default_alone(first: tuple[Path, Run], shades: Path) -> None:
    out, _ = first
    file = out / "shades-amber/config.json"
    contents, text = json.loads(file.read_text()), file.read_text()
    (part,) = (p for p in contents["methods"]["fedavg"]["components"] if p["kind"] == "objective")

    def completed(name: str) -> dict[str, Any]:
        (component,) = with_added_fields({"m": {"components": [{"kind": "objective", "name": name}]}})["m"][
            "components"
        ]
        return component

    with_defaults = completed(part["name"])
    assert {**with_defaults, **part} == part
    del part[next(name for name in with_defaults if name not in ("kind", "name"))]
    file.write_text(json.dumps(contents))
    try:
        assert "not run again" in compare(shades, out, "fedavg", "--source", "amber", "--trials", "2").err
    finally:
        file.write_text(text)
    assert completed("gone") == {"kind": "objective", "name": "gone"}


def copied(first: tuple[Path, Run], out: Path, **changes: Mapping[str, Any]) -> Path:
    """Two finished runs of source amber: ``a`` of one method and ``b`` of another, with changes to each config.json."""
    for name, method in (("a", "source_only"), ("b", "fedavg")):
        shutil.copytree(first[0] / "shades-amber", out / name)
        contents = json.loads((out / name / "config.json").read_text())
        contents["methods"] = {method: contents["methods"][method]}
        (out / name / "config.json").write_text(json.dumps({**contents, **changes.get(name, {})}))
    return out


@pytest.mark.parametrize("key", ["data_digest", "split_digest"])
def test_runs_on_unlike_data_are_not_put_beside_each_other(
    first: tuple[Path, Run], shades: Path, tmp_path: Path, key: str
) -> None:
    arguments = ["source-only", "fedavg", "--source", "amber", "--trials", "2"]
    unlike = copied(first, tmp_path / "unlike", a={key: "0" * 64}, b={key: "1" * 64})
    run = compare(shades, unlike, *arguments)
    assert (run.code, run.out) == (1, "")
    assert f"{unlike / 'b'}: was made on other data than {unlike / 'a'}" in run.err
    older = compare(shades, copied(first, tmp_path / "older", b={key: None}), *arguments)
    assert older.code == 0, older.err
    both = copied(first, tmp_path / "both", a={key: "0" * 64}, b={key: "0" * 64})
    changed = compare(shades, both, *arguments)  # other sources would be run on the images that are there now
    assert (changed.code, "are not those the run began with" in changed.err) == (1, True)


def test_a_run_whose_plugin_is_gone_leaves_the_others_alone(
    first: tuple[Path, Run], shades: Path, tmp_path: Path
) -> None:
    config = json.loads((first[0] / "shades-amber/config.json").read_text())["config"]
    out = copied(first, tmp_path / "out", b={"config": {**config, "partition": "gone"}})
    run = compare(shades, out, "source-only", "--source", "amber", "--trials", "2")
    assert run.code == 0, run.err
    assert f"from {out / 'a'}, finished with the same configuration" in run.err


def test_another_setting_is_another_run(first: tuple[Path, Run], shades: Path) -> None:
    out, _ = first
    run = compare(shades, out, "source-only", "--source", "brass", "--samples", "20")
    assert run.code == 0, run.err
    assert "not run again" not in run.err
    assert (out / "shades-brass-2/summary.json").exists()


def test_an_unfinished_run_is_done_over(first: tuple[Path, Run], shades: Path) -> None:
    out, _ = first
    arguments = ["local", "--source", "coral", "--format", "latex"]
    again = compare(shades, out, *arguments)
    summary = out / "shades-coral/summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "complete": False}))
    run = compare(shades, out, *arguments)
    assert run.code == 0, run.err
    assert "unfinished" in run.err
    assert run.out == again.out
    assert r"\begin{tabular}" in run.out
    assert json.loads(summary.read_text())["complete"] is True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fedavgg"], "did you mean 'fedavg'"),
        (["fedavg", "--reference", "local"], "is not one of the methods fedavg"),
        (["fedavg", "--source", "ambre"], "amber"),
        (["fedwca/clusterer"], "is not of the form part=component"),
        (["fedwca/colour=red"], "no part 'colour'"),
        (["fedavg", "--column", "class-accuracy"], "no column 'class_accuracy'"),
        (["A=fedavg", "a=local"], "two methods are called 'a'"),
        (["fedavg", "--keep", "some"], "--keep some: takes last"),
        (["fedavg", "--keep", "selected"], "in this run no round is selected"),
        (["fedavg", "--logger", "tensorbord"], "did you mean 'tensorboard'"),
        (["fedavg", "--json", "--format", "csv"], "--json and --format csv: leave out one of both"),
        (["fedavgg:weighting=uniform"], "no method 'fedavgg'"),
    ],
)
def test_mistakes_get_a_sentence_before_anything_runs(
    shades: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    run = compare(shades, tmp_path / "out", *arguments)
    assert (run.code, run.out) == (2, "")
    assert sentence in run.err
    assert not (tmp_path / "out").exists()


def test_a_value_from_a_file_is_that_of_the_command_line(shades: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "c.toml"
    file.write_text("components.model.convnet.classifier = 'wn'\n")
    arguments = ["source-only", "--source", "amber"]
    by_option = compare(shades, out, *arguments, "--set", "model.classifier=wn")
    assert by_option.code == 0, by_option.err
    config = json.loads((out / "shades-amber/config.json").read_text())["config"]
    fields = config["components"]["model"]["convnet"]
    assert (fields["dropout"], fields["classifier"]) == (0.5, "wn")
    by_file = compare(shades, out, *arguments, "--config", str(file))
    assert by_file.code == 0, by_file.err
    assert "not run again" in by_file.err
    # In a folder of an earlier release the values of a command line are text.
    contents = json.loads((out / "shades-amber/config.json").read_text())
    contents["config"]["components"]["model"] = {"convnet": {name: str(value) for name, value in fields.items()}}
    (out / "shades-amber/config.json").write_text(json.dumps(contents))
    assert "not run again" in compare(shades, out, *arguments, "--config", str(file)).err


def test_what_changes_no_number_is_no_other_setting() -> None:
    config = RunConfig()
    assert comparable_settings(config.model_dump(mode="json")) == comparable_settings(
        RunConfig(workers=3, rounds=4).model_dump(mode="json")
    )
    assert comparable_settings(config.model_dump(mode="json")) != comparable_settings(
        RunConfig(seed=1).model_dump(mode="json")
    )
    assert comparable_settings({"colour": "red"}) is None


def test_what_a_preset_says_of_other_methods_runs_nothing_again(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    small = ["--rounds", "1", "--clients", "5", "--samples", "20", "--set", "training.steps=1", "--device", "cpu"]

    def tables(*methods: str) -> str:
        run = call("compare", *methods, "--preset", "upfl", *small, "--format", "csv", "--out", str(out))
        assert run.code == 0, run.err
        return run.out

    tables("tent", "fedtta")
    first = tables("tent", "fedtta", "fedavg")
    assert tables("tent", "fedtta", "fedavg") == first
    assert sorted(path.name for path in out.iterdir()) == ["digits_plain-shards", "digits_plain-shards-2"]


def test_methods_have_the_names_of_the_table_that_has_them(first: tuple[Path, Run], shades: Path) -> None:
    out, _ = first
    source = ["--source", "brass", "--trials", "2", "--format", "csv"]
    assert compare(shades, out, "fedwca", *source).code == 0
    both = compare(shades, out, "fedwca", "wca", *source)
    assert "not run again" in both.err
    labels = [entry["label"] for entry in csv.DictReader(io.StringIO(both.out))]
    assert len(set(labels)) == 2, labels


def test_a_stopped_run_goes_on_in_whatever_order_methods_are_named(shades: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    source = ["--source", "amber", "--format", "csv"]
    uninterrupted = compare(shades, out, "local", "fedavg", *source)
    folder = out / "shades-amber"
    (folder / "summary.json").unlink()
    assert not read_run(folder).complete
    run = compare(shades, out, "fedavg", "local", *source)
    assert run.code == 0, run.err
    assert "holds the same run, unfinished; it goes on" in run.err
    assert run.out.splitlines()[1:] == uninterrupted.out.splitlines()[:0:-1]
    assert [path.name for path in out.iterdir()] == ["shades-amber"]


def test_a_start_that_trains_as_long_as_all_rounds_is_made_anew_for_other_rounds(shades: Path, tmp_path: Path) -> None:
    out, arguments = tmp_path / "runs", ["--target", "amber", "--format", "csv", "--clients", "1", "--samples", "20"]
    small = ["--epochs", "1", "--batch-size", "8", "--device", "cpu", "--data", str(shades), "--out", str(out)]

    def rounds(number: int, *options: str) -> Run:
        run = call("compare", "pooled", *arguments, *small, "--rounds", str(number), *options)
        assert run.code == 0, run.err
        return run

    rounds(1)
    assert "not run again" not in rounds(3).err
    assert "not run again" in rounds(3).err
    two_epochs = ["--set", "central_training.epochs=2"]
    rounds(1, *two_epochs)
    assert "not run again" in rounds(3, *two_epochs).err


def test_only_methods_that_train_say_whether_all_diverged(shades: Path, tmp_path: Path) -> None:
    arguments = ["source-only", "fedavg", "--source", "amber", "--data", str(shades), "--out", str(tmp_path / "runs")]
    run = call("compare", *arguments, *SMALL, "--rounds", "3", "--lr", "1e30")
    assert (run.code, "diverged" in run.out) == (1, True)
    assert "every run of every method that trains diverged" in run.err


def test_a_model_that_is_trained_at_one_place_counts_as_trained(shades: Path, tmp_path: Path) -> None:
    arguments = ["pooled", "--target", "amber", "--data", str(shades), "--out", str(tmp_path / "runs")]
    small = ["--rounds", "2", "--epochs", "1", "--clients", "1", "--samples", "20", "--device", "cpu"]
    assert call("compare", *arguments, *small, "--set", "central_training.lr=1e30").code == 1
    assert call("compare", *arguments, *small).code == 0


def test_an_unfinished_run_of_another_version_is_left_alone(shades: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert compare(shades, out, "local", "--source", "amber").code == 0
    folder = out / "shades-amber"
    (folder / "summary.json").unlink()
    contents = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**contents, "config": {**contents["config"], "later": 1}}))
    run = compare(shades, out, "local", "--source", "amber")
    assert run.code == 0, run.err
    assert (out / "shades-amber-2/summary.json").is_file()


def test_a_comparison_with_a_value_of_a_finished_method_is_extended(shades: Path, tmp_path: Path) -> None:
    arguments = ["--set", "aggregator.wca.ta=0.05", "--source", "amber", "--quiet"]
    assert compare(shades, tmp_path, "fedwca", *arguments).code == 0
    run = compare(shades, tmp_path, "fedwca", "fedavg", *arguments)
    assert run.code == 0, run.err
    assert "FedAvg" in run.out
    refused = compare(shades, tmp_path / "other", "fedavg", *arguments)
    assert (refused.code, "aggregator.wca.ta is given, but no method of this run uses" in refused.err) == (2, True)
