"""The readings that the paper leaves open, each against the default on the same seeds (Digit-Five files).

python benchmarks/choices.py [DATA] [SOURCE…] keeps a run folder for each reading under runs/choices, runs what is
missing there, and writes the mean accuracy of every run to results/choices.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from digits import layer
from keep import keep

from fedwca import bench

RUNS = Path("runs/choices")
RESULT = Path(__file__).parent / "results" / "choices.json"
FINCH = {"clusterer": "finch"}
FEDAVG = {"aggregator": "fedavg", "pseudo_labeler": "prototype"}
SMALL: dict[str, Any] = {"clients": 3, "samples": 200, "training": {"lr": 3e-3, "epochs": 3}}
UNEQUAL = {"samples": 500, "rounds": 6}
"""Weights by samples differ from uniform ones only if clients differ in size: SVHN's three have 246 images each."""
# Reading: (open question, the reading it is compared with, what the run changes).
READINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "default": ("", "", FINCH),
    "ratio": ("A13", "default", {**FINCH, "pseudo_labeler": "two_model:selection=ratio"}),
    "row": ("A16", "default", {**FINCH, "aggregator": "wca:direction=row"}),
    "weight norm": ("A5", "default", {**FINCH, "model": "lenet:classifier=wn"}),
    "BatchNorm pooled": ("A7", "default", {**FINCH, "batch_norm": "pooled"}),
    "BatchNorm local": ("A7", "default", {**FINCH, "batch_norm": "local"}),
    "BatchNorm recalibrated": ("A7", "default", {**FINCH, "batch_norm": "recalibrated"}),
    "clusters by update": ("A20", "default", {"clusterer": "finch:reference=source"}),
    "FedAvg by samples": ("", "", {**FEDAVG, **UNEQUAL}),
    "FedAvg uniform": ("A23", "FedAvg by samples", {**FEDAVG, **UNEQUAL, "aggregator": "fedavg:weighting=uniform"}),
    "default, unequal clients": ("", "", {**FINCH, **UNEQUAL}),
    "cluster means by samples": (
        "A23",
        "default, unequal clients",
        {**FINCH, **UNEQUAL, "aggregator": "wca:weighting=samples"},
    ),
}


def main(data: str, sources: list[str]) -> None:
    result: dict[str, Any] = {"what": "mean accuracy over clients after the last round, percent", "results": []}
    for source in sources:
        for reading, (question, base, change) in READINGS.items():
            folder = RUNS / f"{source}-{reading.replace(' ', '_')}"
            settings = {**SMALL, "source_models": 5, "name": "method", **change}
            bench(out=folder, resume=True, **layer(data, source, **settings))  # refuses a folder of other settings
            summary = json.loads((folder / "summary.json").read_text())
            assert summary["complete"], f"{folder}: unfinished; remove it and run again"
            summary_runs = summary["methods"]["method"]["runs"]  # without those that diverged
            runs = [run["mean"] for run in summary_runs]
            result["results"].append(
                {"source": source, "reading": reading, "question": question, "against": base, "runs": runs}
                | {"source_models": [run["source_model"] for run in summary_runs], "config": summary["config"]}
            )
            print(source, reading, [round(run, 1) for run in runs], flush=True)
    result["environment"] = json.loads((folder / "environment.json").read_text())
    keep(RESULT, result)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "../shared/data", sys.argv[2:] or ["synth", "mnist"])
