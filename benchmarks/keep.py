"""Copy what is worth keeping of a run folder to results/NAME: all that a table may need, or the files named.

In which directory it was run stays behind.
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
    config = json.loads((run / "config.json").read_text())
    config.pop("places", None)
    (target / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    print(f"kept {run} as {target}")


if __name__ == "__main__":
    main()
