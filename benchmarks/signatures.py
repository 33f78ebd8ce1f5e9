"""When clusters find domains: FINCH by what it is shown, over steps of round 0, learning rate, images and data sets.

``python benchmarks/signatures.py`` measures the pieces that results/signatures.json lacks, writes each when it ends,
and draws the figure. A piece is a data set, a source, a seed, a number of images per client and a learning rate. One
training of round 0, as in FedWCA, gives all signatures at all numbers of steps. ``--dataset``, ``--side`` and
``--minutes`` limit what is run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from keep import keep
from provenance import provenance
from signature_picture import draw
from signature_pieces import EPOCHS, LARGE, SETTINGS, SIDE, Piece, pieces
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
from fedwca.federated.open_round import open_round
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "signatures.json"
PICTURE = Path(__file__).parents[1] / "docs" / "clusters-by-signature.png"
STEPS = (1, 4, 16, 64)
"""Steps of SGD after which clients are clustered, besides the end of the round."""
MOMENTS = {"moments": AdaBN(), "moments, all layers": AdaBN(layers="all")}
"""Clusterers by moments of the untouched source model, which no training step changes."""
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


@contextmanager
def snapshots(engine: SequentialEngine) -> Iterator[dict[int, Tensor]]:
    """Save each client's model after the numbers of steps in `STEPS`, while an engine trains.

    Yields a dictionary that on exit holds, by number of steps, the engine's bank of models at that time ``[K, P]``; a
    client that does fewer steps has its last model there.
    """
    rows_by_steps: dict[int, dict[int, Tensor]] = {steps: {} for steps in STEPS}
    banks: dict[int, Tensor] = {}
    original_step, width = ClientWorker._step, engine.bank.shape[1]

    def step_and_save(
        worker: ClientWorker, indices: Tensor, mixed_positions: Tensor, context: Any, step_index: int
    ) -> None:
        original_step(worker, indices, mixed_positions, context, step_index)
        if step_index + 1 in rows_by_steps:
            rows_by_steps[step_index + 1][int(worker.slot.storage_offset()) // width] = worker.slot.clone()

    with patch.object(ClientWorker, "_step", step_and_save):
        yield banks
    for steps, rows in rows_by_steps.items():
        banks[steps] = engine.bank.clone()
        for client, row in rows.items():
            banks[steps][client] = row


def measure(piece: Piece, data: Path, weights: Path, results: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Train round 0 of a piece, and judge the clusters of each signature after each number of steps.

    Args:
        piece: to be measured.
        data: folder of data sets.
        weights: file that a ResNet-18 begins with.
        results: of earlier pieces, from which `judge_moments` takes what does not depend on training.
    """
    plan = resolve_plan(piece.layer(data, weights))
    config, (method, _) = plan.config, plan.methods[-1]
    dataset, domain = images_of(piece.dataset, piece.source, piece.side, data, weights)
    federation, source = split_trial(config, dataset, domain, 0, 0), source_model(config, dataset, domain, 0)
    source_weights = source.weights
    metrics, engine = federation.metrics, SequentialEngine(source.network, federation.clients)
    server, started = init_server(engine), time.process_time()
    with snapshots(engine) as banks:
        opened_round = open_round(0, server, method, engine, config.training, Keys(piece.seed), metrics.domain_labels())
        engine.run(opened_round)
    seconds = time.process_time() - started
    steps = [
        opened_round.task(k).count_steps(len(images), engine.layout.least_images)
        for k, images in enumerate(engine.images)
    ]
    step_counts = [*(count for count in STEPS if count < max(steps)), max(steps)]
    trained = [BankSignatures(banks.get(count, engine.bank), engine.layout, server.source) for count in step_counts]
    start = BankSignatures(engine.bank, engine.layout, server.source, images=engine.images, network=engine.network)
    return {
        **vars(piece),
        "train_images": [len(images) for images in engine.images],
        "source_accuracy": source.accuracy,
        "source_weights": source_weights,
        "after_steps": step_counts,
        "last_steps": steps,
        "moments": judge_moments(piece, source_weights, start, metrics, results),
        "trained": {
            name: [judge(clusterer, signatures, metrics) for signatures in trained]
            for name, clusterer in TRAINED.items()
        },
        "updates": [alike(signatures, metrics) for signatures in trained],
        **({"layers": judge_layers(trained[-1], metrics)} if piece.dataset == "pacs" else {}),
        "cpu_seconds": round(seconds, 1),
    }


