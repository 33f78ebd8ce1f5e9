"""Types of what commands print with ``--json`` or ``--format json``; the published schema is generated from them.

As long as `VERSION` is the same, fields may be added but not renamed or removed.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

VERSION = 1
"""Version of these types; raised when a reader of an earlier version would misread the output."""
SCHEMA_FILE = "output.schema.json"
"""File name of the published schema, in this module's folder."""

Percent = Annotated[float | None, Field(description="Percent; null where nothing could be measured.")]


class _Printed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class TrialMean(_Printed):
    """One run of a method."""

    source_model: int
    trial: int
    mean: Percent


class MethodRun(TrialMean):
    """One run of a method, with what not every run has."""

    f1: Percent = None
    """Macro F1 of all test images together."""
    worst: Percent = None
    """Of the client with the lowest accuracy."""
    client_std: float | None = None
    """Standard deviation of accuracy over clients (ddof 1), in points."""
    calibration_error: float | None = None
    """Expected calibration error (15 bins) of all test images together, in points."""

    before: Percent = None
    """Before the last phase."""
    validation: Percent = None
    """Of clients that train, on their validation images, where others are counted."""
    round: int | None = None
    """How many rounds had been done in the round that is shown, the best by ``validation``; null: the last is."""
    last: Percent = None
    """``mean`` after the last round, where another is shown."""


class DivergedRun(_Printed):
    """One run of a method that diverged, and ended there."""

    source_model: int
    trial: int
    round: int
    """In which round, counted from 1; 0: before the first."""
    why: str
    """In a sentence: at which client, and what may help."""


class SpreadMean(_Printed):
    """A mean over runs."""

    mean: float | None
    std: float | None
    """Standard deviation over runs (ddof 1); null for a single run."""


class PairedMeans(_Printed):
    """A method's difference to another, in points of percent."""

    to: str
    """Name of the other method."""
    mean: float | None
    std: float | None
    n: int


class _MoreNumbers(_Printed):
    f1: SpreadMean | None = None
    """Macro F1 of all test images together, in percent."""
    worst: SpreadMean | None = None
    """Accuracy of the client with the lowest, in percent."""
    client_std: SpreadMean | None = None
    """Standard deviation of accuracy over clients (ddof 1), in points."""
    calibration_error: SpreadMean | None = None
    """Expected calibration error (15 bins) of all test images together, in points."""


class MethodResults(_MoreNumbers):
    """A method after the last round of each of its runs; where ``round`` is there, in the rounds that it says."""

    label: str
    """How tables call it."""
    mean: Percent
    """Mean over runs of the mean over clients."""
    std: float | None
    """Standard deviation over runs (ddof 1); null for a single run."""
    n: int
    """Runs in the means: source models × trials, less those that diverged."""
    domains: dict[str, Percent]
    """By target domain."""
    domain_stds: dict[str, float | None]
    runs: list[MethodRun] = []
    class_accuracy: dict[str, Percent] = {}
    """By class, its place in ``classes`` of ``config.json`` from 0: a mean over runs, of all test images together."""
    difference: PairedMeans | None = None
    before: SpreadMean | None = None
    """Before the last phase."""
    validation: SpreadMean | None = None
    """Of clients that train, on their validation images, where others are counted."""
    round: SpreadMean | None = None
    """How many rounds had been done in the rounds that are shown."""
    last: SpreadMean | None = None
    """``mean`` after the last round, where others are shown."""
    diverged: list[DivergedRun] = []
    """Runs that no number here is of; the label says how many."""


class Timing(_Printed):
    """Seconds."""

    total_seconds: float
    setup_seconds: float
    run_seconds: float
    methods: dict[str, float]


class RunSummary(_Printed):
    """``fedwca bench --json``, with any ``--backend``, and ``fedwca resume --json``: what ``summary.json`` holds."""

    methods: dict[str, MethodResults]
    """By name; the composed method is last."""
    config: dict[str, Any]
    """The resolved configuration."""
    timing: Timing
    complete: bool
    """Whether the run came to its end."""


class ListedRun(_Printed):
    """A run that can be read."""

    run: str
    """Name of its folder."""
    path: str
    method: str
    """Label of the composed method."""
    data: str
    accuracy: Percent
    time: str
    """When it began, ISO 8601."""
    state: Literal["done", "stopped", "running"]
    note: str = ""
    tags: list[str] = []


class DamagedRun(_Printed):
    """A run that cannot be read."""

    run: str
    path: str
    state: Literal["damaged"]
    problem: str
    """What is wrong, in a sentence."""


