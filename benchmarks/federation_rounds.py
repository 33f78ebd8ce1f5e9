"""Rounds of a deployment as it is: a server and four clients, real programs over TLS (Linux, with Flower)."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedwca.deploy.server_status import LOG
from tests.deploy.processes import commands, laid_out, port, running, submitted
from tests.shades import write_shades

CLIENTS = 4
DONE = re.compile(r"^(\S+ \S+) INFO round \d+ is done$", re.MULTILINE)
LOOK = 0.25
"""Seconds between two looks at memory."""


def round_seconds(log: str) -> list[float]:
    r"""Seconds from the end of each round to the end of the next; round 0, which loads libraries, is not among them.

    >>> round_seconds("2026-01-01 10:00:00,000 INFO round 0 is done\n2026-01-01 10:00:02,500 INFO round 1 is done\n")
    [2.5]
    """
    ends = [datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f") for at in DONE.findall(log)]
    return [round((later - end).total_seconds(), 2) for end, later in pairwise(ends)]


def below(root: int) -> set[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tree


def memory(processes: set[int]) -> float:
    """Megabytes that these hold; what several share is counted once, in parts."""
    kilobytes = 0
    for pid in processes:
        with suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            kilobytes += int(found[1]) if found else 0
    return kilobytes / 1000


def cpu_seconds(processes: set[int]) -> float:
    """Of these and of those below them that have ended and were waited for."""
    ticks = 0
    for pid in processes:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """Looks at a client's memory until it is told to stop, and at the CPU seconds of all at the end of round 0."""

    def __init__(self, client: int, roots: list[int], log: Path) -> None:
        super().__init__(daemon=True)
        self.client, self.roots, self.log = client, roots, log
        self.seen: list[float] = []
        self.spent: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Look."""
        while not self.over.wait(LOOK):
            if not self.spent and self.log.exists() and "round 0 is done" in self.log.read_text():
                self.spent.append(self._spent())
            if self.spent:
                self.seen.append(memory(below(self.client)))

    def end(self) -> None:
        """Look a last time."""
        self.over.set()
        self.join()
        self.spent.append(self._spent())

    def _spent(self) -> float:
        return cpu_seconds(set().union(*map(below, self.roots)))


def measure(runs: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A line for each federation: FedWCA, a LeNet, 30 images of four clients each, an epoch a round.

    Raises:
        RuntimeError: a federation failed; what it printed.
    """
    for run in range(runs):
        with tempfile.TemporaryDirectory() as made:
            root, at = Path(made), port()
            folder, load = root / "d", os.getloadavg()[0]
            laid_out(folder, write_shades(root / "shades"), "wca", "--rounds", str(rounds))
            log = folder / "server" / LOG
            with running(*commands(folder, CLIENTS, at), logs=root) as processes:
                watch = Watch(processes[1].pid, [process.pid for process in processes], log)
                watch.start()
                done: subprocess.CompletedProcess[str] = submitted(folder, at)
                watch.end()
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            seconds = round_seconds(log.read_text())
        yield {
            **{"run": run, "load": round(load, 1), "clients": CLIENTS, "seconds": seconds},
            "cpu_seconds": round((watch.spent[-1] - watch.spent[0]) / len(seconds), 2),
            "client_megabytes": {"least": round(min(watch.seen)), "most": round(max(watch.seen))},
        }
