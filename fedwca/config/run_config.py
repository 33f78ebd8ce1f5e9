"""A run's configuration, and the layers it is made of: command line over file over preset over field default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from fedwca.config.method_spec import NOTHING, parse_method
from fedwca.config.method_values import MethodValues, yield_to
from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.printable import printable
from fedwca.core.training_settings import (
    DROPPED,
    CentralTraining,
    FinishTraining,
    Precision,
    SourceTraining,
    Training,
)
from fedwca.describe_problems import describe_problems, describe_unknown
from fedwca.errors import InvalidConfig, UsageError
from fedwca.registry import canonical_name
from fedwca.user_values import UserValues

Layer = dict[str, Any]
Components = dict[str, dict[str, dict[str, Any]]]
TRAINING_WORDS = ("epochs", "lr", "batch_size")
"""Fields of clients' training that have a word of their own."""
KINDS = (
    *("dataset", "model", "partition", "central", "clusterer", "aggregator", "pseudo_labeler", "adaptation"),
    "objective",
)
SPECS = {**{kind: kind for kind in KINDS[:-1]}, "start": "central", "objectives": "objective", "finish": "objective"}
"""Fields whose values are specs of components, with their kinds."""


class RunConfig(UserValues):
    """Everything that decides a run's numbers; survives a JSON round trip."""

    dataset: str = "digits_mini"
    """Data set; digits-mini needs no download."""
    data: Path | None = None
    """Folder with data sets as <data>/<dataset>/<domain>…; where no data set is named, the folder of domains itself."""
    source: str | None = None
    """Domain of the server's labelled images; the others are the clients'. Unset: the data set's own default."""
    target: str | None = None
    """Domain without labels, where the clients of all others have labels; instead of a source."""
    partition: str = "domains"
    """Who has which images and labels: domains (unlabeled clients, a labelled source at the server), leave_one_out
    (labelled clients, one target without labels), which --target means, or one where labelled clients train and new
    ones without labels come after them, such as shards or dirichlet:alpha=0.1."""
    checkpoint: Path | None = None
    """Source model of your own (.safetensors or .pt state dict) instead of pre-training one."""
    model: str = "lenet"
    """Architecture."""
    clusterer: str | None = None
    """How the composed method groups clients. Unset: what the preset names, or finch, where the aggregator needs it."""
    aggregator: str = "wca"
    """How models are combined; fields as in wca:ta=0.05."""
    pseudo_labeler: str = "two_model"
    """How unlabeled images get their targets."""
    objectives: tuple[str, ...] = ("shot",)
    """What clients minimise; several add up."""
    adaptation: str | None = None
    """Steps that models take on the images they predict, without labels; unset: none. Objective adapted trains through
    one."""
    finish: tuple[str, ...] = ()
    """What clients without labels minimise in a last phase, after the rounds of labelled ones; none: no such phase."""
    components: Components = Field(default_factory=dict)
    """Fields of components as kind → name → field; shared by every method of the run that uses the component."""
    baselines: tuple[str, ...] = ("source_only", "local", "fedavg")
    """Methods to compare with: names of files in baselines/, or compositions such as fedwca/clusterer=true."""
    composed: bool = True
    """Whether the method composed of the parts above runs too; False: only those in ``baselines``."""
    name: str | None = None
    """Name of the composed method. Unset: its aggregator."""
    methods: dict[str, MethodValues] = {}
    """Values of one method alone, by its name: tables training and components; they stand over the run's and over its
    own file's, and yield to what a stronger layer gives all methods."""
    clients: PositiveInt = 4
    """Clients per target domain; where images of all domains are dealt together, clients that train."""
    new_clients: PositiveInt | None = None
    """Clients without labels that come when training is over, where there are any; unset: as many as train."""
    validation: float | None = Field(None, ge=0, lt=1)
    """Share of a training client's images that are kept aside to measure it, where new clients come later; unset:
    0.15."""
    samples: PositiveInt | None = None
    """At most so many images per client, before they are split; unset: all there are."""
    split: Literal["random", "published"] = "random"
    """How a client's images are split: random, 64/16/20 for training, validation and test; published: the data set's
    own training and test part."""
    rounds: PositiveInt = 10
    """Communication rounds R."""
    training: Training = Training()
    """How clients train."""
    finish_training: FinishTraining = FinishTraining()
    """How clients without labels train in the last phase."""
    source_training: SourceTraining = SourceTraining()
    """How the source model is trained."""
    central_training: CentralTraining = CentralTraining()
    """How methods train that have all domains at one place."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the clients that take part in each round after the first; the others keep their place."""
    batch_norm: Literal["mixed", "pooled", "local", "recalibrated"] = "mixed"
    """What becomes of BatchNorm's running statistics when models are mixed: mixed, pooled, local or recalibrated."""
    source_models: PositiveInt = 1
    """Source models, each from its own seed."""
    trials: PositiveInt = 1
    """Trials per source model, each with its own split of the images and its own random numbers."""
    seed: NonNegativeInt = 0
    """Seed of everything."""
    device: str = "auto"
    """Where clients compute: cpu, cuda, cuda:1 …; auto: a GPU where there is one."""
    engine: Literal["auto", "loop", "stacked"] = "auto"
    """How clients are run: client after client (loop), all in one step (stacked); auto: loop on a CPU, stacked on a
    GPU."""
    precision: Precision = "fp32"
    """How clients compute: fp32; tf32: TensorFloat-32 in a GPU's products; bf16: training in bfloat16 over weights in
    float32; bf16-all: evidence in it too."""
    kernels: Literal["auto", "eager", "channels-last", "graphs", "measure"] = "auto"
    """How the stacked engine carries out a training step; auto: channels-last on a CPU for backbones batched by hand,
    else eager; measure: what a few steps before round 1 show to be the quickest."""
    workers: PositiveInt | None = None
    """Clients at the same time; changes the time, and of the numbers last digits of the stacked engine at most. Unset:
    one per core, stacked all that fit."""
    trials_at_once: PositiveInt | None = None
    """Trials, of all source models, that the stacked engine takes through each round together, all their clients in
    one step; changes the time, and of the numbers last digits at most. Unset: one."""
    probes: tuple[str, ...] = ()
    """Further clusterers, such as finch:signature=2, whose partition of the clients after round 0 is recorded."""
    evidence: bool = False
    """Whether the last round records what its models say of the training images: density and entropy, no labels."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What is not as by default: enough to make it again."""
        usual = type(self).model_fields
        for name, value in self:
            if value != usual[name].get_default(call_default_factory=True, validated_data={}):
                yield name, value

    @model_serializer(mode="wrap")
    def _say_what_was_asked_for(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Runs of earlier releases have no such fields, and are recognised as the same ones.
        values: dict[str, Any] = dump(self)
        unset = [name for name in ("new_clients", "validation") if getattr(self, name) is None]
        unset += [] if self.methods else ["methods"]
        return {key: value for key, value in values.items() if key not in unset}

    @field_validator("dataset", "partition", "model", "clusterer", "aggregator", "pseudo_labeler", mode="after")
    @classmethod
    def _canonical(cls, value: str | None) -> str | None:
        return None if value is None else canonical_name(value)

    @field_validator("adaptation", mode="after")
    @classmethod
    def _canonical_or_none(cls, value: str | None) -> str | None:
        return None if value is None or canonical_name(value) == NOTHING else canonical_name(value)

    @field_validator("objectives", mode="after")
    @classmethod
    def _canonical_objectives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one, such as shot")
        return _canonical_all(value)

    @field_validator("finish", mode="after")
    @classmethod
    def _canonical_finish(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in _canonical_all(value) if name != NOTHING)

    @field_validator("kernels", mode="before")
    @classmethod
    def _kept(cls, value: object) -> object:
        if value in DROPPED:
            raise ValueError("was dropped, since it was slower in all that was measured; take auto")
        return value

    @field_validator("name", mode="after")
    @classmethod
    def _can_be_shown(cls, value: str | None) -> str | None:
        if value is not None and printable(value) != value:
            raise ValueError("has control characters; a name is text that can be shown")
        return value

    @field_validator("baselines", mode="after")
    @classmethod
    def _canonical_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = [text for text in value if canonical_name(text) != NOTHING]
        if named and len(named) < len(value):
            raise ValueError("none stands alone; leave it out beside others, which replace the default ones")
        return tuple(dict.fromkeys(parse_method(text).text for text in named))


def _canonical_all(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(canonical_name, names)))


