"""``--keep selected``: the checkpoint of the round that the table shows is kept, and its models are exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedwca.errors import CheckpointError, InvalidConfig
from fedwca.results.checkpoints import Checkpoints
from fedwca.results.read_run import read_run
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.results.unit import Unit
from fedwca.results.write_run import RunFolder
from fedwca.runs.open_run import open_run
from fedwca.runs.python_api import bench, resume
from tests.cli.conftest import call

SMALL: dict[str, Any] = {
    "preset": "upfl",
    "clients": 4,
    "new_clients": 2,
    "samples": 16,
    "rounds": 4,
    "source_models": 1,
    "batch_size": 8,
    "device": "cpu",
    "baselines": [],
    "lr": 3.0,
}
OVERRIDES = {"model.width": 8, "training.steps": 4}
UNIT = Unit(0, 0, "fedavg")


def play(out: Path, keep: str = "selected") -> Path:
    return bench(**SMALL, overrides=OVERRIDES, out=out, keep=keep).path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("selected") / "run")


def kept(run: Path) -> list[int]:
    return [int(file.stem) for file in reversed(Checkpoints(run, "").files(UNIT))]


def shown(run: Path) -> int:
    (row,) = read_run(run).table
    return row.shown[0, 0]


def test_the_round_of_the_table_and_the_last_stay(run: Path) -> None:
    assert shown(run) < 4, "a run whose last round is the best shows nothing here"
    assert kept(run) == [shown(run), 4]


def test_its_models_are_handed_on_and_a_line_says_so(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    assert (opened.round + 1, opened.last, opened.finished) == (shown(run), 3, True)
    selected = call("export", str(run), "--client", "0", "--out", str(tmp_path / "one.safetensors"))
    assert selected.code == 0
    assert f"the model after {shown(run)} of 4 rounds, which was best on training clients' validation" in selected.err
    last = call("export", str(run), "--client", "0", "--round", "4", "--out", str(tmp_path / "two.safetensors"))
    assert (last.code, last.err) == (0, "")
    assert (tmp_path / "one.safetensors").read_bytes() != (tmp_path / "two.safetensors").read_bytes()


def test_where_only_the_last_is_kept_a_line_says_what_the_table_shows(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    Checkpoints(tmp_path / "run", "").path_of(UNIT, shown(run) - 1).unlink()
    opened = open_run(tmp_path / "run")
    assert opened.round == 3
    assert opened.choice.endswith(
        f"after 4 of 4 rounds; the table shows that after {shown(run)}, which --keep selected would have kept"
    )


def test_a_run_that_was_stopped_keeps_the_same(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = RunFolder.append

    def stop(self: RunFolder, record: dict[str, Any]) -> None:
        original(self, record)
        if record["round"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            play(tmp_path / "run")
    resume(tmp_path / "run")
    assert kept(tmp_path / "run") == kept(run)
    assert torch.equal(open_run(tmp_path / "run").bank, open_run(run).bank)


def test_a_running_unit_keeps_one_more_than_it_ends_with() -> None:
    with pytest.raises(InvalidConfig, match="takes last, selected, all, none or a number of at least 1"):
        RetentionPolicy.parse("1" * 5000)
    assert RetentionPolicy.parse("1") == RetentionPolicy(running=2, ended=1)
    assert RetentionPolicy.parse("3") == RetentionPolicy(running=3, ended=3)


def test_a_checkpoint_of_another_method_of_the_run_is_refused(tmp_path: Path) -> None:
    store, other = Checkpoints(tmp_path, "same"), Unit(0, 0, "fedprox")
    store.save(UNIT, 0, {"x": torch.zeros(1)}, {}, last=False)
    store.path_of(UNIT, 0).parent.rename(store.path_of(other, 0).parent)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        store.at(other, 0)


def test_only_keep_selected_keeps_the_selected_round(tmp_path: Path) -> None:
    for keep, expected in (("selected", [1, 3]), ("last", [3]), ("2", [2, 3]), ("none", [])):
        store = Checkpoints(tmp_path / keep, "same", RetentionPolicy.parse(keep))
        for number in range(4):
            best = {"round": 0, "validation": 50.0}
            store.save(UNIT, number - 1, {"x": torch.zeros(1)}, {"selected": best} if number else {}, number == 3)
        assert [int(file.stem) for file in reversed(store.files(UNIT))] == expected, keep


OTHERS = {"dataset": "digits-mini", "clients": 2, "rounds": 1, "baselines": ["fedavg"]}


@pytest.mark.parametrize("given", [OTHERS, {**SMALL, "validation": 0.0}])
def test_where_no_round_is_selected_it_is_refused(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"^keep selected: in this run no round is selected .*; take last"):
        bench(**given, out=tmp_path / "run", keep="selected")
    assert not (tmp_path / "run").exists()


def test_without_validation_clients_that_train_do_not_lack_test_images(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    bench(**{**SMALL, "validation": 0.0, "rounds": 1}, out=tmp_path / "run")
    assert not [warning for warning in recwarn if "test images" in str(warning.message)]


def test_nothing_is_said_of_it_where_none_is_selected(run: Path) -> None:
    assert json.loads((run / "config.json").read_text())["keep"] == "selected"
    assert open_run(run, round=4).choice == ""
