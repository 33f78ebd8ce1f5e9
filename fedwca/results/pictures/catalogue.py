"""All pictures by name, and how each is drawn from a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.results import pictures
from fedwca.results.method_names import find_spelling
from fedwca.results.pictures.final_models import Models
from fedwca.results.pictures.style import NotDrawn
from fedwca.results.read_run import Run
from fedwca.results.trial_key import TrialKey


@dataclass(frozen=True)
class PictureRequest:
    """What to draw: a run, and a method and trial for pictures that show only one."""

    run: Run
    models: Callable[[], Models]
    """Rebuilds the final models if a picture needs them; raises a `FedwcaError` where that is impossible."""
    method: str | None = None
    trial: TrialKey | None = None
    """(source model, trial); None: the first."""
    how: str = "tsne"
    """Projection of features to a plane: ``tsne`` or ``pca``."""


@dataclass(frozen=True)
class Picture:
    """One picture of a run."""

    about: str
    draw: Callable[[PictureRequest], Any]
    suffix: str | None = None
    """File suffix, if the user cannot choose it."""


def _overview(request: PictureRequest) -> Any:
    from fedwca.results.pictures.accuracy import check_has_rounds
    from fedwca.results.pictures.overview import draw_overview

    run = request.run
    check_has_rounds(run)
    return draw_overview(run.lines, run.results, run.title, run.first_models)


def _neighbours(request: PictureRequest) -> Any:
    run, trial = request.run, request.trial or (request.run.runs or [TrialKey()])[0]
    for name in [request.method] if request.method else reversed(list(run.labels)):
        first_rounds = run.rounds(name, trial)[1:2]
        if first_rounds and "nearest" in first_rounds[0].get("clustering", {}):
            margins = first_rounds[0]["clustering"]["margins"]
            title = f"{run.labels[name]}, after round 1: {run.title}; model {trial.source_model}, trial {trial.trial}"
            return pictures.neighbours(first_rounds[0]["clustering"]["nearest"], run.domains, title, margins)
    raise NotDrawn(
        "no method of the run grouped its clients by their parameters, or it was made before these were kept"
    )


def _clusters(request: PictureRequest) -> Any:
    run, method = request.run, request.method or request.run.composed
    if run.averages_everybody(method):
        raise NotDrawn(f"{run.labels.get(method, method)} makes no clusters; --method names another method")
    m = request.models()
    return pictures.clusters(m.labels, m.images, m.domains, m.title)


def _embedding(request: PictureRequest) -> Any:
    projection: Any = request.how
    run = request.run
    method = find_spelling(run.methods, request.method) if request.method else [*run.methods][-1]
    start = run.first_model if method is None else run.first_model_of(method)
    return pictures.embedding(request.models(), projection, start)


PICTURES: Mapping[str, Picture] = {
    "overview": Picture("accuracy over rounds and by target domain, side by side", _overview),
    "accuracy": Picture("accuracy over rounds, a curve a method", lambda c: pictures.accuracy(c.run)),
    "bars": Picture("accuracy by target domain and method (Figure 4)", lambda c: pictures.bars(c.run)),
    "weights": Picture(
        "weights of the cluster models by round (Figure 5)", lambda c: pictures.weights(c.run, c.method, c.trial)
    ),
    "weights_animation": Picture(
        "the same for every round, as an animation",
        lambda c: pictures.weights_animation(c.run, c.method, c.trial),
        suffix="gif",
    ),
    "pseudo_labels": Picture(
        "pseudo-label accuracy and agreement over rounds", lambda c: pictures.pseudo_labels(c.run)
    ),
    "cost": Picture("accuracy against bytes sent and against seconds", lambda c: pictures.cost(c.run)),
    "clusters": Picture("images of the clients in each cluster (Figure 6)", _clusters),
    "neighbours": Picture("FINCH's first-neighbour graph with the true domains", _neighbours),
    "confusion": Picture("confusion matrix of each client", lambda c: pictures.confusion(c.models())),
    "embedding": Picture("features in a plane, before and after", _embedding),
    "mistakes": Picture("test images that models are surest of and wrong", lambda c: pictures.mistakes(c.models())),
}


def find_method(run: Run, method: str | None, trial: TrialKey) -> str | None:
    """A method's name as the run spells it, after a check that the run has the trial; None for None.

    Raises:
        UsageError: there is no such method or trial.
    """
    name = None if method is None else find_spelling(run.methods, method)
    if method is not None and name is None:
        raise UsageError(describe_unknown("method", method, run.methods))
    if run.runs and trial not in run.runs:
        available = ", ".join(f"{key.source_model}/{key.trial}" for key in run.runs)
        raise UsageError(f"no model {trial.source_model} with trial {trial.trial} in this run; it has {available}")
    return name


def find_pictures(names: list[str]) -> list[str]:
    """Canonical names of pictures, without duplicates; all pictures if ``names`` is empty.

    Raises:
        UsageError: no picture has one of the names.
    """
    for name in names:
        if canonical_name(name) not in PICTURES:
            raise UsageError(describe_unknown("picture", name, PICTURES))
    return list(dict.fromkeys(map(canonical_name, names))) or list(PICTURES)
