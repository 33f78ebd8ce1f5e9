"""Messages that a client answers with Flower's real programs: CPU seconds and seconds (Linux, with Flower)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedwca.deploy.flower.processes import flower_environment

ROOT = Path(__file__).resolve().parents[1]
START = "import os, flwr.supernode.runtime.run_clientapp, fedwca.deploy.flower.client_app; print(sum(os.times()[:2]))"
"""What a program does that is started for a message, before it begins with it; tells CPU seconds."""


def measure(runs: int) -> Iterator[dict[str, Any]]:
    """A line for each run: a question and the first round load libraries, so what comes after them counts."""
    for run in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            env = flower_environment(Path(folder) / "home")
            started = subprocess.run([sys.executable, "-c", START], env=env, capture_output=True, text=True, check=True)
            line = [sys.executable, "-m", "tests.deploy.lone_supernode", folder]
            done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
            report = Path(folder) / "report.json"
            if not report.exists():
                raise RuntimeError(done.stderr[-2000:])
            told = json.loads(report.read_text())
        first, *later = told[1:]
        yield {
            **{"run": run, "load": round(os.getloadavg()[0], 1), "start_cpu_seconds": round(float(started.stdout), 2)},
            "seconds": [one["seconds"] for one in later],
            "cpu_seconds": round((later[-1]["cpu_seconds"] - first["cpu_seconds"]) / len(later), 2),
        }
