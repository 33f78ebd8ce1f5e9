"""What leaving out of uploads, defences and noise cost, measured message by message in one process.

    python benchmarks/federation.py uploads OUT.json [--clients 2 --samples 120 --rounds 4]
    python benchmarks/federation.py defences OUT.json [--seeds 3]
    python benchmarks/federation.py messages OUT.json [--runs 2]
    python benchmarks/federation.py rounds OUT.json [--runs 2 --rounds 4]

Eight clients of digits-mini (two for each of four domains); each line is one federation from the same source model, or
with several seeds one for each, every seed with a source model and a split of its own.
Lines that OUT.json holds with the same settings are not measured again. Lines with noise need dp-accounting.
Messages are answered by real processes, see `federation_messages.py`; so are rounds, see `federation_rounds.py`.
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
    """Lines about what is uploaded."""
    found = [Case(what, "fedavg", upload=given) for what, given in UPLOADS.items()]
    found += [Case(what, "wca", upload=given) for what, given in UPLOADS.items() if what != "top 1 %"]
    return found + [Case(what, METHODS[2], upload=UPLOADS[what]) for what in ("full precision", "half precision")]


def defences() -> list[Case]:
    """Lines about lies and noise."""
    found = [Case("full precision", name) for name in METHODS[:2]]
    uniform = "fedavg:weighting=uniform"
    found += [Case(what, name, rules=given, liar=True) for name in (uniform, "wca") for what, given in DEFENCES.items()]
    found += [Case("nobody lies", name, apart=True) for name in (uniform, "wca")]
    found.append(Case("nobody lies, median", uniform, rules={"robust": "median"}, apart=True))
    found += [Case(f"clip {clip}, noise {noise}", "fedavg", privacy=Privacy(clip, noise)) for clip, noise in NOISE]
    return found


def measured(every: list[Trials], case: Case) -> dict[str, Any]:
    """One line: what the first seed shows, and the accuracies of all."""
    found = [trials.measure(case) for trials in every]
    accuracies = [line["accuracy"] for line in found]
    spread = round(stdev(accuracies), 2) if len(every) > 1 else None
    seen = [line["clusters"] for line in found]
    told = {"accuracy": round(mean(accuracies), 2), "std": spread, "accuracies": accuracies, "clusters": seen}
    return {**found[0], **(told if len(every) > 1 else {})}


def write_lines(out: Path, found: Iterable[dict[str, Any]]) -> None:
    """What real processes show, each line as it comes."""
    around = describe_environment("cpu")
    around["versions"]["flwr"] = version("flwr")
    lines = []
    for line in found:
        lines.append(line)
        out.write_text(json.dumps({"environment": around, "lines": lines}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["uploads", "defences", "messages", "rounds"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", type=int, default=2)
    given = parser.parse_args()
    if given.part == "messages":
        write_lines(given.out, federation_messages.measure(given.runs))
        return
    if given.part == "rounds":
        write_lines(given.out, federation_rounds.measure(given.runs, given.rounds))
        return
    cases = uploads() if given.part == "uploads" else defences()
    logging.disable(logging.WARNING)
    every = [Trials(given.clients, given.samples, given.rounds, seed) for seed in range(given.seeds)]
    trials = every[0]
    kept = json.loads(given.out.read_text()) if given.out.exists() else {}
    settings = trials.settings | ({"seeds": given.seeds} if given.seeds > 1 else {})
    same = kept.get("settings") == to_plain(settings)
    lines = {(line["what"], line["aggregator"]): line for line in kept.get("lines", ()) if same and "labels" in line}
    predicted = kept.get("predicted", {}) if same else {}

    def write() -> None:
        ordered = [lines[case.what, case.aggregator] for case in cases if (case.what, case.aggregator) in lines]
        around = describe_environment("cpu")
        if any(line["epsilon"] for line in ordered):
            around["versions"]["dp-accounting"] = version("dp-accounting")
        result = {
            **{"settings": settings, "environment": around, "source_only": alone},
            **{"predicted": predicted, "clusterings": clusterings, "lines": ordered},
        }
        given.out.write_text(json.dumps(result, indent=1) + "\n")

    alone = trials.source_only() if len(every) == 1 else [one.source_only() for one in every]
    clusterings = kept.get("clusterings", {}) if same else {}
    if given.part == "uploads" and not clusterings:
        clusterings = trials.clusterings()
    for aggregator in METHODS if given.part == "uploads" else ():
        if aggregator not in predicted:
            predicted[aggregator] = trials.predicted(aggregator)
    for case in cases:
        if (case.what, case.aggregator) not in lines:
            lines[case.what, case.aggregator] = measured(every, case)
            write()
    write()


if __name__ == "__main__":
    main()
