"""Could the engine for one client after another be the stacked one, with slices of one client? What that would cost.

CPU seconds of a round on one thread, both engines in one process and in turn, for LeNet on digits and ResNet-18 on
images of 32 and 64 pixels. *Training* is a round of FedAvg with fixed labels, which does nothing but train; *round* is
a complete round of FedWCA. A client's results are the same on both engines, within rounding.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from beside import Fixed, describe_ratios, take_turns
from keep import keep, refuse_rehearsal
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
from fedwca.runs.resources.select_engine import ENGINES

CLASSES, REPEATS = 10, 5
CASES = (
    ("lenet", 300, 5, 64, "training"),
    ("lenet", 300, 5, 64, "round"),
    ("resnet18:weights=none,side=32", 32, 1, 16, "training"),
    ("resnet18:weights=none,side=32", 32, 1, 16, "round"),
    ("resnet18:weights=none,side=64", 32, 1, 16, "training"),
)
"""Model, images per client, epochs, images per step, and kind of round, a key of `METHODS`."""
CLIENTS = 2
METHODS = {
    "training": Method("fedavg", "FedAvg", FedAvg(), Fixed(), (Shot(),)),
    "round": Method("wca", "FedWCA", WCA(), TwoModel(), (Shot(),), TrueDomains()),
}
ENOUGH = 1.05
"""Largest ratio to the loop's time at which the stacked engine with one client at a time could replace the loop."""


def clients(model: str, images_per_client: int) -> list[ClientImages]:
    """Images of each client: digits of two domains for a LeNet, for other models noise of the size they store."""
    if model == "lenet":
        domains = datasets.build("digits_mini").load().domains.values()
        images = [
            torch.from_numpy(domain.images[:images_per_client]).permute(0, 3, 1, 2)
            for domain in list(domains)[:CLIENTS]
        ]
    else:
        side, generator = models.build(model).stored_side, torch.Generator().manual_seed(0)
        images = [
            torch.randint(0, 256, (images_per_client, 3, side, side), dtype=torch.uint8, generator=generator)
            for _ in range(CLIENTS)
        ]
    assert [len(x) for x in images] == [images_per_client] * CLIENTS
    return [ClientImages(x, x[:0]) for x in images]


def work(
    kind: str, model: str, client_images: list[ClientImages], method: Method, training: Training
) -> Callable[[], None]:
    """A function that runs round 1 of a method on an engine, one client at a time, each time it is called."""
    engine: Engine = ENGINES[kind](models.build(model).build(CLASSES, seed=0), client_images, "cpu", 1)
    domains = torch.arange(CLIENTS)
    server, _ = run_round(0, init_server(engine), method, engine, training, Keys(0), domains)
    return lambda: run_round(1, server, method, engine, training, Keys(0), domains) and None  # type: ignore[func-returns-value]


def measure(
    model: str, images_per_client: int, epochs: int, batch: int, round_kind: str, repeats: int
) -> dict[str, Any]:
    """Measure one model and kind of round: median seconds by engine, median and quartiles of ratios within turns."""
    client_images, training = clients(model, images_per_client), Training(epochs=epochs, batch_size=batch)
    work_by_engine = {kind: work(kind, model, client_images, METHODS[round_kind], training) for kind in ENGINES}
    seconds = take_turns(work_by_engine, repeats)
    return {
        "model": model,
        "what": round_kind,
        "images": images_per_client,
        "epochs": epochs,
        "batch": batch,
        "seconds": {kind: round(statistics.median(values), 4) for kind, values in seconds.items()},
        "stacked_over_loop": describe_ratios(seconds["stacked"], seconds["loop"], digits=3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "slices_of_one.json")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "repeats")
    torch.set_num_threads(1)
    # Before measuring, because the checkout may change meanwhile.
    environment, cases = provenance("cpu"), []
    for case in CASES:
        cases.append(measure(*case, options.repeats))
        print(cases[-1], flush=True)
    within_limit = all(case["stacked_over_loop"]["median"] <= ENOUGH for case in cases)
    description = (
        f"CPU seconds of a round of {CLIENTS} clients, one at a time, on one thread; medians of {options.repeats}"
    )
    result = {"what": description, "clients": CLIENTS, "cases": cases, "limit": ENOUGH, "met": within_limit}
    keep(options.out, {**result, "environment": environment})


if __name__ == "__main__":
    main()
