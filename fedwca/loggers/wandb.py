"""Logs to Weights & Biases, offline by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from fedwca.core.tracking_id import name_run, tracking_id
from fedwca.loggers import Logger, LogSession, Record, RunEnd, curve_name, register, scalars


@register("wandb")
class WandB(Logger):
    """Logs to Weights & Biases; offline runs lie in the run folder, for ``wandb sync``."""

    library = "wandb"
    extra = "wandb"

    project: str = "fedwca"
    """Name of the W&B project."""
    mode: Literal["offline", "online"] = "offline"
    """Online needs an account."""

    @contextmanager
    def open(self, run: Path, config: Mapping[str, Any]) -> Iterator[LogSession]:
        """Open the W&B run.

        Values are named ``<method>/<source model>-<trial>/<value>`` and plotted over ``rounds_done``. At the end,
        ``<method>/final_accuracy``, the mean over source models and trials, is in the summary, and pictures are logged.
        """
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        session = wandb.init(
            project=self.project,
            name=name_run(run),
            id=tracking_id(run),
            resume="allow" if self.mode == "online" else None,
            dir=str(run),
            mode=self.mode,
            config=dict(config),
            settings=settings,
        )
        session.define_metric("*", step_metric="rounds_done")

        def log(record: Record) -> None:
            values = {f"{curve_name(record)}/{key}": value for key, value in scalars(record).items()}
            session.log({**values, "rounds_done": record["round"] + 1})

        def end(run_end: RunEnd) -> None:
            for name, mean in run_end.mean_accuracies.items():
                session.summary[f"{name}/final_accuracy"] = mean
            session.log({f"pictures/{name}": wandb.Image(pixels) for name, pixels in run_end.pictures.items()})

        exit_code = 1
        try:
            yield LogSession(log, end)
            exit_code = 0
        finally:
            session.finish(exit_code=exit_code)
