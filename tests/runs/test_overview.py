"""The picture that a run writes beside its table, and that a failure of it never loses the table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from fedwca.results.pictures.overview import overview
from fedwca.results.table_rows import summarise, table_rows
from fedwca.runs.write_summary import draw_picture


@pytest.mark.parametrize("error", [ValueError("no such backend"), OSError("disk full"), ImportError("no matplotlib")])
def test_a_picture_that_fails_costs_a_warning(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("fedwca.runs.write_summary.overview", fail)
    monkeypatch.setattr("fedwca.runs.write_summary.read_run", lambda _: SimpleNamespace(title="", first_models=""))
    run: Any = SimpleNamespace(folder=SimpleNamespace(path=tmp_path))
    with pytest.warns(
        UserWarning, match=rf"overview\.png: the picture could not be drawn \({error}\).* plot .* overview draws it"
    ):
        draw_picture(run, [], {})


def test_the_picture_of_a_run(tmp_path: Path) -> None:
    record = {"method": "wca", "source_model": 0, "trial": 0}
    records = [{**record, "round": number, "accuracy": [50.0 + number, 70.0]} for number in (-1, 0)]
    results = summarise(table_rows(records, {"wca": "FedWCA"}, ["neon", "photo"]))
    overview(records, results, tmp_path / "overview.png", "a run")
    with Image.open(tmp_path / "overview.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (12 * 120, 5 * 120))
