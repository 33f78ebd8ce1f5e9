"""A failure of what a run writes beside its table never loses the table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedwca.runs.write_summary import draw_picture


@pytest.mark.parametrize("error", [ValueError("no such backend"), OSError("disk full"), ImportError("no matplotlib")])
def test_a_picture_that_fails_costs_a_warning(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("fedwca.runs.write_summary.overview", fail)
    monkeypatch.setattr("fedwca.runs.write_summary.read_run", lambda _: SimpleNamespace(title="a run"))
    run: Any = SimpleNamespace(folder=SimpleNamespace(path=tmp_path))
    with pytest.warns(UserWarning, match=rf"overview\.png: the picture could not be drawn \({error}\)"):
        draw_picture(run, [], {})
