"""Loggers of a run: checked before any training; a failing logger never stops the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedwca.core.component_answers import describe_value
from fedwca.errors import CheckpointError
from fedwca.loggers import Logger, LogSession, RunEnd, curve_name, loggers
from fedwca.results.pictures.catalogue import PICTURES, PictureRequest
from fedwca.results.pictures.style import save
from fedwca.results.read_run import read_run
from fedwca.results.trial_key import TrialKey
from fedwca.runs.final_model_predictions import lazy_predictions

FIRST = TrialKey()
"""The source model and trial that pictures of a single trial show."""


def build_loggers(specs: Sequence[Any]) -> list[Logger]:
    """Build loggers from ``name:field=value`` or tables, and check that their libraries are installed.

    Raises:
        UsageError: no logger of that name, a wrong field, or a library that is not installed.
    """
    built_loggers = [loggers.build(spec) for spec in specs]
    for logger in built_loggers:
        logger.check_installed()
    return built_loggers


def end_of_run(run: Path, summary: Mapping[str, Any], warn: Callable[[str], None]) -> RunEnd:
    """Results and pictures passed to loggers at the end of a run; draws the confusion matrix.

    Args:
        run: the run folder; its overview is already drawn.
        summary: contents of ``summary.json``.
        warn: called with a message if the confusion matrix cannot be drawn.
    """
    accuracies = {
        name: {
            curve_name({"method": name, **run_result}): run_result["mean"]
            for run_result in entry["runs"]
            if run_result["mean"] is not None
        }
        for name, entry in summary["methods"].items()
    }
    files = {"overview": run / "overview.png", "confusion": run / "pictures" / "confusion.png"}
    try:
        request = PictureRequest(read_run(run), lazy_predictions(run, None, FIRST), None, FIRST)
        save(PICTURES["confusion"].draw(request), files["confusion"])
    except CheckpointError:
        pass  # the run's models were not kept
    except Exception as error:  # a plotting library may fail in any way
        warn(f"the confusion could not be drawn for the loggers ({error}); the results are whole")
    return RunEnd(accuracies, {name: _read_picture(file) for name, file in files.items() if file.is_file()})


def _read_picture(file: Path) -> Any:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


@contextmanager
def log_records(
    chosen: Sequence[Logger], run: Path, config: Mapping[str, Any], warn: Callable[[str], None]
) -> Iterator[LogSession]:
    """A session that forwards to all loggers; one that fails is dropped with a warning.

    Args:
        chosen: the loggers.
        run: the run folder.
        config: the resolved configuration as plain values.
        warn: called with a message for each logger that cannot be started, fails, or cannot be closed.
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
    """The open logger sessions; ``warn`` is called with a message when one fails."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._open: list[tuple[str, Any, LogSession]] = []

    def open(self, logger: Logger, run: Path, config: Mapping[str, Any]) -> None:
        """Start a logger; if that fails, the run goes on without it."""
        try:
            session: object = logger.open(run, config)
            if not isinstance(session, AbstractContextManager):
                raise TypeError(f"open gave {describe_value(session)}; put @contextmanager above it, and yield once")
            entered = session.__enter__()
            if not isinstance(entered, LogSession) and not callable(entered):
                self._close(session, logger.name, None)
                raise TypeError(f"open yields {describe_value(entered)}; right is a function that takes a record")
            log_session = entered if isinstance(entered, LogSession) else LogSession(entered)
            self._open.append((logger.name, session, log_session))
        except Exception as problem:
            self.warn(f"logger {logger.name} could not be started, the run goes on without it ({problem})")

    def log(self, record: Mapping[str, Any]) -> None:
        """Send a record to all loggers."""
        self._tell(lambda session: session.on_record(record))

    def end(self, run_end: RunEnd) -> None:
        """Send the run's results to all loggers."""
        self._tell(lambda session: session.on_end(run_end))

    def _tell(self, call: Callable[[LogSession], None]) -> None:
        for entry in list(self._open):
            name, manager, session = entry
            try:
                call(session)
            except Exception as problem:
                self.warn(f"logger {name} failed, the run goes on without it ({problem})")
                self._open.remove(entry)
                self._close(manager, name, problem)

    def close_all(self, error: BaseException | None) -> None:
        """Close all sessions; ``error`` is the exception that ended the run, if one did."""
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
