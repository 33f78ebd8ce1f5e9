"""When clusters find domains: FINCH by what it is shown, over steps of round 0, learning rate, images and data sets.

``python benchmarks/signatures.py`` measures the pieces that results/signatures.json lacks (a piece is a data set, a
source, a seed, images a client and a learning rate), each written down when it ends, and draws the figure. One training
of round 0, as FedWCA's, gives all signatures at all numbers of steps. ``--dataset`` and ``--minutes`` take a part.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from keep import keep
from provenance import provenance
from signature_picture import draw
from signature_tables import finished
from torch import Tensor

from fedwca import Keys, SequentialEngine, init_server
from fedwca.clusterers.ada_bn import AdaBN
from fedwca.clusterers.finch import Finch
from fedwca.config.resolve_config import resolve_plan
from fedwca.core.interfaces import Clusterer
from fedwca.data import DatasetWarning
from fedwca.data.dataset import FederatedDataset
from fedwca.data.metrics import Metrics
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.federated.round import open_round
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "signatures.json"
PICTURE = Path(__file__).parents[1] / "docs" / "clusters-by-signature.png"
STEPS = (1, 4, 16, 64)
"""Steps of SGD after which clients are looked at, beside the end of the round."""
EPOCHS, MANY = 5, 50
"""Of a round, and of a few that show where more steps lead."""
SIDE, LARGE = 64, (128, 224)
"""Pixels of PACS, and of a few rounds that show where more of them lead."""
MOMENTS = {"moments": AdaBN(), "moments, all layers": AdaBN(layers="all")}
"""Of the untouched source model: no step changes them."""
TRAINED: dict[str, Clusterer] = {
    "first layer": Finch(),
    "first layer, update": Finch(reference="source"),
    "first layer, update, by length": Finch(reference="source", metric="euclidean"),
    "second layer": Finch(signature=2),
    "second layer, update": Finch(signature=2, reference="source"),
    "all layers, update": Finch(signature="all", reference="source"),
    "BatchNorm statistics": Finch(signature="batch_norm"),
    "BatchNorm statistics, update": Finch(signature="batch_norm", reference="source"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "digit_five": {"clients": 4, "source_training": {"epochs": 10, "lr": 3e-3}},
    "pacs": {"clients": 3, "source_training": {"epochs": 2, "lr": 3e-3}},
}
SIZES = {64: 100, 256: 400, 720: 1125}
"""Training images a client, of as many images before the split."""
DIGITS = ("synth", "mnistm", "mnist", "usps")
RATES = (0.003, 0.001, 0.0003)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Piece:
    """One training of round 0."""

    dataset: str
    source: str
    seed: int
    images: int
    lr: float
    epochs: int = EPOCHS
    side: int = SIDE
    """Pixels that a ResNet reads."""

    def layer(self, data: Path, weights: Path) -> dict[str, Any]:
        """As a layer of a run's configuration; one_hot's clients do what FedWCA's do in round 0."""
        model = {"model": f"resnet18:side={self.side},weights={weights}"} if self.dataset == "pacs" else {}
        own = {"dataset": self.dataset, "data": str(data), "source": self.source, "seed": self.seed, "baselines": []}
        size = {"samples": SIZES[self.images], "training": {"epochs": self.epochs, "lr": self.lr}}
        return {**own, **SETTINGS[self.dataset], **size, **model, "aggregator": "one_hot"}


def digits(
    images: int, rates: Iterable[float] = RATES, seeds: Iterable[int] = SEEDS, sources: Iterable[str] = DIGITS
) -> list[Piece]:
    """Pieces of Digit-Five, source models in turn."""
    return [Piece("digit_five", source, seed, images, lr) for seed, source, lr in product(seeds, sources, rates)]