class ShownRun(ListedRun):
    """``fedwca runs show --json``."""

    command: str | None = None
    """The command line that began it."""
    commit: str | None = None
    """Of the code in the working directory, with ``+`` where files differed."""
    config: dict[str, Any]
    methods: dict[str, MethodResults]
    """Empty before there is a summary."""
    rounds_done: dict[str, int]
    """By method, over all its runs."""


class RunDifferences(_Printed):
    """``fedwca runs diff --json``: values of the one and of the other."""

    settings: dict[str, tuple[Any, Any]]
    accuracy: dict[str, tuple[Percent, Percent]]


class ShownComponent(_Printed):
    """``fedwca show KIND NAME --json``."""

    kind: str
    name: str
    paper: str
    about: str | None
    fields: dict[str, dict[str, Any]]
    """By name, each as JSON schema has it."""


class ShownBaseline(_Printed):
    """``fedwca show baseline NAME --json``."""

    label: str
    paper: str
    reading: str
    aggregator: str
    pseudo_labeler: str
    objectives: list[str]
    clusterer: str | None
    adaptation: str | None = None
    start: str | None
    finish: list[str]
    components: dict[str, dict[str, dict[str, Any]]]
    training: dict[str, Any]
    finish_training: dict[str, Any]
    rounds: int | None


class PrintedDifference(_Printed):
    """A paired difference to the reference, with its 95 % interval and Wilcoxon's p."""

    mean: float
    std: float | None
    n: int
    low: float | None
    high: float | None
    p: float | None


class ComparisonRow(_MoreNumbers):
    """A method over one source, or target, or over all; ``source`` is its name in both cases."""

    method: str
    label: str
    source: str
    mean: Percent
    std: float | None
    n: int
    diverged: int = 0
    """Runs that diverged, which are in no number here."""
    difference: PrintedDifference | None


class SourceTrialMean(TrialMean):
    """One run of a method from a source, or for a target."""

    source: str


class PrintedComparison(_Printed):
    """``fedwca compare --format json``."""

    dataset: str
    named: Literal["source", "target", "partition"] = "source"
    """What the domain called ``source`` in rows and runs is."""
    reference: str | None
    rows: list[ComparisonRow]
    runs: dict[str, list[SourceTrialMean]]


class AdaptationSteps(_Printed):
    """Steps that a model took on a loss of its outputs."""

    name: str
    """Of the adaptation."""
    fields: dict[str, Any]
    steps: int
    """That were made."""
    taken: int
    """Steps behind the model that was taken; 0: it is as it was sent."""
    entropies: list[float | None]
    """Mean entropies of the outputs in nats: as it was sent, then after each step."""


class PrintedJoin(_Printed):
    """``fedwca join --json``."""

    cluster: int
    by: str
    """How the cluster was found: update, alignment, loss or alone; own: it is the client's own."""
    scores: list[float | None]
    """Of each cluster: distances, cosines or losses."""
    weights: list[float]
    """The start as a mixture of the server's rows; all 0 where it is a model that nobody trained."""
    report: dict[str, list[float]]
    """What the client would upload beside a model."""
    epochs: int
    adaptation: AdaptationSteps | None
    size: int | None = None
    """Which size the model has, from 0, where it began as one that nobody trained."""
    trust: float | None = None
    """What the source model says of the class on its images, from 0 to 1; below 0.5 its labels may be mostly wrong."""
    labels: dict[str, int]
    """Images by predicted class."""
    files: list[str]
    """Model, card and predictions."""


class PrintedReproduction(_Printed):
    """``fedwca reproduce --format json``, one for each table or figure, one after the other."""

    title: str
    values: list[dict[str, Any]]


class PrintedSearch(_Printed):
    """``fedwca sweep --format json``."""

    criterion: str
    direction: Literal["maximize", "minimize"]
    tries: list[dict[str, Any]]
    """The best first: the number, the values tried by key, and the criterion by its name."""


SHAPES: tuple[type[_Printed], ...] = (
    *(RunSummary, ListedRun, DamagedRun, ShownRun, RunDifferences, ShownComponent, ShownBaseline),
    *(PrintedComparison, PrintedReproduction, PrintedSearch, PrintedJoin),
)


def output_schema() -> str:
    """The JSON schema of all types in `SHAPES`, each under ``$defs``; the text of the published file."""
    _, definitions = models_json_schema([(shape, "validation") for shape in SHAPES], title="What fedwca prints as JSON")
    return json.dumps(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "version": VERSION, **definitions}, indent=2
    )


def published_schema() -> str:
    """The schema file in the package: `output_schema` at the time of the release."""
    return (resources.files("fedwca.results") / SCHEMA_FILE).read_text(encoding="utf-8")
