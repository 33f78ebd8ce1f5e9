"""Types of what commands print with ``--json`` or ``--format json``; the published schema is generated from them.

As long as `VERSION` is the same, fields may be added but not renamed or removed.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

VERSION = 1
"""Version of these types; raised when a reader of an earlier version would misread the output."""
SCHEMA_FILE = "output.schema.json"
"""File name of the published schema, in this module's folder."""

Percent = float | None
"""An accuracy or another share in percent; null if it could not be measured."""


class _Printed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class TrialMean(_Printed):
    """Accuracy of a method in one run. A run is one trial from one source model."""

    source_model: int
    """Number of the source model, counted from 0."""
    trial: int
    """Number of the trial, counted from 0."""
    mean: Percent
    """Mean accuracy over clients, in percent. Null if nothing could be measured."""


class MethodRun(TrialMean):
    """Results of a method in one run. Some runs have only some of the fields."""

    f1: Percent = None
    """Macro F1 score over the test images of all clients together, in percent."""
    worst: Percent = None
    """Lowest accuracy of a client, in percent."""
    client_std: float | None = None
    """Standard deviation of the accuracy over clients (ddof 1), in percentage points."""
    calibration_error: float | None = None
    """Expected calibration error (15 bins) over the test images of all clients together, in percentage points."""

    before: Percent = None
    """Mean accuracy before the last phase, in percent. Only methods with a last phase have it."""
    validation: Percent = None
    """Mean accuracy of the training clients on their validation images, in percent. Only runs with new clients have
    it."""
    round: int | None = None
    """Number of rounds after which the results were measured: the round with the best ``validation``. Null if the
    results are those of the last round."""
    last: Percent = None
    """Mean accuracy after the last round, in percent. Only runs with ``round`` have it."""


class DivergedRun(_Printed):
    """A run in which the training of a method diverged. The method ended there."""

    source_model: int
    """Number of the source model, counted from 0."""
    trial: int
    """Number of the trial, counted from 0."""
    round: int
    """The round in which it diverged, counted from 1. 0 means before the first round."""
    why: str
    """A sentence that says what diverged and what may help."""


class SpreadMean(_Printed):
    """Mean and standard deviation over runs."""

    mean: float | None
    """Mean over runs. Null if nothing could be measured."""
    std: float | None
    """Standard deviation over runs (ddof 1). Null for a single run."""


class PairedMeans(_Printed):
    """Difference to another method, paired by run, in percentage points."""

    to: str
    """Name of the other method."""
    mean: float | None
    """Mean of the paired differences."""
    std: float | None
    """Standard deviation of the paired differences (ddof 1). Null for a single pair."""
    n: int
    """Number of pairs."""


class _MoreNumbers(_Printed):
    f1: SpreadMean | None = None
    """Macro F1 score over the test images of all clients together, in percent."""
    worst: SpreadMean | None = None
    """Lowest accuracy of a client, in percent."""
    client_std: SpreadMean | None = None
    """Standard deviation of the accuracy over clients (ddof 1), in percentage points."""
    calibration_error: SpreadMean | None = None
    """Expected calibration error (15 bins) over the test images of all clients together, in percentage points."""


class MethodResults(_MoreNumbers):
    """Results of a method over all its runs: after the last round, or in the rounds that ``round`` gives."""

    label: str
    """Name of the method in tables. It also says how many runs diverged."""
    mean: Percent
    """Accuracy in percent: the mean over runs of the mean over clients. Null if nothing could be measured."""
    std: float | None
    """Standard deviation of the accuracy over runs (ddof 1), in percentage points. Null for a single run."""
    n: int
    """Number of runs behind the means. Runs that diverged do not count."""
    domains: dict[str, Percent]
    """Mean accuracy in percent by domain of the clients, or by group of new clients."""
    domain_stds: dict[str, float | None]
    """Standard deviation of these accuracies over runs (ddof 1), in percentage points. Null for a single run."""
    runs: list[MethodRun] = []
    """Results of each run."""
    class_accuracy: dict[str, Percent] = {}
    """Accuracy in percent by class, over the test images of all clients together: the mean over runs. The key is the
    position of the class in ``classes`` of ``config.json``, counted from 0."""
    difference: PairedMeans | None = None
    """Difference to FedAvg. Only runs that also have FedAvg contain it."""
    before: SpreadMean | None = None
    """Mean accuracy before the last phase, in percent. Only methods with a last phase have it."""
    validation: SpreadMean | None = None
    """Mean accuracy of the training clients on their validation images, in percent. Only runs with new clients have
    it."""
    round: SpreadMean | None = None
    """Number of rounds after which the results were measured. Only runs with new clients have it."""
    last: SpreadMean | None = None
    """Mean accuracy after the last round, in percent. Only runs with ``round`` have it."""
    diverged: list[DivergedRun] = []
    """Runs that diverged. The other fields do not include them."""


