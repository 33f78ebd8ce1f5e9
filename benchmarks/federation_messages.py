"""Messages that a client answers with Flower's real programs: seconds, CPU seconds and memory (Linux, with Flower)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from fedwca.deploy.flower.processes import flower_environment

ROOT = Path(__file__).resolve().parents[1]
HOW = {"a program for each, as Flower starts it": ["flower"], "forks of one process": []}
"""By what messages are answered: arguments of ``tests.deploy.lone_supernode``."""


def measure(runs: int) -> Iterator[dict[str, Any]]:
    """A line for each run: a question and the first round load libraries, so what comes after them counts."""
    for run in range(runs):
        for what, how in HOW.items():
            with tempfile.TemporaryDirectory() as folder:
                line = [sys.executable, "-m", "tests.deploy.lone_supernode", folder, *how]
                load = os.getloadavg()[0]
                env = flower_environment(Path(folder) / "home")
                done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
                report = Path(folder) / "report.json"
                if not report.exists():
                    raise RuntimeError(done.stderr[-2000:])
                told = json.loads(report.read_text())
            first, *later = told[1:]
            cpu = (later[-1]["cpu_seconds"] - first["cpu_seconds"]) / len(later)
            yield {
                **{"what": what, "run": run, "load": round(load, 1)},
                "seconds": [one["seconds"] for one in later],
                "cpu_seconds": round(cpu, 2),
                **{"held_mb": round(fmean(x["held_mb"] for x in later)), "most_mb": round(told[-1]["most_mb"])},
            }
