"""TensorBoard: event files, a curve a method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedwca.loggers import Log, Logger, Record, register, series, title


@register("tensorboard")
class TensorBoard(Logger):
    """Writes event files, one folder for each method, source model and trial: ``tensorboard --logdir <folder>``."""

    library = "tensorboard"
    extra = "tensorboard"

    folder: Path | None = None
    """Where; unset: ``tensorboard`` in the run folder."""

    @contextmanager
    def open(self, run: Path, config: Mapping[str, Any]) -> Iterator[Log]:
        """Steps are rounds done: 0 before round 0."""
        from torch.utils.tensorboard import SummaryWriter

        root, writers = self.folder or run / "tensorboard", {}

        def log(record: Record) -> None:
            name = title(record)
            if name not in writers:
                writers[name] = SummaryWriter(str(root / name))
                writers[name].add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```")
            for key, value in series(record).items():
                writers[name].add_scalar(key, value, record["round"] + 1)
            writers[name].flush()

        try:
            yield log
        finally:
            for writer in writers.values():
                writer.close()
