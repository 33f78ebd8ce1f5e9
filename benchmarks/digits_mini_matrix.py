"""Source-only accuracies on digits-mini: a model of each domain on every domain, held-out images on the diagonal."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from fedwca import SourceTraining, find_dataset, pretrain
from fedwca.federated.source_model import split_source
from fedwca.models.lenet import LeNet
from fedwca.results.environment import describe_environment

TRAINING = SourceTraining(epochs=30, lr=1e-2)
SEED = 0


def main() -> None:
    dataset = find_dataset("digits-mini").load()
    matrix: dict[str, dict[str, float]] = {}
    for name, domain in dataset.domains.items():
        source = pretrain(domain, dataset.classes, LeNet(), TRAINING, seed=SEED)
        matrix[name] = {}
        for target_name, target in dataset.domains.items():
            images = torch.from_numpy(target.images).permute(0, 3, 1, 2)
            labels = torch.from_numpy(target.labels)
            if target_name == name:
                held_out = split_source(domain, TRAINING.held_out, SEED)[1]
                images, labels = images[held_out], labels[held_out]
            with torch.no_grad():
                logits = torch.cat([source.network(source.network.prepare(x))[0] for x in images.split(256)])
            matrix[name][target_name] = 100 * float((logits.argmax(1) == labels).double().mean())
        print(name, {target_name: round(value, 1) for target_name, value in matrix[name].items()}, flush=True)
    result = {
        "what": "accuracy in percent; rows: source domain; columns: tested on; diagonal: its held-out tenth",
        "data": dataset.digest(),
        "seed": SEED,
        "source_training": TRAINING.model_dump(),
        "matrix": matrix,
        "environment": describe_environment("cpu"),
    }
    path = Path(__file__).parent / "results" / "digits_mini_matrix.json"
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
