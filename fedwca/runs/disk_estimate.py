"""Before round 1: what a run's checkpoints will take of the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedwca.config.resolve_config import RunPlan
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError
from fedwca.results.checkpoints import RetentionPolicy
from fedwca.runs.load_data import architecture

VALUE = 4
"""Bytes of a number."""


def refuse_full_disk(run: Path, plan: RunPlan, keep: str, clients: int, classes: int) -> None:
    """See that the checkpoints that a run keeps fit on its disk.

    They hold the clients' models, the source model and at least one row of the server; what they take is at least that.

    Args:
        run: the run folder.
        plan: methods, rounds and trials.
        keep: which checkpoints stay.
        clients: K.
        classes: M.

    Raises:
        FedwcaError: they do not fit.
    """
    policy = RetentionPolicy.parse(keep)
    network = architecture(plan.config).build(classes, pretrained=False)
    each = VALUE * Layout.of(network).width * (clients + 2)
    federations = plan.config.source_models * plan.config.trials
    written = [rounds + 1 for _, rounds in plan.methods]
    stay = sum(count if policy.ended is None else min(policy.ended, count) for count in written) * federations
    at_work = max(count if policy.running is None else min(policy.running, count) for count in written)
    needed, free = each * max(stay, at_work), shutil.disk_usage(run).free
    if needed > free:
        raise FedwcaError(
            f"{run}: --keep {keep}: checkpoints take about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB are "
            "free there; keep fewer, or choose another place with --out"
        )
