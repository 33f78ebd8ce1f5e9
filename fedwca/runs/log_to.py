"""Loggers beside a run: checked before any work, and never the reason that it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedwca.loggers import Log, Logger, loggers


def build_loggers(specs: Sequence[Any]) -> list[Logger]:
    """Loggers from ``name:field=value`` or tables, each with its library there.

    Raises:
        UsageError: no logger of that name, a wrong field, or a library that is not installed.
    """
    found = [loggers.build(spec) for spec in specs]
    for logger in found:
        logger.ready()
    return found


@contextmanager
def log_records(
    chosen: Sequence[Logger], run: Path, config: Mapping[str, Any], warn: Callable[[str], None]
) -> Iterator[Log]:
    """A function that hands a record to all loggers; one that fails is left out from then on, with a warning.

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
        yield sessions.log
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
        self._open: list[tuple[str, Any, Log]] = []

    def open(self, logger: Logger, run: Path, config: Mapping[str, Any]) -> None:
        """Begin with one; if it cannot, the run goes on without it."""
        try:
            session = logger.open(run, config)
            self._open.append((logger.name, session, session.__enter__()))
        except Exception as problem:
            self.warn(f"logger {logger.name} could not be started, the run goes on without it ({problem})")

    def log(self, record: Mapping[str, Any]) -> None:
        """Hand a record to all."""
        for entry in list(self._open):
            name, session, take = entry
            try:
                take(record)
            except Exception as problem:
                self.warn(f"logger {name} failed, the run goes on without it ({problem})")
                self._open.remove(entry)
                self._close(session, name, problem)

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
