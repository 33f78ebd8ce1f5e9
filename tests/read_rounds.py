"""What a run wrote of its rounds, to the letter."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


def read_rounds(
    run: Path, method: str | None = None, number: int | None = None, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Lines of ``rounds.jsonl``; `fedwca.results.read_run_files.read_records` has NaN, which equals nothing, for null.

    Args:
        run: the folder.
        method: whose alone.
        number: of the round that alone is read.
        without: fields that are left out.
    """
    lines = (run / "rounds.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    own = [one for one in records if method in (None, one["method"]) and number in (None, one["round"])]
    return [{key: value for key, value in one.items() if key not in without} for one in own]
