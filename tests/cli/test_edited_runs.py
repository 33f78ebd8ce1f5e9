"""Run folders with wrong values in their JSON files: commands end in one sentence, and no other run is hidden.

Every value in the files of a run is replaced by each of some odd values: all of these edits in the slow ring, a random
sample of them (with a fixed seed) in the gate.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .conftest import call

NAMES = ("config.json", "environment.json", "summary.json", "rounds.jsonl")
ODD = (
    None, [], {}, "", "x", "[/b]", "\ud800", "0001-01-01T00:00:00", True, 0, -1, 3.5, 10**30, float("inf"),
    [None], {"a": None},
)  # fmt: skip
WHOLE = (b"", b"\xff\xfe", b"[]", b"null", b"{}", b'"x"', b"[" * 100_000)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("runs", "--root", "runs", "--json"),
    ("runs", "--root", "runs", "show", "odd"),
    ("report", "runs/odd", "--out", "made/r.html"),
    ("plot", "runs/odd", "bars", "--to", "made"),
    ("export", "runs/odd", "--client", "0", "--out", "made/m.safetensors"),
    ("runs", "export", "runs/odd", "--out", "made/r.csv"),
    ("resume", "runs/odd", "--quiet"),
)
"""Besides `fedwca compare`, which looks for its runs in a folder of its own."""
COMPARE = ("compare", "fedavg", "local", "--clients", "1", "--samples", "20", "--rounds", "1", "--epochs", "1")
SMALL = ("--batch-size", "16", "--device", "cpu", "--set", "source_training.epochs=0", "--set", "model.bottleneck=4")


STOPPED = 130


@dataclass(frozen=True)
class Edit:
    """A file of a run, and what is changed in it."""

    name: str
    what: str
    content: Callable[[], bytes]
    """Makes its new content; of thousands of edits the gate tries few."""


def find_places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the keys and indices that lead to each value inside; of a list, only its first value is visited."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:1]))
    for step, child in inner:
        yield (*path, step)
        yield from find_places(child, (*path, step))


def put(value: Any, place: tuple[str | int, ...], odd: Any, later: Sequence[bytes]) -> bytes:
    """The JSON of ``value`` with ``odd`` at ``place``, and later lines after it."""
    changed = copy.deepcopy(value)
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = odd
    return b"\n".join([json.dumps(changed).encode(), *later]) + b"\n"


def make_edits(run: Path) -> Iterator[Edit]:
    """Yield edits: every value of every file replaced by every odd value, and every file by every odd content."""
    for name in NAMES:
        first, *later = (run / name).read_bytes().splitlines() if name.endswith("l") else [(run / name).read_bytes()]
        value = json.loads(first)
        for place in find_places(value):
            for odd in ODD:
                yield Edit(name, f"{place} = {odd!r}", partial(put, value, place, odd, later))
        yield from (Edit(name, repr(content[:9]), partial(bytes, content)) for content in WHOLE)


@pytest.fixture(scope="module")
def good(shades: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished comparison, in ``compared``, and its run as ``runs/good``."""
    folder = tmp_path_factory.mktemp("edited")
    comparison = call(*COMPARE, *SMALL, "--data", str(shades), "--out", str(folder / "compared"))
    assert comparison.code == 0, comparison.err
    (run,) = (path.parent for path in (folder / "compared").glob("*/config.json"))
    shutil.copytree(run, folder / "runs/good")
    return folder


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def find_problems(edit: Edit, commands: Sequence[Sequence[str]]) -> list[str]:
    """Run each command on an edited run in the working directory; a line for each that does not end well."""
    problems = []

    def judge(words: Sequence[str]) -> None:
        run = call(*words)
        fine = run.code in (0, 1, 2, STOPPED) and "unexpected " not in run.err and "Traceback" not in run.err
        if not fine or (run.code and not run.err):
            problems.append(f"{edit.name} {edit.what}: {' '.join(words[:2])}: {run.code} {run.err.strip()[-300:]}")
        if words == COMMANDS[0] and (run.code or "good" not in {line["run"] for line in json.loads(run.out)}):
            problems.append(f"{edit.name} {edit.what}: hides the run beside it")

    for words in commands:
        folder = Path("again" if words[0] == "compare" else "runs/odd")
        renew(Path("compared" if words[0] == "compare" else "runs/good"), folder)
        for rounds in folder.rglob("rounds.jsonl"):
            rounds.with_name(edit.name).write_bytes(edit.content())
        judge(words)
    return problems


def renew(good: Path, copied: Path) -> None:
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(good, copied)


@pytest.fixture
def commands(good: Path, shades: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[str, ...], ...]:
    """All commands, with `fedwca compare`; the working directory is where the runs are, and nothing is trained."""
    monkeypatch.chdir(good)
    monkeypatch.setattr("fedwca.runs.execute_run.run_bench", stop)
    return *COMMANDS, (*COMPARE, *SMALL, "--data", str(shades), "--out", "again")


def test_edited_runs_end_in_a_sentence(commands: tuple[tuple[str, ...], ...]) -> None:
    draw = random.Random(0)
    edits = draw.sample(list(make_edits(Path("runs/good"))), 90)
    # Each edit is tried on the list of runs and on one other command.
    pairs = [(edit, (COMMANDS[0], draw.choice(commands[1:]))) for edit in edits]
    assert [problem for edit, pair in pairs for problem in find_problems(edit, pair)] == []


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_all_edited_runs_end_in_a_sentence(commands: tuple[tuple[str, ...], ...]) -> None:
    edits = list(make_edits(Path("runs/good")))
    assert [problem for edit in edits for problem in find_problems(edit, commands)] == []
