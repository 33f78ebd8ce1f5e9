"""Builds the record of a round, a line of ``rounds.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Targets
from fedwca.data.metrics import Metrics
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.interface import Engine
from fedwca.errors import UsageError
from fedwca.federated.close_round import Outcome
from fedwca.federated.last_phase import Shift
from fedwca.federated.method import Method
from fedwca.functional import class_entropy
from fedwca.results.run_schemas import UNCHECKED, RoundRecord
from fedwca.runs.records.traffic import bytes_down, bytes_up


def split_accuracies(metrics: Metrics, accuracies: Sequence[float]) -> dict[str, list[float]]:
    """Accuracies of a record, split into those that tables average and the others; each list has NaN elsewhere.

    Args:
        metrics: says which clients tables average.
        accuracies: accuracy of each client.
    """
    counted = metrics.counted.tolist()
    averaged = [value if is_counted else math.nan for value, is_counted in zip(accuracies, counted, strict=True)]
    not_averaged = [math.nan if is_counted else value for value, is_counted in zip(accuracies, counted, strict=True)]
    return {"accuracy": averaged, **({} if all(counted) else {"accuracy_sources": not_averaged})}


def describe_predictions(metrics: Metrics, predictions: Mapping[int, ClassPredictions]) -> dict[str, Any]:
    """Calibration error and confusion counts of a record.

    Args:
        metrics: metrics of the clients.
        predictions: class predictions of test images, by client that tables average.
    """
    return {
        "calibration_error": metrics.calibration_error(predictions),
        "confusion": metrics.confusion({client: predicted.classes for client, predicted in predictions.items()}),
    }


def describe_round(outcome: Outcome, method: Method, metrics: Metrics, engine: Engine, first: bool) -> dict[str, Any]:
    """The record's entries on a round's training and communication, as tensors and plain values.

    Args:
        outcome: outcome of the round.
        method: the method.
        metrics: holds the true labels.
        engine: gives labels and model sizes.
        first: whether this is round 0, in which a frozen classifier is sent too.
    """
    uploads, clients = outcome.uploads, len(outcome.labels)
    mean_answers = outcome.mean_answers
    phases: dict[str, float] = {}
    for upload in uploads.values():
        for phase, seconds in upload.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds

    def per_client(measure: Callable[[int, Targets], float]) -> list[float]:
        """One value per client that was given pseudo-labels; NaN for clients that were absent or have labels."""
        has_pseudo_labels = [k in uploads and engine.labels[k] is None for k in range(clients)]
        return [measure(k, uploads[k].targets) if has_pseudo_labels[k] else math.nan for k in range(clients)]

    pseudo_labels = {k: upload.targets.labels for k, upload in uploads.items() if engine.labels[k] is None}
    trust_notes = [upload.notes.get("trust") for upload in uploads.values()]
    trust = (
        {"trust": per_client(lambda k, _: float(uploads[k].notes["trust"]))}
        if any(x is not None for x in trust_notes)
        else {}
    )
    trusted = {} if outcome.trusted is None or not first else {"trusted": outcome.trusted == 1}
    grouped = method.aggregator.grouping.makes_groups(first)
    have_divisors = all("divisors" in upload.targets.notes for upload in uploads.values())
    return {
        "labels": outcome.labels,
        **({"clustering": {**metrics.clustering(outcome.labels), **outcome.notes}} if grouped else {}),
        **({} if starts_from_own(method, outcome) else {"weights": outcome.weights}),
        **({"shared": outcome.offer.shared} if len(outcome.offer.shared) else {}),
        **outcome.report,
        **({} if outcome.gathered is None else {"gathered": outcome.gathered}),
        **(
            {"refused": {str(k): reason for k, reason in mean_answers.refused.items()}}
            if mean_answers and mean_answers.refused
            else {}
        ),
        "pseudo_label_accuracy": per_client(lambda k, t: metrics.pseudo_label_accuracy(k, pseudo_labels[k], t.weights)),
        **({"pseudo_label_counts": metrics.pseudo_label_counts(pseudo_labels)} if pseudo_labels else {}),
        "agreement": per_client(lambda k, t: float(t.models_agree.double().mean())),
        "mixed": per_client(lambda k, t: float((t.partner_weights > 0).sum())),
        "dropped": per_client(lambda k, t: float((t.weights == 0).sum())),
        "label_entropy": per_client(lambda k, t: label_entropy(t.labels)),
        **({"divisor": per_client(lambda k, t: float(t.notes["divisors"].min()))} if have_divisors else {}),
        **trust,
        **trusted,
        "bytes_down": bytes_down(outcome, method, engine, first),
        "bytes_up": bytes_up(outcome, method, engine),
        "passes": sum(upload.passes for upload in uploads.values())
        + (0 if mean_answers is None else len(mean_answers.asked))
        + (len(pseudo_labels) if trusted else 0)
        + (len(uploads) if outcome.signature else 0),
        "seconds": {**phases, **outcome.seconds},
    }


def starts_from_own(method: Method, outcome: Outcome) -> bool:
    """Whether each client that took part started from its own model alone: K² weights would say no more than that."""
    weights = outcome.weights
    if not method.aggregator.grouping.keeps_models_apart or weights.shape[0] != weights.shape[1]:
        return False
    return bool((weights.diagonal()[outcome.present.cpu()] == 1).all())


def check_report_names(aggregator: Aggregator) -> None:
    """Refuse an aggregator whose reports would take the place of other fields of a record, or of a deployment's.

    Raises:
        UsageError: names the report.
    """
    keys = {field.alias or name for name, field in RoundRecord.model_fields.items()}
    if taken := sorted(aggregator.reports.keys() & {*keys, *UNCHECKED, "label"}):
        raise UsageError(
            f"aggregator {aggregator.name!r}: a record or an upload has another field {taken[0]!r}; rename the report"
        )


def describe_last_phase(
    described: Mapping[str, Any], shifts: Mapping[int, Shift], trusted: Tensor | None
) -> dict[str, Any]:
    """The record's entries on the last phase: as for a round, but without uploads.

    Args:
        described: the entries from `describe_round`.
        shifts: how predictions changed, by client.
        trusted: how far clients' labels are trusted ``[K]``, 0 to 1; None where nobody was asked.
    """
    asked = {} if trusted is None else {"trusted": trusted == 1, "passes": described["passes"] + len(shifts)}
    moved = {
        "agreement": {str(client): shift.agreement for client, shift in shifts.items()},
        "before": {str(client): shift.before.tolist() for client, shift in shifts.items()},
        "after": {str(client): shift.after.tolist() for client, shift in shifts.items()},
    }
    return {**described, **asked, "phase": "finish", "bytes_up": 0, "shift": moved}


def label_entropy(labels: Tensor) -> float:
    """Entropy of the class histogram in nats; 0 if all images have the same label.

    >>> import torch
    >>> round(label_entropy(torch.tensor([0, 1, 0, 1])), 4)
    0.6931
    """
    return float(class_entropy(one_hot(labels).double())) if len(labels) else 0.0


def seconds_spent(record: Mapping[str, Any]) -> float:
    """Elapsed seconds of a round, its evaluation and its record; before the first round, of central training."""
    phases = ("central", "round", "evaluate", "record")
    return float(sum(record.get("seconds", {}).get(phase, 0.0) for phase in phases))
