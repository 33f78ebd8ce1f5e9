"""Notes and tags of a run, its command and its commit: they are stored and shown, and do not identify the run."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.errors import FedwcaError, UsageError
from fedwca.results import environment
from fedwca.results.change_notes import change_notes, check_tags
from fedwca.results.environment import command_line, commit_of, describe_move, plugin_code
from fedwca.results.read_run import read_run, run_notes
from fedwca.results.read_run_files import read_notes
from fedwca.results.report.page import page
from fedwca.results.report.text_report import document
from fedwca.results.run_identity import run_identity
from fedwca.results.write_run import RunFolder

from ..cli.conftest import call
from .runs import write, write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, one of them tagged."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "other"):
        write_run(tmp_path / "runs" / name, trials=1, rounds=1)
    change_notes(tmp_path / "runs/one", "as on Monday", ["night", "lr"])
    return tmp_path / "runs"


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_the_commit_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # as hooks set them
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(environment, "GIT_SECONDS", 200)
    assert commit_of(tmp_path) is None
    git(tmp_path, "init")
    assert commit_of(tmp_path) is None
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-m", "first")
    clean = commit_of(tmp_path)
    assert clean is not None
    assert len(clean) == 12
    (tmp_path / "new.txt").touch()
    assert commit_of(tmp_path) == clean
    (tmp_path / "code.py").write_text("2")
    assert commit_of(tmp_path) == f"{clean}+"
    assert commit_of(tmp_path / "gone") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None


def test_a_git_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git_program = tmp_path / "git"
    git_program.write_text("#!/bin/sh\necho 0123456789ab\nexec sleep 60\n")
    git_program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(environment, "GIT_SECONDS", 0.1)
    assert commit_of(tmp_path) is None


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/bin/fedwca", "bench", "--name", "my own"], "fedwca bench --name 'my own'"),
        (["/lib/fedwca/__main__.py", "bench"], "python -m fedwca bench"),
        (["study.py"], "study.py"),
        ([""], None),
        (["-c", "x"], None),
        (["fedwca", "\udc80\x1b"], "fedwca '\\udc80\\x1b'"),
    ],
)
def test_the_command_line(argv: list[str], said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert command_line() == said


def test_the_list_shows_and_filters_tags(runs: Path) -> None:
    listed = call("runs").out
    assert "night, lr: as on Monday" in listed
    lines = {line["run"]: line for line in json.loads(call("runs", "--json").out)}
    assert (lines["one"]["tags"], lines["one"]["note"]) == (["night", "lr"], "as on Monday")
    assert (lines["other"]["tags"], lines["other"]["note"]) == ([], "")
    for tags, names in ((["lr"], ["one"]), (["lr", "night"], ["one"]), (["lr", "day"], [])):
        options = [word for tag in tags for word in ("--tag", tag)]
        assert [line["run"] for line in json.loads(call("runs", *options, "--json").out)] == names
    assert call("runs", "--tag", "day").out == "No such runs in runs/\n"
    assert "notes" not in call("runs", "--match", "other").out


def test_tags_are_changed_later_and_the_run_is_the_same(runs: Path) -> None:
    identity = run_identity(read_run(runs / "one").about)
    assert call("runs", "tag", "other").out == "runs/other: no tags and no note\n"
    assert call("runs", "tag", "other", "a", "b", "a").out == "runs/other: a, b\n"
    assert call("runs", "tag", "other", "c", "--remove", "a", "--note", "why").out == "runs/other: b, c: why\n"
    refused = call("runs", "tag", "other", "--remove", "x")
    assert (refused.code, refused.err) == (2, "Error: runs/other: has no tag 'x'; its tags: b, c\n")
    assert call("runs", "tag", "other", "--note", "").out == "runs/other: b, c\n"
    for empty in (["--note="], ["--note", " "]):
        change_notes(runs / "other", "why")
        assert call("runs", "tag", "other", *empty).out == "runs/other: b, c\n"
    assert run_identity(read_run(runs / "one").about) == identity
    assert call("runs", "rm", "other", "--yes").code == 0


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("processor\t: 0\nmodel name\t: EPYC: 7\n\nprocessor\t: 1\nmodel name\t: EPYC: 7\n", "EPYC: 7"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "CPU implementer 0x41, CPU part 0xd0c"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "CPU implementer 0x41, CPU part 0xd4f"),
    ],
)
def test_processors_have_names_also_on_arm(monkeypatch: pytest.MonkeyPatch, lines: str, name: str) -> None:
    monkeypatch.setattr(environment, "Path", lambda _: SimpleNamespace(exists=lambda: True, read_text=lambda: lines))
    assert environment._cpu() == name


@pytest.mark.parametrize("tag", ["two words", "a,b", "a\x1b", ["night", "lr"], 3])
def test_a_tag_is_a_word(tag: Any) -> None:
    with pytest.raises(UsageError, match="a tag is one word"):
        check_tags([tag])


def test_what_began_a_run_is_shown(runs: Path) -> None:
    write(runs / "one/environment.json", {"command": "fedwca bench", "commit": "0123456789ab+"})
    shown = call("runs", "show", "one").out
    for line in ("Tags: night, lr", "Note: as on Monday", "Command: fedwca bench", "Commit: 0123456789ab+"):
        assert line in shown
    printed = json.loads(call("runs", "show", "one", "--json").out)
    assert (printed["command"], printed["commit"], printed["note"]) == ("fedwca bench", "0123456789ab+", "as on Monday")
    tagged, untagged = read_run(runs / "one"), read_run(runs / "other")
    for text in (page([tagged], ["one"]), document([tagged], ["one"])):
        assert "Commit: 0123456789ab+" in text
        assert "night, lr" in text
    assert run_notes(untagged) == {}


def test_notes_that_are_damaged_are_named(runs: Path) -> None:
    write(runs / "one/notes.json", {"tags": "night"})
    with pytest.raises(FedwcaError, match=r"one/notes.json: does not hold notes on a run \(tags"):
        read_notes(runs / "one")


def test_a_run_that_could_not_set_out_leaves_no_notes(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.write("config.json", {"config": {}, "schema": 2})
        change_notes(folder.path, "why", ["a"])
        (folder.path / "config.json").unlink()
        folder.discard()
    assert not (tmp_path / "run").exists()


def test_a_move_is_told_by_what_the_run_recorded_when_it_began() -> None:
    start = {"cpu": "one", "versions": {"torch": "1.0"}}  # an earlier release recorded no device
    changed = {"cpu": "other", "device": "new", "versions.torch": "2.0", "time": "later"}
    assert describe_move(start, changed) == (
        "begun with cpu one, torch 1.0, going on with cpu other, torch 2.0: last digits may differ"
    )
    assert describe_move(start, {"device": "new"}) is None


def test_code_of_a_plugin_that_changes_without_a_new_version_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, module = tmp_path / "extra_package", tmp_path / "extra_module.py"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    inner = package / "inner" / "code.py"
    inner.write_text("a = 1")
    module.write_text("b = 1")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"one": "extra_package.inner.code:Part", "two": "extra_module:Part", "gone": "extra_nosuch:Part"}
    points = [EntryPoint(f"{name.title()}-Part", value, "fedwca.aggregators") for name, value in names.items()]
    points.append(EntryPoint("unused", "extra_module:Part", "fedwca.aggregators"))
    for name, point in zip([*names, "idle"], points, strict=True):
        vars(point)["dist"] = SimpleNamespace(name=name, version="1.0")
    monkeypatch.setattr("fedwca.results.environment.entry_points", lambda: EntryPoints(points))
    components = [{"kind": "aggregator", "name": "one_part"}, {"kind": "aggregator", "name": "gone_part"}]
    about = {"config": {"model": "two-part:a=1", "trials": 2}, "methods": {"m": {"components": components}, "n": {}}}
    codes = [plugin_code(about)]
    for file in (inner, module):
        file.write_text("c = 2")
        importlib.invalidate_caches()
        codes.append(plugin_code(about))
    assert [sorted(code) for code in codes] == [["gone", "one", "two"]] * 3
    first, second, third = codes
    assert [first["one"] == second["one"], second["one"] == third["one"]] == [False, True]
    assert [first["two"] == second["two"], second["two"] == third["two"]] == [True, False]
    assert {"extra_package", "extra_module"}.isdisjoint(sys.modules), "nothing is imported"
