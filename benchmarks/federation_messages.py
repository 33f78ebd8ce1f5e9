"""CPU seconds and wall seconds of messages that a client answers with Flower's real programs (Linux, with Flower)."""

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
"""What a program that is started for one message imports before it handles it; prints the CPU seconds of that."""


def measure(runs: int) -> Iterator[dict[str, Any]]:
    """One line of results per run, without the first two messages (a question and round 0), which load libraries."""
    for run in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            env = flower_environment(Path(folder) / "home")
            start = subprocess.run([sys.executable, "-c", START], env=env, capture_output=True, text=True, check=True)
            command = [sys.executable, "-m", "tests.deploy.lone_supernode", folder]
            completed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
            report = Path(folder) / "report.json"
            if not report.exists():
                raise RuntimeError(completed.stderr[-2000:])
            messages = json.loads(report.read_text())
        first, *later = messages[1:]
        yield {
            **{"run": run, "load": round(os.getloadavg()[0], 1), "start_cpu_seconds": round(float(start.stdout), 2)},
            "seconds": [message["seconds"] for message in later],
            "cpu_seconds": round((later[-1]["cpu_seconds"] - first["cpu_seconds"]) / len(later), 2),
        }
