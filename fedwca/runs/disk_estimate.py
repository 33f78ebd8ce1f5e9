"""Estimate of the disk space that a run's checkpoints need, made before round 1."""

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
    """Check that the checkpoints that a run keeps fit on its disk.

    Args:
        run: the run folder.
        plan: methods, rounds and trials.
        keep: retention policy, as of ``--keep``.
        federation: the first trial's; all trials have as many clients.
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
    """Bytes of all checkpoints that are kept, or of one method's checkpoints while its trials run if that is more.

    Args:
        plan: methods, rounds and trials.
        keep: retention policy, as of ``--keep``.
        federation: the first trial's.
        classes: M.
    """
    policy = RetentionPolicy.parse(keep)
    network = build_network(plan.config, classes, pretrained=False)
    model_sizes, federations = len(architecture(plan.config).variants), plan.config.source_models * plan.config.trials

    def count_kept(limit: int | None, rounds: int) -> int:
        return rounds + 1 if limit is None else min(limit + policy.selected, rounds + 1)

    sizes_and_rounds = [
        (checkpoint_size(network, method, federation, classes, model_sizes), rounds) for method, rounds in plan.methods
    ]
    final = sum(size * count_kept(policy.ended, rounds) for size, rounds in sizes_and_rounds)
    trials_together = min(plan.config.trials_at_once or 1, federations)
    while_running = trials_together * max(
        size * count_kept(policy.running, rounds) for size, rounds in sizes_and_rounds
    )
    return max(final * federations, while_running)


def checkpoint_size(network: Network, method: Method, federation: Federation, classes: int, sizes: int = 1) -> int:
    """Bytes of one checkpoint of a method.

    It holds the clients' models, the server's rows, the source model, and the predictions of public images if the
    method has a public objective.

    Args:
        network: a network of the source model's shape.
        method: the method.
        federation: of one trial.
        classes: M.
        sizes: number of model sizes of the architecture.
    """
    rows = len(federation) + count_server_rows(method, federation) + 1
    predictions = count_predictions(federation, classes) if method.public_objective is not None else 0
    return VALUE * (Layout.of(shape_network(network, method, sizes)).width * rows + predictions)
