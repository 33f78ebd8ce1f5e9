"""`torchrun … -m fedwca bench` writes one run folder with the numbers of one process, and prints each error once."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca import cli
from fedwca.cli.ranks import leave_ranks
from fedwca.errors import FedwcaError
from fedwca.runs.ranks import rank_lifecycle, version_check
from fedwca.runs.ranks.rank_lifecycle import follow_run
from fedwca.runs.ranks.rank_schedule import RankSchedule
from fedwca.runs.ranks.version_check import check_versions, installed_versions
from fedwca.runs.reporter import Progress
from tests.read_rounds import read_rounds

from .conftest import SMALL, Run, call

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fedwca"]
GIVEN = ["--rounds", "3", "--baseline", "source-only", "--baseline", "fedavg", "--participation", "0.5"]


def start(*arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*TORCHRUN, *arguments], env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def torchrun(*arguments: str) -> tuple[int, str, str]:
    process = start(*arguments)
    try:
        out, err = process.communicate(timeout=250)
    finally:
        process.kill()
    return process.returncode, out, err


def kill_rank(process: subprocess.Popen[str], victim: int, folder: Path, lines: int) -> str:
    """Kill a rank once ``rounds.jsonl`` has so many lines; returns stderr."""
    deadline, rounds = time.monotonic() + 200, folder / "rounds.jsonl"
    while not rounds.exists() or len(rounds.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[victim]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode
    return err


def result(folder: Path) -> tuple[list[Any], Any, dict[str, bytes]]:
    """Rounds without seconds, the methods of the summary, and the bytes of the models that were kept."""
    kept = {str(f.relative_to(folder)): f.read_bytes() for f in folder.glob("checkpoints/*/*.safetensors")}
    return read_rounds(folder, without=["seconds"]), json.loads((folder / "summary.json").read_text())["methods"], kept


def assert_same(first: Path, second: Path) -> None:
    for first_part, second_part in zip(result(first), result(second), strict=True):
        assert first_part == second_part


@pytest.fixture(scope="module")
def alone(bench: Callable[..., Run]) -> Run:
    return bench(*GIVEN)


@pytest.mark.slow  # two ranks of the engine are in tests/engine/test_sharded.py
def test_clients_shared_by_two_ranks(alone: Run, shades: Path, tmp_path: Path) -> None:
    words = ["bench", "--data", str(shades), *SMALL, *GIVEN, "--ranks-per-trial", "2", "--out", str(tmp_path / "run")]
    code, out, err = torchrun(*words)
    assert code == 0, err
    assert out.count("From CLI") == 1
    assert_same(alone.folder, tmp_path / "run")
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["ranks"] == {"world": 2, "per_trial": 2}
    assert json.loads((alone.folder / "environment.json").read_text())["ranks"] is None


@pytest.mark.slow
@pytest.mark.timeout(1200)  # seven federations, of which five start two interpreters each
def test_trials_shared_by_two_ranks_a_kill_and_a_resume(
    bench: Callable[..., Run], shades: Path, tmp_path: Path
) -> None:
    options = [*GIVEN, "--source-models", "2", "--trials", "2", "--seed", "5"]
    words = ["bench", "--data", str(shades), *SMALL, *options]
    code, _, err = torchrun(*words, "--out", str(tmp_path / "whole"))
    assert code == 0, err
    for victim in (0, 1):
        folder = tmp_path / f"killed-{victim}"
        kill_rank(start(*words, "--out", str(folder)), victim, folder, lines=7)
        line_count = len((folder / "rounds.jsonl").read_text().splitlines())
        code, _, err = torchrun("resume", str(folder))
        assert code == 0, err
        assert line_count < len(result(folder)[0]) or "is finished" in err
        assert_same(tmp_path / "whole", folder)
    code, out, err = torchrun("resume", str(tmp_path / "whole"))
    assert code == 0, err
    assert err.count(f"{tmp_path / 'whole'} is finished; nothing is left to do") == 1
    assert out.count("Results, configuration and pictures") == 1
    assert_same(bench(*options).folder, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_go_one_after_the_other_where_ranks_share_their_clients(
    bench: Callable[..., Run], shades: Path, tmp_path: Path
) -> None:
    options = ["--rounds", "2", "--baseline", "none", "--engine", "stacked", "--trials", "3", "--trials-at-once", "3"]
    folder, shared = tmp_path / "run", ["--ranks-per-trial", "2"]
    process = start("bench", "--data", str(shades), *SMALL, *options, *shared, "--out", str(folder))
    err = kill_rank(process, 1, folder, lines=4)  # the second trial has begun, the third has not
    assert "ranks share each trial's clients: trials go one after the other, not 3 together" in err
    assert json.loads((folder / "config.json").read_text())["trials_at_once"] == 1
    resumed = call("resume", str(folder))
    assert resumed.code == 0, resumed.err
    assert "together" not in resumed.err
    together = bench(*options)
    (together.folder / "summary.json").unlink()
    code, _, err = torchrun("resume", str(together.folder), *shared)
    assert code == 0, err
    assert "Warning: 3 trials went through rounds together, and now 1: last digits may differ" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--lr", "1e30"],
            "Error: every run of every method that trains diverged, the first because .*; a lower --lr may help",
        ),
        (
            ["--lr", "1e30", "--ranks-per-trial", "2"],
            "Error: every run of every method that trains diverged, the first",
        ),
        (["--ranks-per-trial", "3"], "Error: --ranks-per-trial 3: does not divide the number of ranks, 2"),
        (["--source", "nowhere"], "Error: .*nowhere"),
    ],
)
def test_one_sentence_for_all_ranks(shades: Path, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    words = ["bench", "--data", str(shades), *SMALL, "--baseline", "fedavg", "--out", str(tmp_path / "run"), *arguments]
    code, _, err = torchrun(*words)
    errors = [line for line in err.splitlines() if "Error: " in line and "ChildFailedError" not in line]
    assert code == 1
    assert len(errors) == 1, err
    assert re.match(sentence, errors[0])


OTHERS = "compare", "reproduce", "sweep"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        *(
            ([name, word], f"{name} runs in one process; under torchrun there are fedwca bench and fedwca resume")
            for name, word in zip(OTHERS, ("fedavg", "table2", "--grid=wca"), strict=True)
        ),
        *(
            (["bench", *words], f"bench {words[0]} runs in one process; under torchrun there is fedwca bench")
            for words in (["--dry-run"], ["--backend", "flower"])
        ),
    ],
    ids=str,
)
def test_other_commands_run_in_one_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    # The folder of images does not exist: the command ends before it reads that.
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = call(*arguments, "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert run.code == 2
    assert run.err == f"Error: fedwca {sentence}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        ("Stopped.\n", ""),
        ("Warning: w\nError: no images\n", "rank 1: Error: no images\n"),
        (
            "w\nTraceback (most recent call last):\n  x\nE: y\n",
            "rank 1: Traceback (most recent call last):\n  x\nE: y\n",
        ),
    ],
)
def test_a_rank_that_rank_0_has_not_heard_of_prints_its_own_error(
    monkeypatch: pytest.MonkeyPatch, said: str, printed: str
) -> None:
    stderr, ended = io.StringIO(), list[int]()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "__stderr__", stderr)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    leave_ranks(1, io.StringIO(said))
    assert (stderr.getvalue(), ended) == (printed, [1])


def test_ranks_have_the_same_versions_of_plugins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_check, "plugin_versions", lambda: {"extras": "1.0"})
    leading = installed_versions()
    assert list(leading) == ["fedwca", "torch", "extras"]
    check_versions(leading)
    with pytest.raises(FedwcaError, match=r"^extras 1\.0 is installed here, 1\.1 on rank 0; all ranks need the same$"):
        check_versions(leading | {"extras": "1.1"})
    with pytest.raises(FedwcaError, match=r"^more is not installed here, 2\.0 on rank 0; all"):
        check_versions(leading | {"more": "2.0"})
    del leading["extras"]
    with pytest.raises(FedwcaError, match=r"^extras 1\.0 is installed here, not on rank 0; all"):
        check_versions(leading)


@pytest.mark.filterwarnings("always")
def test_warnings_of_other_ranks_reach_rank_0_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told, sent = list[str](), queue.SimpleQueue[tuple[str, Any]]()
    schedule = object.__new__(RankSchedule)
    schedule.leads, schedule._stop, schedule._warned = True, None, set()
    schedule.channel = SimpleNamespace(send=sent.put)  # type: ignore[assignment]
    schedule.world = SimpleNamespace(check=lambda: None)  # type: ignore[assignment]
    opening = {"versions": {}, "config": {}, "digests": {}, "per_trial": 1, "begun": {}}
    for name, value in {
        "check_versions": lambda versions: None,
        "validate": lambda config: SimpleNamespace(precision="fp32", device="cpu"),
        "compose": lambda config: [],
        "load": lambda config: (SimpleNamespace(name="made"), None),
        "describe_images": lambda dataset: {},
        "RankSchedule": lambda world, per_trial: schedule,
        "TrialSplits": lambda *_: None,
        "Checkpointer": lambda *_: None,
        "run_bench": lambda *_: filter(None, map(warnings.warn, ("drawn", "drawn", "kept"))),
    }.items():
        monkeypatch.setattr(rank_lifecycle, name, value)
    follow_run(SimpleNamespace(everyone=SimpleNamespace(broadcast_object=lambda _: opening)))  # type: ignore[arg-type]
    for message in ("trust", "trust"):
        sent.put(("warning", message))
    with pytest.warns(UserWarning, match="drawn|kept") as warned:  # of equal ones the command line shows the first
        list(schedule._news(sent, Progress(warn=told.append)))
    assert ([str(warning.message) for warning in warned], told) == (["drawn", "drawn", "kept"], ["trust"])


def test_with_debug_an_error_of_any_kind_ends_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "run", lambda arguments: 1 // 0)
    monkeypatch.setattr(cli, "mute_rank", lambda: io.StringIO())
    left = list[int]()
    monkeypatch.setattr(cli, "leave_ranks", lambda code, muted: left.append(code))
    monkeypatch.setattr(cli, "prepare_streams", lambda: None)
    with contextlib.redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit):
        cli.main()
    assert left == [1]
    assert "ZeroDivisionError" in said.getvalue()


def test_ranks_per_trial_needs_ranks(bench: Callable[..., Run]) -> None:
    run = bench("--ranks-per-trial", "2")
    assert run.code == 2
    assert "does not divide the number of ranks, 1; torchrun starts more" in run.err
    assert not run.folder.exists()
    assert "--ranks-per-trial" in bench("--dry-run", "--ranks-per-trial", "3").err
