"""Every command line of the docs runs.

The short ones run here, on runs that are there already. `pytest -m slow tests/docs` runs all of them, each in a process
as a reader would, in the order of its page; with `FEDWCA_COMMANDS_LOG=tests/docs/commands.json` it writes the log.
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
    """One folder with all that the pages speak of."""
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
    done = call(*command.words, *command.appended)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err


def logged() -> list[dict[str, Any]]:
    return json.loads(LOG.read_text()) if LOG.exists() else []  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, private_cache: Path) -> Callable[[Command], Place]:
    """The folder of a command's page."""
    found: dict[Path, Place] = {}

    def place_of(command: Command) -> Place:
        if command.page not in found:
            found[command.page] = Place(tmp_path_factory.mktemp(command.page.stem))
            prepare(found[command.page].folder, command.page)
        return found[command.page]

    return place_of


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL, ids=str)
def test_a_command_runs_as_a_reader_types_it(command: Command, places: Callable[[Command], Place]) -> None:
    if command.missing:
        pytest.skip(f"not installed: {', '.join(command.missing)}")
    place = places(command)
    done = place.run(command)
    if wanted := os.environ.get("FEDWCA_COMMANDS_LOG"):
        write_log(Path(wanted), place.entry(command))
    assert done.code == 0, done.err
    assert "Traceback" not in done.err


def write_log(path: Path, entry: dict[str, Any]) -> None:
    """Put an entry in its place; commands that the docs no longer have go."""
    entries = {(one["page"], one["command"]): one for one in [*logged(), entry]}
    kept = [entries[c.where, c.line] for c in dict.fromkeys(ALL) if (c.where, c.line) in entries]
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize(
    "words", [words for _, words in mentions() if words[0] == "reproduce" and len(words) == 2], ids=" ".join
)
def test_a_table_that_a_page_names_can_be_planned(words: list[str], tmp_path: Path) -> None:
    done = call(*words, "--dry-run", "--out", str(tmp_path))
    assert done.code == 0, done.err


def test_every_command_is_in_the_log_and_went_well() -> None:
    found = {(entry["page"], entry["command"]): (entry["appended"], entry["exit_code"]) for entry in logged()}
    wanted = {(command.where, command.line): (shlex.join(command.appended), 0) for command in ALL}
    assert found == wanted, "run: FEDWCA_COMMANDS_LOG=tests/docs/commands.json pytest -m slow tests/docs"