@cache
def images_of(dataset: str, source: str, side: int, data: Path, weights: Path) -> tuple[FederatedDataset, str | None]:
    """A data set and the name of its source domain, read once per process."""
    return load(resolve_plan(Piece(dataset, source, 0, 64, 1e-3, side=side).layer(data, weights)).config)


def judge(clusterer: Clusterer, signatures: BankSignatures, metrics: Metrics) -> list[float]:
    """Adjusted Rand index (ARI) to the true domains, and the number of clusters."""
    labels = clusterer(signatures)
    return [round(float(metrics.clustering(labels)["ari"]), 4), int(labels.max()) + 1]  # type: ignore[arg-type]


def judge_moments(
    piece: Piece,
    source_weights: str,
    start: BankSignatures,
    metrics: Metrics,
    results: Iterable[Mapping[str, Any]],
) -> dict[str, list[float]]:
    """Judge `MOMENTS`, or take what an earlier piece of the same clients and the same source model has.

    Args:
        piece: that is being measured.
        source_weights: checksum of its source model; different CPUs train different ones from one seed.
        start: signatures of the source model.
        metrics: know the true domains.
        results: of earlier pieces.
    """
    same = {"source_weights": source_weights}
    same |= {name: getattr(piece, name) for name in ("dataset", "source", "seed", "images", "side")}
    for result in results:
        if ({"side": SIDE} | result).items() >= same.items():
            return result["moments"]
    return {name: judge(clusterer, start, metrics) for name, clusterer in MOMENTS.items()}


def judge_layers(signatures: BankSignatures, metrics: Metrics) -> dict[str, dict[str, list[float]]]:
    """ARI and number of clusters by layer, as in Table 11 of the paper, for raw weights and for updates."""
    layers: list[Any] = [*range(1, signatures.layer_count + 1), "all"]
    return {
        reference: {
            str(layer): judge(Finch(signature=layer, reference=reference), signatures, metrics) for layer in layers
        }
        for reference in ("none", "source")
    }


def alike(signatures: BankSignatures, metrics: Metrics) -> dict[str, float]:
    """Mean cosine of first layers' updates within and between domains; ratio of largest to smallest norm."""
    updates = Finch(reference="source").read(signatures)
    length, domains = updates.norm(dim=1), metrics.domain_labels()
    cosine = torch.nn.functional.normalize(updates) @ torch.nn.functional.normalize(updates).T
    within = domains[:, None] == domains
    different_clients = ~torch.eye(len(updates), dtype=torch.bool)
    cosines = {"within": cosine[within & different_clients].mean(), "between": cosine[~within].mean()}
    return {name: round(float(value), 4) for name, value in {**cosines, "lengths": length.max() / length.min()}.items()}


def read_found(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Finished pieces by `key_of`; none if there is no file."""
    results = json.loads(file.read_text())["pieces"] if file.exists() else []
    return {key_of(result): result for result in results}


def key_of(result: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields of the piece that a result is of, in order."""
    return tuple({"epochs": EPOCHS, "side": SIDE, **result}[name] for name in vars(Piece("", "", 0, 0, 0.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five and pacs")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--dataset", choices=SETTINGS, action="append", help="this one alone")
    parser.add_argument("--side", type=int, choices=(SIDE, *LARGE), help="pieces of this size alone")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further piece after so many")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    warnings.simplefilter("ignore", DatasetWarning)
    started, results = time.monotonic(), read_found(options.out)
    selected = [
        piece
        for piece in pieces()
        if piece.dataset in (options.dataset or SETTINGS) and options.side in (None, piece.side)
    ]
    for piece in selected:
        key = tuple(vars(piece).values())
        if key in results:
            continue
        if time.monotonic() - started > 60 * options.minutes:
            break
        environment = provenance("cpu")
        measured = measure(piece, options.data, options.weights, list(results.values()))
        results[key] = measured | {"cpu": environment["cpu"]}
        order = {tuple(vars(piece).values()): index for index, piece in enumerate(pieces())}
        result = {
            "what": "FINCH level 0 after round 0 against the true domains: [adjusted Rand index, clusters]",
            "settings": {**SETTINGS, "epochs": EPOCHS, "steps": STEPS},
            "environment": environment,
            "pieces": sorted(results.values(), key=lambda piece: order[key_of(piece)]),
        }
        keep(options.out, result)
        print(*key, results[key]["cpu_seconds"], flush=True)
    if options.out == RESULT:
        draw(finished(), PICTURE)


if __name__ == "__main__":
    main()
