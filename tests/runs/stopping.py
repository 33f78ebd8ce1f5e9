"""Stop a run in the middle, and compare what it goes on to with a run that was not stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedwca.runs import run_rounds
from fedwca.runs.open_run import open_run
from tests.read_rounds import read_rounds


def stop(play: Callable[[], object], call: int, function: str = "close_round", module: ModuleType = run_rounds) -> None:
    """Stop a run, as Ctrl-C does, where a function is called for the ``call``-th time, in place of that call.

    In `close_round` clients have trained, and nothing of the round is saved yet.
    """
    original, numbers = getattr(module, function), count(1)

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(numbers) == call:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, stopping)
        with pytest.raises(KeyboardInterrupt):
            play()


def check_same_bits(resumed: Path, run: Path, methods: Collection[str] | None = None) -> None:
    """Check that a run has the same records and models as another one; ``methods``: those that it has, if not all."""
    expected = read_rounds(run, without=["seconds"])
    if methods is not None:
        expected = [record for record in expected if record["method"] in methods]
    assert read_rounds(resumed, without=["seconds"]) == expected
    check_same_models(resumed, run)


def check_same_models(run: Path, other: Path, rounds: int | None = None) -> None:
    """Check that all methods of a run that train have the models they have in another one, after ``rounds`` rounds.

    With None it is the round that the table shows.
    """
    for method in {record["method"] for record in read_rounds(run, number=0)}:
        actual, expected = (open_run(path, method, round=rounds) for path in (run, other))
        assert torch.equal(actual.bank, expected.bank), method
        assert torch.equal(actual.server.rows, expected.server.rows), method
        assert torch.equal(actual.delivered, expected.delivered), method
