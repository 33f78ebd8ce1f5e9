"""What training through a step of an adaptation costs: CPU seconds of a FedTTA step over those of a FedAvg step.

All methods run in one process on one thread and take turns, so that ratios come from the same run. Clients are
labelled, every method trains on the same images in batches of 64, and a round is nothing but training. Each engine is
compared with itself.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from beside import describe_ratios, images, take_turns
from keep import keep, refuse_rehearsal
from provenance import provenance

from fedwca import Keys, Method, Training, init_server, run_round
from fedwca.adaptations.learned import Learned
from fedwca.aggregators.fedavg import FedAvg
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import Engine
from fedwca.federated.extra_networks import grow_network
from fedwca.models import models
from fedwca.objectives.adapted import AdaptedCrossEntropy
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from fedwca.runs.resources.select_engine import ENGINES

CLASSES, CLIENTS, BATCH, STEPS, REPEATS = 10, 4, 64, 3, 7
MODELS = ("mlp", "convnet:side=32", "lenet")
ADAPTATION = Learned(lr=0.1)
METHODS = {
    "FedAvg": Method("fedavg", "FedAvg", FedAvg(), Argmax(), (CrossEntropy(),)),
    "FedTTA": Method("fedtta", "FedTTA", FedAvg(), Argmax(), (AdaptedCrossEntropy(),), adaptation=ADAPTATION),
    "FedTTA-Prox": Method(
        "prox", "FedTTA-Prox", FedAvg(), Argmax(), (AdaptedCrossEntropy(mu=0.01),), adaptation=ADAPTATION
    ),
}


def clients(side: int) -> list[ClientImages]:
    """Clients with one batch of labelled random images each, so that an epoch is one step."""
    labels = torch.arange(BATCH) % CLASSES
    pixels = [x[..., :side, :side] for x in images(CLIENTS, BATCH)]
    return [ClientImages(x, x[:0], labels=labels) for x in pixels]


def work(kind: str, model: str, method: Method) -> Callable[[], None]:
    """A function that runs one round of `STEPS` training steps per client each time it is called."""
    architecture = models.build(model)
    network = grow_network(architecture.build(CLASSES, seed=0, trains_classifier=True), method.trained, 0)
    workers = 1 if kind == "loop" else None
    engine: Engine = ENGINES[kind](network, clients(architecture.stored_side), "cpu", workers)
    training, domains = Training(epochs=STEPS, batch_size=BATCH, lr=1e-3), torch.arange(CLIENTS)
    server = init_server(engine)
    return lambda: run_round(0, server, method, engine, training, Keys(0), domains) and None  # type: ignore[func-returns-value]


def measure(kind: str, model: str, repeats: int) -> dict[str, Any]:
    """Milliseconds of a client's step by method, and medians and quartiles of the ratios to FedAvg within turns."""
    rounds = {name: work(kind, model, method) for name, method in METHODS.items()}
    seconds = take_turns(rounds, repeats)
    result: dict[str, Any] = {"engine": kind, "model": model}
    result["milliseconds"] = {
        name: round(1000 * statistics.median(values) / (CLIENTS * STEPS), 2) for name, values in seconds.items()
    }
    for name in list(METHODS)[1:]:
        result[f"{name} over FedAvg"] = describe_ratios(seconds[name], seconds["FedAvg"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "adapted_step.json")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    refuse_rehearsal(parser, options, "repeats")
    torch.set_num_threads(1)
    # Recorded before measuring, because files may change until the end.
    environment, cases = provenance("cpu"), []
    for model in MODELS:
        for kind in ENGINES:
            cases.append(measure(kind, model, options.repeats))
            print(cases[-1], flush=True)
    title = f"CPU milliseconds of a step of {BATCH} images, {CLIENTS} clients, one thread; medians of {options.repeats}"
    keep(options.out, {"what": title, "clients": CLIENTS, "batch": BATCH, "cases": cases, "environment": environment})


if __name__ == "__main__":
    main()
