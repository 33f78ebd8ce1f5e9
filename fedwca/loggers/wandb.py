"""Weights & Biases, offline unless asked otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from fedwca.core.tracking_id import tracking_id
from fedwca.loggers import Logger, LogSession, Record, RunEnd, register, series, title


@register("wandb")
class WandB(Logger):
    """Logs to Weights & Biases; offline runs lie in the run folder, for ``wandb sync``."""

    library = "wandb"
    extra = "wandb"

    project: str = "fedwca"
    """Its project."""
    mode: Literal["offline", "online"] = "offline"
    """Online needs an account."""

    @contextmanager
    def open(self, run: Path, config: Mapping[str, Any]) -> Iterator[LogSession]:
        """Values are called ``<method>/<source model>-<trial>/<value>``, each with ``rounds_done`` as its axis. At the
        end the summary has ``<method>/final_accuracy``, the mean over runs, and pictures are logged.
        """
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        session = wandb.init(
            project=self.project,
            name=run.name,
            id=tracking_id(run),
            resume="allow" if self.mode == "online" else None,
            dir=str(run),
            mode=self.mode,
            config=dict(config),
            settings=settings,
        )
        session.define_metric("*", step_metric="rounds_done")

        def log(record: Record) -> None:
            values = {f"{title(record)}/{key}": value for key, value in series(record).items()}
            session.log({**values, "rounds_done": record["round"] + 1})

        def end(found: RunEnd) -> None:
            for name, mean in found.means.items():
                session.summary[f"{name}/final_accuracy"] = mean
            session.log({f"pictures/{name}": wandb.Image(pixels) for name, pixels in found.pictures.items()})

        failed = 1
        try:
            yield LogSession(log, end)
            failed = 0
        finally:
            session.finish(exit_code=failed)
