"""A run that was stopped, in whatever way, goes on to the same bits as one that was not."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from fedwca.core import tensor_files
from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.results import checkpoints
from fedwca.results.environment import describe_environment
from fedwca.results.lock import hold_lock
from fedwca.results.read_run_files import read_notes
from fedwca.results.write_run import RunFolder
from fedwca.runs.execute_run import execute_run
from fedwca.runs.run_request import RunRequest
from fedwca.runs.start_run import start_run
from tests.read_rounds import read_rounds

from ..conftest import SMALL_MODEL
from ..fork_server import CommandLine, Ended, ForkServer
from ..shades import write_shades
from .conftest import SIZE, SMALL, Run, call, leave_half_written

Make = Callable[..., Run]
Apart = Callable[[list[str], str], Ended]
GIVEN = ["--rounds", "3", "--baseline", "source-only", "--baseline", "fedavg", "--participation", "0.5"]
ORDER = [("source_only", -1), *((method, r) for method in ("fedavg", "wca") for r in (-1, 0, 1, 2))]
# Kills fedwca by SIGKILL at the n-th write of a kind, given as KIND:N before its words. For "checkpoint" and "half a
# line" the file is cut off; after "kept" and "line" it is whole.
DEADLY = """
import json, os, signal, sys
from fedwca.core import tensor_files
from fedwca.results import checkpoints
from fedwca.results import write_run as store
where, left = sys.argv.pop(1).split(":")
left = int(left)

def now(kind):
    global left
    left -= kind == where
    return kind == where and left == 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def save_file(tensors, path, metadata, real=tensor_files.save_file):
    real(tensors, path, metadata)
    if now("checkpoint"):
        os.truncate(path, os.path.getsize(path) // 2)
        die()

def save(self, *given, real=checkpoints.Checkpoints.save, **more):
    real(self, *given, **more)
    if now("kept"):
        die()

def append(self, record, real=store.RunFolder.append):
    real(self, record)
    rounds = self.path / "rounds.jsonl"
    if now("half a line"):
        os.truncate(rounds, rounds.stat().st_size - 40)
        die()
    if now("line"):
        die()

tensor_files.save_file, checkpoints.Checkpoints.save, store.RunFolder.append = save_file, save, append
"""

# Sends fedwca SIGTERM after the first round and again while it ends, as from `timeout`.
TERMINATED = """
import os, signal
from fedwca.results import write_run
from fedwca.runs import execute_run

def append(self, record, real=write_run.RunFolder.append):
    real(self, record)
    if record["round"] == 0:
        os.kill(os.getpid(), signal.SIGTERM)

def write_summary(*given, real=execute_run.write_summary, **more):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*given, **more)

write_run.RunFolder.append, execute_run.write_summary = append, write_summary
"""


def result(folder: Path) -> tuple[list[Any], dict[str, Any], dict[str, bytes]]:
    """Rounds without seconds, the summary without times, and the bytes of the models that were kept."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["timing"]
    models = {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.glob("checkpoints/*/*"))}
    return read_rounds(folder, without=["seconds"]), summary, models


@pytest.fixture(scope="module")
def whole(bench: Make) -> Path:
    """An uninterrupted run."""
    run = bench(*GIVEN, "--json")
    assert run.code == 0, run.err
    return run.folder


@pytest.fixture(scope="module")
def every(bench: Make) -> Path:
    """The same run with all its checkpoints."""
    run = bench(*GIVEN, "--keep", "all", "--quiet")
    assert run.code == 0, run.err
    assert not [line for line in run.err.splitlines() if not line.startswith("Warning: ")]
    return run.folder


def stopped(every: Path, folder: Path, records: int, *, behind: int = 0, tail: str = "") -> Path:
    """A copy of a run as it was after its first ``records`` records.

    Args:
        every: a run with all its checkpoints.
        folder: where.
        records: how many lines ``rounds.jsonl`` had.
        behind: of how many of these records, the last ones, the checkpoint had not been written yet.
        tail: an unfinished line behind them.
    """
    shutil.copytree(every, folder)
    (folder / "summary.json").unlink()
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:records]) + tail)
    for method, number in ORDER[records - behind :]:
        (folder / f"checkpoints/0-0-{method}/{number + 1:06d}.safetensors").unlink()
    return folder


