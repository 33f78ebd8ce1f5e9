"""Loggers beside a run: checked before any work, and never the reason that it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedwca.errors import CheckpointError
from fedwca.loggers import Logger, LogSession, RunEnd, loggers, title
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.style import save
from fedwca.results.read_run import read_run
from fedwca.results.trial_key import TrialKey
from fedwca.runs.final_model_predictions import predictions_when_asked

FIRST = TrialKey()
"""Source model and trial that a picture of one trial is of."""


def build_loggers(specs: Sequence[Any]) -> list[Logger]:
    """Loggers from ``name:field=value`` or tables, each with its library there.

    Raises:
        UsageError: no logger of that name, a wrong field, or a library that is not installed.
    """
    found = [loggers.build(spec) for spec in specs]
    for logger in found:
        logger.ready()
    return found


def end_of_run(run: Path, summary: Mapping[str, Any], warn: Callable[[str], None]) -> RunEnd:
    """What loggers are told at the end of a run; draws the pictures for them that are not there yet.

    Args:
        run: the run folder, which has its overview.
        summary: what ``summary.json`` says.
        warn: told of a picture that cannot be drawn.
    """
    accuracies = {
        name: {title({"method": name, **one}): one["mean"] for one in entry["runs"] if one["mean"] is not None}
        for name, entry in summary["methods"].items()
    }
    files = {"overview": run / "overview.png", "confusion": run / "pictures" / "confusion.png"}
    try:
        asked = PictureRequest(read_run(run), predictions_when_asked(run, None, FIRST), None, FIRST)
        save(PICTURES["confusion"].draw(asked), files["confusion"])
    except CheckpointError:
        pass  # its models are not kept
    except Exception as error:  # whatever a plotting library makes of this machine's settings
        warn(f"the confusion could not be drawn for the loggers ({error}); the results are whole")
    return RunEnd(accuracies, {name: _read_picture(file) for name, file in files.items() if file.is_file()})


def _read_picture(file: Path) -> Any:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


@contextmanager
def log_records(
    chosen: Sequence[Logger], run: Path, config: Mapping[str, Any], warn: Callable[[str], None]
) -> Iterator[LogSession]:
    """A session that hands on to all loggers; one that fails is left out from then on, with a warning.

    Args:
        chosen: the loggers.
        run: the run folder.
        config: the resolved configuration as plain values.
        warn: told of a logger that fails, or cannot even begin.
    """
    sessions = _Sessions(warn)
    caught: BaseException | None = None
    try:
        for logger in chosen:
            sessions.open(logger, run, config)
        yield LogSession(sessions.log, sessions.end)
    except BaseException as error:
        caught = error
        raise
    finally:
        with suppress(KeyboardInterrupt):
            sessions.close_all(caught)


class _Sessions:
    """Loggers that are open; ``warn`` is told of those that fail."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._open: list[tuple[str, Any, LogSession]] = []

    def open(self, logger: Logger, run: Path, config: Mapping[str, Any]) -> None:
        """Begin with one; if it cannot, the run goes on without it."""
        try:
            session = logger.open(run, config)
            entered = session.__enter__()
            self._open.append(
                (logger.name, session, entered if isinstance(entered, LogSession) else LogSession(entered))
            )
        except Exception as problem:
            self.warn(f"logger {logger.name} could not be started, the run goes on without it ({problem})")

    def log(self, record: Mapping[str, Any]) -> None:
        """Hand a record to all."""
        self._tell(lambda session: session.record(record))

    def end(self, found: RunEnd) -> None:
        """Tell all what the run came to."""
        self._tell(lambda session: session.end(found))

    def _tell(self, tell: Callable[[LogSession], None]) -> None:
        for entry in list(self._open):
            name, manager, session = entry
            try:
                tell(session)
            except Exception as problem:
                self.warn(f"logger {name} failed, the run goes on without it ({problem})")
                self._open.remove(entry)
                self._close(manager, name, problem)

    def close_all(self, error: BaseException | None) -> None:
        """End all; ``error`` is what ended the run, if it did not end well."""
        for name, session, _ in self._open:
            self._close(session, name, error)

    def _close(self, session: Any, name: str, error: BaseException | None) -> None:
        try:
            session.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except Exception as problem:
            if problem is not error:
                self.warn(f"logger {name} could not be closed ({problem})")
        except BaseException as problem:
            if problem is not error:
                raise