def pieces() -> list[Piece]:
    """All of the study, what conclusions need first: one seed; then others, and PACS; then all cells of the grid."""
    usual = (1e-3,)
    art, photo = ([Piece("pacs", s, 0, 256, lr) for lr in (1e-3, 3e-3, 1e-4, 3e-4)] for s in ("art_painting", "photo"))
    few = [Piece("pacs", piece.source, 0, 64, piece.lr) for piece in (*art[:2], *photo[:2])]
    begin = [digits(256, RATES[:2], (0,)), digits(256, usual, (1,), ("synth",)), digits(64, usual, (0,))]
    # Source models of USPS, which has the fewest images, are made the soonest.
    seeds = [digits(256, usual, SEEDS[1:], (source,)) for source in ("usps", "synth", "mnist", "mnistm")]
    then = [art[:1], digits(256, RATES[:1]), digits(720, usual, (0,)), art[1:3], photo[:1], digits(256)]
    long = [Piece("pacs", source, 0, 256, 1e-3, MANY) for source in ("art_painting", "photo")]
    large = [
        Piece("pacs", source, 0, 256, lr, side=LARGE[0]) for lr in (1e-4, 1e-3) for source in ("art_painting", "photo")
    ]
    large += [Piece("pacs", "art_painting", 0, 256, 1e-4, side=LARGE[1])]
    rest = [digits(64, usual), digits(720, usual), photo, art, few, long, large, digits(64), digits(720)]
    return list(dict.fromkeys(chain(*begin, *seeds, *then, *rest)))