def resume(folder: Path, *options: str) -> Run:
    return call("resume", str(folder), *options, folder=folder)


@pytest.mark.parametrize(
    ("records", "behind", "tail"),
    [(0, 0, ""), (1, 1, ""), (1, 0, '{"schema": 2, "met'), (4, 0, ""), (5, 1, ""), (8, 2, "{"), (9, 0, "")],
)
def test_from_any_point_to_the_same_bits(every: Path, tmp_path: Path, records: int, behind: int, tail: str) -> None:
    folder = stopped(every, tmp_path / "run", records, behind=behind, tail=tail)
    (folder / "checkpoints/0-0-wca").mkdir(parents=True, exist_ok=True)
    for file in (folder / "checkpoints/0-0-wca/000009.safetensors", folder / "summary.json"):
        leave_half_written(file)
    run = resume(folder)
    assert run.code == 0, run.err
    assert result(folder) == result(every)
    timing = json.loads((folder / "summary.json").read_text())["timing"]
    assert timing["run_seconds"] >= sum(timing["methods"].values()) - 1e-6
    rounds_done = sum(number >= 0 for _, number in ORDER[: records - behind])
    assert f"Going on after {rounds_done} of 6 rounds" in run.out
    assert not list(folder.glob(f".*{'a' * 32}*"))


def test_the_stacked_engine_goes_on_to_the_same_bits(bench: Make, tmp_path: Path) -> None:
    uninterrupted = bench(*GIVEN, "--keep", "all", "--quiet", "--engine", "stacked")
    assert uninterrupted.code == 0, uninterrupted.err
    folder = stopped(uninterrupted.folder, tmp_path / "run", 8, behind=1)
    assert resume(folder).code == 0
    assert result(folder) == result(uninterrupted.folder)


@pytest.fixture
def apart(fork_server: ForkServer, tmp_path: Path) -> Apart:
    """Runs a command in a process of its own, after some Python code."""
    return lambda words, before: fork_server.run(CommandLine(words, str(tmp_path), dict(os.environ), before))


def killed(apart: Apart, arguments: list[str], write: str) -> None:
    """Run a command that is killed at a write, ``KIND:N`` of `DEADLY`."""
    ended = apart([write, *arguments], DEADLY)
    assert ended.code == 128 + signal.SIGKILL, ended.err


def test_a_run_killed_three_times_ends_in_the_same_bits(
    whole: Path, shades: Path, tmp_path: Path, apart: Apart
) -> None:
    folder = tmp_path / "run"
    words = ["bench", "--data", str(shades), *SMALL, *GIVEN, "--json", "--out", str(folder)]
    killed(apart, words, "checkpoint:3")
    assert list(folder.glob("checkpoints/*/.*/*.safetensors"))
    killed(apart, ["resume", str(folder), "--json"], "half a line:3")
    killed(apart, ["resume", str(folder), "--json"], "kept:2")
    assert not (folder / "summary.json").exists()
    run = resume(folder, "--json")
    assert run.code == 0, run.err
    assert result(folder) == result(whole)
    assert json.loads(run.out) == run.summary


def test_sigterm_ends_a_run_as_ctrl_c_does(whole: Path, shades: Path, tmp_path: Path, apart: Apart) -> None:
    folder = tmp_path / "run"
    words = ["bench", "--data", str(shades), *SMALL, *GIVEN, "--quiet", "--out", str(folder)]
    ended = apart(words, TERMINATED)
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    message = f"Stopped; 1 round is kept in {folder}, with a summary; continue with: fedwca resume {folder}"
    assert ended.err.splitlines()[-1] == message
    assert json.loads((folder / "summary.json").read_text())["complete"] is False
    assert (folder / "overview.png").exists()
    assert resume(folder).code == 0
    assert result(folder) == result(whole)


def test_sigterm_does_what_it_did_once_a_run_has_ended(bench: Make) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert bench("--rounds", "1").code == 0
    assert signal.getsignal(signal.SIGTERM) is handler


