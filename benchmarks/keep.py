"""Copy what is worth keeping of a run folder to results/NAME: all that a table may need, or the files named.

In which directory it was run, and the command with its paths, stay behind.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically

RESULTS = Path(__file__).parent / "results"
FILES = ("config.json", "environment.json", "rounds.jsonl", "summary.json", "overview.png")
PLACES = {"places", "command"}


def keep(path: Path, result: dict[str, Any]) -> None:
    """Write a result file, whole or not at all; makes its folder."""
    text = json.dumps(without_places(result), indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8") and None)


def without_places(record: dict[str, Any]) -> dict[str, Any]:
    """A record, and records in it, without what names folders of the machine that it was made on."""
    kept = {key: value for key, value in record.items() if key not in PLACES}
    return {key: without_places(value) if isinstance(value, dict) else value for key, value in kept.items()}


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