class Timing(_Printed):
    """Duration of a run in seconds. A resumed run counts the rounds that were kept and the last process."""

    total_seconds: float
    """From the start of the command to its end."""
    setup_seconds: float
    """Before the first round."""
    run_seconds: float
    """All rounds, with evaluation and records."""
    methods: dict[str, float]
    """Rounds and evaluation by method."""


class RunSummary(_Printed):
    """Output of ``fedwca bench --json``, with any ``--backend``, and of ``fedwca resume --json``: ``summary.json``."""

    methods: dict[str, MethodResults]
    """Results by name of the method. The composed method comes last."""
    config: dict[str, Any]
    """The resolved configuration."""
    timing: Timing
    """Duration of the run."""
    complete: bool
    """Whether the run is finished."""


class ListedRun(_Printed):
    """A run folder that can be read, as ``fedwca runs --json`` lists it."""

    run: str
    """Name of the run folder."""
    path: str
    """Path of the run folder."""
    method: str
    """Name of the composed method in tables."""
    data: str
    """Data set, with the source or target domain if there is one."""
    accuracy: Percent
    """Mean accuracy of the composed method, in percent. Null if nothing could be measured."""
    time: str
    """When the run was started, in the format of ISO 8601."""
    state: Literal["done", "stopped", "running"]
    """Whether the run is finished, stopped or still running."""
    note: str = ""
    """The user's note."""
    tags: list[str] = []
    """The user's tags."""


class DamagedRun(_Printed):
    """A run folder that cannot be read, as ``fedwca runs --json`` lists it."""

    run: str
    """Name of the run folder."""
    path: str
    """Path of the run folder."""
    state: Literal["damaged"]
    """Says that the folder cannot be read."""
    problem: str
    """A sentence that says what is wrong."""


class ShownRun(ListedRun):
    """Output of ``fedwca runs show --json``."""

    command: str | None = None
    """The command line that started the run."""
    commit: str | None = None
    """Commit of the code in the working directory. A ``+`` at its end means that files differed from it."""
    config: dict[str, Any]
    """The resolved configuration."""
    methods: dict[str, MethodResults]
    """Results by name of the method. Empty as long as there is no result."""
    rounds_done: dict[str, int]
    """Number of finished rounds by name of the method, summed over its runs."""


class RunDifferences(_Printed):
    """Output of ``fedwca runs diff --json``: values of the first and of the second run folder."""

    settings: dict[str, tuple[Any, Any]]
    """Settings in which the two differ, by dotted key."""
    accuracy: dict[str, tuple[Percent, Percent]]
    """Mean accuracy in percent of each method that both have, by its name."""


class ShownComponent(_Printed):
    """Output of ``fedwca show KIND NAME --json``."""

    kind: str
    """Kind of component, such as aggregator."""
    name: str
    """Name of the component on the command line."""
    paper: str
    """Paper and equation it comes from. Empty if there is none."""
    about: str | None
    """Description of the component."""
    fields: dict[str, dict[str, Any]]
    """JSON schema of each field, by its name."""


class ShownBaseline(_Printed):
    """Output of ``fedwca show baseline NAME --json``."""

    label: str
    """Name of the baseline in tables."""
    paper: str
    """Where the method is published."""
    reading: str
    """What the publication leaves open, and how it is decided here."""
    aggregator: str
    """Name of its aggregator."""
    pseudo_labeler: str
    """Name of its pseudo-labeler."""
    objectives: list[str]
    """Names of its objectives."""
    clusterer: str | None
    """Name of its clusterer. Null if there is none."""
    adaptation: str | None = None
    """Name of the adaptation that models take on the images that they predict. Null if there is none."""
    central: str | None
    """Name of the central method that trains the start model. Null if clients start from the common start model."""
    finish: list[str]
    """Names of the objectives of the last phase, in which clients without labels train."""
    components: dict[str, dict[str, dict[str, Any]]]
    """Fields that the method fixes, by kind and name of the component."""
    training: dict[str, Any]
    """Training settings that the method fixes for its rounds."""
    finish_training: dict[str, Any]
    """Training settings that the method fixes for the last phase."""
    rounds: int | None
    """Largest number of rounds. Null if the run decides."""