TOGETHER = [
    *("--rounds", "2", "--baseline", "fedavg", "--trials", "3", "--participation", "0.5"),
    *("--engine", "stacked", "--trials-at-once", "2"),
]


def test_trials_that_go_together_go_on_to_the_same_bits(
    bench: Make, shades: Path, tmp_path: Path, apart: Apart
) -> None:
    # Sums over other groups of trials differ in their last digits, so a trial that is ahead of the others goes back to
    # the last round that all of them have.
    uninterrupted = bench(*TOGETHER, "--json")
    assert uninterrupted.code == 0, uninterrupted.err
    folder = tmp_path / "run"
    # The first of two trials has its last checkpoint of FedAvg, the second has not.
    killed(apart, ["bench", "--data", str(shades), *SMALL, *TOGETHER, "--json", "--out", str(folder)], "kept:5")
    assert len(list(folder.glob("checkpoints/0-0-fedavg/*"))) == 2
    # Both do that round again. Of the next method, round 0 of the first trial is recorded but has no checkpoint.
    killed(apart, ["resume", str(folder), "--json"], "line:5")
    run = resume(folder)
    assert run.code == 0, run.err
    assert "Going on after 4 of 12 rounds" in run.out
    assert result(folder) == result(uninterrupted.folder)
    assert {len(list(unit.iterdir())) for unit in folder.glob("checkpoints/*")} == {1}


def test_kernels_stay_as_they_were(bench: Make) -> None:
    # Kernels that a run began with are not chosen anew, for with other kernels last digits differ.
    run = bench("--rounds", "2", "--engine", "stacked")
    assert run.code == 0, run.err
    assert "Kernels: channels-last (the default)" in run.out
    config, environment = (json.loads((run.folder / f"{name}.json").read_text()) for name in ("config", "environment"))
    assert (config["config"]["kernels"], config["kernels"]) == ("auto", "channels-last")
    assert environment["kernels"] == {
        "chosen": "channels-last",
        "why": "the default",
        "measured": {},
    }
    (run.folder / "config.json").write_text(json.dumps({**config, "kernels": "eager"}))
    (run.folder / "summary.json").unlink()
    again = resume(run.folder)
    assert again.code == 0, again.err
    assert "Kernels: eager (as before)" in again.out


def test_a_run_of_trials_together_goes_on_where_they_cannot_be(bench: Make) -> None:
    run = bench(*TOGETHER, "--json", "--keep", "all")
    assert run.code == 0, run.err
    (run.folder / "summary.json").unlink()
    contents = json.loads((run.folder / "config.json").read_text())
    contents["config"]["engine"], contents["config"]["trials_at_once"] = "auto", None  # as it would have been on a GPU
    (run.folder / "config.json").write_text(json.dumps(contents))
    for file in run.folder.glob("checkpoints/*"):
        shutil.rmtree(file)
    (run.folder / "rounds.jsonl").write_text("")
    again = resume(run.folder)
    assert again.code == 0, again.err
    assert "Warning: 2 trials went through rounds together, and now 1: last digits may differ" in again.err
    assert len((run.folder / "rounds.jsonl").read_text().splitlines()) == 3 * (3 + 3)


def test_a_run_that_goes_on_elsewhere_says_so(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 5)
    began = json.loads((folder / "environment.json").read_text())
    began["cpu"], began["versions"]["torch"] = "Abacus\x1b[31m", "1.0"
    (folder / "environment.json").write_text(json.dumps(began))
    run = resume(folder)
    assert run.code == 0, run.err
    current = describe_environment("cpu")
    assert (
        f"Warning: begun with cpu Abacus\\x1b[31m, torch 1.0, going on with cpu {current['cpu']}, "
        f"torch {current['versions']['torch']}: last digits may differ" in run.err
    )
    environment = json.loads((folder / "environment.json").read_text())
    assert {key: environment[key] for key in began} == began
    ((rounds, changed),) = environment["resumed"].items()
    assert rounds == "3"
    assert (changed["cpu"], changed["versions.torch"]) == (current["cpu"], current["versions"]["torch"])
    assert "versions.numpy" not in changed


