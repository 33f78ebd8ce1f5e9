"""The files of a run folder, read: each passes a schema, so that damage is named where it is and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedwca.core.input_files import refuse_special
from fedwca.errors import FedwcaError

SCHEMA = 2
"""Version of the files' layout; raised when it changes. Older ones are still read: 1 had no checkpoints."""


def _printable(text: str) -> str:
    """Text that can be written anywhere: half a surrogate pair cannot."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_printable)]
Numbers = list[float | None]
"""A value a client; null where there was nothing to measure."""


class _Values(BaseModel):
    """Values as JSON has them, none made into another type; fields that are not named here are left alone."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class _Component(_Values):
    kind: Text
    name: Text


class _Method(_Values):
    label: Text
    rounds: int = Field(ge=0)
    components: list[_Component]


class _Settings(_Values):
    dataset: Text
    source: Text | None = None
    target: Text | None = None
    clients: int = Field(ge=1)
    rounds: int
    seed: int
    source_models: int = Field(ge=1)
    trials: int = Field(ge=1)


class Configuration(_Values):
    """``config.json``: the resolved configuration, the methods, and where values came from."""

    version: int = Field(1, ge=1, alias="schema")
    config: _Settings
    methods: dict[Text, _Method] = Field(min_length=1)
    origins: dict[str, str] = {}
    domains: list[Text] = []
    newcomers: int = Field(0, ge=0)
    keep: str = "last"
    loggers: list[dict[str, Any]] = []
    data_digest: str | None = None
    dataset_name: Text | None = None
    classes: list[Text] = []
    places: dict[Literal["directory", "from_run"], str] | None = None


class _Mean(_Values):
    mean: float | None
    std: float | None


class _Diverged(_Values):
    source_model: int
    trial: int
    round: int
    why: Text


class _Entry(_Mean):
    label: Text
    f1: _Mean | None = None
    worst: _Mean | None = None
    client_std: _Mean | None = None
    calibration_error: _Mean | None = None
    class_accuracy: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], float | None] = {}
    n: int
    diverged: list[_Diverged] = []
    domains: dict[str, float | None]
    domain_stds: dict[str, float | None]
    before: _Mean | None = None
    validation: _Mean | None = None
    round: _Mean | None = None
    last: _Mean | None = None
    difference: _Mean | None = None


class _Timing(_Values):
    setup_seconds: float
    run_seconds: float
    methods: dict[str, float] = {}


class Summary(_Values):
    """``summary.json``: every method's results, and whether the run came to its end."""

    methods: dict[str, _Entry]
    timing: _Timing
    complete: bool


class Environment(_Values):
    """``environment.json``: when and on what the run was made."""

    time: str | None = None
    versions: dict[str, str] = {}
    command: Text | None = None
    commit: Text | None = None

    @field_validator("time")
    @classmethod
    def _is_a_date(cls, time: str | None) -> str | None:
        if time is not None:
            try:
                datetime.fromisoformat(time).astimezone()
            except (OverflowError, OSError) as error:
                raise ValueError(f"is no time of a run ({error})") from None
        return time


Count = Annotated[int, Field(ge=0)]


class Notes(_Values):
    """``notes.json``: what the user says of a run; it decides nothing."""

    note: Text = ""
    tags: list[Text] = []


MEASURED = ("accuracy", "accuracy_sources", "accuracy_validation", "test_images")
"""Fields of a record with a value for each client that is measured; the others have one for each that trains."""


COUNTED_BY_CLASS = ("confusion", "pseudo_label_counts")
"""Fields with no value for each client."""


class RoundRecord(_Values):
    """A line of ``rounds.jsonl``: one round of one method in one run; docs/run-folder.md says what the fields are."""

    version: int = Field(1, ge=1, le=SCHEMA, alias="schema")
    method: str
    source_model: int = Field(ge=0)
    trial: int = Field(ge=0)
    round: int = Field(ge=-1)
    accuracy: Numbers
    accuracy_sources: Numbers | None = None
    accuracy_validation: Numbers | None = None
    calibration_error: float | None = None
    test_images: list[int] | None = None
    confusion: list[Annotated[list[Count], Field(min_length=3, max_length=3)]] | None = None
    pseudo_label_counts: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] | None = None
    class_counts: list[list[int]] | None = None
    accuracy_local: Numbers | None = None
    labels: list[int] | None = None
    weights: list[Any] | None = None
    pseudo_label_accuracy: Numbers | None = None
    agreement: Numbers | None = None
    mixed: Numbers | None = None
    dropped: Numbers | None = None
    label_entropy: Numbers | None = None
    divisor: Numbers | None = None
    trust: Numbers | None = None
    trusted: list[bool] | None = None
    clustering: dict[str, Any] = {}
    probes: dict[str, Any] = {}
    bytes_down: float = 0
    bytes_up: float = 0
    passes: int = 0
    phase: Literal["finish"] | None = None
    seconds: dict[str, float] = {}
    diverged: Text | None = None

    @model_validator(mode="after")
    def _has_a_value_a_client(self) -> RoundRecord:
        measured = len(self.accuracy)
        # Newcomers are measured, last of all, and do nothing else.
        trained = measured if self.accuracy_validation is None or self.labels is None else len(self.labels)
        for name in type(self).model_fields:
            value, right = getattr(self, name), measured if name in MEASURED else trained
            if name not in COUNTED_BY_CLASS and isinstance(value, list) and len(value) != right:
                raise ValueError(f"{name} has {len(value)} values, {right} are right")
        return self


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


def read_records(run: Path) -> list[dict[str, Any]]:
    """The rounds in a run folder, in order; numbers that were not finite come back as NaN.

    Raises:
        FedwcaError: a line is damaged; names it. A last one that was cut off is left out.
    """
    return [_with_nan(record) for _, record in read_lines(run)]


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
        refuse_special(file)
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
