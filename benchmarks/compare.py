"""Two checkouts against each other: ``python benchmarks/compare.py BASE HEAD`` fails where HEAD is over 25 % slower.

Both commits are checked out into a temporary folder. Their runs of each benchmark alternate, each in a process of its
own; CPU seconds count, and the median of the ratios within pairs is compared. The benchmarks are those of `compared.py`
in this checkout for both sides, so that both do the same work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from checkouts import ROOT, checked_out

LIMIT = 1.25
BENCHMARKS = ("fedavg", "wca", "finch", "mixing", "import")
SCRIPT = ROOT / "benchmarks" / "compared.py"


def seconds(checkout: Path, name: str) -> float:
    """CPU seconds that a benchmark prints when it imports fedwca from a checkout.

    Raises:
        SystemExit: the benchmark failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(
        [sys.executable, str(SCRIPT), name], env=environment, cwd=checkout, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise SystemExit(f"{name} failed in {checkout.name}:\n{completed.stderr.strip()}")
    return float(completed.stdout.split()[-1])


def pairs(base: Path, head: Path, name: str, count: int) -> list[tuple[float, float]]:
    """Seconds of (base, head) in each pair of runs; the side that runs first alternates."""
    timings = []
    for pair in range(count):
        if pair % 2:
            head_seconds = seconds(head, name)
            timings.append((seconds(base, name), head_seconds))
        else:
            timings.append((seconds(base, name), seconds(head, name)))
    return timings


def table(measured: dict[str, list[tuple[float, float]]], limit: float) -> tuple[str, bool]:
    """The table to print, and whether nothing is slower than the limit."""
    lines = [f"{'benchmark':<12}{'base s':>10}{'head s':>10}{'head/base':>12}  {'range':<14}"]
    good = True
    for name, timings in measured.items():
        base_median, head_median = (statistics.median(side) for side in zip(*timings, strict=True))
        ratios = [head / base for base, head in timings]
        ratio = statistics.median(ratios)
        verdict = "TOO SLOW" if ratio > limit else "slower" if ratio > 1.05 else "quicker" if ratio < 0.95 else "same"
        good &= ratio <= limit
        span = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(f"{name:<12}{base_median:>10.4f}{head_median:>10.4f}{ratio:>12.3f}  {span:<14}{verdict}")
    return "\n".join(lines), good


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="commit, branch, or a checked-out folder")
    parser.add_argument("head", help="the same; HEAD for what is committed here")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each side and benchmark; default 5")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, metavar="NAME")
    parser.add_argument("--limit", type=float, default=LIMIT, help="largest allowed ratio; default 1.25")
    options = parser.parse_args(arguments)
    with checked_out(options.base, options.head) as (base, head):
        measured = {name: pairs(base, head, name, options.pairs) for name in options.only}
    text, good = table(measured, options.limit)
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
