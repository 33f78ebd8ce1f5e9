"""Writes on what machine, and by which versions, a run was started and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedwca.errors import FedwcaError
from fedwca.results.environment import changed_values, describe_move
from fedwca.results.read_run_files import read_environment
from fedwca.results.write_run import RunFolder


def count_subgroups(run: Path) -> int:
    """Number of subgroups of ranks that a run began with, which went through rounds side by side."""
    try:
        ranks = read_environment(run).get("ranks") or {}
    except FedwcaError:
        ranks = {}
    return int(ranks.get("world", 1)) // int(ranks.get("per_trial", 1)) or 1


def note_environment(folder: RunFolder, environment: Mapping[str, Any], finished_rounds: int) -> str | None:
    """Write ``environment.json``; for a resumed run, add what differs from the environment it began in.

    Args:
        folder: the run's folder; a damaged ``environment.json`` is replaced.
        environment: the environment of this process.
        finished_rounds: number of finished rounds that are kept.

    Returns:
        A sentence on the differences; None if none of them can change results.
    """
    try:
        original = read_environment(folder.path)
    except FedwcaError:
        original = {}
    if not original:
        folder.write("environment.json", environment)
        return None
    changed = changed_values(original, environment)
    folder.write(
        "environment.json", {**original, "resumed": {**original.get("resumed", {}), str(finished_rounds): changed}}
    )
    return describe_move(original, changed)
