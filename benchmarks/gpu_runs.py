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
"""Training images of clients by model, about as the data sets have them that are small enough for a CPU."""


def engines(place: Place) -> dict[str, Any]:
    """Seconds of a FedWCA round of one epoch on the loop and on the stacked engine, by model and precision."""
    found: dict[str, Any] = {}
    for model, sizes in ({"lenet": [16] * 3} if place.small else ENGINES).items():
        found[model] = {"clients": len(sizes), "images": sizes[0], "precisions": {}}
        for name, (precision, allowed) in PRECISIONS.items():
            tf32(allowed)
            kernels, measured = quickest(place, "wca", model, sizes, precision)
            seconds = {"loop": Run(place, "wca", model, sizes, "loop", precision, epochs=1).seconds(2)}
            for tried in dict.fromkeys(("eager", kernels)):
                run = Run(place, "wca", model, sizes, "stacked", precision, epochs=1, kernels=tried)
                seconds[f"stacked {tried}"] = run.seconds(2)
            found[model]["precisions"][name] = {"seconds": seconds, "measured": measured}
    return {"models": found}


def whole_run(
    place: Place, model: str, sizes: list[int], rounds: int, target: float, rounds_each: int = 2
) -> dict[str, Any]:
    """Seconds of FedWCA rounds by precision, in kernels as ``--kernels measure`` chooses them, and of the rounds of a
    whole run in the quickest of them.

    Args:
        place: where.
        model: of all clients.
        sizes: training images of each.
        rounds: that are timed in the quickest precision.
        target: minutes that 100 of them should take.
        rounds_each: rounds that are timed in every precision; 0, where a round takes minutes: the quickest is that of
            the quickest step.
    """
    tried: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        kernels, measured = quickest(place, "wca", model, sizes, precision)
        tried[name] = {"kernels": kernels, "measured": measured}
        if rounds_each:
            run = Run(place, "wca", model, sizes, "stacked", precision, kernels=kernels)
            tried[name]["seconds"] = run.seconds(rounds_each)
    best = min(tried, key=lambda name: _seconds_of(tried[name]))
    precision, allowed = PRECISIONS[best]
    tf32(allowed)
    place.peak()
    seconds = Run(place, "wca", model, sizes, "stacked", precision, kernels=tried[best]["kernels"]).seconds(rounds)
    peak, median = place.peak(), statistics.median(seconds)
    # In the same kernels: how many rounds of FedAvg a round costs.
    few = rounds_each or 1
    eager = statistics.median(Run(place, "wca", model, sizes, "stacked", precision).seconds(few))
    price = statistics.median(Run(place, "fedavg", model, sizes, "stacked", precision).seconds(few))
    return {
        "model": model,
        "clients": len(sizes),
        "images": sizes,
        "epochs": 5,
        "precisions": tried,
        "chosen": best,
        "seconds_a_round": seconds,
        "seconds_a_round_on_the_loop": Run(place, "wca", model, sizes, "loop", precision).seconds(1),
        "peak_bytes": peak,
        "extrapolated_minutes_of_100_rounds": round(median * ROUNDS / 60, 2),
        "target_minutes": target,
        "met": median * ROUNDS / 60 <= target,
        "in_fedavg_rounds": {"formula": formula(5, DOMAINS), "measured": round(eager / price, 3)},
    }


def _seconds_of(tried: dict[str, Any]) -> float:
    """What a precision is chosen by: a round, or a step where no rounds were timed."""
    return statistics.median(tried.get("seconds") or [tried["measured"][tried["kernels"]]["seconds"]])


def digit_five(place: Place) -> dict[str, Any]:
    """Full-size Digit-Five: 32 clients, LeNet, 20 rounds; 100 are extrapolated."""
    sizes = [48] * 3 + [20] if place.small else DIGITS
    return whole_run(place, "lenet", sizes, 2 if place.small else 20, 3.0)


def trials(place: Place) -> dict[str, Any]:
    """Fifteen trials of full-size Digit-Five in every step, beside one alone; two rounds, 100 are extrapolated."""
    sizes, number = ([48] * 3 + [20], 2) if place.small else (DIGITS, 15)
    tried: dict[str, Any] = {}
    for name, (precision, allowed) in PRECISIONS.items():
        tf32(allowed)
        one, _ = quickest(place, "wca", "lenet", sizes, precision)
        alone = Run(place, "wca", "lenet", sizes, "stacked", precision, kernels=one).seconds(2)
        place.peak()
        every, measured = quickest(place, "wca", "lenet", sizes, precision, number)
        run = Run(place, "wca", "lenet", sizes, "stacked", precision, trials=number, kernels=every)
        together = run.seconds(2)
        ratio = number * statistics.median(alone) / statistics.median(together)
        tried[name] = {
            "kernels": {"alone": one, "together": every, "measured": measured},
            "alone_seconds": alone,
            "together_seconds": together,
            "peak_bytes": place.peak(),
            "times_as_fast": round(ratio, 2),
        }
    best = min(tried, key=lambda name: statistics.median(tried[name]["together_seconds"]))
    minutes = statistics.median(tried[best]["together_seconds"]) * ROUNDS / 60
    return {
        "model": "lenet",
        "clients": len(sizes),
        "trials": number,
        "images": sizes,
        "epochs": 5,
        "precisions": tried,
        "chosen": best,
        "extrapolated_minutes_of_100_rounds": round(minutes, 2),
        "target_minutes": 15.0,
        "met": minutes <= 15.0,
    }


def pacs(place: Place) -> dict[str, Any]:
    """PACS: nine clients, ResNet-18 at 224 px; one round, 100 are extrapolated."""
    model = "resnet18:weights=none,side=32" if place.small else "resnet18:weights=none"
    return whole_run(place, model, [4] * 3 if place.small else [560] * 9, 1, 15.0, rounds_each=0)
