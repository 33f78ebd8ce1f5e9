"""Checks that a method can be trained as the configuration says, made when the method is composed.

The caller puts the method's name before the message.
"""

from __future__ import annotations

from fedwca.core.training_settings import Training
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition


def check_epochs_are_whole(training: Training, rounds: int) -> None:
    """Refuse a number of rounds that ends inside an epoch, if training cuts an epoch into several rounds.

    Args:
        training: how the method's clients train in a round.
        rounds: of the method, without its last phase.

    Raises:
        UsageError: says which numbers of rounds are valid.
    """
    cuts = training.cuts
    if remainder := rounds % cuts:
        rounded_up = rounds - remainder + cuts
        valid_rounds = f"{rounds - remainder} or {rounded_up}" if rounds > cuts else f"{rounded_up}"
        raise UsageError(
            f"{rounds} rounds end inside an epoch, which training.cuts makes {cuts} rounds long; take --rounds "
            f"{valid_rounds}"
        )


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
