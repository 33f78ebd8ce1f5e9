"""A run's configuration: its fields, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
)

from fedwca.config.method_spec import NOTHING, parse_method
from fedwca.config.method_values import MethodValues
from fedwca.core.printable import printable
from fedwca.core.training_settings import CentralTraining, FinishTraining, Precision, SourceTraining, Training
from fedwca.describe_problems import describe_problems
from fedwca.errors import InvalidConfig
from fedwca.registry import canonical_name
from fedwca.user_values import UserValues

Layer = dict[str, Any]
Components = dict[str, dict[str, dict[str, Any]]]
SINGLE_KINDS = ("dataset", "model", "partition", "central", "clusterer", "aggregator", "pseudo_labeler", "adaptation")
RUN_KINDS = (*SINGLE_KINDS, "objective")
SPECS = {**{kind: kind for kind in SINGLE_KINDS}, "objectives": "objective", "finish": "objective"}
"""Fields whose values are component specs → kind of component."""


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
    """Name of the composed method. Unset: its aggregator, with an adaptation or last phase; or the baseline that it
    equals."""
    methods: dict[str, MethodValues] = {}
    """Values for one method alone, by its name (tables ``training`` and ``components``). They take precedence over the
    run's and over the method's file, and yield to what a higher layer sets for all methods."""
    clients: PositiveInt = 4
    """Clients of each domain that has clients: of a target or, with labelled sources, of every domain; where images of
    all domains are dealt together, clients that train."""
    new_clients: PositiveInt | None = None
    """Clients without labels that come when training is over, where the partition has any: how many share the images
    kept for them; with several alphas in dirichlet's new, as many for each. Unset: as many as train."""
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
    """Training of methods that have all domains in one place."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the clients that take part in each round after the first; the others keep their cluster and model."""
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
    """How clients are run: each by itself (loop), all in one step (stacked); auto: loop on a CPU, stacked on a
    GPU."""
    precision: Precision = "fp32"
    """How clients compute: fp32; tf32: TensorFloat-32 in a GPU's products; bf16: training in bfloat16 over weights in
    float32; bf16-all: evidence in it too."""
    kernels: Literal["auto", "eager", "channels-last", "graphs", "measure"] = "auto"
    """How the stacked engine carries out a training step; auto: channels-last on a CPU for backbones with
    forward_stacked, such as lenet, else eager; measure: what a few steps before round 1 show to be the quickest."""
    workers: PositiveInt | None = None
    """Clients computed at the same time. Results stay the same, except the last digits with engine stacked. Unset: with
    loop one per CPU core, on a GPU one; with stacked as many as fit into memory."""
    trials_at_once: PositiveInt | None = None
    """Trials, of all source models, that the stacked engine takes through each round together, all their clients in
    one step; changes the time, and of the numbers last digits at most. Unset: one."""
    probes: tuple[str, ...] = ()
    """Further clusterers, such as finch:signature=2, whose partition of the clients after round 0 is recorded."""
    evidence: bool = False
    """Whether the last round records density and entropy of its models' outputs on training images, without labels."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The fields that differ from their defaults, which suffice to construct the configuration again."""
        fields = type(self).model_fields
        for name, value in self:
            if value != fields[name].get_default(call_default_factory=True, validated_data={}):
                yield name, value

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

    @field_validator("name", mode="after")
    @classmethod
    def _can_be_shown(cls, value: str | None) -> str | None:
        if value is not None and printable(value) != value:
            raise ValueError("has control characters; a name is text that can be shown")
        return value

    @field_validator("baselines", mode="after")
    @classmethod
    def _canonical_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        specs = [text for text in value if canonical_name(text) != NOTHING]
        if specs and len(specs) < len(value):
            raise ValueError("none cannot be combined with other baselines; leave it out")
        return tuple(dict.fromkeys(parse_method(text).text for text in specs))


TABLES: Mapping[str, type[UserValues]] = {
    name: field.annotation
    for name, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, UserValues)
}
"""Fields that are tables of fields, such as ``training``, and their types."""


def _canonical_all(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(canonical_name, names)))


def validate(values: Layer) -> RunConfig:
    """A configuration from plain values.

    Raises:
        InvalidConfig: there is an unknown field or an invalid value; says which.
    """
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, model=RunConfig)) from error
