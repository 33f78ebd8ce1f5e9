"""Could the engine for one client after another be the stacked one, with slices of one client? What that would cost.

CPU seconds of a round on one thread, both engines in one process and in turn: LeNets on digits, and ResNet-18s on
images of 32 and of 64 pixels. *Training* is a round of FedAvg with labels given, so that a round is nothing but
training; *round* is one of FedWCA from the first message to the last. One client's round has the same numbers in both,
within rounding.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from beside import Fixed, describe_ratios, take_turns
from keep import keep
from provenance import provenance

from fedwca import Keys, Method, Training, init_server, run_round
from fedwca.aggregators.fedavg import FedAvg
from fedwca.aggregators.wca import WCA
from fedwca.clusterers.true import TrueDomains
from fedwca.data.federation import ClientImages
from fedwca.datasets import datasets
from fedwca.engine.interface import Engine
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from fedwca.runs.select_engine import ENGINES

CLASSES, REPEATS = 10, 5
CASES = (
    ("lenet", 300, 5, 64, "training"),
    ("lenet", 300, 5, 64, "round"),
    ("resnet18:weights=none,side=32", 32, 1, 16, "training"),
    ("resnet18:weights=none,side=32", 32, 1, 16, "round"),
    ("resnet18:weights=none,side=64", 32, 1, 16, "training"),
)
"""Model, images of each client, epochs, images of a step, and what a round is."""
CLIENTS = 2
METHODS = {
    "training": Method("fedavg", "FedAvg", FedAvg(), Fixed(), (Shot(),)),
    "round": Method("wca", "FedWCA", WCA(), TwoModel(), (Shot(),), TrueDomains()),
}
ENOUGH = 1.05
"""Share of the loop's time that slices of one may take for one engine to do for both."""


def clients(model: str, each: int) -> list[ClientImages]:
    """Digits of two domains for a LeNet; for others noise of the size that the model keeps."""
    if model == "lenet":
        domains = datasets.build("digits_mini").load().domains.values()
        found = [torch.from_numpy(domain.images[:each]).permute(0, 3, 1, 2) for domain in list(domains)[:CLIENTS]]
    else:
        side, draw = models.build(model).stored, torch.Generator().manual_seed(0)
        found = [
            torch.randint(0, 256, (each, 3, side, side), dtype=torch.uint8, generator=draw) for _ in range(CLIENTS)
        ]
    assert [len(x) for x in found] == [each] * CLIENTS
    return [ClientImages(x, x[:0], x[:0]) for x in found]


def work(kind: str, model: str, own: list[ClientImages], method: Method, training: Training) -> Callable[[], None]:
    """Round 1 of a method on an engine, one client at a time, as often as it is called."""
    engine: Engine = ENGINES[kind](models.build(model).build(CLASSES, seed=0), own, "cpu", 1)
    domains = torch.arange(CLIENTS)
    server, _ = run_round(0, init_server(engine), method, engine, training, Keys(0), domains)
    return lambda: run_round(1, server, method, engine, training, Keys(0), domains) and None  # type: ignore[func-returns-value]


def measure(model: str, each: int, epochs: int, batch: int, what: str, repeats: int) -> dict[str, Any]:
    """One model and kind of round: medians, and of the ratios of neighbouring pairs median and quartiles."""
    own, training = clients(model, each), Training(epochs=epochs, batch_size=batch)
    ways = {kind: work(kind, model, own, METHODS[what], training) for kind in ENGINES}
    seconds = take_turns(ways, repeats)
    return {
        "model": model,
        "what": what,
        "images": each,
        "epochs": epochs,
        "batch": batch,
        "seconds": {kind: round(statistics.median(own), 4) for kind, own in seconds.items()},
        "stacked_over_loop": describe_ratios(seconds["stacked"], seconds["loop"], digits=3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "slices_of_one.json")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    # Now: files may be others by the end.
    made_on, cases = provenance("cpu"), []
    for case in CASES:
        cases.append(measure(*case, given.repeats))
        print(cases[-1], flush=True)
    met = all(case["stacked_over_loop"]["median"] <= ENOUGH for case in cases)
    what = f"CPU seconds of a round of {CLIENTS} clients, one at a time, on one thread; medians of {given.repeats}"
    result = {"what": what, "clients": CLIENTS, "cases": cases, "limit": ENOUGH, "met": met}
    keep(given.out, {**result, "environment": made_on})


if __name__ == "__main__":
    main()
