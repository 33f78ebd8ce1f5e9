"""A run for tests of `fedwca resume`: as it was after some of its records, and what it ends with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.read_rounds import read_rounds

from .conftest import Run, call

Make = Callable[..., Run]
ORDER = [("source_only", -1), *((method, r) for method in ("fedavg", "wca") for r in (-1, 0, 1, 2))]
TOGETHER = [
    *("--rounds", "2", "--baseline", "fedavg", "--trials", "3", "--participation", "0.5"),
    *("--engine", "stacked", "--trials-at-once", "2"),
]


def result(folder: Path) -> tuple[list[Any], dict[str, Any], dict[str, bytes]]:
    """Rounds without seconds, the summary without times, and the bytes of the models that were kept."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["timing"]
    models = {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.glob("checkpoints/*/*"))}
    return read_rounds(folder, without=["seconds"]), summary, models


def stopped(all_checkpoints: Path, folder: Path, records: int, *, behind: int = 0, tail: str = "") -> Path:
    """A copy of a run as it was after its first ``records`` records.

    Args:
        all_checkpoints: a run with all its checkpoints.
        folder: where.
        records: how many lines ``rounds.jsonl`` had.
        behind: of how many of these records, the last ones, the checkpoint had not been written yet.
        tail: an unfinished line behind them.
    """
    shutil.copytree(all_checkpoints, folder)
    (folder / "summary.json").unlink()
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:records]) + tail)
    for method, number in ORDER[records - behind :]:
        (folder / f"checkpoints/0-0-{method}/{number + 1:06d}.safetensors").unlink()
    return folder


def resume(folder: Path, *options: str) -> Run:
    return call("resume", str(folder), *options, folder=folder)


def edit_config(folder: Path, **values: Any) -> None:
    """Set values in a run's ``config.json``, those in ``config`` beside the ones that stay there."""
    contents = json.loads((folder / "config.json").read_text())
    contents["config"] |= values.pop("config", {})
    (folder / "config.json").write_text(json.dumps({**contents, **values}))
