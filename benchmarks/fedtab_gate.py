"""What the gate of FedTAB decides in each piece of its test, and whether it is right; no client trains.

``python benchmarks/fedtab_gate.py`` measures the pieces that results/fedtab_gate.json lacks, and writes each when it
ends: for the untouched source model at each client, I, the mean of the largest output, I pooled over the client's
cluster of moments, and how many labels are right by prototypes and by the predicted class. ``--kind digits`` measures
pieces of one kind. On the same kind of processor, source models are the same as in ``fedtab.py``, and are kept in the
cache for it.
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

from fedwca.config.config_layers import layer_from_words
from fedwca.config.resolve_config import resolve_plan
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.input_moments import measure_moments
from fedwca.functional import finch, mutual_information, prediction_entropy, prototype_labels
from fedwca.runs.load_data import load
from fedwca.runs.source_models import source_model
from fedwca.runs.split_trials import split_trial

RESULT = Path(__file__).parent / "results" / "fedtab_gate.json"
CHUNK = 500
"""Images per forward pass."""


def distinct() -> dict[str, Piece]:
    """One piece per kind, source and seed: the clients' learning rate has no effect on the source model."""
    return {f"{piece.kind}-{piece.source}-{piece.seed}": piece for piece in pieces()}


def measure(piece: Piece, data: Path, weights: Path) -> dict[str, Any]:
    """Measure the source model of a piece at all clients."""
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
    """Measures of trust (0 to 1) in a source model on each client's training images, and right labels in percent."""
    metrics, clients = federation.metrics, [client.train for client in federation.clients]
    logits, features = zip(*(predict(network, images) for images in clients), strict=True)
    clusters = finch(torch.stack([measure_moments(network, images) for images in clients]), metric="euclidean")
    pooled = pool_information(logits, clusters.tolist())
    probabilities = [client_logits.softmax(-1) for client_logits in logits]
    labels = [prototype_labels(z, p)[0] for z, p in zip(features, probabilities, strict=True)]
    return {
        "domains": list(metrics.domains),
        "clusters": clusters.tolist(),
        "trust": [float(mutual_information(client_logits)) for client_logits in logits],
        "pooled": [float(value) for value in pooled],
        "confidence": [float(p.amax(-1).mean()) for p in probabilities],
        "right": [metrics.pseudo_label_accuracy(k, client_labels) for k, client_labels in enumerate(labels)],
        "predicted": [
            metrics.pseudo_label_accuracy(k, client_logits.argmax(-1)) for k, client_logits in enumerate(logits)
        ],
    }


def predict(network: Network, images: Tensor) -> tuple[Tensor, Tensor]:
    """Logits ``[N, M]`` and features ``[N, q]`` in eval mode, float64."""
    pairs = [network(network.prepare(batch)) for batch in images.split(CHUNK)]
    return torch.cat([logits for logits, _ in pairs]).double(), torch.cat([features for _, features in pairs]).double()


def pool_information(logits: Iterable[Tensor], clusters: list[int]) -> list[Tensor]:
    """I of each client's cluster ``[K]``, from the mean output and mean entropy of its clients, equally weighted.

    One of the two fixes prepared for skewed classes.

    >>> sure = torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]])
    >>> [round(float(value), 3) for value in pool_information(sure, [0, 0])]
    [1.0, 1.0]
    >>> [round(float(value), 3) for value in pool_information(sure, [0, 1])]
    [0.0, 0.0]
    """
    client_logits = list(logits)
    means = [rows.softmax(-1).mean(0) for rows in client_logits]
    entropies = [prediction_entropy(rows) for rows in client_logits]
    pooled = []
    for cluster in clusters:
        members = [k for k, label in enumerate(clusters) if label == cluster]
        mean, entropy = (torch.stack([values[k] for k in members]).mean(0) for values in (means, entropies))
        pooled.append((torch.special.entr(mean).sum() - entropy) / torch.tensor(float(len(mean))).log())
    return pooled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    pieces_by_name = distinct()
    kinds = sorted({piece.kind for piece in pieces_by_name.values()})
    parser.add_argument("--kind", choices=kinds, action="append", help="these pieces alone")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with digit_five and pacs")
    parser.add_argument("--weights", type=Path, default=Path("../shared/data/weights/resnet18_imagenet_fp16.pth"))
    parser.add_argument("--out", type=Path, default=RESULT, help="file to write")
    options = parser.parse_args()
    result = json.loads(options.out.read_text()) if options.out.exists() else {"pieces": {}}
    for name, piece in sorted(pieces_by_name.items()):
        if piece.kind in (options.kind or kinds) and name not in result["pieces"]:
            record = {"kind": piece.kind, "source": piece.source, "seed": piece.seed, "environment": provenance("cpu")}
            result["pieces"][name] = record | measure(piece, options.data, options.weights)
            result.setdefault("environment", record["environment"])  # that of the first piece
            keep(options.out, result)
            print(name, flush=True)


if __name__ == "__main__":
    main()
