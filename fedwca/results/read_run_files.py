"""The files of a run folder, read: each passes a schema, so that damage is named where it is and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedwca.core.files import expand_home
from fedwca.core.input_files import check_not_special
from fedwca.errors import FedwcaError
from fedwca.results.run_schemas import SCHEMA, Configuration, Environment, Notes, RoundRecord, Summary


def read_configuration(run: Path) -> dict[str, Any]:
    """What ``config.json`` says.

    Raises:
        FedwcaError: it is damaged, or of a later version.
    """
    file = run / "config.json"
    found = _read(file)
    version = found.get("schema", 1)
    if isinstance(version, int) and version > SCHEMA:
        raise FedwcaError(f"{run}: was written by a later fedwca (schema {version}; this one reads {SCHEMA})")
    _check(Configuration, found, f"{file}: is not the configuration of a run")
    return found


def trained_clients(about: Mapping[str, Any]) -> int:
    """Clients of a run that train, by what ``config.json`` says; its domains name newcomers too, behind them.

    >>> trained_clients({"domains": ["a", "a", "b"], "newcomers": 1})
    2
    """
    return len(about["domains"]) - int(about.get("newcomers", 0))


def is_set_up(about: Mapping[str, Any]) -> bool:
    """Whether what ``config.json`` says was completed: a run killed before that has decided nothing and done nothing.

    >>> is_set_up({"schema": 2}), is_set_up({"schema": 2, "data_digest": "5f"}), is_set_up({"schema": 1})
    (False, True, True)
    """
    return "data_digest" in about or about.get("schema", 1) < 2  # which was written once, complete


def read_summary(run: Path) -> dict[str, Any]:
    """What ``summary.json`` says; nothing where there is none yet.

    Raises:
        FedwcaError: it is damaged.
    """
    return _read_if_there(run / "summary.json", Summary, "is not the summary of a run")


def read_environment(run: Path) -> dict[str, Any]:
    """What ``environment.json`` says; nothing where there is none.

    Raises:
        FedwcaError: it is damaged.
    """
    return _read_if_there(run / "environment.json", Environment, "does not say what a run was made on")


def read_notes(run: Path) -> dict[str, Any]:
    """The ``note`` and the ``tags`` of a run; empty ones where it has none.

    Raises:
        FedwcaError: ``notes.json`` is damaged.
    """
    return {"note": "", "tags": [], **_read_if_there(run / "notes.json", Notes, "does not hold notes on a run")}


def read_records(run: str | Path) -> list[dict[str, Any]]:
    """The rounds in a run folder, in order; numbers that were not finite come back as NaN.

    Args:
        run: the folder.

    Raises:
        FedwcaError: a line is damaged; names it. A last one that was cut off is left out.
    """
    return [_with_nan(record) for _, record in read_lines(expand_home(run))]


def read_lines(run: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of ``rounds.jsonl`` and what they say, without a last one that was cut off.

    Raises:
        FedwcaError: a line is damaged; names it.
    """
    file = run / "rounds.jsonl"
    text = _text(file) if file.exists() else ""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    clients = None
    for number, line in lines:
        where = f"{file}, line {number}: is not the record of a round"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == lines[-1][0]:
                return
            raise FedwcaError(f"{where} ({error})") from None
        _check(RoundRecord, record, where)
        if clients not in (None, len(record["accuracy"])):
            raise FedwcaError(f"{where} (of {len(record['accuracy'])} clients; there are {clients} before)")
        clients = len(record["accuracy"])
        yield line, record


def _with_nan(record: dict[str, Any]) -> dict[str, Any]:
    """Null among a record's per-client values, grouped by name or not, means that there was nothing to measure."""

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return [math.nan if item is None else item for item in value]
        return _with_nan(value) if isinstance(value, dict) else value

    return {key: read(value) for key, value in record.items()}


def _read_if_there(file: Path, schema: type[BaseModel], wrong: str) -> dict[str, Any]:
    if not file.exists():
        return {}
    found = _read(file)
    _check(schema, found, f"{file}: {wrong}")
    return found


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


def _check(schema: type[BaseModel], value: object, wrong: str) -> None:
    """Refuse values that are not as the schema says; names the first of them.

    Raises:
        FedwcaError: ``wrong``, and what is.
    """
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise FedwcaError(f"{wrong} ({place + ': ' if place else ''}{first['msg']})") from None
