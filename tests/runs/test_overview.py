"""What a run leaves beside its table never costs the table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.config.run_config import RunConfig
from fedwca.runs.write_summary import draw_picture


@pytest.mark.parametrize("error", [ValueError("no such backend"), OSError("disk full"), ImportError("no matplotlib")])
def test_a_picture_that_fails_costs_a_warning(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("fedwca.runs.write_summary.overview", fail)
    config = RunConfig(source="a", clients=1, rounds=1)
    dataset = SimpleNamespace(name="shades")
    run: Any = SimpleNamespace(
        plan=SimpleNamespace(config=config, named="source", domain="a"),
        folder=SimpleNamespace(path=tmp_path),
        splits=SimpleNamespace(dataset=dataset),
    )
    with pytest.warns(UserWarning, match=rf"overview\.png: the picture could not be drawn \({error}\)"):
        draw_picture(run, [], {})
