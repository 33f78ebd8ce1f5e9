"""What leaving out of uploads, defences and noise cost, measured message by message in one process.

    python benchmarks/federation.py uploads OUT.json [--clients 2 --samples 120 --rounds 4]
    python benchmarks/federation.py defences OUT.json [--seeds 3]
    python benchmarks/federation.py messages OUT.json [--runs 2]
    python benchmarks/federation.py rounds OUT.json [--runs 2 --rounds 4]

Eight clients of digits-mini (two for each of four domains). Each line of uploads and defences is one federation, all
from the same source model; with several seeds, one per seed, each seed with a source model and a split of its own.
Lines that OUT.json holds with the same settings are not measured again. Lines with noise need dp-accounting.
Messages and rounds are measured on real processes, see `federation_messages.py` and `federation_rounds.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import federation_messages
import federation_rounds
from federation_trials import Case, Trials
from keep import keep
from provenance import measured_on

from fedwca.core.plain_values import to_plain
from fedwca.deploy.privacy import Privacy
from fedwca.results.environment import describe_environment

METHODS = ("fedavg", "wca", "revised_wca:u=2")
UPLOADS = {
    "full precision": {},
    "half precision": {"transport": "half"},
    "top 10 %": {"top": 0.1},
    "top 10 %, feedback": {"top": 0.1, "feedback": True},
    "top 10 %, feedback, half": {"top": 0.1, "feedback": True, "transport": "half"},
    "top 1 %": {"top": 0.01},
    "top 1 %, feedback": {"top": 0.01, "feedback": True},
}
DEFENCES = {
    "one of eight lies": {},
    "one lies, norm bound 3": {"norm_bound": 3.0},
    "one lies, median": {"robust": "median"},
    "one lies, trimmed mean": {"robust": "trimmed"},
}
NOISE = ((1.0, 0.0), (0.3, 0.0), (1.0, 0.01), (1.0, 0.1), (1.0, 1.0), (0.3, 4.0))


def uploads() -> list[Case]:
    """Cases that differ in what is uploaded."""
    cases = [Case(label, "fedavg", upload=upload) for label, upload in UPLOADS.items()]
    cases += [Case(label, "wca", upload=upload) for label, upload in UPLOADS.items() if label != "top 1 %"]
    return cases + [Case(label, METHODS[2], upload=UPLOADS[label]) for label in ("full precision", "half precision")]


def defences() -> list[Case]:
    """Cases with a client that lies, with defences, and with noise."""
    cases = [Case("full precision", name) for name in METHODS[:2]]
    uniform = "fedavg:weighting=uniform"
    cases += [
        Case(label, name, rules=rules, liar=True) for name in (uniform, "wca") for label, rules in DEFENCES.items()
    ]
    cases += [Case("nobody lies", name, apart=True) for name in (uniform, "wca")]
    cases.append(Case("nobody lies, median", uniform, rules={"robust": "median"}, apart=True))
    cases += [Case(f"clip {clip}, noise {noise}", "fedavg", privacy=Privacy(clip, noise)) for clip, noise in NOISE]
    return cases


def measured(all_trials: list[Trials], case: Case) -> dict[str, Any]:
    """One line of results: that of the first seed, with accuracies and numbers of clusters of all seeds."""
    lines = [trials.measure(case) for trials in all_trials]
    accuracies = [line["accuracy"] for line in lines]
    spread = round(stdev(accuracies), 2) if len(all_trials) > 1 else None
    clusters = [line["clusters"] for line in lines]
    over_seeds = {"accuracy": round(mean(accuracies), 2), "std": spread, "accuracies": accuracies, "clusters": clusters}
    return {**lines[0], **(over_seeds if len(all_trials) > 1 else {})}


def write_lines(out: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write lines measured on real processes; the file is written again after each of them."""
    environment = describe_environment("cpu")
    environment["versions"]["flwr"] = version("flwr")
    written = []
    for line in lines:
        written.append(line)
        keep(out, {"environment": environment, "lines": written})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["uploads", "defences", "messages", "rounds"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    if options.part == "messages":
        write_lines(options.out, federation_messages.measure(options.runs))
        return
    if options.part == "rounds":
        write_lines(options.out, federation_rounds.measure(options.runs, options.rounds))
        return
    cases = uploads() if options.part == "uploads" else defences()
    logging.disable(logging.WARNING)
    all_trials = [Trials(options.clients, options.samples, options.rounds, seed) for seed in range(options.seeds)]
    trials = all_trials[0]
    previous = json.loads(options.out.read_text()) if options.out.exists() else {}
    settings = trials.settings | ({"seeds": options.seeds} if options.seeds > 1 else {})
    same = previous.get("settings") == to_plain(settings)
    lines = {
        (line["what"], line["aggregator"]): line for line in previous.get("lines", ()) if same and "labels" in line
    }
    predicted = dict(previous.get("predicted", {})) if same else {}

    environment = describe_environment("cpu")
    if options.part == "defences":
        environment["versions"]["dp-accounting"] = version("dp-accounting")
    first, own = measured_on(environment, previous["environment"] if lines else None)

    def write() -> None:
        ordered = [lines[case.what, case.aggregator] for case in cases if (case.what, case.aggregator) in lines]
        result = {
            **{"settings": settings, "environment": first, "source_only": source_only},
            **{"predicted": predicted, "clusterings": clusterings, "lines": ordered},
        }
        keep(options.out, result)

    source_only = trials.source_only() if len(all_trials) == 1 else [item.source_only() for item in all_trials]
    clusterings = previous.get("clusterings", {}) if same else {}
    if options.part == "uploads" and not clusterings:
        clusterings = trials.clusterings()
    for aggregator in METHODS if options.part == "uploads" else ():
        if aggregator not in predicted:
            predicted[aggregator] = trials.predicted(aggregator)
    write()
    for case in cases:
        if (case.what, case.aggregator) not in lines:
            lines[case.what, case.aggregator] = measured(all_trials, case) | own
            write()


if __name__ == "__main__":
    main()
