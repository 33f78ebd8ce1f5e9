"""Copy what is worth keeping of a run folder to results/NAME: configuration, environment, rounds, summary, picture."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    run, name = Path(sys.argv[1]), sys.argv[2]
    target = RESULTS / name
    target.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "environment.json", "rounds.jsonl", "summary.json", "overview.png"):
        shutil.copyfile(run / file, target / file)
    print(f"kept {run} as {target}")


if __name__ == "__main__":
    main()