class PrintedDifference(_Printed):
    """Difference to the reference method, paired by run, in percentage points."""

    mean: float
    """Mean of the paired differences."""
    std: float | None
    """Standard deviation of the paired differences (ddof 1). Null for a single pair."""
    n: int
    """Number of pairs."""
    low: float | None
    """Lower bound of the 95 % confidence interval (Student's t). Null for a single pair."""
    high: float | None
    """Upper bound of the 95 % confidence interval (Student's t). Null for a single pair."""
    p: float | None
    """Two-sided p-value of the Wilcoxon signed-rank test. Null if there are too few pairs."""


class ComparisonRow(_MoreNumbers):
    """Results of a method for one source or target domain, or for all of them together."""

    method: str
    """Name of the method."""
    label: str
    """Name of the method in tables. It also says how many runs diverged."""
    source: str
    """The source domain, target domain or partition; see ``named`` of the comparison. For all of them together, a
    phrase that says so."""
    mean: Percent
    """Mean accuracy over runs, in percent. Null if nothing could be measured."""
    std: float | None
    """Standard deviation of the accuracy over runs (ddof 1), in percentage points. Null for a single run."""
    n: int
    """Number of runs behind the means. Runs that diverged do not count."""
    diverged: int = 0
    """Number of runs that diverged."""
    difference: PrintedDifference | None
    """Difference to the reference. Null for the reference itself, or if there is none to compare with."""


class SourceTrialMean(TrialMean):
    """Accuracy of a method in one run of a comparison."""

    source: str
    """The source domain, target domain or partition; see ``named`` of the comparison."""


class PrintedComparison(_Printed):
    """Output of ``fedwca compare --format json``."""

    dataset: str
    """Name of the data set."""
    named: Literal["source", "target", "partition"] = "source"
    """What the field ``source`` of rows and runs contains: a source domain, a target domain or a partition."""
    reference: str | None
    """Name of the method that the others are compared with. Null if there is none."""
    rows: list[ComparisonRow]
    """Results of each method for each source or target domain, and for all of them together if there are several."""
    runs: dict[str, list[SourceTrialMean]]
    """Accuracy of each run, by name of the method."""


class AdaptationSteps(_Printed):
    """Gradient steps that a model took on a loss of its outputs."""

    name: str
    """Name of the adaptation."""
    fields: dict[str, Any]
    """Fields of the adaptation, by name."""
    steps: int
    """Number of steps that were computed."""
    taken: int
    """Number of steps after which the model was taken. 0 means the model as it was sent."""
    entropies: list[float | None]
    """Mean entropy of the outputs in nats: of the model as it was sent, then after each step."""


class PrintedJoin(_Printed):
    """Output of ``fedwca join --json``."""

    cluster: int
    """Number of the client's cluster, counted from 0."""
    by: str
    """How the cluster was found. update: nearest to the client's model update. alignment: best alignment of features.
    loss: lowest loss. alone: there is only one cluster. own: each client is a cluster of its own."""
    scores: list[float | None]
    """Score of each cluster: a distance, a cosine or a loss, depending on ``by``."""
    weights: list[float]
    """Weight of each server model in the model that the client started from. All 0 if it started from an untrained
    model."""
    report: dict[str, list[float]]
    """Values that the client would upload beside its model, by name."""
    epochs: int
    """Number of epochs that the client trained."""
    adaptation: AdaptationSteps | None
    """Adaptation of the client's model. Null if there was none."""
    size: int | None = None
    """Index of the model's size, counted from 0. Only a client that started from an untrained model has it."""
    trust: float | None = None
    """Mutual information of the source model's outputs on the client's images, as a share of its maximum: 0 to 1. Below
    0.5, most of the predicted labels may be wrong. Null if clients train the whole network."""
    labels: dict[str, int]
    """Number of images by predicted class."""
    files: list[str]
    """Paths of the written files: the model, its card and the predictions."""


class PrintedReproduction(_Printed):
    """Output of ``fedwca reproduce --format json``: one object for each table or figure, one after another."""

    title: str
    """Title of the table or figure."""
    values: list[dict[str, Any]]
    """Its entries, such as our value and the published one."""


class PrintedSearch(_Printed):
    """Output of ``fedwca sweep --format json``."""

    criterion: str
    """Name of the criterion that the tries are judged by."""
    direction: Literal["maximize", "minimize"]
    """Whether the highest or the lowest criterion is the best."""
    tries: list[dict[str, Any]]
    """All tries, the best first: the number of the try, its values by key, and its criterion by name."""


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
