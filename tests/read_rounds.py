"""Read the rounds of a run as they are written in its file."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


def read_rounds(
    run: Path, method: str | None = None, number: int | None = None, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the records of ``rounds.jsonl``, with null as None.

    `fedwca.results.read_run_files.read_records` turns null into NaN, which is not equal to itself.

    Args:
        run: the run's folder.
        method: only records of this method.
        number: only records of this round.
        without: fields that are left out.
    """
    lines = (run / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    selected = [
        record for record in records if method in (None, record["method"]) and number in (None, record["round"])
    ]
    return [{key: value for key, value in record.items() if key not in without} for record in selected]
