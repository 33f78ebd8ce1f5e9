"""Two checkouts against each other: ``python benchmarks/compare.py BASE HEAD`` fails where HEAD is over 25 % slower.

Both commits are checked out into a temporary folder. Their runs of each benchmark alternate, each in a process of its
own; CPU seconds count, and the median of the ratios within pairs is compared. A benchmark is code that prints its CPU
seconds; it is taken from this checkout for both sides, so that both do the same work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.25
CLOCK = """
import time, torch
torch.set_num_threads(1)
def timed(work, times):
    work()
    started = time.process_time()
    for _ in range(times):
        work()
    print((time.process_time() - started) / times)
"""
ROUND = """
from fedwca import Keys, SequentialEngine, Method, Training, init_server, run_round
from fedwca.aggregators import aggregators
from fedwca.clusterers import clusterers
from fedwca.data.partition import ClientImages
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
x = torch.randint(0, 256, (4, 128, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
engine = SequentialEngine(LeNet().build(10), [ClientImages(c, c[:0], c[:0]) for c in x], "cpu", workers=1)
aggregator = aggregators.build(NAME)
clusterer = clusterers.build("true") if aggregator.grouping.needs_clusterer else None
method = Method(NAME, NAME, aggregator, TwoModel(), (Shot(),), clusterer)
domains, training = torch.tensor([0, 0, 1, 1]), Training(epochs=1)
server, _ = run_round(0, init_server(engine), method, engine, training, Keys(0), domains)
timed(lambda: run_round(1, server, method, engine, training, Keys(0), domains), 3)
"""
BENCHMARKS = {
    "fedavg": CLOCK + "NAME = 'fedavg'" + ROUND,
    "wca": CLOCK + "NAME = 'wca'" + ROUND,
    "finch": CLOCK
    + "from fedwca.functional import finch\n"
    + "x = torch.randn(1000, 1520, generator=torch.Generator().manual_seed(0))\ntimed(lambda: finch(x), 3)",
    "mixing": CLOCK
    + "from fedwca.engine.parameter_layout import mix_rows\n"
    + "rows, weights = torch.randn(8, 347_850), torch.rand(256, 8).softmax(1)\n"
    + "timed(lambda: mix_rows(weights, rows), 3)",
    "import": "import time\nimport fedwca.cli\nprint(time.process_time())",
}


def seconds(checkout: Path, code: str) -> float:
    """CPU seconds that a benchmark prints when it imports fedwca from a checkout.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=checkout, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"a benchmark failed in {checkout.name}:\n{done.stderr.strip()}")
    return float(done.stdout.split()[-1])


def pairs(base: Path, head: Path, code: str, count: int) -> list[tuple[float, float]]:
    """Seconds of (base, head), in turn; who goes first changes from pair to pair."""
    found = []
    for pair in range(count):
        if pair % 2:
            after = seconds(head, code)
            found.append((seconds(base, code), after))
        else:
            found.append((seconds(base, code), seconds(head, code)))
    return found


def table(measured: dict[str, list[tuple[float, float]]], limit: float) -> tuple[str, bool]:
    """The table to print, and whether nothing is slower than the limit."""
    lines = [f"{'benchmark':<12}{'base s':>10}{'head s':>10}{'head/base':>12}  {'range':<14}"]
    good = True
    for name, found in measured.items():
        before, after = (statistics.median(side) for side in zip(*found, strict=True))
        ratios = [mine / theirs for theirs, mine in found]
        middle = statistics.median(ratios)
        said = "TOO SLOW" if middle > limit else "slower" if middle > 1.05 else "quicker" if middle < 0.95 else "same"
        good &= middle <= limit
        span = f"{min(ratios):.2f}-{max(ratios):.2f}"
        lines.append(f"{name:<12}{before:>10.4f}{after:>10.4f}{middle:>12.3f}  {span:<14}{said}")
    return "\n".join(lines), good


def checkout(commit: str, folder: Path) -> Path:
    """A work tree of a commit (or a folder that is one already), outside this checkout.

    Raises:
        SystemExit: there is no such commit.
    """
    if (Path(commit) / "fedwca").is_dir():
        return Path(commit).resolve()
    done = subprocess.run(
        ["git", "worktree", "add", "--detach", "--quiet", str(folder), commit],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"no commit {commit!r} in this repository: {done.stderr.strip()}")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="commit, branch, or a checked-out folder")
    parser.add_argument("head", help="the same; HEAD for what is committed here")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each side and benchmark; default 5")
    parser.add_argument("--only", nargs="+", choices=sorted(BENCHMARKS), default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--limit", type=float, default=LIMIT, help="largest allowed ratio; default 1.25")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folders = {side: Path(temporary) / side for side in ("base", "head")}
        try:
            base, head = (checkout(getattr(given, side), folder) for side, folder in folders.items())
            measured = {name: pairs(base, head, BENCHMARKS[name], given.pairs) for name in given.only}
        finally:
            for folder in folders.values():
                if folder.exists():
                    subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=False)
    text, good = table(measured, given.limit)
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
