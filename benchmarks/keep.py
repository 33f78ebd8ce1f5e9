"""Copy what is worth keeping of a run folder to results/NAME: all that a table may need, or the files named."""

from __future__ import annotations

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
    print(f"kept {run} as {target}")


if __name__ == "__main__":
    main()
