"""Values of options and files: bounds hold, an empty value is refused, and no field may be given twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedwca
from fedwca.config.resolve_config import resolve_plan
from fedwca.models.lenet import LeNet

from ..shades import write_shades
from .conftest import Run, call

HUGE = "9" * 25


def refused(run: Run, *words: str) -> None:
    """Assert that a command ended with exit code 2 and one sentence, or with usage, that holds these words."""
    assert run.code == 2, run.err
    assert run.err.count("\n") == 1 or run.err.startswith("Usage"), run.err
    assert "unexpected" not in run.err
    for word in words:
        assert word in run.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lr", "inf"], ["training.lr", "finite"]),
        (["--lr", "nan"], ["training.lr"]),
        (["--set", "training.momentum=2"], ["training.momentum", "less than 1"]),
        (["--set", "training.weight_decay=inf"], ["weight_decay"]),
        (["--aggregator", "wca:ta=inf"], ["wca.ta", "finite"]),
        (["--batch-size", HUGE], ["batch_size", "too large"]),
        (["--clients", HUGE], ["clients", "too large"]),
        (["--model", "lenet:bottleneck=1000000000"], ["lenet.bottleneck"]),
        (["--seed", HUGE], ["seed", "too large"]),
        (["--device", "cpu:1"], ["--device cpu:1", "one CPU"]),
    ],
)
def test_a_number_beyond_its_bounds_is_refused(
    bench: Callable[..., Run], arguments: list[str], words: list[str]
) -> None:
    refused(bench(*arguments, small=False), *words)


@pytest.mark.parametrize("option", ["--clusterer", "--source", "--name", "--out", "--aggregator", "--config"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_value_is_not_a_default(bench: Callable[..., Run], option: str, value: str) -> None:
    refused(bench(option, value, small=False), option, "empty")


def test_an_empty_value_is_none_in_any_other_form(shades: Path, tmp_path: Path) -> None:
    refused(call("bench", "--source="), "--source", "empty")
    refused(call("compare", "fedavg", "--reference", ""), "--reference", "empty")
    refused(call("join", "run", "--data", str(tmp_path), "--out", ""), "--out", "empty")
    refused(call("bench", "--note", ""), "--note", "empty")
    refused(call("runs", "tag", "runs", "--remove", ""), "--remove", "empty")
    refused(call("bench", "--clusterer", ":"), "clusterer ':'", "needs a name")
    refused(call("bench", "--set", "training.lr="), "--set training.lr=", "empty")
    file = tmp_path / "settings.toml"
    file.write_text('source = ""\n')
    refused(call("bench", "--config", str(file)), "source", "empty")
    file.write_text("")
    refused(call("bench", "--config", str(file)), str(file), "no value")
    refused(call("bench", "--config", "/dev/null"), "/dev/null")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--aggregator", "wca:ta=0.1,ta=0.2"],
        ["--set", "aggregator.ta=0.1", "--set", "aggregator.ta=0.2"],
        ["--set", "aggregator.ta=0.1", "--set", "aggregator.wca.ta=0.2"],
        ["--objective", "shot:lam=1", "--objective", "shot:lam=2"],
        ["--source", "amber", "--source", "brass"],
        ["--target", "amber", "--target", "brass"],
    ],
)
def test_a_field_given_twice_is_an_error(bench: Callable[..., Run], arguments: list[str]) -> None:
    refused(bench(*arguments, small=False), "given twice")


def test_a_field_given_twice_in_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"rounds": 1, "rounds": 2}')
    refused(call("bench", "--config", str(file)), "'rounds'", "twice")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("objectives = []", ["objectives", "at least one"]),
        ("seed = 1\n[config]\nrounds = 1", ["'seed'", "beside the table config"]),
        ('aggregator = "wca:ta=0.2"\n[components.aggregator.WCA]\nta = 0.3', ["aggregator.wca.ta", "given twice"]),
        ("[methods.fedavg.training]\nlr=1\n[methods.FedAvg.training]\nlr=2", ["'fedavg'", "spelled in two ways"]),
        ("[components.objective.shot]\nlam=1\n[components.objective.Shot]\nlam=2", ["'shot'", "spelled in two ways"]),
    ],
)
def test_a_file_loses_no_value_in_silence(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    refused(call("bench", "--config", str(file), "--dry-run"), *words)


def test_components_in_a_file_may_be_spelled_as_in_options(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[components.pseudo-labeler.two-model]\nmu = 0.3")
    assert resolve_plan({}, file=file).config.components["pseudo_labeler"]["two_model"] == {"mu": 0.3}


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedwca:ta=0.5/aggregator=wca", ["'ta=0.5'", "write aggregator=wca:ta=0.5"]),
        ("fedwca/clusterer=true/clusterer=finch", ["names its clusterer twice"]),
        ("fedavg/objective=shot/objectives=proximal", ["names its objectives twice", "joined by +"]),
    ],
)
def test_a_method_loses_no_value_in_silence(method: str, words: list[str]) -> None:
    refused(call("compare", method, "--dry-run"), *words)


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--dry-run", "--json"],
        ["compare", "fedavg", "--dry-run", "--format", "csv"],
        ["sweep", "--param", "training.lr=0.1,0.2", "--dry-run", "--json"],
        ["reproduce", "table2", "--dry-run", "--json"],
    ],
)
def test_a_plan_is_no_json(arguments: list[str]) -> None:
    refused(call(*arguments), "--dry-run prints a plan as text", arguments[-1])


def test_a_sweep_has_one_judge() -> None:
    words = ["sweep", "--param", "training.lr=0.1,0.2", "--oracle", "--criterion", "entropy"]
    refused(call(*words), "--oracle and --criterion entropy")


def test_a_report_of_another_suffix_needs_a_format(tmp_path: Path) -> None:
    refused(call("report", "run", "--out", str(tmp_path / "r.csv")), "ends in .csv", ".html")


def test_a_field_without_a_value_is_an_error(bench: Callable[..., Run]) -> None:
    refused(bench("--aggregator", "wca:ta=0.1,,tb=1", small=False), "field=value")
    refused(bench("--aggregator", "wca:", small=False), "field=value")


@pytest.mark.parametrize("tries", ["0", "-1", HUGE])
def test_a_sweep_of_no_tries_is_refused(tmp_path: Path, tries: str) -> None:
    out = tmp_path / "sweep"
    run = call("sweep", "--param", "training.lr=0.1,0.2", "--tries", tries, "--out", str(out))
    refused(run, "--tries")
    assert not out.exists()


@pytest.mark.parametrize("values", [",,", "0.1,", "1..inf", "nan..1"])
def test_a_sweep_over_nothing_leaves_no_study(tmp_path: Path, values: str) -> None:
    out = tmp_path / "sweep"
    refused(call("sweep", "--param", f"training.lr={values}", "--out", str(out)), "--param training.lr=")
    assert not out.exists()


def test_a_run_is_in_its_folder_whatever_its_name_is(
    shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--clients", "1", "--rounds", "1", "--epochs", "1", "--set", "source_training.epochs=0"]
    run = call("bench", "--data", str(shades), *small, "--baseline", "none", "--name", "../../../x [2J")
    assert run.code == 0, run.err
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-.._.._.._x_2J")
    refused(call("bench", "--data", str(shades), *small, "--name", "x" * 5000), "name", "5000 letters")
    refused(call("bench", "--data", str(shades), *small, "--name", "x\x1b[2J"), "name", "control characters")
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    "command",
    [["data", "show", "shades"], ["report", "RUN"], ["runs", "export", "RUN"]],
)
def test_a_folder_is_no_file_to_write(
    plain: Run, shades: Path, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").mkdir()
    out = "a.png" if command[0] == "data" else "."
    options = ["--data", str(shades.parent)] if command[0] == "data" else []
    run = call(*[str(plain.folder) if word == "RUN" else word for word in command], *options, "--out", out)
    assert run.code in (1, 2)
    assert "folder" in run.err
    assert "unexpected" not in run.err


def test_a_sheet_of_samples_is_a_png(shades: Path, tmp_path: Path) -> None:
    run = call("data", "show", "shades", "--data", str(shades.parent), "--out", str(tmp_path / "x.docx"))
    refused(run, "--out", ".png")
    out = tmp_path / "x.png"
    assert call("data", "show", "shades", "--data", str(shades.parent), "--out", str(out)).code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_long_names_of_classes_do_not_touch_on_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, names = np.zeros((2, 8, 8), dtype=np.uint8), ["Verdacht auf Entzündung", "nicht sicher beurteilbar"]
    (tmp_path / "scans").mkdir()
    np.savez(tmp_path / "scans/a.npz", images=images, labels=np.arange(2), classes=names)
    save = Mock()
    monkeypatch.setattr("fedwca.results.pictures.style.save", save)
    run = call("data", "show", "folder", "--data", str(tmp_path / "scans"), "--out", str(tmp_path / "x.png"))
    assert run.code == 0, run.err
    figure = save.call_args.args[0]
    figure.draw_without_rendering()
    first, second = (axis.title.get_window_extent() for axis in figure.axes[:2])
    assert first.x1 < second.x0


def test_a_path_in_place_of_a_data_set_is_answered_with_how_to_read_it(shades: Path) -> None:
    refused(call("data", "check", str(shades)), f"folder with --data {shades}")


def test_a_checkpoint_with_more_than_the_model_has_is_refused(bench: Callable[..., Run], tmp_path: Path) -> None:
    state = {name: tensor.contiguous() for name, tensor in LeNet(bottleneck=8).build(2).state_dict().items()}
    file = tmp_path / "model.safetensors"
    save_file({**state, "more": torch.zeros(3)}, file)
    out = tmp_path / "run"
    arguments = ["--checkpoint", str(file), "--rounds", "1", "--set", "model.bottleneck=8", "--out", str(out)]
    run = bench(*arguments, small=False)
    assert run.code == 1
    assert "'more'" in run.err
    save_file({name: tensor.to(torch.complex64) for name, tensor in state.items()}, file)
    assert "complex64" in bench(*arguments, small=False).err


def test_an_archive_with_an_empty_list_of_classes_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4) % 2
        np.savez(tmp_path / f"{name}.npz", images=images, labels=labels, classes=np.array([], dtype="U3"))
    run = call("data", "check", "folder", "--data", str(tmp_path))
    assert run.code == 1
    assert "classes is empty" in run.err


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    refused(call("bench", "--rounds", "1"), "FEDWCA_CACHE", "is a file")


def test_without_a_home_folder_a_cache_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEDWCA_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", Mock(side_effect=KeyError))
    refused(call("bench", "--rounds", "1"), "no home folder; set FEDWCA_CACHE")
    refused(call("report", "~/none"), "~/none")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "a b"], ["--host"]),
        (["--host", "-x"], ["--host"]),
        (["--deal", "1", "--clients", "2"], ["--clients and --deal"]),
        (["--clients", "2", "--rule", "least=2", "--rule", "least=1"], ["least is given twice"]),
        (["--clients", "0"], ["--clients"]),
        (["--clients", "2", "--insecure", "--host", "fl.example.org"], ["--host is for the certificate", "--insecure"]),
    ],
)
def test_a_deployment_of_odd_values_is_refused(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(call("deploy", "init", str(tmp_path / "x"), *arguments), *words)
    assert not (tmp_path / "x").exists()


def test_a_source_without_a_class_is_said(tmp_path: Path) -> None:
    folder = write_shades(tmp_path / "shades", images=16)
    with np.load(folder / "amber.npz") as archive:
        mask = archive["labels"] == 0
        np.savez(folder / "amber.npz", images=archive["images"][mask], labels=archive["labels"][mask])
    small = ["--clients", "1", "--rounds", "1", "--epochs", "1", "--set", "source_training.epochs=1", "--dry-run"]
    warning = "source 'amber' has no image of 1 of 2 classes (1): a model that is trained on it does not learn them"
    run = call("bench", "--data", str(folder), "--source", "amber", *small)
    assert run.code == 0
    assert warning in " ".join(run.err.split())
    assert "has no image of" not in call("bench", "--data", str(folder), "--source", "brass", *small).err


def test_a_home_folder_that_the_shell_left_is_found(
    bench: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "small.toml").write_text("seed = 5\n")
    run = bench("--out=~/mine", "--config=~/small.toml")
    assert run.code == 0, run.err
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["config"]["seed"] == 5
    assert not Path("~").exists()
    assert str(tmp_path) in call("report", "~/none").err
    assert fedwca.resume("~/mine").path == tmp_path / "mine"
