"""Whether a change left all numbers as they were, to the bit.

``python benchmarks/same_numbers.py record BEFORE`` runs small cases of all commands with the checkout that this file is
in and keeps what they write; this takes about six minutes on one core and one gigabyte. After the change, ``record
AFTER`` runs them again, and ``compare BEFORE AFTER`` prints a line per case, with the first number that differs, and
fails if any does. Both recordings must come from the same machine with the same libraries, since otherwise last digits
differ. Times, paths and versions are not compared. ``--only CASE`` selects cases, for both commands.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from forked_commands import run_command, start_process, wait_for
from recorded_numbers import differences, list_files
from same_numbers_cases import cases, write_images

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("faiss", "matplotlib.figure", "pydantic", "rich.console", "sklearn.metrics", "torchvision", "typer")
"""Imported once, because every command runs in a process forked from this one."""


def record(folder: Path, only: Sequence[str]) -> None:
    """Run the cases, each in a folder of its own.

    Args:
        folder: to be created.
        only: names of cases; empty: all.

    Raises:
        SystemExit: the folder exists already, a command failed, or there is no such case.
    """
    folder = folder.resolve()
    if folder.exists():
        raise SystemExit(f"{folder}: is there already; name another folder or remove it")
    (folder / "cache").mkdir(parents=True)
    # One thread, so that sums do not depend on the number of cores; an empty cache, so that source models are trained.
    os.environ |= {"OMP_NUM_THREADS": "1", "FEDWCA_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    os.environ.pop("FEDWCA_DATA", None)
    # Import this checkout's package, not an installed one, nor scripts of this folder.
    sys.path[0] = str(ROOT)
    for library in LIBRARIES:
        importlib.import_module(library)
    write_images(folder / "images")
    run_command("list --json", folder / "cache" / "listed.json")
    steps_by_case = cases(json.loads((folder / "cache" / "listed.json").read_text()))
    try:
        chosen = _chosen(list(steps_by_case), only)
    except SystemExit:
        shutil.rmtree(folder)  # it would be in the way of the command with a right name
        raise
    for name in chosen:
        start_times = os.times()
        (folder / name).mkdir(exist_ok=True)
        os.chdir(folder / name)
        for number, step in enumerate(steps_by_case[name]):
            if isinstance(step, str):
                run_command(step, Path(f"{number}.{'json' if 'json' in step else 'txt'}"))
            else:
                wait_for(start_process(step, Path(f"{number}.log")), f"({name})")
        seconds = sum(os.times()[2:4]) - sum(start_times[2:4])
        print(f"{seconds:6.1f} CPU s  {name}", flush=True)
    print(f"recorded {ROOT.name} in {folder}")


def _chosen(names: Sequence[str], only: Sequence[str]) -> Sequence[str]:
    if unknown := set(only) - set(names):
        raise SystemExit(f"--only {min(unknown)}: there are {', '.join(names)}")
    return only or names


def compare(first: Path, second: Path, only: Sequence[str], hashes: bool = True, added: bool = False) -> bool:
    """Print a line per case; returns whether all are the same.

    Args:
        first: recording.
        second: recording.
        only: names of cases; empty: all.
        hashes: see `differences`.
        added: see `differences`.

    Raises:
        SystemExit: a folder does not exist, or there is no such case.
    """
    for folder in (first, second):
        if not folder.is_dir():
            raise SystemExit(f"{folder}: no such folder")
    names, same = sorted({path.name for folder in (first, second) for path in folder.iterdir()}), True
    for name in _chosen(names, only):
        messages = list(differences(first / name, second / name, hashes, added))
        same &= not messages
        suffix = f" (and {len(messages) - 1} other files)" if len(messages) > 1 else ""
        print(
            f"DIFFERS   {name}: {messages[0]}{suffix}"
            if messages
            else f"same      {name}, files: {len(list_files(first / name))}"
        )
    return same


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, folders in (("record", ["folder"]), ("compare", ["one", "other"])):
        command = commands.add_parser(name)
        for folder in folders:
            command.add_argument(folder, type=Path)
        command.add_argument("--only", action="append", default=[], metavar="NAME", help="a case; repeat for more")
    command.add_argument("--without-hashes", action="store_true", help="leave out what tells configurations apart")
    command.add_argument("--added", action="store_true", help="leave out what the second recording has more of")
    options = parser.parse_args(arguments)
    if options.command == "record":
        record(options.folder, options.only)
        return 0
    return 0 if compare(options.one, options.other, options.only, not options.without_hashes, options.added) else 1


if __name__ == "__main__":
    sys.exit(main())
