"""Checks that a method's parts fit the run's partition, made when the method is composed."""

from __future__ import annotations

from fedwca.core.grouping import OneGroup
from fedwca.core.training_settings import Training
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition

UNREAD_LABELER = "argmax"
"""The labeler, without any field, that methods name where all clients that train have labels, so that none is asked."""


def check_fits_partition(
    method: Method, training: Training, batch_norm: str, partition: type[Partition], checkpoint: bool
) -> None:
    """Refuse a method with parts for another setting than the run's.

    Args:
        method: composed.
        training: how the method's clients train in a round.
        batch_norm: what happens to BatchNorm's running statistics when models are mixed.
        partition: of the run.
        checkpoint: whether clients start from the user's own model.

    Raises:
        UsageError: names the part and what it needs.
    """
    if partition.trains_classifier and not checkpoint:
        _check_needs_no_source_model(method)
    if partition.some_unlabeled:
        _check_unlabeled_fit(method, batch_norm)
    else:
        if partition.has_newcomers:
            _check_new_clients_fit(method, batch_norm)
        if method.aggregator.queries_clients:
            raise UsageError(
                f"aggregator {method.aggregator.name!r} weighs labelled clients for one without labels; it needs one, "
                "by --target"
            )
        if method.central is not None:
            raise UsageError(f"central method {method.central.name!r} learns from several sources; it needs --target")
        if method.finish:
            raise UsageError("a last phase is for clients without labels beside labelled ones; it needs --target")
    for settings in (training, method.finish_training):
        if settings is not None and settings.trains == "classifier" and not partition.trains_classifier:
            raise UsageError(
                "trains = classifier, but with a labelled source at the server the classifier is frozen; take all or "
                "extractor"
            )


def _check_needs_no_source_model(method: Method) -> None:
    """Refuse parts that learn from a source model, where clients start from an untrained one.

    Objectives of the rounds may use it as an anchor, which only keeps the weights near it.

    Raises:
        UsageError: names the part.
    """
    prefix = "where clients have labels there is no source model, which"
    readers = [objective for objective in (*method.objectives, *method.finish) if "source" in objective.teachers]
    readers += [objective for objective in method.finish if "source" in objective.anchors]
    if readers:
        raise UsageError(f"{prefix} objective {readers[0].name!r} reads; leave it out, or give a --checkpoint")
    if method.finish and "source" in method.pseudo_labeler.models:
        name = method.pseudo_labeler.name
        raise UsageError(f"{prefix} pseudo-labeler {name!r} reads; take another, or give a --checkpoint")


def _check_new_clients_fit(method: Method, batch_norm: str) -> None:
    """Refuse parts and BatchNorm policies that give no model to a client that joins after training.

    Raises:
        UsageError: names the part or the policy.
    """
    if method.aggregator.grouping != OneGroup() and method.public_objective is None:
        raise UsageError(
            f"aggregator {method.aggregator.name!r} {method.aggregator.grouping.description}, and a new client is in "
            "no group; new clients need one model of all that train, such as fedavg makes"
        )
    labeler = method.pseudo_labeler
    if labeler.name != UNREAD_LABELER or labeler != type(labeler)():
        raise UsageError(
            f"clients that train have labels and new ones train nothing, so pseudo-labeler {labeler.name!r} and its "
            "fields change nothing; leave them out"
        )
    if batch_norm in ("local", "recalibrated"):
        raise UsageError(
            f"--batch-norm {batch_norm}: new clients train in no round and have no statistics; take mixed or pooled"
        )


def _check_unlabeled_fit(method: Method, batch_norm: str) -> None:
    """Refuse parts and BatchNorm policies that do not work for an unlabeled client that trains in no round.

    Raises:
        UsageError: names the part or the policy.
    """
    if method.aggregator.grouping != OneGroup():
        raise UsageError(
            f"aggregator {method.aggregator.name!r} {method.aggregator.grouping.description}, which is for clients "
            "that all have images alone (--source); a target without labels needs one model of all the others, such as "
            "mdmgb or fedavg makes"
        )
    if method.aggregator.infers_gradients or method.aggregator.reports:
        raise UsageError(
            f"aggregator {method.aggregator.name!r} learns of every client from its training, and a target without "
            "labels trains in no round; take mdmgb or fedavg"
        )
    if batch_norm == "local":
        raise UsageError("--batch-norm local: a target that trains in no round has no statistics; take mixed")


def check_steps_have_labels(method: Method, training: Training, partition: type[Partition]) -> None:
    """Refuse rounds counted in steps if pseudo-labels are renewed before each epoch.

    Args:
        method: composed.
        training: how the method's clients train in a round.
        partition: of the run; if it trains whole networks, training clients have labels.

    Raises:
        UsageError: says what to change.
    """
    steps = training.steps
    if steps is not None and not partition.trains_classifier and method.pseudo_labeler.renew == "epoch":
        raise UsageError(
            f"pseudo-labeler {method.pseudo_labeler.name!r} labels images before each epoch, and a round of {steps} "
            "steps has none; take renew=round, or epochs in place of steps"
        )