REPEATED = {"baseline": "baselines", "objective": "objectives"}
"""Options that the command line repeats, and the field that holds them all."""


def layer_from_words(words: Mapping[str, Any]) -> Layer:
    """What a user says of a run as a layer: fields of `RunConfig`, and the words for fields of clients' training.

    >>> layer_from_words({"rounds": 3, "lr": 0.01, "baseline": "local"})
    {'rounds': 3, 'baselines': ['local'], 'training': {'lr': 0.01}}

    Raises:
        UsageError: a word is neither, or something is said twice.
    """
    for option, field in REPEATED.items():
        if option in words:
            if field in words:
                raise UsageError(f"{option} and {field} are the same; leave one out")
            given = words[option]
            rest = {word: value for word, value in words.items() if word != option}
            words = {**rest, field: list(given) if isinstance(given, list | tuple) else [given]}
    known = [*RunConfig.model_fields, *TRAINING_WORDS]
    if strange := [word for word in words if word not in known]:
        raise UsageError(describe_unknown("setting", strange[0], known))
    layer = {word: value for word, value in words.items() if word not in TRAINING_WORDS}
    training = {word: words[word] for word in TRAINING_WORDS if word in words}
    return merge(layer, {"training": training}) if training else layer


def validate(values: Layer) -> RunConfig:
    """A configuration from plain values.

    Raises:
        InvalidConfig: an unknown field or a value out of its bounds; says which.
    """
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error)) from error


