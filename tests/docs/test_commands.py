"""Every command line of the docs runs.

The short ones run here, on runs that are there already. `pytest -m slow tests/docs` runs all of them in the order of
their page, each in a process as a reader would; with `FEDWCA_COMMANDS_LOG=tests/docs/commands.json` it writes the log.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..cli.conftest import call
from .pages import mentions
from .workplace import ALL, LOG, Command, Place, prepare


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, private_cache: Path) -> Path:
    """One folder with everything that the pages refer to."""
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder, None)
    return folder


@pytest.mark.parametrize("command", [command for command in ALL if command.short], ids=str)
def test_a_short_command_runs(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if command.missing:
        pytest.skip(f"not installed: {', '.join(command.missing)}")
    monkeypatch.chdir(place)
    monkeypatch.setenv("FEDWCA_DATA", str(place / "DATA"))
    monkeypatch.setattr("typer.launch", lambda address: 0)
    result = call(*command.words, *command.appended)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err


def logged() -> list[dict[str, Any]]:
    return json.loads(LOG.read_text()) if LOG.exists() else []  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, private_cache: Path) -> Callable[[Command], Place]:
    """The folder of a command's page."""
    places_by_page: dict[Path, Place] = {}

    def place_of(command: Command) -> Place:
        if command.page not in places_by_page:
            places_by_page[command.page] = Place(tmp_path_factory.mktemp(command.page.stem))
            prepare(places_by_page[command.page].folder, command.page)
        return places_by_page[command.page]

    return place_of


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL, ids=str)
def test_a_command_runs_as_a_reader_types_it(command: Command, places: Callable[[Command], Place]) -> None:
    if command.missing:
        pytest.skip(f"not installed: {', '.join(command.missing)}")
    place = places(command)
    result = place.run(command)
    if log := os.environ.get("FEDWCA_COMMANDS_LOG"):
        write_log(Path(log), place.entry(command))
    assert result.code == 0, result.err
    assert "Traceback" not in result.err


def write_log(path: Path, entry: dict[str, Any]) -> None:
    """Put an entry in its place in the log; commands that the docs no longer have are removed."""
    entries = {(item["page"], item["command"]): item for item in [*logged(), entry]}
    ordered = [entries[c.where, c.line] for c in dict.fromkeys(ALL) if (c.where, c.line) in entries]
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize(
    "words", [words for _, words in mentions() if words[0] == "reproduce" and len(words) == 2], ids=" ".join
)
def test_a_table_that_a_page_names_can_be_planned(words: list[str], tmp_path: Path) -> None:
    result = call(*words, "--dry-run", "--out", str(tmp_path))
    assert result.code == 0, result.err


def test_every_command_is_in_the_log_and_went_well() -> None:
    logged_results = {(entry["page"], entry["command"]): (entry["appended"], entry["exit_code"]) for entry in logged()}
    expected = {(command.where, command.line): (shlex.join(command.appended), 0) for command in ALL}
    assert logged_results == expected, "run: FEDWCA_COMMANDS_LOG=tests/docs/commands.json pytest -m slow tests/docs"
