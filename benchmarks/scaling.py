"""How CPU seconds grow with clients and images: curves with fitted exponents, as JSON and as a picture for the docs.

Each point is the median of runs after a warm-up, with the sizes of a curve in turn; the exponent is the slope of log
seconds over log size.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from beside import cpu
from counts import Setting
from keep import refuse_rehearsal
from provenance import commit

from fedwca.engine.parameter_layout import mix_rows
from fedwca.functional import finch, soft_neighborhood_density
from fedwca.results.environment import describe_environment

ROOT = Path(__file__).resolve().parents[1]
CLIENTS, IMAGES = (4, 8, 16, 32), (64, 128, 256, 512)
Work = Callable[[], object]


def rounds(method: str, clients: int, images: int) -> Work:
    """Round 1 of a method: one epoch, two clusters."""
    setting = Setting(method, clients, 2, 1, images, batch=64)
    return lambda: setting.run(1)


def signatures(clients: int) -> Work:
    """FINCH over signatures of 500 values per client."""
    x = torch.randn(clients, 500, generator=torch.Generator().manual_seed(0))
    return lambda: finch(x)


def density(images: int) -> Work:
    """Soft neighborhood density of ten classes."""
    p = torch.randn(images, 10, generator=torch.Generator().manual_seed(0)).softmax(1)
    return lambda: soft_neighborhood_density(p)


def mixing(clients: int) -> Work:
    """A model for each client as a weighted mean of eight."""
    generator = torch.Generator().manual_seed(0)
    rows, weights = torch.randn(8, 347_850, generator=generator), torch.rand(clients, 8, generator=generator).softmax(1)
    return lambda: mix_rows(weights, rows)


def curves() -> Iterator[tuple[str, str, dict[int, Callable[[], Work]]]]:
    """Yield (label of a curve, quantity on its x axis, setup of the work by size)."""
    for method in ("fedavg", "wca"):
        yield f"round, {method}", "clients", {k: lambda k=k, method=method: rounds(method, k, 64) for k in CLIENTS}  # type: ignore[misc]
        yield f"round, {method}", "images", {i: lambda i=i, method=method: rounds(method, 4, i) for i in IMAGES}  # type: ignore[misc]
    yield "FINCH", "clients", {k: lambda k=k: signatures(k) for k in (500, 1000, 2000, 4000)}  # type: ignore[misc]
    yield "mixing", "clients", {k: lambda k=k: mixing(k) for k in (32, 64, 128, 256)}  # type: ignore[misc]
    yield "density (SND)", "images", {i: lambda i=i: density(i) for i in (512, 1024, 2048, 4096)}  # type: ignore[misc]


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of a straight line through the logarithms, least squares.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(s) for s in seconds]
    return statistics.linear_regression(x, y).slope


def measure(repeats: int) -> list[dict[str, Any]]:
    """Measure all curves."""
    measured = []
    for label, over, points in curves():
        work_by_size = {size: build() for size, build in points.items()}
        for work in work_by_size.values():
            work()
        runs: dict[int, list[float]] = {size: [] for size in work_by_size}
        for _ in range(repeats):
            for size, work in work_by_size.items():
                runs[size].append(cpu(work))  # type: ignore[arg-type]
        medians = [statistics.median(r) for r in runs.values()]
        spread = [statistics.quantiles(r, n=4) for r in runs.values()]
        curve = {
            "what": label,
            "over": over,
            "sizes": list(work_by_size),
            "cpu_seconds": [round(m, 6) for m in medians],
            "iqr": [round(q[2] - q[0], 6) for q in spread],
            "exponent": round(exponent(list(work_by_size), medians), 2),
        }
        print(curve, flush=True)
        measured.append(curve)
    return measured


def picture(measured: list[dict[str, Any]], path: Path) -> None:
    """Draw curves over clients and over images, with their exponents, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, over in zip(figure.subplots(1, 2, sharey=True), ("clients", "images"), strict=True):
        for curve in measured:
            if curve["over"] == over:
                name = f"{curve['what']} ~ {over}^{curve['exponent']}"
                axes.loglog(curve["sizes"], curve["cpu_seconds"], marker="o", label=name)
        axes.set(xlabel=over, ylabel="CPU seconds")
        axes.legend(fontsize=7, loc="lower right" if over == "clients" else "center right")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scaling.json")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "internals" / "scaling.png")
    options = parser.parse_args(arguments)
    refuse_rehearsal(parser, options, "repeats", files=("out", "picture"))
    torch.set_num_threads(1)
    measured = measure(options.repeats)
    result = {
        "what": "CPU seconds on one thread, median and interquartile range of runs in turn after a warm-up",
        "repeats": options.repeats,
        "commit": commit(),
        "curves": measured,
        "load_average": round(os.getloadavg()[0], 1),
        "environment": describe_environment("cpu"),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    picture(measured, options.picture)


if __name__ == "__main__":
    main()
