"""The process that a client's apps are forked from: it serves many tasks, returns if killed, ends with its client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedwca.deploy.flower import polling
from fedwca.deploy.flower.follow_parent import follow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Flower starts a program for each message")

SERVE = """
import os, sys, time
from pathlib import Path
from fedwca.deploy.flower.app_process import serve_tasks

folder, tasks = Path(sys.argv[1]), sys.argv[3:]

def take():
    if not tasks:
        return None
    name, _, what = tasks.pop(0).partition(":")
    def task():
        say(name, os.getpid(), os.getppid())
        exec(what)
    return task

def say(name, *numbers):
    (folder / f".{name}").write_text(" ".join(map(str, numbers)))
    (folder / f".{name}").rename(folder / name)

say("served", os.getpid())
serve_tasks(sys.stdin.fileno(), take, float(sys.argv[2]))
"""
KEEP = """
import sys, time
from fedwca.deploy.flower import supernode

supernode.AGAIN = 0.01
app = supernode.AppProcess([sys.executable, "-c", *sys.argv[1:]])
for _ in range(600):
    app.tell()
    time.sleep(0.1)
"""


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def read(file: Path) -> list[int]:
    until(file.exists)
    return [int(number) for number in file.read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def serve(*tasks: str, idle: float = 60) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVE, str(tmp_path), str(idle), *tasks]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0))
        return processes[-1]

    yield serve
    for process in processes:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b".")


def test_tasks_have_processes_of_their_own_from_one_that_lives_on(
    serving: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = serving("a", "b:os.kill(os.getpid(), 9)", "c:raise SystemExit(3)", "d")
    tell(process)
    pids = [read(tmp_path / name) for name in "abcd"]
    # Neither a task that is killed nor one that fails takes the others with it.
    assert {parent for _, parent in pids} == {process.pid}
    assert len({pid for pid, _ in pids}) == 4


def test_it_ends_with_whoever_has_tasks_and_so_does_what_it_is_doing(
    serving: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = serving("a:time.sleep(600)")
    tell(process)
    task_pid, _ = read(tmp_path / "a")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    until(lambda: not runs(task_pid))


TIDY = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: say("told", 1))
say("ready", 1)
while True:
    time.sleep(60)
"""
"""A task that handles SIGINT and SIGTERM itself, as Flower's apps do."""


@pytest.mark.parametrize("how", ["killed", "stopped", "left"])
def test_no_task_outlives_it_or_ends_its_own_way(
    serving: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, how: str
) -> None:
    process = serving("a:" + TIDY)
    tell(process)
    task_pid, _ = read(tmp_path / "a")
    read(tmp_path / "ready")
    if how == "left":
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    process.wait(30)
    until(lambda: not runs(task_pid))
    # An app that handles the signal tells Flower that it ends, and its message is never answered.
    assert not (tmp_path / "told").exists()


def test_a_task_whose_parent_has_ended_before_does_not_begin() -> None:
    child = os.fork()
    if not child:
        try:
            follow(os.getpid(), signal.SIGKILL)  # not its parent's number
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_it_ends_after_long_without_a_task_but_not_while_there_is_one(
    serving: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = serving("a:time.sleep(1); say('done', 1)", idle=0.1)
    tell(process)
    assert process.wait(30) == 0
    assert (tmp_path / "done").exists()
    assert not runs(read(tmp_path / "a")[0])


def test_it_comes_back_when_it_is_killed_and_ends_when_its_client_is(tmp_path: Path) -> None:
    client = subprocess.Popen([sys.executable, "-c", KEEP, SERVE, str(tmp_path), "600"])
    served = tmp_path / "served"
    try:
        (first,) = read(served)
        served.unlink()
        os.kill(first, signal.SIGKILL)
        (second,) = read(served)
        assert first != second
        assert runs(second)
    finally:
        client.kill()
        client.wait()
    until(lambda: not runs(second))


def test_pauses_grow_with_the_wait_and_start_anew_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    told_after: list[int] = []
    monkeypatch.setattr(polling.time, "sleep", slept.append)
    pauses = polling.SuperNodePauses(lambda: told_after.append(len(slept)))
    for _ in range(60):
        pauses.sleep(3)
    assert slept[:4] == [0.1] * 4
    assert slept == sorted(slept)
    assert slept[-1] == 3
    assert not told_after
    for _ in range(20):
        pauses.sleep(0.5)
    assert slept[60:64] == [0.1] * 4
    assert max(slept[60:]) == 0.5
    assert told_after == list(range(60, 80))
    pauses.sleep(3)
    assert slept[-1] == 0.1


def test_flowers_loop_waits_as_it_is_thought_to() -> None:
    flower = pytest.importorskip("flwr.supernode.start_client_internal")
    # `SuperNodePauses` tells the loop's two waits apart by their lengths. With other lengths a wait would not be
    # shortened, or the app would never be told of a message.
    text = Path(flower.__file__).read_text()
    calls = [line.strip() for line in text.splitlines() if "time." in line.split("#")[0] and "time.sleep" in line]
    assert calls == [f"time.sleep({polling.LATEST:.0f})", "time.sleep(0.5)", "time.sleep(0.5)"]
