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
    sessions: list[tuple[str, Any, Log]] = []

    def close(session: Any, name: str, error: BaseException | None) -> None:
        try:
            session.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except Exception as problem:
            if problem is not error:
                warn(f"logger {name} could not be closed ({problem})")
        except BaseException as problem:
            if problem is not error:
                raise

    def log(record: Mapping[str, Any]) -> None:
        for entry in list(sessions):
            name, session, take = entry
            try:
                take(record)
            except Exception as problem:
                warn(f"logger {name} failed, the run goes on without it ({problem})")
                sessions.remove(entry)
                close(session, name, problem)

    caught: BaseException | None = None
    try:
        for logger in chosen:
            try:
                session = logger.open(run, config)
                sessions.append((logger.name, session, session.__enter__()))
            except Exception as problem:
                warn(f"logger {logger.name} could not be started, the run goes on without it ({problem})")
        yield log
    except BaseException as error:
        caught = error
        raise
    finally:
        with suppress(KeyboardInterrupt):
            for name, session, _ in sessions:
                close(session, name, caught)