def restore_config(values: Layer) -> RunConfig:
    """The configuration in a run folder, of an earlier release too.

    Kernels that were dropped since are read as auto, and a schedule of the last phase, which did nothing, is left out.

    Raises:
        InvalidConfig: see `validate`.
    """
    kept = {**values, "kernels": "auto"} if values.get("kernels") in DROPPED else dict(values)
    if isinstance(finish := kept.get("finish_training"), Mapping):
        schedule = ("cosine", "decay", "decay_rounds")
        kept["finish_training"] = {key: value for key, value in finish.items() if key not in schedule}
    return validate(kept)


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, the second over the first.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    merged = dict(low)
    for key, value in high.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def lay_over(low: Mapping[str, Any], high: Mapping[str, Any]) -> Layer:
    """A layer over another, as `merge`; of a round's epochs and its steps, the upper one that is said counts.

    >>> lay_over({"training": {"epochs": 5, "lr": 0.1}}, {"training": {"steps": 20}})
    {'training': {'lr': 0.1, 'steps': 20}}
    """
    merged = merge(low, high)
    said = high.get("training", {})
    if isinstance(said, Mapping) and ("steps" in said) != ("epochs" in said):
        unsaid = "epochs" if "steps" in said else "steps"
        merged["training"] = {key: value for key, value in merged["training"].items() if key != unsaid}
    return merged


def resolve(layers: Mapping[str, Layer]) -> tuple[RunConfig, dict[str, str]]:
    """The configuration that layers give, lowest first, and where each value that was set came from.

    Args:
        layers: by origin, for example ``{"preset paper": …, "config": …, "CLI": …}``.
    """
    values: Layer = {}
    origins: dict[str, str] = {}
    for origin, layer in layers.items():
        values = lay_over(yield_to(values, layer), layer)
        origins |= {key: origin for key, _ in flatten_keys(layer)}
    left = dict(flatten_keys(values))
    return validate(values), {k: origin for k, origin in origins.items() if k in left or not k.startswith("methods.")}
