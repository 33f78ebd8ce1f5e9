"""What is written down of a round, and what a reader of the numbers should be warned of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedwca.data.metrics import Metrics
from fedwca.engine.loop import Loop
from fedwca.round import Method, Outcome
from fedwca.types import Targets


def accuracies(
    metrics: Metrics, engine: Loop, weights: Tensor | None = None, rows: Tensor | None = None
) -> list[float]:
    """Test accuracy of each client in percent; NaN without test images.

    Args:
        metrics: holds the labels.
        engine: holds the images.
        weights: the model of each client as a mixture of ``rows`` ``[K, R]``; None: the client's own in the bank.
        rows: ``[R, P]``.
    """
    return [metrics.accuracy(client, predicted) for client, predicted in enumerate(engine.classify(weights, rows))]


def describe(outcome: Outcome, method: Method, metrics: Metrics, engine: Loop, first: bool) -> dict[str, Any]:
    """What a round did, as plain values.

    Args:
        outcome: of the round.
        method: what was played.
        metrics: holds the labels that accuracies need.
        engine: for sizes.
        first: round 0, in which the classifier travels too.
    """
    uploads, clients = outcome.uploads, len(outcome.labels)
    values, size, here = engine.layout.width, engine.bank.element_size(), len(outcome.uploads)
    reported = sum(value[0].numel() for value in next(iter(uploads.values())).report.values())
    classifier = sum(p.numel() for p in engine.network.classifier.parameters()) if first else 0
    travels = method.aggregator.travels
    phases: dict[str, float] = {}
    for upload in uploads.values():
        for phase, seconds in upload.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds

    def each(measure: Callable[[int, Targets], float]) -> list[float]:
        """One value a client; NaN for those that were absent."""
        return [measure(k, uploads[k].targets) if k in uploads else math.nan for k in range(clients)]

    return {
        "labels": outcome.labels,
        "weights": outcome.weights,
        **({"shared": outcome.offer.shared} if len(outcome.offer.shared) else {}),
        **outcome.report,
        "pseudo_label_accuracy": each(lambda k, t: metrics.pseudo_label_accuracy(k, t.labels.cpu(), t.weights.cpu())),
        "agreement": each(lambda k, t: float(t.matched.double().mean())),
        "mixed": each(lambda k, t: float((t.mix > 0).sum())),
        "dropped": each(lambda k, t: float((t.weights == 0).sum())),
        "label_entropy": each(lambda k, t: entropy(t.labels)),
        "bytes_down": size * here * (outcome.offer.models * values + classifier) * (travels or first),
        "bytes_up": size * here * (values + reported) * travels,
        "passes": sum(upload.passes for upload in uploads.values()),
        "seconds": {**phases, **outcome.seconds},
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
        targets = {client: upload.targets for client, upload in outcome.uploads.items()}
        divisors = [t.notes["divisors"] for t in targets.values() if "divisors" in t.notes]
        if divisors and bool((torch.stack(divisors) <= 0).any()):
            self._once(
                f"divisor {method.name}",
                f"{method.label}: a mean prototype similarity is not above 0, so the selection rule may prefer the "
                "worse label (docs/decisions.md, A13)",
            )
        for client, target in targets.items():
            if record["label_entropy"][client] == 0 and len(target.labels) > 10:
                self._once(
                    f"collapse {method.name}",
                    f"{method.label}: from round {record['round']} client {client} gives all its images one label",
                )
        if record["round"] == 0 and method.aggregator.partition == "given" and len(outcome.labels) > 1:
            if int(outcome.labels.max()) == 0:
                self._once(
                    f"one {method.name}",
                    f"{method.label}: all clients are in one cluster, so this is an average of everybody "
                    "(too little training in round 0 leaves first layers nearly equal)",
                )
            alone = int((outcome.labels.bincount() == 1).sum())
            if alone and alone < len(outcome.labels):
                self._once(
                    f"alone {method.name}",
                    f"{method.label}: {alone} clusters have a single client, whose model would be handed on as it is",
                )
