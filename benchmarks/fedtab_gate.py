"""What the gate of FedTAB decides in each piece of its test, and whether it is right; no client trains.

``python benchmarks/fedtab_gate.py`` measures the pieces that results/fedtab_gate.json lacks, each written down when it
ends: of the untouched source model at each client I, the mean of the largest output, I pooled over the client's cluster
of moments, and how many labels are right, by prototypes and by the predicted class. ``--kind digits`` takes a part.
The source models are those of ``fedtab.py``, kept in the cache for it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from fedtab_pieces import Piece, pieces
from keep import keep
from provenance import provenance
from torch import Tensor

from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import layer_from_words
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.input_moments import measure_moments
from fedwca.functional import finch, mutual_information, prediction_entropy, prototype_labels
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "fedtab_gate.json"
CHUNK = 500
"""Images that are read at once."""


def distinct() -> dict[str, Piece]:
    """Pieces by kind, source and seed: rates at which clients train change nothing of a source model."""
    return {f"{piece.kind}-{piece.source}-{piece.seed}": piece for piece in pieces()}


def measure(piece: Piece, data: Path, weights: Path) -> dict[str, Any]:
    """One source model at all its clients."""
    settings = piece.runs()["main"]
    if settings["dataset"] == "pacs":
        settings["model"] = f"resnet18:side=64,weights={weights}"
    if settings["dataset"] != "digits_mini":
        settings["data"] = str(data)
    config = resolve_plan(layer_from_words(settings)).config
    dataset, domain = load(config)
    federation, source = split_trial(config, dataset, domain, 0, 0), source_model(config, dataset, domain, 0)
    return {"source_accuracy": source.accuracy, **look(source.network.eval(), federation)}


@torch.no_grad()
def look(network: Network, federation: Federation) -> dict[str, Any]:
    """What a source model says of each client's training images, and what is true; without unit, labels in percent."""
    metrics, clients = federation.metrics, [own.train for own in federation.clients]
    logits, features = zip(*(predict(network, images) for images in clients), strict=True)
    clusters = finch(torch.stack([measure_moments(network, images) for images in clients]), metric="euclidean")
    pooled = pool_information(logits, clusters.tolist())
    outputs = [own.softmax(-1) for own in logits]
    labels = [prototype_labels(own, some)[0] for own, some in zip(features, outputs, strict=True)]
    return {
        "domains": list(metrics.domains),
        "clusters": clusters.tolist(),
        "trust": [float(mutual_information(own)) for own in logits],
        "pooled": [float(value) for value in pooled],
        "confidence": [float(own.amax(-1).mean()) for own in outputs],
        "right": [metrics.pseudo_label_accuracy(k, own) for k, own in enumerate(labels)],
        "predicted": [metrics.pseudo_label_accuracy(k, own.argmax(-1)) for k, own in enumerate(logits)],
    }


def predict(network: Network, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``[N, M]`` and features ``[N, q]`` in eval mode, float64."""
    found = [network(network.prepare(some)) for some in images.split(CHUNK)]
    return torch.cat([logits for logits, _ in found]).double(), torch.cat([features for _, features in found]).double()


def pool_information(logits: Iterable[Tensor], clusters: list[int]) -> list[Tensor]:
    """I of mean output and mean entropy over a cluster, each client counted alike ``[K]``: a prepared fix of skew.

    >>> sure = torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]])
    >>> [round(float(value), 3) for value in pool_information(sure, [0, 0])]
    [1.0, 1.0]
    >>> [round(float(value), 3) for value in pool_information(sure, [0, 1])]
    [0.0, 0.0]
    """
    own = list(logits)
    means = [rows.softmax(-1).mean(0) for rows in own]
    entropies = [prediction_entropy(rows) for rows in own]
    found = []
    for cluster in clusters:
        members = [k for k, other in enumerate(clusters) if other == cluster]
        mean, entropy = (torch.stack([values[k] for k in members]).mean(0) for values in (means, entropies))
        found.append((torch.special.entr(mean).sum() - entropy) / torch.tensor(float(len(mean))).log())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    every = distinct()
    kinds = sorted({piece.kind for piece in every.values()})
    parser.add_argument("--kind", choices=kinds, action="append", help="these pieces alone")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five and pacs")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {"pieces": {}}
    for name, piece in sorted(every.items()):
        if piece.kind in (given.kind or kinds) and name not in found["pieces"]:
            own = {"kind": piece.kind, "source": piece.source, "seed": piece.seed, "environment": provenance("cpu")}
            found["pieces"][name] = own | measure(piece, given.data, given.weights)
            found.setdefault("environment", own["environment"])  # of the first
            keep(given.out, found)
            print(name, flush=True)


if __name__ == "__main__":
    main()
