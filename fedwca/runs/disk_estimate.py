"""Before round 1: what a run's checkpoints will take of the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedwca.config.resolve_config import RunPlan
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError
from fedwca.federated.method import Method
from fedwca.results.checkpoints import RetentionPolicy
from fedwca.runs.load_data import architecture, build_network
from fedwca.runs.memory_estimate import VALUE, count_predictions, count_server_rows, shape_network


def check_disk_space(run: Path, plan: RunPlan, keep: str, federation: Federation, classes: int) -> None:
    """See that the checkpoints that a run keeps fit on its disk.

    Args:
        run: the run folder.
        plan: methods, rounds and trials.
        keep: which checkpoints stay.
        federation: of the first trial; all have as many clients.
        classes: M.

    Raises:
        FedwcaError: they do not fit.
    """
    needed, free = estimate_checkpoints(plan, keep, federation, classes), shutil.disk_usage(run).free
    if needed > free:
        raise FedwcaError(
            f"{run}: --keep {keep}: checkpoints take about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are "
            "free there; keep fewer, or choose another place with --out"
        )


def estimate_checkpoints(plan: RunPlan, keep: str, federation: Federation, classes: int) -> int:
    """Bytes of all checkpoints that stay, or of those of one method while its trials run if these are more.

    Args:
        plan: methods, rounds and trials.
        keep: which checkpoints stay.
        federation: of the first trial.
        classes: M.
    """
    policy = RetentionPolicy.parse(keep)
    network = build_network(plan.config, classes, pretrained=False)
    sizes, federations = len(architecture(plan.config).variants), plan.config.source_models * plan.config.trials

    def count(most: int | None, rounds: int) -> int:
        return rounds + 1 if most is None else min(most + policy.selected, rounds + 1)

    each = [(checkpoint_size(network, method, federation, classes, sizes), rounds) for method, rounds in plan.methods]
    stay = sum(size * count(policy.ended, rounds) for size, rounds in each)
    together = min(plan.config.trials_at_once or 1, federations)
    at_work = together * max(size * count(policy.running, rounds) for size, rounds in each)
    return max(stay * federations, at_work)


def checkpoint_size(network: Network, method: Method, federation: Federation, classes: int, sizes: int = 1) -> int:
    """Bytes of a method's checkpoint: the clients' models, the server's rows, the source model, and where the server
    keeps them predictions of public images.

    Args:
        network: the source model's, in shape.
        method: whose.
        federation: of a trial.
        classes: M.
        sizes: of models.
    """
    rows = len(federation) + count_server_rows(method, federation) + 1
    told = count_predictions(federation, classes) if method.public_objective is not None else 0
    return VALUE * (Layout.of(shape_network(network, method, sizes)).width * rows + told)
