"""Copy what is worth keeping of a run folder to results/NAME: all that a table may need, or the files named.

In which directory it was run, and the command with its paths, stay behind.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FILES = ("config.json", "environment.json", "rounds.jsonl", "summary.json", "overview.png")


def main() -> None:
    run, name, *files = Path(sys.argv[1]), *sys.argv[2:]
    target = RESULTS / name
    target.mkdir(parents=True, exist_ok=True)
    for file in files or FILES:
        shutil.copyfile(run / file, target / file)
    for file in {"config.json", "environment.json", "summary.json"} & set(files or FILES):
        content = json.loads((run / file).read_text())
        content.pop("places", None)
        content.get("config", {}).pop("places", None)
        content.pop("command", None)
        (target / file).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    print(f"kept {run} as {target}")


if __name__ == "__main__":
    main()
