"""Copy what is worth keeping of a run folder to results/NAME: all that a table may need, or the files named.

The directory it was run in and its command line, which holds paths, are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically

RESULTS = Path(__file__).parent / "results"
FILES = ("config.json", "environment.json", "rounds.jsonl", "summary.json", "overview.png")
PLACES = {"places", "command"}
"""Keys whose values name folders of the machine that a run was made on."""


def keep(path: Path, result: dict[str, Any]) -> None:
    """Write a result without `PLACES` as JSON, whole or not at all; creates the folder if needed."""
    text = json.dumps(without_places(result), indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8") and None)


def refuse_rehearsal(
    parser: argparse.ArgumentParser, options: argparse.Namespace, *sizes: str, files: Sequence[str] = ("out",)
) -> None:
    """End with exit code 2 where a measurement of another size would overwrite a committed file.

    Args:
        parser: knows the sizes that are committed, and where: its defaults.
        options: that were given.
        sizes: names of the options that say how much is measured.
        files: names of the options for the files that are written.
    """
    changed = [name for name in sizes if getattr(options, name) != parser.get_default(name)]
    kept = [name for name in files if getattr(options, name).resolve() == parser.get_default(name).resolve()]
    if changed and kept:
        size = changed[0].replace("_", "-")
        parser.error(
            f"--{size} is not its default, and what is committed is not overwritten by it: give another --{kept[0]}"
        )


def without_places(record: dict[str, Any]) -> dict[str, Any]:
    """A record without the keys of `PLACES`, which name folders of one machine, at any depth of dictionaries."""
    entries = {key: value for key, value in record.items() if key not in PLACES}
    return {key: without_places(value) if isinstance(value, dict) else value for key, value in entries.items()}


def main() -> None:
    run, name, *files = Path(sys.argv[1]), *sys.argv[2:]
    target = RESULTS / name
    target.mkdir(parents=True, exist_ok=True)
    for file in files or FILES:
        if file.endswith(".json"):
            keep(target / file, json.loads((run / file).read_text(encoding="utf-8")))
        else:
            shutil.copyfile(run / file, target / file)
    print(f"kept {run} as {target}")


if __name__ == "__main__":
    main()
