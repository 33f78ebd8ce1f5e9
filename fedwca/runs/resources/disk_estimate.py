"""Estimate of the disk space that a run's checkpoints need, made before round 1."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedwca.config.build_component import architecture
from fedwca.config.resolve_config import RunPlan
from fedwca.core.network import Network
from fedwca.data.federation import Federation
from fedwca.engine.memory import human_size
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError
from fedwca.federated.method import Method
from fedwca.results.retention_policy import RetentionPolicy
from fedwca.runs.resources.memory_estimate import VALUE, count_predictions, count_server_rows, shape_network


def check_disk_space(run: Path, keep: str, needed: int) -> None:
    """Check that a run's checkpoints fit on its disk.

    Args:
        run: the run folder.
        keep: retention policy, as of ``--keep``.
        needed: their bytes, see `estimate_checkpoints`.

    Raises:
        FedwcaError: they do not fit.
    """
    free = shutil.disk_usage(run).free
    if needed > free:
        raise FedwcaError(
            f"{run}: --keep {keep}: checkpoints take about {human_size(needed)}, and {human_size(free)} are free "
            "there; keep fewer, or choose another place with --out"
        )


def estimate_checkpoints(plan: RunPlan, keep: str, federation: Federation, network: Network, subgroups: int = 1) -> int:
    """Largest number of bytes that a run's checkpoints take at a time.

    They are those that are kept in the end, and those that the methods at work keep besides: earlier ones, and one more
    while it is written, since older ones are removed after that.

    Args:
        plan: methods, rounds and trials.
        keep: retention policy, as of ``--keep``.
        federation: the first trial's; all trials have as many clients.
        network: a network of the source model's shape.
        subgroups: subgroups of ranks, each of which runs a method at a time.
    """
    policy = RetentionPolicy.parse(keep)
    classes = network.classifier.out_features
    model_sizes = len(architecture(plan.config).size_variants)
    federations = plan.config.source_models * plan.config.trials

    trials_together = min(plan.config.trials_at_once or 1, federations)

    def count_kept(limit: int | None, rounds: int, written: int = 0) -> int:
        return rounds + 1 if limit is None else min(limit + policy.selected + written, rounds + 1)

    final, at_work = 0, 0
    for method, rounds in plan.methods:
        size = checkpoint_size(network, method, federation, classes, model_sizes)
        ended, running = count_kept(policy.ended, rounds), count_kept(policy.running, rounds)
        written = count_kept(policy.running, rounds, written=1) - running  # of one trial at a time
        final += size * ended
        at_work = max(at_work, size * (trials_together * (running - ended) + written))
    return federations * final + min(subgroups, federations * len(plan.methods)) * at_work


def checkpoint_size(network: Network, method: Method, federation: Federation, classes: int, sizes: int = 1) -> int:
    """Bytes of one checkpoint of a method.

    It holds the clients' models, the server's rows, the source model, the network's tensors that are in no row, and
    the predictions of public images if the method has a public objective.

    Args:
        network: a network of the source model's shape.
        method: the method.
        federation: of one trial.
        classes: M.
        sizes: number of model sizes of the architecture.
    """
    rows = len(federation) + count_server_rows(method, federation) + 1
    predictions = count_predictions(federation, classes) if method.public_objective is not None else 0
    shaped = shape_network(network, method, sizes)
    layout = Layout.of(shaped)
    others = sum(tensor.nbytes for tensor in layout.read_others(shaped).values())
    return VALUE * (layout.width * rows + predictions) + others