@contextmanager
def snapshots(engine: SequentialEngine) -> Iterator[dict[int, Tensor]]:
    """While inside: the bank as it is when each client has done so many steps; who does fewer keeps its last model."""
    kept: dict[int, dict[int, Tensor]] = {steps: {} for steps in STEPS}
    found: dict[int, Tensor] = {}
    plain, width = ClientWorker._step, engine.bank.shape[1]

    def step(worker: ClientWorker, here: Tensor, places: Tensor, context: Any, number: int) -> None:
        plain(worker, here, places, context, number)
        if number + 1 in kept:
            kept[number + 1][int(worker.slot.storage_offset()) // width] = worker.slot.clone()

    with patch.object(ClientWorker, "_step", step):
        yield found
    for steps, rows in kept.items():
        found[steps] = engine.bank.clone()
        for client, row in rows.items():
            found[steps][client] = row


def measure(piece: Piece, data: Path, weights: Path, moments: dict[str, Any] | None = None) -> dict[str, Any]:
    """What FINCH finds by signature, at each number of steps and at the end of the round.

    Args:
        piece: which training.
        data: folder of data sets.
        weights: file that a ResNet-18 begins with.
        moments: what was found by these for the same clients, whose learning rate changes nothing of it.
    """
    plan = resolve_plan(piece.layer(data, weights))
    config, (method, _) = plan.config, plan.methods[-1]
    dataset, domain = images_of(piece.dataset, piece.source, piece.side, data, weights)
    federation, source = split_trial(config, dataset, domain, 0, 0), source_model(config, dataset, domain, 0)
    metrics, engine = federation.metrics, SequentialEngine(source.network, federation.clients)
    server, began = init_server(engine), time.process_time()
    with snapshots(engine) as banks:
        turn = open_round(0, server, method, engine, config.training, Keys(piece.seed), metrics.domain_labels())
        engine.run(turn)
    seconds = time.process_time() - began
    steps = [turn.task(k).count_steps(len(own), engine.layout.least_images) for k, own in enumerate(engine.images)]
    ends = [*(count for count in STEPS if count < max(steps)), max(steps)]
    trained = [BankSignatures(banks.get(n, engine.bank), engine.layout, server.source) for n in ends]
    start = BankSignatures(engine.bank, engine.layout, server.source, images=engine.images, network=engine.network)
    return {
        **vars(piece),
        "train_images": [len(own) for own in engine.images],
        "source_accuracy": source.accuracy,
        "after_steps": ends,
        "last_steps": steps,
        "moments": moments or {name: judge(clusterer, start, metrics) for name, clusterer in MOMENTS.items()},
        "trained": {name: [judge(f, each, metrics) for each in trained] for name, f in TRAINED.items()},
        "updates": [alike(each, metrics) for each in trained],
        **({"layers": judge_layers(trained[-1], metrics)} if piece.dataset == "pacs" else {}),
        "cpu_seconds": round(seconds, 1),
    }


@cache
def images_of(dataset: str, source: str, side: int, data: Path, weights: Path) -> tuple[FederatedDataset, str | None]:
    """A data set and its source, read once."""
    return load(resolve_plan(Piece(dataset, source, 0, 64, 1e-3, side=side).layer(data, weights)).config)


def judge(clusterer: Clusterer, signatures: BankSignatures, metrics: Metrics) -> list[float]:
    """ARI to the true domains, and how many clusters there are."""
    labels = clusterer(signatures)
    return [round(float(metrics.clustering(labels)["ari"]), 4), int(labels.max()) + 1]  # type: ignore[arg-type]


def judge_layers(signatures: BankSignatures, metrics: Metrics) -> dict[str, dict[str, list[float]]]:
    """Of each layer, as in Table 11 of the paper, raw and as update."""
    layers: list[Any] = [*range(1, signatures.layers + 1), "all"]
    return {
        reference: {
            str(layer): judge(Finch(signature=layer, reference=reference), signatures, metrics) for layer in layers
        }
        for reference in ("none", "source")
    }


def alike(signatures: BankSignatures, metrics: Metrics) -> dict[str, float]:
    """Of the first layer's updates: mean cosine within domains and between them, and longest over shortest."""
    moved = Finch(reference="source").read(signatures)
    length, same = moved.norm(dim=1), metrics.domain_labels()
    cosine = torch.nn.functional.normalize(moved) @ torch.nn.functional.normalize(moved).T
    within = same[:, None] == same
    pairs = ~torch.eye(len(moved), dtype=torch.bool)
    found = {"within": cosine[within & pairs].mean(), "between": cosine[~within].mean()}
    return {name: round(float(x), 4) for name, x in {**found, "lengths": length.max() / length.min()}.items()}


def read_found(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Pieces that are done."""
    kept = json.loads(file.read_text())["pieces"] if file.exists() else []
    return {key_of(own): own for own in kept}


def key_of(own: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which piece a result is of."""
    return tuple({"epochs": EPOCHS, "side": SIDE, **own}[name] for name in vars(Piece("", "", 0, 0, 0.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five and pacs")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--dataset", choices=SETTINGS, action="append", help="this one alone")
    parser.add_argument("--side", type=int, choices=(SIDE, *LARGE), help="pieces of this size alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further piece after so many")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    warnings.simplefilter("ignore", DatasetWarning)
    began, done = time.monotonic(), read_found(given.out)
    wanted = [
        piece for piece in pieces() if piece.dataset in (given.dataset or SETTINGS) and given.side in (None, piece.side)
    ]
    for piece in wanted:
        key = tuple(vars(piece).values())
        if key in done:
            continue
        if time.monotonic() - began > 60 * given.minutes:
            break
        same = (own["moments"] for known, own in done.items() if (*known[:4], known[-1]) == (*key[:4], key[-1]))
        made_on = provenance("cpu")
        done[key] = measure(piece, given.data, given.weights, next(same, None)) | {"cpu": made_on["cpu"]}
        order = {tuple(vars(own).values()): place for place, own in enumerate(pieces())}
        result = {
            "what": "FINCH level 0 after round 0 against the true domains: [adjusted Rand index, clusters]",
            "settings": {**SETTINGS, "epochs": EPOCHS, "steps": STEPS},
            "environment": made_on,
            "pieces": sorted(done.values(), key=lambda own: order[key_of(own)]),
        }
        keep(given.out, result)
        print(*key, done[key]["cpu_seconds"], flush=True)
    if given.out == RESULT:
        draw(finished(), PICTURE)


if __name__ == "__main__":
    main()
