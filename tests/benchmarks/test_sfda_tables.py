"""Tables of several sources, made from summaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import definition

from .scripts import script

tables = script("sfda_tables")


def write_summaries(folder: Path, table: str, target: str, **accuracy: float) -> None:
    """Write two runs of each row of a table; their accuracy before the last phase is about 10 points lower."""
    methods = {}
    for row, word in definition(table).rows.items():
        mean = accuracy.get(row, 50.0)
        runs = [
            {"source_model": index, "trial": 0, "mean": mean + index, "before": mean + 3 * index - 10}
            for index in range(2)
        ]
        methods[parse_method(word).name] = {"label": row, "runs": runs}
    (folder / f"{table}-{target}").mkdir(parents=True)
    summary = {"config": {"target": target}, "methods": methods}
    (folder / f"{table}-{target}" / "summary.json").write_text(json.dumps(summary))
    (folder / f"{table}-{target}" / "environment.json").write_text('{"cores": 2, "cpu": "a processor"}')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tables, "RUNS", tmp_path)
    return tmp_path


def test_nothing_is_said_to_be_measured_before_it_is(folder: Path) -> None:
    assert {block() for block in tables.BLOCKS.values()} == {tables.NOTHING}
    write_summaries(folder, "sfda-parts", "usps")
    assert tables.weighting() == tables.accuracies("sfda-table1") == tables.NOTHING


def test_folders_of_other_settings_are_not_joined(folder: Path) -> None:
    for table, samples in (("sfda-parts", 300), ("sfda-table1", 200)):
        write_summaries(folder, table, "usps")
        path = folder / f"{table}-usps" / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"config": {"target": "usps", "samples": samples}}))
    message = r"sfda-parts-usps and sfda-table1-usps cannot be in one table: samples is 300 and 200"
    for block in tables.BLOCKS.values():
        with pytest.raises(ValueError, match=message):
            block()


def test_parts_are_paired_by_run(folder: Path) -> None:
    write_summaries(folder, "sfda-parts", "usps", MDMGB=60.0)
    *lines, machine = tables.parts().splitlines()
    assert machine == "On 2 cores of a processor."
    (line,) = [line for line in lines if line.startswith("| usps: MDMGB |")]
    cells = [cell.strip() for cell in line.replace("\\", "").strip("|").split("|")]
    assert cells[1:3] == ["51.5 ± 2.1", "60.5 ± 0.7"]
    assert cells[3].startswith("+9.0 [")
    assert cells[4] == cells[5] == "+10.0 [+10.0, +10.0]"


def test_rows_of_table_1_stand_beside_the_printed_mean_of_the_same_targets(folder: Path) -> None:
    for target in ("usps", "mnist"):
        write_summaries(folder, "sfda-table1", target, SFDA=80.0)
    lines = tables.accuracies("sfda-table1").replace("\\", "").splitlines()
    (line,) = [line for line in lines if line.startswith("| SFDA |")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        *("SFDA", "80.5 ± 0.7", "80.5 ± 0.7", "80.5", "", "98.6"),
    ]
    # Both rise by a point from run to run, so their difference is the same in each.
    (line,) = [line for line in lines if line.startswith("| DAN |")]
    assert [cell.strip() for cell in line.strip("|").split("|")][4] == "-30.0 [-30.0, -30.0]"


def test_a_row_of_another_folder_gives_the_runs_that_all_rows_have(folder: Path) -> None:
    """The runs of SFDA are in the table of parts; FADA, the most expensive, may be missing for a target."""
    write_summaries(folder, "sfda-parts", "usps", MDMGB=70.0)
    write_summaries(folder, "sfda-table1", "usps")
    path = folder / "sfda-table1-usps" / "summary.json"
    summary = json.loads(path.read_text())
    del summary["methods"]["sfda"], summary["methods"]["fada"]
    for entry in summary["methods"].values():
        del entry["runs"][1]
    path.write_text(json.dumps(summary))
    lines = tables.accuracies("sfda-table1").splitlines()
    assert [line for line in lines if line.startswith("| SFDA |")] == ["| SFDA | 70.0 | 70.0 |  | 98.1 |"]
    assert not [line for line in lines if "FADA" in line]


def test_a_weighting_is_compared_with_the_uniform_mean_over_targets(folder: Path) -> None:
    for target in ("usps", "mnist"):
        write_summaries(folder, "sfda-parts", target, MDMGB=52.0)
    (line,) = [line for line in tables.weighting().splitlines() if line.startswith("| MDMGB − uniform |")]
    assert line.replace("\\", "") == "| MDMGB − uniform | +2.0 [+2.0, +2.0] | +2.0 [+2.0, +2.0] |"