def test_a_run_that_goes_on_where_it_began_warns_of_nothing(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 5)
    run = resume(folder)
    assert run.code == 0, run.err
    assert "digits may differ" not in run.err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_kill_ends_in_the_same_bits(whole: Path, shades: Path, tmp_path: Path, apart: Apart, seed: int) -> None:
    folder, draw = tmp_path / "run", random.Random(seed)
    arguments = ["bench", "--data", str(shades), *SMALL, *GIVEN, "--json", "--out", str(folder)]
    if seed % 2:
        killed(apart, arguments, f"{draw.choice(['checkpoint', 'kept', 'half a line', 'line'])}:{draw.randint(1, 9)}")
    else:
        process = subprocess.Popen([sys.executable, "-m", "fedwca", *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        while not (folder / "config.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 4))
        process.kill()
        process.wait(timeout=30)
    assert resume(folder, "--json").code == 0
    assert result(folder) == result(whole)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    newest, previous = (folder / f"checkpoints/0-0-wca/00000{number}.safetensors" for number in (2, 1))
    newest.write_bytes(newest.read_bytes()[:1000])
    run = resume(folder)
    assert run.code == 0
    assert f"Warning: {newest}: cut off, damaged or no checkpoint" in run.err
    assert "going on from round 1" in run.err
    assert result(folder) == result(every)
    shutil.rmtree(folder)
    folder = stopped(every, tmp_path / "run", 8)
    flipped = bytearray(newest.read_bytes())
    flipped[-100] ^= 1  # one bit, which changes neither the size nor the header
    newest.write_bytes(flipped)
    run = resume(folder)
    assert run.code == 0
    assert f"Warning: {newest}: damaged; its contents are not those that were written; going on from" in run.err
    assert result(folder) == result(every)
    shutil.rmtree(folder)
    folder = stopped(every, tmp_path / "run", 8)
    (folder / "checkpoints/0-0-wca/000000.safetensors").unlink()
    for file in (newest, previous):
        file.write_bytes(b"nothing")
    run = resume(folder)
    assert run.code == 1
    assert "and there is no other; remove" in run.err


def test_a_finished_method_whose_models_are_lost_keeps_its_rounds(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    for file in (folder / "checkpoints/0-0-fedavg").glob("*"):
        file.write_bytes(b"nothing")
    run = resume(folder)
    assert run.code == 0
    assert "and there is no other; its rounds stay as they are, its models are lost" in run.err
    assert result(folder)[0] == result(every)[0]
    export = call(
        "export", str(folder), "--method", "fedavg", "--client", "0", "--out", str(tmp_path / "m.safetensors")
    )
    assert export.code == 1, export.err
    assert "run fedavg again in another folder" in export.err, export.err


def test_a_finished_method_that_lost_its_last_round_does_it_again(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    (folder / "checkpoints/0-0-fedavg/000003.safetensors").write_bytes(b"nothing")
    assert resume(folder).code == 0
    assert result(folder) == result(every)


def edited(folder: Path, **values: Any) -> None:
    contents = json.loads((folder / "config.json").read_text())
    contents["config"] |= values.pop("config", {})
    (folder / "config.json").write_text(json.dumps({**contents, **values}))


def test_a_run_that_does_not_fit_is_refused(every: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    edited(folder, config={"seed": 7})
    run = resume(folder)
    assert (run.code, run.out) == (1, "")
    assert "belongs to another run, whose configuration differs" in run.err
    edited(folder, config={"seed": 0}, data_digest="0")
    assert "the images of shades are not those the run began with" in resume(folder).err
    shutil.rmtree(folder)
    folder = stopped(every, tmp_path / "run", 8)
    monkeypatch.setattr(checkpoints, "SCHEMA", 2)
    assert "has schema 1; this fedwca reads schema 2" in resume(folder).err
    contents = json.loads((folder / "config.json").read_text())
    contents["methods"]["wca"]["components"][1]["ta"] = 0.5
    (folder / "config.json").write_text(json.dumps(contents))
    run = resume(folder)
    assert run.code == 2
    assert "was begun with other components than are installed now: wca.aggregator.wca.ta was 0.5, is" in run.err


def test_a_run_of_a_later_version_is_named(every: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    edited(folder, config={"later": 1})
    opened = call("export", str(folder), "--client", "0", "--out", str(tmp_path / "m.safetensors"))
    for run in (resume(folder), bench(*GIVEN, "--resume", out=folder), opened):
        assert run.code == 1
        assert f"{folder}: does not fit this fedwca or its plugins (later: there is no such field" in run.err


def test_a_mistake_of_a_request_is_not_the_runs(every: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    run = bench("--resume", "--set", "dataset.imagez=3", out=folder)
    assert run.code == 2
    assert "imagez" in run.err
    assert "does not fit" not in run.err


@pytest.mark.parametrize("command", ["resume", "bench"])
def test_a_run_from_before_a_field_goes_on_at_its_default(
    every: Path, bench: Make, tmp_path: Path, command: str
) -> None:
    folder = stopped(every, tmp_path / "run", 0)
    contents = json.loads((folder / "config.json").read_text())
    del contents["methods"]["wca"]["components"][1]["direction"]
    (folder / "config.json").write_text(json.dumps(contents))
    run = resume(folder) if command == "resume" else bench(*GIVEN, "--resume", out=folder)
    assert run.code == 0, run.err
    assert result(folder)[:2] == result(every)[:2]  # checkpoints hold a hash of the fields


def write_groups(data: Path, size: int) -> None:
    """Mark every ``size`` images in turn of each archive as variants of one image."""
    for file in data.glob("*.npz"):
        with np.load(file) as arrays:
            with_groups = {**arrays, "groups": np.arange(len(arrays["labels"])) // size}
        np.savez(file, **with_groups)


def test_methods_that_begin_later_begin_from_the_same_model(bench: Make, tmp_path: Path) -> None:
    file = tmp_path / "own.pt"

    def put(seed: int) -> None:
        torch.save(LeNet(bottleneck=8).build(2, seed=seed).state_dict(), file)

    put(1)
    arguments = ["--checkpoint", str(file), *SIZE.split(), "--rounds", "1", "--set", "model.bottleneck=8"]
    uninterrupted = bench(*arguments, "--baseline", "fedavg", "--quiet", small=False)
    assert uninterrupted.code == 0, uninterrupted.err
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted.folder, folder)
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints/0-0-wca")
    fedavg_lines = [line for line in uninterrupted.lines if json.loads(line)["method"] == "fedavg"]
    (folder / "rounds.jsonl").write_text("\n".join(fedavg_lines) + "\n")
    put(2)
    refused = resume(folder)
    assert refused.code == 1
    assert f"began from another model than {file} holds now; put that one back" in refused.err
    put(1)
    assert resume(folder).code == 0
    assert result(folder)[0] == result(uninterrupted.folder)[0]


def test_images_that_other_clients_would_have_are_refused(bench: Make, tmp_path: Path) -> None:
    data = write_shades(tmp_path / "data")
    write_groups(data, 2)
    run = bench("--data", str(data), "--rounds", "1", "--baseline", "none")
    assert run.code == 0, run.err
    (run.folder / "summary.json").unlink()
    assert resume(run.folder).code == 0
    (run.folder / "summary.json").unlink()
    write_groups(data, 4)
    refused = resume(run.folder)
    assert (refused.code, refused.out) == (1, "")
    assert f"{run.folder}: groups, units or parts of data are not those the run began with" in refused.err
    contents = json.loads((run.folder / "config.json").read_text())
    del contents["split_digest"]  # as of earlier releases
    (run.folder / "config.json").write_text(json.dumps(contents))
    assert resume(run.folder).code == 0


def test_bench_hands_on_what_it_is_to_keep(every: Path, bench: Make, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 7)
    arguments = [*GIVEN, "--resume", "--profile", "--note", "why", "--tag", "night"]
    run = bench(*arguments, "--keep", "all", out=folder)
    assert run.code == 0, run.err
    assert "asked for now" not in run.err
    assert result(folder) == result(every)
    assert read_notes(folder) == {"note": "why", "tags": ["night"]}
    profile = json.loads((folder / "profile.json").read_text())
    assert (folder / profile["trace"]).is_file()
    assert "Seconds a round" in run.out
    edited(folder, loggers=[{"name": "wandb", "project": "mine", "entity": None}])
    again = bench(*arguments, "--keep", "2", out=folder)
    assert again.code == 0, again.err
    assert f"Warning: {folder}: was begun with --keep all and stays so; asked for now: --keep 2" in again.err
    once_more = bench(*arguments, "--trials-at-once", "1", out=folder)
    assert (once_more.code, "trials-at-once" in once_more.err) == (0, False)
    assert (
        f"Warning: {folder}: was begun with --logger wandb:project=mine and stays so; asked for now: no --logger"
        in again.err
    )
    assert "Seconds a round" in again.out
    (folder / "profile.json").unlink()
    assert bench(*arguments, "--keep", "all", out=folder).code == 0


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    run = resume(tmp_path / "nowhere")
    assert run.code == 2
    assert "no such run" in run.err
    assert "holds no run (no config.json)" in resume(tmp_path).err


def test_a_second_process_is_refused(every: Path, tmp_path: Path) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    lock = hold_lock(folder)
    try:
        run = resume(folder)
    finally:
        lock.release()
    assert run.code == 2
    assert f"{folder}: another process is at work here" in run.err
    assert resume(folder).code == 0


def test_a_run_that_another_process_ended_meanwhile_is_left_alone(
    every: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(every, tmp_path / "run", 8)

    def take_over(path: Path, again: bool) -> RunFolder:
        for name in ("rounds.jsonl", "summary.json"):
            shutil.copy(every / name, folder)
        return RunFolder(path, again=again)

    monkeypatch.setattr("fedwca.runs.resuming.resume_run.RunFolder", take_over)
    run = resume(folder)
    assert run.code == 2
    assert "another process was at work here until now; run this again" in run.err
    assert result(folder)[1] == result(every)[1]


def test_a_finished_run_shows_its_table(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = result(whole)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    run = resume(whole)
    assert run.code == 0, run.err
    assert "FedWCA" in run.out
    assert json.loads(resume(whole, "--json").out)["methods"] == before[1]["methods"]
    assert result(whole) == before


def test_a_run_that_goes_on_shows_the_columns_that_are_asked_for(whole: Path) -> None:
    run = call("resume", str(whole), "--column", "worst")
    assert run.code == 0, run.err
    assert "worst" in run.out
    assert "did you mean 'worst'?" in call("resume", str(whole), "--column", "wrost").err


@pytest.mark.parametrize("way", ["checkpoint", "serialized", "line"])
def test_a_disk_that_fills_up_loses_nothing(
    bench: Make, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder, calls = tmp_path / "run", 0
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real_save = tensor_files.save_file

    def save(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise full if way == "checkpoint" else SafetensorError("I/O error: No space left on device (os error 28)")
        real_save(*arguments)

    def fsync(line: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 6:
            os.ftruncate(line, os.fstat(line).st_size - 40)
            raise full

    with monkeypatch.context() as patch:
        patch.setattr("fedwca.runs.write_summary.overview", Mock(side_effect=full))
        if way == "line":
            patch.setattr("fedwca.results.write_run.os", SimpleNamespace(fsync=fsync))
        else:
            patch.setattr(tensor_files, "save_file", save)
        run = bench(*GIVEN, "--quiet", out=folder)
    assert run.code == 1
    (sentence,) = [line for line in run.err.splitlines() if "source model" not in line]
    file = folder / ("rounds.jsonl" if way == "line" else "checkpoints/0-0-fedavg/000003.safetensors")
    problem = f"Error: {file}: cannot be written (No space left on device)"
    assert sentence == f"{problem}; what was written is kept, continue with: fedwca resume {folder}"
    assert run.summary["complete"] is False
    assert resume(folder).code == 0
    assert result(folder) == result(whole)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.csv"), "a.csv: No such file or directory"),
        (OSError(errno.EIO, "Input/output error"), "reading or writing failed (Input/output error)"),
    ],
)
def test_what_cannot_be_read_is_not_said_to_be_unwritable(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, problem: str
) -> None:
    monkeypatch.setattr("fedwca.runs.run_trials_and_methods.run_rounds", Mock(side_effect=error))
    run = bench("--rounds", "1", "--baseline", "none", "--quiet", out=tmp_path / "run")
    assert run.code == 1
    assert run.err == f"Error: {problem}; what was written is kept, continue with: fedwca resume {tmp_path / 'run'}\n"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_ends_in_a_sentence_and_the_run_goes_on(
    bench: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("fedwca.runs.run_trials_and_methods.run_rounds", Mock(side_effect=error))
        patch.setattr("fedwca.runs.write_summary.overview", Mock(side_effect=MemoryError))
        run = bench("--rounds", "1", "--baseline", "none", "--quiet", out=folder)
    assert run.code == 1
    assert run.err == (
        f"Error: memory ran out on cpu ({str(error) or 'MemoryError'}); what was written is kept, continue with: "
        f"fedwca resume {folder} or, with one client at a time, fedwca bench --config {folder}/config.json "
        f"--out {folder} --resume --workers 1; "
        "in a new run a smaller --batch-size or fewer --clients take less memory\n"
    )
    options = ("--config", str(folder / "config.json"), "--out", str(folder), "--resume", "--workers", "1")
    assert call("bench", *options).code == 0


@pytest.mark.parametrize(
    ("keep", "files"),
    [("last", {"source_only": [0], "wca": [3]}), ("2", {"source_only": [0], "wca": [2, 3]}), ("none", {})],
)
def test_how_many_checkpoints_stay(bench: Make, keep: str, files: dict[str, list[int]]) -> None:
    run = bench("--rounds", "3", "--baseline", "source-only", "--keep", keep)
    assert run.code == 0
    numbers: dict[str, list[int]] = {}
    for file in sorted(run.folder.glob("checkpoints/*/*")):
        numbers.setdefault(file.parent.name.removeprefix("0-0-"), []).append(int(file.stem))
    assert numbers == files
    assert (run.folder / "checkpoints").exists() == (keep != "none")
    if keep == "none":
        # A finished method of which nothing is kept is not done again.
        (run.folder / "summary.json").unlink()
        before = run.lines
        assert resume(run.folder).code == 0
        assert run.lines == before
    refused = bench("--keep", "some")
    assert refused.code == 2
    assert "--keep some: takes last, selected, all, none or a number of at least 1" in refused.err


@pytest.mark.filterwarnings("ignore:.*all clients are in one cluster")
def test_a_request_can_take_up_what_is_there(
    every: Path, shades: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stopped(every, tmp_path / "run", 8)
    layer = {
        "data": shades, "clients": 2, "rounds": 3, "device": "cpu", "baselines": ["source-only", "fedavg"],
        "participation": 0.5, "model": SMALL_MODEL, "training": {"epochs": 1, "lr": 0.01, "batch_size": 16},
    }  # fmt: skip
    pairs = [("source_training.epochs", "1")]

    def request(**values: Any) -> RunRequest:
        return RunRequest({**layer, **values}, pairs, out=folder, keep="all", reuse=True)

    with pytest.raises(UsageError, match="holds a run of another configuration: seed is 0 there, 3 here"):
        start_run(request(seed=3))
    workers: list[int | None] = []
    monkeypatch.setattr(
        "fedwca.runs.resuming.resume_run.execute_run",
        lambda run, *a: (workers.append(run.plan.config.workers), execute_run(run, *a))[1],
    )
    continued = start_run(request(workers=1))
    assert workers == [1]
    rounds, summary, models = result(folder)
    assert summary["config"].pop("workers") == 1
    summary["config"]["workers"] = None
    assert (rounds, summary, models) == result(every)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", lambda *_: pytest.fail("work has started"))
    again = start_run(request())
    assert again.summary == continued.summary
    assert [(row.name, row.mean) for row in again.table] == [(row.name, row.mean) for row in continued.table]
    monkeypatch.undo()
    folder = tmp_path / "new"
    assert start_run(request()).summary["methods"] == continued.summary["methods"]
