"""Pieces of gpu.py that time whole runs: both engines, Digit-Five alone and as trials together, PACS; no script."""

from __future__ import annotations

import statistics
from typing import Any

from counts import formula
from gpu_setting import DOMAINS, PRECISIONS, Place, Run, quickest, tf32

DIGITS = [2720] * 24 + [744] * 8
"""Training images of 32 clients of Digit-Five: three domains of 34,000 images and USPS, 64 % of them for training."""
ROUNDS = 100
ENGINES = {"lenet": [640] * 12, "resnet18:weights=none,side=64": [480] * 9}
"""Training images of each client by model, about those of data sets that are small enough for a CPU."""


def engines(place: Place) -> dict[str, Any]:
    """Seconds of a FedWCA round of one epoch on the loop and on the stacked engine, by model and precision."""
    result: dict[str, Any] = {}
    for model, sizes in ({"lenet": [16] * 3} if place.small else ENGINES).items():
        result[model] = {"clients": len(sizes), "images": sizes[0], "precisions": {}}
        for name, (precision, allowed) in PRECISIONS.items():
            tf32(allowed)
            kernels, measured = quickest(place, "wca", model, sizes, precision)
            seconds = {"loop": Run(place, "wca", model, sizes, "loop", precision, epochs=1).seconds(2)}
            for choice in dict.fromkeys(("eager", kernels)):
                run = Run(place, "wca", model, sizes, "stacked", precision, epochs=1, kernels=choice)
                seconds[f"stacked {choice}"] = run.seconds(2)
            result[model]["precisions"][name] = {"seconds": seconds, "measured": measured}
    return {"models": result}


def whole_run(
    place: Place, model: str, sizes: list[int], rounds: int, target: float, rounds_each: int = 2
) -> dict[str, Any]:
    """Time FedWCA rounds in every precision, then more rounds in the quickest one.

    Each precision uses the kernels that ``--kernels measure`` chooses.

    Args:
        place: device and size.
        model: of all clients.
        sizes: training images of each client.
        rounds: rounds to time in the quickest precision.
        target: minutes that 100 of these rounds should take at most.
        rounds_each: rounds to time in every precision; 0 where a round takes minutes: the precision with the quickest
            step is then the quickest.
    """
    precisions: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        kernels, measured = quickest(place, "wca", model, sizes, precision)
        precisions[name] = {"kernels": kernels, "measured": measured}
        if rounds_each:
            # Not kept in a variable: its memory would be part of the next peak.
            precisions[name]["seconds"] = Run(
                place, "wca", model, sizes, "stacked", precision, kernels=kernels
            ).seconds(rounds_each)
    best = min(precisions, key=lambda name: _seconds_of(precisions[name]))
    precision, allowed = PRECISIONS[best]
    tf32(allowed)
    place.peak()
    seconds = Run(place, "wca", model, sizes, "stacked", precision, kernels=precisions[best]["kernels"]).seconds(rounds)
    peak, median = place.peak(), statistics.median(seconds)
    # For the cost of a FedWCA round in FedAvg rounds; both run in eager kernels.
    repeats = rounds_each or 1
    wca_seconds = statistics.median(Run(place, "wca", model, sizes, "stacked", precision).seconds(repeats))
    fedavg_seconds = statistics.median(Run(place, "fedavg", model, sizes, "stacked", precision).seconds(repeats))
    return {
        "model": model,
        "clients": len(sizes),
        "images": sizes,
        "epochs": 5,
        "precisions": precisions,
        "chosen": best,
        "seconds_a_round": seconds,
        "seconds_a_round_on_the_loop": Run(place, "wca", model, sizes, "loop", precision).seconds(1),
        "peak_bytes": peak,
        "extrapolated_minutes_of_100_rounds": round(median * ROUNDS / 60, 2),
        "target_minutes": target,
        "met": median * ROUNDS / 60 <= target,
        "in_fedavg_rounds": {"formula": formula(5, DOMAINS), "measured": round(wca_seconds / fedavg_seconds, 3)},
    }


def _seconds_of(entry: dict[str, Any]) -> float:
    """Seconds by which a precision is chosen: of a round, or of a step where no rounds were timed."""
    return statistics.median(entry.get("seconds") or [entry["measured"][entry["kernels"]]["seconds"]])


def digit_five(place: Place) -> dict[str, Any]:
    """Full-size Digit-Five: 32 clients, LeNet, 20 rounds; 100 are extrapolated."""
    sizes = [48] * 3 + [20] if place.small else DIGITS
    return whole_run(place, "lenet", sizes, 2 if place.small else 20, 3.0)


def trials(place: Place) -> dict[str, Any]:
    """Fifteen trials of full-size Digit-Five in every step, beside one alone; two rounds, 100 are extrapolated."""
    sizes, count = ([48] * 3 + [20], 2) if place.small else (DIGITS, 15)
    precisions: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        alone_kernels, _ = quickest(place, "wca", "lenet", sizes, precision)
        alone = Run(place, "wca", "lenet", sizes, "stacked", precision, kernels=alone_kernels).seconds(2)
        together_kernels, measured = quickest(place, "wca", "lenet", sizes, precision, count)
        place.peak()
        together = Run(
            place, "wca", "lenet", sizes, "stacked", precision, trials=count, kernels=together_kernels
        ).seconds(2)
        ratio = count * statistics.median(alone) / statistics.median(together)
        precisions[name] = {
            "kernels": {"alone": alone_kernels, "together": together_kernels, "measured": measured},
            "alone_seconds": alone,
            "together_seconds": together,
            "peak_bytes": place.peak(),
            "times_as_fast": round(ratio, 2),
        }
    best = min(precisions, key=lambda name: statistics.median(precisions[name]["together_seconds"]))
    minutes = statistics.median(precisions[best]["together_seconds"]) * ROUNDS / 60
    return {
        "model": "lenet",
        "clients": len(sizes),
        "trials": count,
        "images": sizes,
        "epochs": 5,
        "precisions": precisions,
        "chosen": best,
        "extrapolated_minutes_of_100_rounds": round(minutes, 2),
        "target_minutes": 15.0,
        "met": minutes <= 15.0,
    }


def pacs(place: Place) -> dict[str, Any]:
    """PACS: nine clients, ResNet-18 at 224 px; one round, 100 are extrapolated."""
    model = "resnet18:weights=none,side=32" if place.small else "resnet18:weights=none"
    return whole_run(place, model, [4] * 3 if place.small else [560] * 9, 1, 15.0, rounds_each=0)
