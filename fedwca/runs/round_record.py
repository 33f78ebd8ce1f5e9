"""The record of a round: what is written down of it, a line of ``rounds.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.messages import Targets
from fedwca.data.metrics import Metrics
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.interface import Engine
from fedwca.federated.last_phase import Shift
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome
from fedwca.functional import class_entropy
from fedwca.runs.traffic import bytes_down, bytes_up


def split_accuracies(metrics: Metrics, accuracies: Sequence[float]) -> dict[str, list[float]]:
    """Accuracies as a record has them: those that tables average, NaN for the others; and the latter apart.

    Args:
        metrics: say who is counted.
        accuracies: of each client.
    """
    counted = metrics.counted.tolist()
    shown = [value if own else math.nan for value, own in zip(accuracies, counted, strict=True)]
    others = [math.nan if own else value for value, own in zip(accuracies, counted, strict=True)]
    return {"accuracy": shown, **({} if all(counted) else {"accuracy_sources": others})}


def describe_predictions(metrics: Metrics, said: Mapping[int, ClassPredictions]) -> dict[str, Any]:
    """What test images were predicted as, and whether models were as right as sure, as a record has it.

    Args:
        metrics: of the clients.
        said: what models say, by client that tables count.
    """
    return {
        "calibration_error": metrics.calibration_error(said),
        "confusion": metrics.confusion({client: own.classes for client, own in said.items()}),
    }


def describe_round(outcome: Outcome, method: Method, metrics: Metrics, engine: Engine, first: bool) -> dict[str, Any]:
    """What a round did, as plain values.

    Args:
        outcome: of the round.
        method: what was played.
        metrics: holds the labels that accuracies need.
        engine: for sizes.
        first: round 0, in which a classifier that is frozen travels too.
    """
    uploads, clients = outcome.uploads, len(outcome.labels)
    mean_answers = outcome.mean_answers
    phases: dict[str, float] = {}
    for upload in uploads.values():
        for phase, seconds in upload.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds

    def each(measure: Callable[[int, Targets], float]) -> list[float]:
        """One value a client that was given pseudo-labels; NaN for those that were absent or have labels."""
        made = [k in uploads and engine.labels[k] is None for k in range(clients)]
        return [measure(k, uploads[k].targets) if made[k] else math.nan for k in range(clients)]

    given = {k: upload.targets.labels for k, upload in uploads.items() if engine.labels[k] is None}
    asked = [upload.notes.get("trust") for upload in uploads.values()]
    trust = {"trust": each(lambda k, _: float(uploads[k].notes["trust"]))} if any(x is not None for x in asked) else {}
    chosen = {} if outcome.trusted is None or not first else {"trusted": outcome.trusted == 1}
    grouped = method.aggregator.grouping.makes_groups(first)
    divided = all("divisors" in upload.targets.notes for upload in uploads.values())
    return {
        "labels": outcome.labels,
        **({"clustering": {**metrics.clustering(outcome.labels), **outcome.notes}} if grouped else {}),
        "weights": outcome.weights,
        **({"shared": outcome.offer.shared} if len(outcome.offer.shared) else {}),
        **outcome.report,
        **({} if outcome.gathered is None else {"gathered": outcome.gathered}),
        **(
            {"refused": {str(k): why for k, why in mean_answers.refused.items()}}
            if mean_answers and mean_answers.refused
            else {}
        ),
        "pseudo_label_accuracy": each(lambda k, t: metrics.pseudo_label_accuracy(k, given[k], t.weights)),
        **({"pseudo_label_counts": metrics.pseudo_label_counts(given)} if given else {}),
        "agreement": each(lambda k, t: float(t.matched.double().mean())),
        "mixed": each(lambda k, t: float((t.mix > 0).sum())),
        "dropped": each(lambda k, t: float((t.weights == 0).sum())),
        "label_entropy": each(lambda k, t: label_entropy(t.labels)),
        **({"divisor": each(lambda k, t: float(t.notes["divisors"].min()))} if divided else {}),
        **trust,
        **chosen,
        "bytes_down": bytes_down(outcome, method, engine, first),
        "bytes_up": bytes_up(outcome, method, engine),
        "passes": sum(upload.passes for upload in uploads.values())
        + (0 if mean_answers is None else len(mean_answers.asked))
        + (len(uploads) if chosen else 0)
        + (len(uploads) if outcome.signature else 0),
        "seconds": {**phases, **outcome.seconds},
    }


def describe_last_phase(described: Mapping[str, Any], shifts: Mapping[int, Shift]) -> dict[str, Any]:
    """What the last phase did, as plain values: as a round, from which nothing is uploaded.

    Args:
        described: the same as `describe_round` says it.
        shifts: what it did to predictions, by client.
    """
    moved = {
        "agreement": {str(client): shift.agreement for client, shift in shifts.items()},
        "before": {str(client): shift.before.tolist() for client, shift in shifts.items()},
        "after": {str(client): shift.after.tolist() for client, shift in shifts.items()},
    }
    return {**described, "phase": "finish", "bytes_up": 0, "shift": moved}


def label_entropy(labels: Tensor) -> float:
    """Entropy of the class histogram in nats: 0 when all images got one label.

    >>> import torch
    >>> round(label_entropy(torch.tensor([0, 1, 0, 1])), 4)
    0.6931
    """
    return float(class_entropy(one_hot(labels).double())) if len(labels) else 0.0


def seconds_spent(record: Mapping[str, Any]) -> float:
    """Seconds of a round and its evaluation, by the clock."""
    seconds = record.get("seconds", {})
    return float(seconds.get("round", 0.0) + seconds.get("evaluate", 0.0))
