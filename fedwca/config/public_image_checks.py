"""Checks of methods that learn from public images, and of models of several sizes, which need such a method."""

from __future__ import annotations

from fedwca.core.architecture import Architecture
from fedwca.core.public_objective import PublicObjective
from fedwca.errors import UsageError
from fedwca.federated.extra_networks import changes_network
from fedwca.federated.method import Method
from fedwca.partitions import Partition


def check_public_images(method: Method, partition: Partition) -> None:
    """Refuse a method that learns from public images if there are none, from them alone, or beside averaged models.

    Args:
        method: composed.
        partition: of the run.

    Raises:
        UsageError: says what to change.
    """
    public_objectives = [
        objective for objective in (*method.objectives, *method.finish) if isinstance(objective, PublicObjective)
    ]
    if not public_objectives:
        return
    name = public_objectives[0].name
    if len(public_objectives) > 1 or public_objectives[0] in method.finish:
        raise UsageError(
            f"objective {name!r} learns from public images; name only one such objective, and none in the last phase"
        )
    if not partition.has_public_images:
        raise UsageError(
            f"objective {name!r} learns from public images, and there are none; take a partition that keeps some, such "
            "as --partition shards:public=0.1"
        )
    if not method.aggregator.grouping.keeps_models_apart:
        raise UsageError(
            f"objective {name!r} is for models that stay with their clients, and aggregator {method.aggregator.name!r} "
            f"{method.aggregator.grouping.description}; take aggregator local"
        )
    if len(method.objectives) == 1:
        raise UsageError(
            f"objective {name!r} learns what clients say of public images, and nothing trains clients on their own; "
            "add an objective that does, such as cross_entropy"
        )


def check_sizes(method: Method, model: Architecture, checkpoint: bool) -> None:
    """Refuse models of several sizes if the method would average them or compare them with each other.

    Args:
        method: composed.
        model: the run's.
        checkpoint: whether clients start from the user's own model.

    Raises:
        UsageError: says what to change.
    """
    sizes = len(model.size_variants)
    if sizes == 1:
        return
    prefix = f"models of {sizes} sizes "
    if method.public_objective is None:
        raise UsageError(
            f"{prefix}cannot be averaged, and no objective on public images replaces averaging; take hetero_fedtta or "
            "hetero_tent, or objective digest, and run other methods with one size"
        )
    if checkpoint:
        raise UsageError(f"{prefix}begin with weights of their own; leave --checkpoint out")
    for objective in method.objectives:
        if "source" in (*objective.anchors, *objective.teachers):
            raise UsageError(f"{prefix}have no source model, which objective {objective.name!r} reads; leave it out")
    for part in method.trained:
        if changes_network(part) and (part is not method.adaptation or part.generates_models):
            raise UsageError(
                f"{prefix}have no other networks beside them than an adaptation's; leave {part.name!r} out"
            )
    if method.adaptation is not None:
        method.adaptation.at_size(0, sizes)
