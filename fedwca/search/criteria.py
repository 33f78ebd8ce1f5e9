"""By what number a try of a search is judged: without target labels unless asked otherwise."""

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
from fedwca.results.table_rows import VALIDATION as VALIDATION_FIELD
from fedwca.results.table_rows import last_records, shown_records

VALIDATION = "validation"
CRITERIA = {"density": "maximize", "entropy": "minimize", VALIDATION: "maximize"}
"""What the last models say of unlabeled images, or how clients that train do on images kept aside, and which way is
better."""
ORACLE = "accuracy"


def choose_criterion(asked: str | None, partition: type[Partition]) -> str:
    """The criterion that is asked for; else validation where clients that train have labels, and density where not.

    Raises:
        UsageError: there is none of that name, or it does not fit who has labels.
    """
    fits = [name for name in CRITERIA if (name == VALIDATION) == partition.newcomers]
    if asked is None:
        return fits[0]
    if asked not in CRITERIA:
        raise UsageError(f"--criterion: {describe_unknown('criterion', asked, CRITERIA)}")
    if asked not in fits:
        raise UsageError(f"--criterion {asked}: with partition {partition.name} a try is judged by {' or '.join(fits)}")
    return asked


def check_criterion_is_measured(criterion: str, rounds: int, federation: Federation) -> None:
    """See that a run has what the criterion reads, before anything is trained.

    Args:
        criterion: as of `judge`.
        rounds: of the method.
        federation: the clients of a trial.

    Raises:
        UsageError: it has not.
    """
    if criterion == VALIDATION:
        if not any(len(client.test) for client in federation.clients):
            raise UsageError(
                "criterion validation: no client that trains has an image kept aside to judge by; take --validation "
                "above 0 (unset: 0.15) and enough images a client for that share"
            )
    elif criterion == ORACLE:
        if not any(len(client.test) for client in federation.everybody):
            raise UsageError(
                f"--oracle: no client has test images to judge by; clients need {federation.least_measured} images for "
                "a test image"
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
    """See that values which are searched change what the criterion reads.

    Args:
        criterion: as of `judge`.
        keys: fields that are searched.
        method: that has them.

    Raises:
        UsageError: one is of an adaptation, the criterion is of models before its steps, and none is trained through
            them.
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
    """What a try that diverged is judged as."""
    return math.inf if CRITERIA.get(criterion) == "minimize" else -math.inf


def judge(records: Sequence[Mapping[str, Any]], criterion: str) -> float:
    """Mean over runs of the mean over clients: after the last round, or in the round that tables show.

    Args:
        records: of one method, all runs.
        criterion: ``density`` or ``entropy`` (no label is read), ``validation`` (clients that train, on images kept
            aside, in the round in which they are best), or ``accuracy`` (an oracle).

    Returns:
        The mean, NaN where it is known of nobody; where a run diverged, the `worst` there is.
    """
    if any(DIVERGED in record for record in records):
        return worst(criterion)
    if criterion == VALIDATION:
        (runs,) = shown_records(records).values()
        return mean(mean(record[VALIDATION_FIELD]) for record in runs.values())
    last = [record for runs in last_records(records).values() for record in runs.values()]
    return mean(mean(r["accuracy"] if criterion == ORACLE else r["evidence"][criterion]) for r in last)
