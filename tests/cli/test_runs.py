"""`fedwca runs`: runs are listed, shown, compared, tagged, exported and removed."""

from __future__ import annotations

import csv
import errno
import json
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import typer

from fedwca.core.deployment_files import CONFIG_NAME
from fedwca.errors import UsageError
from fedwca.results.change_notes import change_notes
from fedwca.results.class_scores import macro_f1
from fedwca.results.find_runs import find_run
from fedwca.results.lock import hold_lock, is_locked
from fedwca.results.read_run import read_run
from fedwca.results.read_run_files import read_notes, read_records

from ..results.runs import write_run
from .conftest import Run, call


@pytest.fixture
def runs(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, a made-up one, a stopped one and an empty folder, in the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs"
    shutil.copytree(plain.folder, folder / "now")
    write_run(folder / "other", rounds=1)
    shutil.copytree(plain.folder, folder / "stopped")
    (folder / "stopped/summary.json").unlink()
    (folder / "empty").mkdir()
    return folder


def test_a_name_is_never_broken_on_a_narrow_terminal(plain: Run, tmp_path: Path) -> None:
    shutil.copytree(plain.folder, tmp_path / "20260101-120000-000-wca")
    run = call("runs", "--root", str(tmp_path), columns=80)
    assert "20260101-120000-000-wca" in run.out
    assert "done" in run.out
    assert all(len(line) <= 80 for line in run.out.splitlines())


def test_a_hint_can_be_pasted_whatever_the_folder_is_called(plain: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(plain.folder, tmp_path / "my run"))
    (folder / "summary.json").unlink()
    assert f"Continue it with: fedwca resume '{folder}'\n" in call("runs", "show", str(folder)).out


def test_runs_are_listed_with_their_states(runs: Path) -> None:
    run = call("runs")
    assert run.code == 0, run.err
    for part in ("now", "other", "stopped", "FedWCA", "shades, source amber", "done"):
        assert part in run.out
    assert "empty" not in run.out
    lines = {line["run"]: line for line in json.loads(call("runs", "--json").out)}
    states = {name: line["state"] for name, line in lines.items()}
    assert states == {"now": "done", "other": "done", "stopped": "stopped"}
    assert lines["stopped"]["accuracy"] == lines["now"]["accuracy"]
    assert lines["now"]["accuracy"] == read_run(runs / "now").summary["methods"]["wca"]["mean"]
    assert call("runs", "--root", str(runs / "empty")).out == f"No runs in {runs / 'empty'}/\n"
    assert call("runs", "--root", "emtpy").out == "No runs in emtpy/: there is no such folder\n"


def test_a_run_at_work_and_a_damaged_one(runs: Path) -> None:
    lock = hold_lock(runs / "stopped")
    try:
        states = {line["run"]: line["state"] for line in json.loads(call("runs", "--json").out)}
        refused = call("runs", "rm", "stopped", "--yes")
    finally:
        lock.release()
    assert states["stopped"] == "running"
    assert refused.code == 2
    assert "a process is at work on this run" in refused.err
    (runs / "other/config.json").write_text("{")
    run = call("runs", "--json")
    listed = json.loads(run.out)
    assert [line["run"] for line in listed if line["state"] != "damaged"] == ["now", "stopped"]
    (damaged,) = (line for line in listed if line["state"] == "damaged")
    assert (damaged["run"], damaged["problem"] in run.err) == ("other", True)
    assert "other/config.json: cannot be read" in run.err


def test_show_and_diff(runs: Path) -> None:
    shown = call("runs", "show", "stopped")
    assert "2 of 2" in shown.out
    assert "Continue it with: fedwca resume runs/stopped" in shown.out
    assert "Accuracy in percent after the last round on record, n = 1 run, so there is no spread:" in shown.out
    with_columns = call("runs", "show", "now", "--column", "f1", "--column", "client-std")
    assert "macro F1" in with_columns.out
    assert "std over clients" in with_columns.out
    for words in ([], ["--json"]):
        wrong = call("runs", "show", "now", "--column", "worts", *words)
        assert (wrong.code, "--column worts: no column 'worts'; did you mean 'worst'?" in wrong.err) == (2, True)
        assert not wrong.out
    shown_json = json.loads(call("runs", "show", "now", "--json").out)
    assert shown_json["rounds_done"] == {"source_only": 0, "local": 2, "fedavg": 2, "wca": 2}
    difference = json.loads(call("runs", "diff", "now", "other", "--json").out)
    assert difference["settings"]["rounds"] == [2, 1]
    assert difference["settings"]["wca.rounds"] == [2, 1]
    assert "seed" not in difference["settings"]
    assert set(difference["accuracy"]) == {"source_only", "wca"}
    table = call("runs", "diff", "now", "other")
    assert "accuracy of wca" in table.out
    assert re.search(r"wca\.rounds\W+2\W+1\W", table.out)
    assert re.search(r"method fedavg\W+run\W", table.out)
    assert "fedavg.rounds" not in table.out, "one row says that the other run has no such method"
    assert "None" not in table.out
    assert json.loads(call("runs", "diff", "now", "now", "--json").out)["settings"] == {}


def test_show_says_what_its_means_are_of(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", methods=2, trials=2)
    shown = call("runs", "show", str(folder)).out
    assert "Accuracy in percent after the last round, mean ± std (ddof 1) over n = 2 runs:" in shown
    row = json.loads((folder / "summary.json").read_text())["methods"]["wca"]
    assert f"{row['mean']:.1f} ± {row['std']:.1f}" in shown


@pytest.mark.parametrize("changes", [{"seed": 5}, {"seed": 5, "dataset": "of_a_plugin"}])
def test_settings_that_were_added_since_a_run_are_no_difference(runs: Path, changes: dict[str, Any]) -> None:
    shutil.copytree(runs / "now", runs / "earlier")
    file = runs / "earlier" / "config.json"
    about = json.loads(file.read_text())
    about["config"] |= changes
    del about["config"]["training"]["nesterov"]
    (aggregator,) = [part for part in about["methods"]["wca"]["components"] if part["kind"] == "aggregator"]
    del aggregator["ta"]
    file.write_text(json.dumps(about))
    settings = json.loads(call("runs", "diff", "now", "earlier", "--json").out)["settings"]
    assert settings["seed"] == [0, 5]
    # Without the plugin, what is stored is compared.
    assert (set(settings) == {"seed"}) == ("dataset" not in changes)


def test_export_to_csv(runs: Path) -> None:
    run = call("runs", "export", "now", "--to", "csv")
    assert run.out == "wrote runs/now/rounds.csv\n"
    rows = list(csv.DictReader((runs / "now/rounds.csv").read_text().splitlines()))
    records = read_records(runs / "now")
    assert len(rows) == 4 * len(records)
    assert [row["domain"] for row in rows[:4]] == ["brass", "brass", "coral", "coral"]
    last = records[-1]
    assert [float(row["accuracy"]) for row in rows[-4:]] == last["accuracy"]
    assert [row["labels"] for row in rows[-4:]] == [str(label) for label in last["labels"]]
    assert float(rows[-1]["round_seconds_train"]) == last["seconds"]["train"]
    assert not {"weights", "confusion"} & set(rows[0])
    assert float(rows[-1]["round_worst"]) == min(last["accuracy"])
    assert float(rows[-1]["round_calibration_error"]) == last["calibration_error"]
    assert float(rows[-1]["round_f1"]) == macro_f1(last["confusion"])


def test_export_to_parquet(runs: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert call("runs", "export", "other", "--to", "parquet", "--out", "some/file.parquet").code == 0
    rows = parquet.read_table("some/file.parquet").to_pylist()
    first_rows = [(row["method"], row["round"], row["client"]) for row in rows[:2]]
    assert first_rows == [("source_only", -1, 0), ("source_only", -1, 1)]
    assert rows[-1]["accuracy"] == read_records("runs/other")[-1]["accuracy"][-1]


def test_an_impossible_export_is_refused(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--to xlsx: takes csv or parquet" in call("runs", "export", "now", "--to", "xlsx").err
    (runs / "other/rounds.jsonl").write_text("")
    assert "this run has no rounds to export" in call("runs", "export", "other").err
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    run = call("runs", "export", "now", "--to", "parquet")
    assert run.code == 2
    assert "needs pyarrow: pip install 'fedwca[parquet]'" in run.err


def test_a_run_is_removed_after_a_question(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", lambda text: False)
    run = call("runs", "rm", "now")
    assert (run.code, run.out) == (1, "Kept.\n")
    assert call("runs", "rm", "now", "--yes").out == "removing runs/now\nremoved runs/now\n"
    assert not (runs / "now").exists()
    monkeypatch.setattr("typer.confirm", lambda text: True)
    assert call("runs", "rm", "other").code == 0
    assert call("runs", "rm", "empty", "--yes").code == 2
    assert (runs / "empty").exists()


@pytest.mark.parametrize(
    ("error", "code", "said"), [(KeyboardInterrupt, 130, "Stopped."), (EOFError, 2, "--yes does not ask")]
)
def test_a_question_that_is_not_answered(
    runs: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int, said: str
) -> None:
    def ask(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(sys.modules[typer.confirm.__module__], "visible_prompt_func", ask)
    run = call("runs", "rm", "now")
    assert (run.code, said in run.err) == (code, True), run.err
    assert (runs / "now").exists()


@pytest.mark.parametrize(
    "option", [["--tag", "x"], ["--json"], ["--match", "x*"], ["--state", "done"], ["--sort", "name"]]
)
def test_options_of_the_list_are_not_for_what_follows(runs: Path, option: list[str]) -> None:
    run = call("runs", *option, "rm", "now", "--yes")
    assert run.code == 2
    assert f"{option[0]} before rm is for the list of runs; leave it out" in run.err
    assert (runs / "now").exists()


def test_tags_that_were_written_by_hand_can_be_removed(runs: Path) -> None:
    (runs / "now/notes.json").write_text('{"note": "", "tags": ["as on", "night"]}')
    assert "Error: tag 'two words': a tag is one word" in call("runs", "tag", "now", "two words").err
    assert call("runs", "tag", "now", "--remove", "as on").code == 0
    assert json.loads((runs / "now/notes.json").read_text())["tags"] == ["night"]


def test_several_runs_are_removed_after_one_question_or_none_of_them(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("runs", "rm", "now", "nothing", "--yes").code == 2
    with hold_lock(runs / "other"):
        assert "a process is at work on this run" in call("runs", "rm", "now", "other", "--yes").err
    assert all((runs / name).exists() for name in ("now", "other"))
    questions: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text: questions.append(text) or True)
    assert call("runs", "rm", "now", "other", "now").code == 0
    assert questions == ["Remove runs/now, runs/other and everything in them?"]
    assert [path.name for path in sorted(runs.iterdir())] == ["empty", "stopped"]


def test_a_linked_run_is_removed_with_its_link(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = (runs / "now").rename(runs.parent / "real")
    (runs / "link").symlink_to("../real")
    questions: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text: questions.append(text) or True)
    run = call("runs", "rm", "link")
    assert (run.code, run.out) == (0, "removing runs/link\nremoved runs/link\n"), run.err
    assert questions == [f"Remove runs/link (a link to {real.resolve()}) and everything in it?"]
    assert not real.exists()
    assert not (runs / "link").is_symlink()


def test_a_run_that_goes_on_while_the_question_waits_is_kept(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted((runs / "stopped").rglob("*"))
    locks = []
    monkeypatch.setattr("typer.confirm", lambda text: locks.append(hold_lock(runs / "stopped")) or True)
    refused = call("runs", "rm", "stopped")
    locks[0].release()
    assert refused.code == 2
    assert "runs/stopped: another process is at work here" in refused.err
    assert {*before, runs / "stopped/.lock"} == set((runs / "stopped").rglob("*"))


def test_nobody_can_take_up_a_run_that_is_being_removed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, states = shutil.rmtree, {}

    def rmtree(path: Path) -> None:
        states[path.name] = "locked" if is_locked(runs / "now") else sorted(file.name for file in path.iterdir())
        real(path)

    monkeypatch.setattr("shutil.rmtree", rmtree)
    assert call("runs", "rm", "now", "--yes").code == 0
    assert states == {"checkpoints": "locked", "now": [".lock"]}
    assert not (runs / "now").exists()


def test_a_part_of_the_list_in_another_order(runs: Path) -> None:
    def names(*options: str) -> list[str]:
        return [line["run"] for line in json.loads(call("runs", *options, "--json").out)]

    assert names("--sort", "name") == ["now", "other", "stopped"]
    assert names("--match", "*o*p*") == names("--state", "stopped") == ["stopped"]
    by_accuracy = [line["accuracy"] or -1 for line in json.loads(call("runs", "--sort", "accuracy", "--json").out)]
    assert by_accuracy == sorted(by_accuracy)
    assert call("runs", "--match", "x*").out == "No such runs in runs/\n"
    assert call("runs", "--sort", "size").code == 2


def test_another_root_holds_for_every_command(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ["runs", "--root", "archive"]
    shutil.copytree(runs / "other", "archive/now")
    shutil.copytree(runs / "now", "now")  # nor is a run in the working folder meant
    assert json.loads(call(*archive, "show", "now", "--json").out)["path"] == "archive/now"
    assert json.loads(call(*archive, "diff", "now", "now", "--json").out)["settings"] == {}
    assert call(*archive, "export", "now").out == "wrote archive/now/rounds.csv\n"
    assert "nwo: no such run; did you mean 'now'?" in call(*archive, "show", "nwo").err
    (missing,) = call(*archive, "rm", "stopped", "--yes").err.splitlines()
    assert missing == "Error: stopped: no such run; runs are looked for in archive/"
    for elsewhere in ("../runs/stopped", str((runs / "stopped").absolute())):
        refused = call(*archive, "rm", elsewhere, "--yes")
        assert (refused.code, refused.err.splitlines()) == (
            2,
            [f"Error: {elsewhere}: not in archive/, which --root names; for a run elsewhere leave --root out"],
        )
    for inside in ("../archive/now", str(Path("archive/now").absolute())):
        assert call(*archive, "export", inside, "--out", "rounds.csv").out == "wrote rounds.csv\n"
    questions: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text: questions.append(text) or True)
    assert call(*archive, "rm", "now").out == "removing archive/now\nremoved archive/now\n"
    assert questions == ["Remove archive/now and everything in it?"]
    assert not Path("archive/now").exists()
    assert all((folder / "config.json").exists() for folder in (runs / "now", runs / "stopped", Path("now")))


def test_a_run_is_found_by_name_or_path(runs: Path) -> None:
    assert find_run("now") == Path("runs/now")
    assert find_run(runs / "now") == runs / "now"
    with pytest.raises(
        UsageError, match=r"holds no run .*; it is a folder of runs, so name one of them, such as .*runs/now"
    ):
        find_run(runs)
    assert "nwo: no such run; did you mean 'now'?" in call("runs", "show", "nwo").err


@pytest.mark.parametrize(
    "words",
    [
        ["join", "shop", "--data", "photos"],
        ["resume", "shop"],
        ["runs", "show", "shop"],
        ["plot", "shop"],
        ["report", "shop"],
        ["runs", "--root", ".", "rm", "shop", "--yes"],
    ],
    ids=" ".join,
)
def test_a_deployment_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("shop/server", "photos"):
        Path(folder).mkdir(parents=True)
    Path("shop/server", CONFIG_NAME).write_text("{}")
    refused = call(*words)
    assert refused.code == 2
    assert refused.err.startswith("Error: shop: is a deployment, not a run; `fedwca deploy run` begins it or goes on")
    assert "`fedwca export` writes its models, and a new client joins it by `fedwca client`" in refused.err


def test_what_a_killed_process_left_behind_its_records_is_not_shown(runs: Path) -> None:
    """The summary is of round 0, where the run was stopped; it went on and was killed after its last record."""
    folder = runs / "stopped"
    summary = json.loads((runs / "now/summary.json").read_text())
    mean = summary["methods"]["wca"]["mean"]
    summary["methods"]["wca"]["mean"] = -1.0
    (folder / "summary.json").write_text(json.dumps(summary | {"complete": False}))
    assert f"{mean:.1f}" in next(line for line in call("runs", "show", "stopped").out.splitlines() if "FedWCA" in line)
    assert json.loads(call("runs", "show", "stopped", "--json").out)["accuracy"] == pytest.approx(mean)
    assert json.loads(call("runs", "diff", "stopped", "now", "--json").out)["accuracy"]["wca"] == pytest.approx(
        [mean] * 2
    )
    listed = {line["run"]: line["accuracy"] for line in json.loads(call("runs", "--json").out)}
    assert listed["stopped"] == pytest.approx(mean)


def test_no_number_is_cut_off_on_a_narrow_terminal(runs: Path) -> None:
    words = ["runs", "show", "now", "--column", "client-std", "--column", "class-accuracy"]
    wide, narrow = (call(*words, columns=columns) for columns in (300, 60))
    numbers = set(re.findall(r"\d+\.\d", wide.out)) - set(re.findall(r"\d+\.\d", narrow.out))
    assert not numbers
    assert "…" not in narrow.out
    _, heading, table = narrow.out.partition("so there is no spread:\n")
    assert heading
    assert all(len(line) <= 60 for line in table.splitlines())


def test_a_table_is_in_the_format_that_its_name_says(runs: Path, tmp_path: Path) -> None:
    refused = call("runs", "export", "now", "--to", "csv", "--out", str(tmp_path / "rounds.parquet"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "say different formats" in refused.err
    unknown = call("runs", "export", "now", "--out", str(tmp_path / "rounds.json"))
    assert unknown.code == 2
    assert unknown.err.endswith("rounds.json: ends in .json; right is .csv, .parquet, or say --to\n")
    assert call("runs", "export", "now", "--to", "csv", "--out", str(tmp_path / "rounds.txt")).code == 0
    pytest.importorskip("pyarrow")
    assert call("runs", "export", "now", "--out", str(tmp_path / "rounds.parquet")).code == 0
    assert (tmp_path / "rounds.parquet").read_bytes().startswith(b"PAR1")


def test_a_narrow_terminal_cuts_no_name_of_a_setting(runs: Path) -> None:
    table = call("runs", "diff", "now", "other", columns=24).out
    assert len(table.splitlines()[0]) <= 24
    assert "…" not in table


def test_who_tags_at_once_loses_no_tag(runs: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: change_notes(runs / "now", add=[f"tag-{number}"]), range(40)))
    assert set(read_notes(runs / "now")["tags"]) == {f"tag-{number}" for number in range(40)}


def test_a_run_on_a_file_system_that_is_only_read_can_be_looked_at(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(self: object, *arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("filelock.FileLock.acquire", acquire)
    hold_lock(runs / "now").release()
    assert change_notes(runs / "now", add=["tag"])["tags"] == ["tag"]  # what cannot be written fails by itself
