"""Tables and lists keep every number whole, however narrow the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedwca.cli.wide_tables import align_heads, draw_grid, parts
from fedwca.results.tables import Table

COLUMNS = ("method", "photo", "printed", "street", "neon", "mean", "to FedAvg")
GRID = Table(
    "digits_mini: accuracy",
    COLUMNS,
    [["Source Only", *["58.1 ± 4.5"] * 5, "-8.5 ± 3.3"], ["FedAvg", *["59.5 ± 14.7"] * 5, ""]],
)


def drawn(width: int) -> str:
    text = io.StringIO()
    draw_grid(GRID, Console(file=text, width=width), bold="mean")
    return text.getvalue()


def test_a_table_that_fits_is_left_alone() -> None:
    assert parts(GRID, 200) == [GRID]
    assert "59.5 ± 14.7" in drawn(200)


def test_at_80_columns_one_part_with_whole_names_and_numbers() -> None:
    (part,) = parts(GRID, 80)
    assert part.columns == COLUMNS
    text = drawn(80)
    for cell in ("Source Only", "59.5±14.7", "-8.5±3.3", *COLUMNS):
        assert cell in text


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_parts_share_the_first_column_and_hold_every_other_once(width: int) -> None:
    tables = parts(GRID, width)
    assert [table.columns[0] for table in tables] == ["method"] * len(tables)
    assert tuple(name for table in tables for name in table.columns[1:]) == COLUMNS[1:]
    assert [table.title for table in tables] == [GRID.title, *[""] * (len(tables) - 1)]
    assert "…" not in drawn(width)
    assert all(len(line) <= width for line in drawn(width).splitlines())


def test_a_label_longer_than_the_terminal_leaves_numbers_whole() -> None:
    label = "fedwca:ta=0.05,tb=0.1/clusterer=finch:signature=2/objective=shot (diverged in 1 of 3 runs)"
    text = io.StringIO()
    draw_grid(Table("", ("method", "mean"), [[label, "59.5 ± 14.7"]]), Console(file=text, width=60))
    assert "59.5±14.7" in text.getvalue()
    assert "…" not in text.getvalue()
    assert all(len(line) <= 60 for line in text.getvalue().splitlines())


def test_a_long_name_does_not_split_a_table() -> None:
    label = "fedwca:ta=0.05,tb=0.1/clusterer=finch:signature=2/objective=shot"
    grid = Table("", COLUMNS[:-1], [[label, *["59.5 ± 4.7"] * 5]])
    (part,) = parts(grid, 80)
    assert part.columns == COLUMNS[:-1]
    text = io.StringIO()
    draw_grid(grid, Console(file=text, width=80))
    assert text.getvalue().count("59.5±4.7") == 5
    assert "…" not in text.getvalue()
    assert all(len(line) <= 80 for line in text.getvalue().splitlines())


def test_a_name_that_fits_beside_its_numbers_is_not_wrapped() -> None:
    text = io.StringIO()
    draw_grid(Table("", ("method", "a", "b"), [["m" * 45, "59.5 ± 4.7", "60.1 ± 4.7"]]), Console(file=text, width=66))
    assert "m" * 45 in text.getvalue()


def test_an_empty_table_is_one_part_or_more() -> None:
    assert parts(Table("", ("method", "mean"), []), 5)


def test_lists_are_broken_on_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ", ".join(f"name_{number}" for number in range(12))
    assert align_heads(["a", "baselines"], ["x", names]) == ["a          x", f"baselines  {names}"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    (text,) = align_heads(["baselines"], [names])
    first, *next_lines = text.splitlines()
    assert next_lines
    assert all(line.startswith(" " * 11 + "name_") for line in next_lines)
    assert all(len(line) <= 50 for line in (first, *next_lines))
