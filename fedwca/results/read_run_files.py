"""Read the files of a run folder; each is validated by a schema, so that errors name the damaged place."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedwca.core.files import expand_home
from fedwca.core.input_files import check_not_special
from fedwca.errors import FedwcaError
from fedwca.results.run_schemas import SCHEMA, Configuration, Environment, Notes, RoundRecord, Summary


def read_configuration(run: Path) -> dict[str, Any]:
    """Content of ``config.json``.

    Raises:
        FedwcaError: it is damaged, or of a later version, or of one before 0.1.0.
    """
    file = run / "config.json"
    configuration = _read(file)
    version = configuration.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        raise FedwcaError(f"{run}: was written by a later fedwca (schema {version}; this one reads {SCHEMA})")
    if configuration.get("schema", 1) == 1 and {"config", "methods"} <= configuration.keys():
        raise FedwcaError(f"{run}: was written before fedwca 0.1.0 (schema 1); read it with fedwca 0.1.0")
    _check(Configuration, configuration, f"{file}: is not the configuration of a run")
    return configuration


def may_be_of_run(run: Path) -> bool:
    """Whether ``config.json`` is a run's, of whatever version; one that cannot be read counts, as it may be damaged."""
    try:
        value: object = json.loads(_text(run / "config.json"))
    except (FedwcaError, ValueError, RecursionError):
        return True
    return isinstance(value, dict) and {"config", "methods"} <= value.keys()


def trained_clients(configuration: Mapping[str, Any]) -> int:
    """Number of training clients, from ``config.json``, whose ``domains`` also list newcomers at the end.

    >>> trained_clients({"domains": ["a", "a", "b"], "newcomers": 1})
    2
    """
    return len(configuration["domains"]) - int(configuration.get("newcomers", 0))


def is_set_up(configuration: Mapping[str, Any]) -> bool:
    """Whether ``config.json`` was completed: a run killed before that has determined nothing and done nothing.

    >>> is_set_up({"schema": 2}), is_set_up({"schema": 2, "data_digest": "5f"})
    (False, True)
    """
    return "data_digest" in configuration


def read_summary(run: Path) -> dict[str, Any]:
    """Content of ``summary.json``; empty if there is none yet.

    Raises:
        FedwcaError: it is damaged.
    """
    return _read_if_there(run / "summary.json", Summary, "is not the summary of a run")


def read_environment(run: Path) -> dict[str, Any]:
    """Content of ``environment.json``; empty if there is none.

    Raises:
        FedwcaError: it is damaged.
    """
    return _read_if_there(run / "environment.json", Environment, "does not say what a run was made on")


def read_notes(run: Path) -> dict[str, Any]:
    """The ``note`` and the ``tags`` of a run; both are empty if it has none.

    Raises:
        FedwcaError: ``notes.json`` is damaged.
    """
    return {"note": "", "tags": [], **_read_if_there(run / "notes.json", Notes, "does not hold notes on a run")}


def read_records(run: str | Path) -> list[dict[str, Any]]:
    """Records of the rounds in a run folder, in order; numbers that were not finite are NaN in lists of numbers.

    A truncated last line is left out.

    Args:
        run: the run folder; if it has no records, or is not there, there are none to return.

    Raises:
        FedwcaError: a line is damaged; the message names it.
    """
    return [_with_nan(record) for _, record in read_lines(expand_home(run))]


def read_lines(run: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of ``rounds.jsonl``, each with its record; a truncated last line is left out.

    Raises:
        FedwcaError: a line is damaged; the message names it.
    """
    file, clients = run / "rounds.jsonl", None
    lines = _lines(file) if file.exists() else iter(())
    for number, line in lines:
        problem = f"{file}, line {number}: is not the record of a round"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if next(lines, None) is None:
                return
            raise FedwcaError(f"{problem} ({error})") from None
        _check(RoundRecord, record, problem)
        if clients not in (None, len(record["accuracy"])):
            raise FedwcaError(f"{problem} (of {len(record['accuracy'])} clients; there are {clients} before)")
        clients = len(record["accuracy"])
        yield line, record


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Number and text of the lines of a file that are not blank, one in memory at a time.

    What another process appends meanwhile is left out.
    """
    try:
        check_not_special(file)
        with file.open("rb") as lines:
            remaining = os.fstat(lines.fileno()).st_size
            for number, line in enumerate(lines, 1):
                text = line[: max(0, remaining)].decode("utf-8", "replace").rstrip("\r\n")
                if text.strip():
                    yield number, text
                remaining -= len(line)
    except OSError as error:
        raise FedwcaError(f"{file}: cannot be read ({error.strerror or error})") from None


def _with_nan(record: dict[str, Any]) -> dict[str, Any]:
    """Null replaced by NaN in lists of per-client values, also in nested tables; it means that nothing was measured."""

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [math.nan if item is None else item for item in value]
        return _with_nan(value) if isinstance(value, dict) else value

    return {key: convert(value) for key, value in record.items()}


def _read_if_there(file: Path, schema: type[BaseModel], problem: str) -> dict[str, Any]:
    if not file.exists():
        return {}
    content = _read(file)
    _check(schema, content, f"{file}: {problem}")
    return content


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise FedwcaError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise FedwcaError(f"{file}: is not a table of values")
    return value


def _text(file: Path) -> str:
    try:
        check_not_special(file)
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FedwcaError(f"{file}: cannot be read ({error.strerror or error})") from None


def _check(schema: type[BaseModel], value: object, problem: str) -> None:
    """Validate a value by a schema.

    Raises:
        FedwcaError: the value is invalid; the message is ``problem`` and the first error of the schema.
    """
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise FedwcaError(f"{problem} ({place + ': ' if place else ''}{first['msg']})") from None
