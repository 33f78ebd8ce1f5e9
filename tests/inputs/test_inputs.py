"""Whatever is wrong in a file, an option or the system: the command ends in one sentence, runs no code, loses no file.

Cases come from seeds: `make_case(SEED, …)` makes a case again, and ``FEDWCA_SEEDS=7,93`` runs only these.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..fork_server import Ended, ForkServer
from .cases import Case, make_case
from .damage import TRACE
from .materials import Materials, make_materials

CHOSEN = [int(seed) for seed in os.environ.get("FEDWCA_SEEDS", "").split(",") if seed]
SEEDS = CHOSEN or range(2000)
GATE = CHOSEN or range(0, 2000, 10)
PARTS = 4
"""Tests that share the seeds of the gate, so that none of them is long."""
LIMIT = 60.0
"""Seconds after which a command counts as failed."""
TEMPORARY = re.compile(r"\.[^/]*-[0-9a-f]{32}")


@pytest.fixture(scope="module")
def good(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Materials:
    return make_materials(tmp_path_factory.mktemp("good"), fork_server)


Files = dict[str, tuple[int, int]]


def files_in(folder: Path) -> Files:
    """Size and modification time of every file and folder below a folder, by relative path."""
    stats = {}
    for path in folder.rglob("*"):
        stat = path.lstat()
        stats[str(path.relative_to(folder))] = (-1, 0) if path.is_dir() else (stat.st_size, stat.st_mtime_ns)
    return stats


def problems(case: Case, ended: Ended, before: Files, after: Files) -> list[str]:
    """What is wrong with how a case ended, one phrase each."""
    output = ended.out + ended.err
    words = " ".join(case.command.words)
    faults = [f"exit code {ended.code}"] if ended.code not in (0, 1, 2, 130) else []
    faults += ["took too long"] if ended.seconds >= LIMIT else []
    faults += ["a traceback"] if "Traceback (most recent" in output else []
    faults += ["'unexpected'"] if re.search(r"Error: unexpected ", output) else []
    faults += ["a payload was run"] if any(Path(name).name == TRACE for name in after) else []
    silent = {1, 2} & set(case.command.closed) or case.command.full or case.command.file_size == 0
    faults += ["failed without a word"] if ended.code in (1, 2) and not silent and not ended.err.strip() else []
    new = [name for name in after if name not in before]
    faults += [f"left the temporary file {name}" for name in new if TEMPORARY.search(name)]
    if ended.code == 2:
        faults += [f"wrote {name} though the request is wrong" for name in new if Path(name).parts[0] != "cache"][:1]
    elif ended.code == 1 and not silent:
        # A failed command may leave only files that its arguments or its output name, and a model's card.
        unexpected = (
            name
            for name in new
            if Path(name).parts[0] not in {*words.replace("=", " ").split(), "x.safetensors.md", "runs", "cache"}
        )
        faults += [
            f"left {name}, which nothing names" for name in unexpected if Path(name).parts[0] not in output + words
        ][:1]
    for kept in case.kept:
        changed = [
            name for name, stat in before.items() if _within(name, kept) and after.get(name) != stat and stat[0] >= 0
        ]
        faults += [f"changed {name}" for name in changed if Path(name).name != ".lock"][:1]
    return faults


def _within(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")


def check_seeds(seeds: Sequence[int], server: ForkServer, good: Materials, place: Path) -> None:
    """Run the cases, and fail with all that is wrong in any of them."""
    wrong, codes, families = [], Counter[int](), Counter[str]()
    for seed in seeds:
        folder = place / "case"
        case = make_case(seed, folder, good)
        before = files_in(folder)
        ended = server.run(case.command)
        codes[ended.code] += 1
        families[case.family] += 1
        if faults := problems(case, ended, before, files_in(folder)):
            tail = ended.err.strip().splitlines()[-1:] or [""]
            wrong.append(
                f"{seed} ({case.family}): {'; '.join(faults)}\n    fedwca {case.command.words!r}\n    {tail[0][:300]}"
            )
        shutil.rmtree(folder)
    counts = f"{len(seeds)} command lines; by exit code {dict(sorted(codes.items()))}, by kind {dict(families)}"
    sys.stdout.write(f"{counts}\n")
    assert not wrong, f"{len(wrong)} of {counts}\n" + "\n".join(wrong)


@pytest.mark.parametrize("part", range(PARTS))
def test_bad_input_ends_in_a_sentence(part: int, fork_server: ForkServer, good: Materials, tmp_path: Path) -> None:
    check_seeds(GATE[part::PARTS], fork_server, good, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_much_bad_input_ends_in_a_sentence(fork_server: ForkServer, good: Materials, tmp_path: Path) -> None:
    check_seeds(SEEDS, fork_server, good, tmp_path)
