"""Time and memory of a real deployment's rounds: a server and four clients over TLS (Linux, with Flower)."""

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
"""Seconds between two readings of memory."""


def round_seconds(log: str) -> list[float]:
    r"""Seconds from the end of each round to the end of the next; round 0, which loads libraries, is left out.

    >>> round_seconds("2026-01-01 10:00:00,000 INFO round 0 is done\n2026-01-01 10:00:02,500 INFO round 1 is done\n")
    [2.5]
    """
    ends = [datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f") for time in DONE.findall(log)]
    return [round((next_end - end).total_seconds(), 2) for end, next_end in pairwise(ends)]


def below(root: int) -> set[int]:
    """Process ids of a process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    tree = {root}
    while children := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= children
    return tree


def memory(processes: set[int]) -> float:
    """Megabytes that processes hold; memory that several share is divided among them (PSS)."""
    kilobytes = 0
    for pid in processes:
        with suppress(OSError):
            match = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            kilobytes += int(match[1]) if match else 0
    return kilobytes / 1000


def cpu_seconds(processes: set[int]) -> float:
    """CPU seconds of processes and of their ended children that were waited for."""
    ticks = 0
    for pid in processes:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """Reads a client's memory repeatedly until `end`, and the CPU seconds of all processes at the end of round 0."""

    def __init__(self, client: int, roots: list[int], log: Path) -> None:
        super().__init__(daemon=True)
        self.client, self.roots, self.log = client, roots, log
        self.seen: list[float] = []
        self.spent: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Read until `end` is called; memory counts from the end of round 0."""
        while not self.over.wait(LOOK):
            if not self.spent and self.log.exists() and "round 0 is done" in self.log.read_text():
                self.spent.append(self._spent())
            if self.spent:
                self.seen.append(memory(below(self.client)))

    def end(self) -> None:
        """Stop, and read the CPU seconds a last time."""
        self.over.set()
        self.join()
        self.spent.append(self._spent())

    def _spent(self) -> float:
        return cpu_seconds(set().union(*map(below, self.roots)))


def measure(runs: int, rounds: int) -> Iterator[dict[str, Any]]:
    """One line of results per federation: FedWCA with a LeNet, four clients with 30 images each, one epoch per round.

    Raises:
        RuntimeError: a federation failed; the message is what it printed.
    """
    for run in range(runs):
        with tempfile.TemporaryDirectory() as temporary:
            root, port_number = Path(temporary), port()
            folder, load = root / "d", os.getloadavg()[0]
            laid_out(folder, write_shades(root / "shades"), "wca", "--rounds", str(rounds))
            log = folder / "server" / LOG
            with running(*commands(folder, CLIENTS, port_number), logs=root) as processes:
                watch = Watch(processes[1].pid, [process.pid for process in processes], log)
                watch.start()
                completed: subprocess.CompletedProcess[str] = submitted(folder, port_number)
                watch.end()
            if completed.returncode:
                raise RuntimeError(completed.stdout + completed.stderr)
            seconds = round_seconds(log.read_text())
        yield {
            **{"run": run, "load": round(load, 1), "clients": CLIENTS, "seconds": seconds},
            "cpu_seconds": round((watch.spent[-1] - watch.spent[0]) / len(seconds), 2),
            "client_megabytes": {"least": round(min(watch.seen)), "most": round(max(watch.seen))},
        }
