"""What is written down of a round, and what a reader of the numbers should be warned of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedwca.data.metrics import Metrics
from fedwca.engine.loop import Loop
from fedwca.round import Method, Outcome


def accuracies(metrics: Metrics, engine: Loop, model: Callable[[int], Tensor]) -> list[float]:
    """Test accuracy of each client in percent, with the row that ``model`` gives it; NaN without test images."""
    return [metrics.accuracy(client, predicted) for client, predicted in enumerate(engine.classify(model))]


def describe(outcome: Outcome, metrics: Metrics, engine: Loop, first: bool) -> dict[str, Any]:
    """What a round did, as plain values.

    Args:
        outcome: of the round.
        metrics: holds the labels that accuracies need.
        engine: for sizes.
        first: round 0, in which the classifier travels too.
    """
    uploads, clients = outcome.uploads, len(outcome.uploads)
    values, size = engine.layout.width, engine.bank.element_size()
    reported = sum(value[0].numel() for value in uploads[0].report.values())
    classifier = sum(p.numel() for p in engine.network.classifier.parameters()) if first else 0
    targets = [upload.targets for upload in uploads]
    phases: dict[str, float] = {}
    for upload in uploads:
        for phase, seconds in upload.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    return {
        "labels": outcome.labels,
        "weights": outcome.weights,
        **({"shared": outcome.offer.shared} if len(outcome.offer.shared) else {}),
        **outcome.report,
        "pseudo_label_accuracy": [
            metrics.pseudo_label_accuracy(k, t.labels.cpu(), t.weights.cpu()) for k, t in enumerate(targets)
        ],
        "agreement": [float(t.matched.double().mean()) for t in targets],
        "mixed": [int((t.mix > 0).sum()) for t in targets],
        "dropped": [int((t.weights == 0).sum()) for t in targets],
        "label_entropy": [entropy(t.labels) for t in targets],
        "bytes_down": size * clients * (outcome.offer.models * values + classifier),
        "bytes_up": size * clients * (values + reported),
        "passes": sum(upload.passes for upload in uploads),
        "seconds": phases,
    }


def entropy(labels: Tensor) -> float:
    """Entropy of the class histogram in nats: 0 when all images got one label.

    >>> round(entropy(torch.tensor([0, 1, 0, 1])), 4)
    0.6931
    """
    shares = labels.bincount().double() / max(1, len(labels))
    return float(torch.special.entr(shares).sum())


class Cautions:
    """Sentences for the user, each kind once a run."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.told = tell, set[str]()

    def _once(self, kind: str, message: str) -> None:
        if kind not in self.told:
            self.told.add(kind)
            self.tell(message)

    def __call__(self, record: Mapping[str, Any], outcome: Outcome, method: Method) -> None:
        """Look at one round's record."""
        targets = [upload.targets for upload in outcome.uploads]
        divisors = [t.notes["divisors"] for t in targets if "divisors" in t.notes]
        if divisors and bool((torch.stack(divisors) <= 0).any()):
            self._once(
                f"divisor {method.name}",
                f"{method.label}: a mean prototype similarity is not above 0, so the selection rule may prefer the "
                "worse label (docs/decisions.md, A13)",
            )
        for client, (nats, target) in enumerate(zip(record["label_entropy"], targets, strict=True)):
            if nats == 0 and len(target.labels) > 10:
                self._once(
                    f"collapse {method.name}",
                    f"{method.label}: from round {record['round']} client {client} gives all its images one label",
                )
        if record["round"] == 0 and method.aggregator.partition == "given" and len(outcome.labels) > 1:
            alone = int((outcome.labels.bincount() == 1).sum())
            if alone and alone < len(outcome.labels):
                self._once(
                    f"alone {method.name}",
                    f"{method.label}: {alone} clusters have a single client, whose model would be handed on as it is",
                )
