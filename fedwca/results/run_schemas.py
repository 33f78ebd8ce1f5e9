"""Schemas of the files in a run folder, by which `fedwca.results.read_run_files` validates them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

SCHEMA = 2
"""Version of the layout of the files, that of the first release; raised when it changes."""


def _printable(text: str) -> str:
    """The text itself; raises a ValueError if it cannot be encoded, such as half a surrogate pair."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_printable)]
Numbers = list[float | None]
"""One value per client; null where nothing was measured."""


class _Values(BaseModel):
    """Base class: JSON values are not converted to other types, and undeclared fields are allowed."""

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
    """``config.json``: the resolved configuration, the methods, and the origins of the values."""

    version: int = Field(ge=SCHEMA, alias="schema")
    config: _Settings
    methods: dict[Text, _Method] = Field(min_length=1)
    origins: dict[str, str] = {}
    domains: list[Text] = []
    newcomers: int = Field(0, ge=0)
    keep: str = "last"
    loggers: list[dict[str, Any]] = []
    data_digest: str | None = None
    split_digest: str | None = None
    dataset_name: Text | None = None
    checkpoint_digest: Text | None = None
    weights_digest: Text | None = None
    classes: list[Text] = []
    places: dict[Literal["directory", "from_run"], str | None] | None = None


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
    """``summary.json``: the results of every method, and whether the run finished."""

    methods: dict[str, _Entry]
    timing: _Timing
    complete: bool


class Environment(_Values):
    """``environment.json``: when and on what the run was started, and what had changed when it was resumed."""

    time: str | None = None
    versions: dict[str, str] = {}
    command: Text | None = None
    commit: Text | None = None
    resumed: dict[str, dict[str, Any]] = {}

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
    """``notes.json``: the user's note and tags, which affect no result."""

    note: Text = ""
    tags: list[Text] = []


MEASURED = ("accuracy", "accuracy_sources", "accuracy_validation", "test_images")
"""Fields of a record with a value per evaluated client; the other lists have one per training client."""


COUNTED_BY_CLASS = ("confusion", "pseudo_label_counts")
"""Fields of a record that do not have one value per client."""


UNCHECKED = {
    *("shared", "gathered", "refused", "shift", "evidence"),
    *("source_accuracy", "source_digest", "source_weights"),
}
"""Fields of a record that `RoundRecord` does not check."""


class _AdaptationSteps(_Values):
    accuracy_before: Numbers
    steps: list[int]
    taken: list[int]


class RoundRecord(_Values):
    """A line of ``rounds.jsonl``: one round of one method in one run; docs/run-folder.md describes the fields."""

    version: int = Field(ge=SCHEMA, le=SCHEMA, alias="schema")
    method: str
    source_model: int = Field(ge=0)
    trial: int = Field(ge=0)
    round: int = Field(ge=-1)
    accuracy: Numbers
    accuracy_sources: Numbers | None = None
    accuracy_validation: Numbers | None = None
    calibration_error: float | None = None
    train_images: list[int] | None = None
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
    adaptation: _AdaptationSteps | None = None
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
        measured_count = len(self.accuracy)
        training_count = measured_count
        if self.accuracy_validation is not None:  # newcomers come last; they are evaluated but do not train
            training_count = len(self.labels or self.train_images or self.accuracy)
        for name in type(self).model_fields:
            value, expected = getattr(self, name), measured_count if name in MEASURED else training_count
            if name not in COUNTED_BY_CLASS and isinstance(value, list) and len(value) != expected:
                raise ValueError(f"{name} has {len(value)} values, {expected} are right")
        for name, value in ({} if self.adaptation is None else dict(self.adaptation)).items():
            if isinstance(value, list) and len(value) != measured_count:
                raise ValueError(f"adaptation.{name} has {len(value)} values, {measured_count} are right")
        return self
