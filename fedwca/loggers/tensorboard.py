"""Logs to TensorBoard event files: curves of each method, settings with final accuracies, and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedwca.core.files import expand_home
from fedwca.core.tracking_id import name_run
from fedwca.loggers import Logger, LogSession, Record, RunEnd, curve_name, plain_settings, register, scalars


@register("tensorboard")
class TensorBoard(Logger):
    """Writes event files, one folder for each method, source model and trial: ``tensorboard --logdir <folder>``."""

    library = "tensorboard"
    extra = "tensorboard"

    folder: Path | None = None
    """Where, in a folder of the run's name; unset: ``tensorboard`` in the run folder."""

    @contextmanager
    def open(self, run: Path, config: Mapping[str, Any]) -> Iterator[LogSession]:
        """Open the event files.

        Steps are finished rounds, 0 before round 0. At the end, settings and final accuracies are written under HPARAMS
        for each method, source model and trial, and pictures into ``pictures``.
        """
        root = expand_home(self.folder) / name_run(run) if self.folder else run / "tensorboard"
        events = _EventFiles(root, config)
        try:
            yield LogSession(events.log, events.end)
        finally:
            events.close()


class _EventFiles:
    """The event files of a run, in a folder for each name, with the configuration in each."""

    def __init__(self, root: Path, config: Mapping[str, Any]) -> None:
        self.root, self.config = root, config
        self.writers: dict[str, Any] = {}

    def writer(self, name: str) -> Any:
        """Return the writer for one folder, made on first use."""
        if name not in self.writers:
            from torch.utils.tensorboard import SummaryWriter

            self.writers[name] = SummaryWriter(str(self.root / name))
        return self.writers[name]

    def log(self, record: Record) -> None:
        name = curve_name(record)
        if name not in self.writers:
            self.writer(name).add_text("config", f"```json\n{json.dumps(self.config, indent=2)}\n```")
        for key, value in scalars(record).items():
            self.writer(name).add_scalar(key, value, record["round"] + 1)
        self.writer(name).flush()

    def end(self, run_end: RunEnd) -> None:
        settings = plain_settings(self.config)
        for method, accuracies in run_end.accuracies.items():
            for name, accuracy in accuracies.items():
                values = {"method": method, **settings}
                self.writer(name).add_hparams(values, {"final/accuracy": accuracy}, run_name=".")
        for name, pixels in run_end.pictures.items():
            self.writer("pictures").add_image(name, pixels, dataformats="HWC")

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
