"""The records of a run can be read, whatever stopped the run."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError, Unwritable, UsageError
from fedwca.results.read_run_files import read_records
from fedwca.results.statistics import list_differences
from fedwca.results.table_rows import summarise, table_rows
from fedwca.results.write_run import RunFolder


def record(method: str, trial: int, number: int, *accuracy: float) -> dict[str, Any]:
    return {"method": method, "source_model": 0, "trial": trial, "round": number, "accuracy": list(accuracy)}


def test_values_become_json() -> None:
    value = {"a": torch.tensor([1.5, math.inf]), "b": (Path("x"), math.nan, None, True), 3: torch.tensor(2)}
    assert to_plain(value) == {"a": [1.5, None], "b": ["x", None, None, True], "3": 2}


def test_records_come_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    assert folder.records() == []
    folder.append(record("wca", 0, 0, 50.0, math.nan))
    folder.append(record("wca", 0, 1, 60.0, 70.0))
    first, second = folder.records()
    assert math.isnan(first["accuracy"][1])
    assert second["accuracy"] == [60.0, 70.0]
    with pytest.raises(UsageError, match=r"holds rounds of a run whose config\.json is gone"):
        RunFolder(folder.path)
    (folder.path / "config.json").touch()
    with pytest.raises(UsageError, match="holds a run already"):
        RunFolder(folder.path)


@pytest.mark.parametrize("text", ['{"rounds": 2}', "[1, 2]"])
def test_a_configuration_of_the_user_is_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=r"--out .*: holds a config\.json that is no run's; name another folder$"):
        RunFolder(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_of_a_deployment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server/federation.json").touch()
    with pytest.raises(UsageError, match=r"holds a deployment; name another folder"):
        RunFolder(tmp_path)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["federation.json", "server"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_checkpoints_could_not_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no name in UTF-8; choose another folder"):
        RunFolder(tmp_path / os.fsdecode(b"run\xe9"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ['{"method": "wca", "acc', '{"a": 1', "\x00\x00\x00"])
def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path, end: str) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.append(record("wca", 0, 0, 50.0))
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write(end)
    assert len(read_records(folder.path)) == 1


def test_a_line_that_does_not_fit_on_the_disk_spoils_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.append(record("wca", 0, 0, 50.0))

    def cut(line: int) -> None:
        os.ftruncate(line, os.fstat(line).st_size - 9)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("fedwca.results.write_run.os", SimpleNamespace(fsync=cut))
        with pytest.raises(Unwritable, match="No space left"):
            folder.append(record("wca", 0, 1, 60.0))
    for number in (1, 2):  # other ranks go on for a while
        folder.append(record("fedavg", 0, number, 70.0))
    assert [entry["round"] for entry in folder.records()] == [0, 1, 2]


def test_only_an_empty_folder_is_discarded(tmp_path: Path) -> None:
    empty, used = RunFolder(tmp_path / "empty"), RunFolder(tmp_path / "used")
    used.write("config.json", {"a": math.nan})
    empty.discard()
    used.discard()
    assert not empty.path.exists()
    assert json.loads((used.path / "config.json").read_text()) == {"a": None}
    assert sorted(file.name for file in used.path.iterdir()) == [".lock", "config.json"]


def test_only_folders_that_were_made_are_discarded(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for path in (tmp_path / "there", tmp_path / "there/deep/run"):
        RunFolder(path).discard()
        assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 0}))
    with pytest.raises(FedwcaError, match="only 0 MiB are free"):
        RunFolder(tmp_path / "run")


def test_the_last_round_counts_never_the_best() -> None:
    # Trials 0 and 1 of two methods on clients of domains a, a, b; worked by hand.
    records = [
        record("x", 0, -1, 0, 0, 0),
        record("x", 0, 0, 99, 99, 99),
        record("x", 0, 1, 10, 20, 60),
        record("x", 1, 1, 40, 40, 40),
        record("fedavg", 0, 1, 10, 10, 10),
        record("fedavg", 1, 1, 20, 20, math.nan),
    ]
    table = table_rows(records, {"fedavg": "FedAvg", "x": "X", "absent": "Absent"}, ["a", "a", "b"])
    assert [row.label for row in table] == ["FedAvg", "X"]
    summary = summarise(table)
    assert summary["x"]["mean"] == 35
    assert summary["x"]["std"] == pytest.approx(math.sqrt(50))
    assert summary["x"]["domains"] == {"a": 27.5, "b": 50}
    assert summary["x"]["domain_stds"]["a"] == pytest.approx(math.sqrt(2 * 12.5**2))
    assert summary["fedavg"]["domains"] == {"a": 15, "b": 10}
    assert list_differences(table[1].runs, table[0].runs) == [20, 20]
    assert summary["x"]["difference"] == {"to": "fedavg", "mean": 20, "std": 0, "n": 2}
    assert summary["x"]["n"] == 2


def test_a_run_without_test_images_is_not_counted() -> None:
    values = {"x": (50.0, math.nan), "fedavg": (40.0, 30.0)}
    records = [
        record(name, trial, 0, accuracy)
        for name, accuracies in values.items()
        for trial, accuracy in enumerate(accuracies)
    ]
    summary = summarise(table_rows(records, {"fedavg": "FedAvg", "x": "X"}, ["a"]))
    assert (summary["x"]["mean"], summary["x"]["std"], summary["x"]["n"]) == (50, None, 1)
    assert summary["x"]["difference"] == {"to": "fedavg", "mean": 10, "std": None, "n": 1}
