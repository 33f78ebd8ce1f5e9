"""Rounds of a federation with real processes: seconds, CPU seconds, and what a client holds in memory (Linux)."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

CLIENTS, ROUNDS, SAMPLE, QUIET = 4, 4, 0.25, 5.0
"""How many of both; seconds between two looks at the processes; seconds without a message that count as rest."""
SETTING = [
    *("--aggregator", "wca", "--clusterer", "finch", "--deal", "1", "--samples", "60", "--rounds", str(ROUNDS)),
    *("--epochs", "1", "--set", "source_training.epochs=1", "--rule", "alone=warn"),
]
"""Of `fedwca deploy init`: one client for each target domain of digits-mini, LeNet, TLS and node keys."""
DONE = re.compile(rf"^(\S+ \S+) INFO (?:round (\d+) is done|{CLIENTS} of {CLIENTS} clients are connected)")
TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fedwca", *arguments]


def descendants(root: int) -> list[tuple[int, float, float]]:
    """Process, CPU seconds of it and those it has waited for, and resident MB, of all that a process began."""
    found: dict[int, tuple[int, float, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            spent = sum(map(int, fields[11:15])) / TICK
            found[int(entry.name)] = (int(fields[1]), spent, int(fields[21]) * PAGE / 1e6)
    tree, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, *_) in found.items() if parent in tree} - tree
        tree, grown = tree | more, bool(more)
    return [(pid, *found[pid][1:]) for pid in sorted(tree & set(found))]


def shared_out(pid: int) -> float:
    """MB of a process, where a page that several processes have counts in equal parts (PSS)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    (line,) = (line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024 / 1e6


class Watch(threading.Thread):
    """Looks at the processes of a federation now and then."""

    def __init__(self, mine: int, client: int) -> None:
        super().__init__(daemon=True)
        self.mine, self.client, self.over = mine, client, threading.Event()
        self.seen: list[dict[str, float]] = []

    def run(self) -> None:
        while not self.over.wait(SAMPLE):
            every = descendants(self.mine)
            theirs = descendants(self.client)
            cpu = sum(spent for pid, spent, _ in every if pid != self.mine)
            pss = [shared_out(pid) for pid, *_ in theirs]
            self.seen.append(
                {
                    "time": time.time(),
                    "cpu": cpu,
                    "pss": sum(pss),
                    "rss": sum(resident for *_, resident in theirs),
                    "largest": max(resident for *_, resident in theirs),
                    "processes": len(theirs),
                    "load": os.getloadavg()[0],
                }
            )

    def between(self, start: float, end: float) -> list[dict[str, float]]:
        """What was seen in a span of time."""
        return [one for one in self.seen if start <= one["time"] <= end]

    def cpu_at(self, when: float) -> float:
        """CPU seconds spent by then."""
        return max((one["cpu"] for one in self.seen if one["time"] <= when), default=0.0)


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program as in a terminal of its own, that is ended by its id."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(there: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise RuntimeError("the server did not begin")
        time.sleep(1)


def play(folder: Path) -> dict[str, Any]:
    """One federation; what its rounds took, the first and the later ones, and the memory of its first client."""
    subprocess.run(program("deploy", "init", str(folder / "d"), *SETTING), check=True, capture_output=True)
    port, deployment = free_port(), folder / "d"
    where = ["--server", f"127.0.0.1:{port}"]
    with ExitStack() as stack:
        stack.enter_context(started(program("server", str(deployment), "--port", str(port)), folder / "server.log"))
        # A client that is not let in yet ends and is started again, which would be most of what these cores do.
        until(lambda: "keys are let in" in (folder / "server.log").read_text())
        clients = []
        for k in range(CLIENTS):
            own, data = deployment / "clients" / str(k), deployment / "data" / f"client-{k}.npz"
            line = program("client", str(own), "--data", str(data), "--seat", str(k), *where)
            clients.append(stack.enter_context(started(line, folder / f"client-{k}.log")))
        watch = Watch(os.getpid(), clients[0].pid)
        watch.start()
        line = program("deploy", "run", str(deployment), *where)
        if stack.enter_context(started(line, folder / "run.log")).wait(1200):
            raise RuntimeError((folder / "run.log").read_text())
        ended = time.time()
        time.sleep(2 * QUIET)
        watch.over.set()
        watch.join()
    told = [DONE.match(line) for line in (deployment / "server" / "federation.log").read_text().splitlines()]
    marks = {found[2]: datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp() for found in told if found}
    times = [marks[None], *(marks[str(number)] for number in range(ROUNDS))]  # type: ignore[index]
    spent = [watch.cpu_at(when) for when in times]
    rest, work = watch.between(ended + QUIET, ended + 3 * QUIET), watch.between(times[1], times[-1])
    return {
        "seconds": [round(b - a, 2) for a, b in itertools.pairwise(times)],
        "cpu_seconds": [round(b - a, 2) for a, b in itertools.pairwise(spent)],
        "load": round(statistics.mean(one["load"] for one in work), 1),
        "client": {"rest": sizes(rest, statistics.median), "largest": sizes(work, max)},
    }


def sizes(seen: list[dict[str, float]], of: Any) -> Mapping[str, float]:
    """MB of one client's processes, and of the largest of them."""
    return {name: round(of([one[name] for one in seen])) for name in ("pss", "rss", "largest", "processes")}


def measure(what: str, runs: int) -> Iterator[dict[str, Any]]:
    """A line for each run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended then too
    for number in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            yield {"what": what, "run": number, **play(Path(folder))}
