"""The criteria that a try of a search is judged by; none reads target labels, except the oracle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedwca.core.mean import mean
from fedwca.data.federation import Federation
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition
from fedwca.results.diverged_runs import DIVERGED
from fedwca.results.shown_records import VALIDATION as VALIDATION_FIELD
from fedwca.results.shown_records import last_records, shown_records

VALIDATION = "validation"
CRITERIA = {"density": "maximize", "entropy": "minimize", VALIDATION: "maximize"}
"""Criterion to the direction that is better. Density and entropy are of the last models' outputs on unlabeled images;
validation is the accuracy of training clients on images held out."""
ORACLE = "accuracy"


def choose_criterion(criterion: str | None, partition: type[Partition]) -> str:
    """The criterion that the user names; by default validation if clients that train have labels, else density.

    Raises:
        UsageError: there is none of that name, or the partition does not allow it.
    """
    fitting = [name for name in CRITERIA if (name == VALIDATION) == partition.has_newcomers]
    if criterion is None:
        return fitting[0]
    if criterion not in CRITERIA:
        raise UsageError(f"--criterion: {describe_unknown('criterion', criterion, CRITERIA)}")
    if criterion not in fitting:
        raise UsageError(
            f"--criterion {criterion}: with partition {partition.name} a try is judged by {' or '.join(fitting)}"
        )
    return criterion


def check_criterion_is_measured(criterion: str, rounds: int, federation: Federation) -> None:
    """Check before training that a run will have what the criterion reads.

    Args:
        criterion: as of `judge`.
        rounds: of the method.
        federation: the clients of a trial.

    Raises:
        UsageError: it will not.
    """
    if criterion == VALIDATION:
        if not any(len(client.test) for client in federation.clients):
            raise UsageError(
                "criterion validation: no client that trains has an image kept aside to judge by; take --validation "
                "above 0 (unset: 0.15) and enough images a client for that share"
            )
    elif criterion == ORACLE:
        if not any(len(client.test) for client in federation.all_clients):
            raise UsageError(
                "--oracle: no client has test images to judge by; clients need "
                f"{federation.test_image_needs} for a test image"
            )
    elif all(client.labels is not None for client in federation.clients):
        raise UsageError(
            f"criterion {criterion}: it is measured on clients without labels, and all have labels; take --oracle"
        )
    elif not rounds:
        raise UsageError(
            f"criterion {criterion}: it is measured after the last round, and the method has none; take --oracle"
        )


def check_criterion_sees_values(criterion: str, keys: Iterable[str], method: Method) -> None:
    """Check that the searched values can change what the criterion reads.

    Args:
        criterion: as of `judge`.
        keys: fields that are searched.
        method: the method that has them.

    Raises:
        UsageError: a field belongs to an adaptation, while the criterion reads models before the adaptation's steps,
            and no objective trains through these.
    """
    if criterion in (VALIDATION, ORACLE) or any(objective.adapts for objective in method.objectives):
        return
    for key in keys:
        if key.startswith("adaptation."):
            raise UsageError(
                f"--param {key}: criterion {criterion} is of models before an adaptation's steps, so all values are "
                "alike; take --oracle"
            )


def worst(criterion: str) -> float:
    """The value of the criterion that a diverged try gets."""
    return math.inf if CRITERIA.get(criterion) == "minimize" else -math.inf


def judge(records: Sequence[Mapping[str, Any]], criterion: str) -> float:
    """The criterion as mean over runs of the mean over clients, after the last round or in the round that tables show.

    Args:
        records: of one method, all runs.
        criterion: ``density`` or ``entropy`` (no label is read), ``validation`` (clients that train, on held-out
            images, in the round that is best on them), or ``accuracy`` (an oracle).

    Returns:
        The mean to nine decimals, so that equal tries are alike although sums differ in the last digits; NaN if no
        client has a value; `worst` if a run diverged.
    """
    if any(DIVERGED in record for record in records):
        return worst(criterion)
    if criterion == VALIDATION:
        (runs,) = shown_records(records).values()
        values = [record[VALIDATION_FIELD] for record in runs.values()]
    else:
        last = [record for runs in last_records(records).values() for record in runs.values()]
        values = [record["accuracy"] if criterion == ORACLE else record["evidence"][criterion] for record in last]
    return round(mean(map(mean, values)), 9)
