"""What must be as it was when a stopped run began, for it to go on: request, components, images and source model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedwca.config.idle_settings import without_idle_tables
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import restore_config
from fedwca.data.dataset import canonical_domain
from fedwca.errors import CheckpointError, UsageError
from fedwca.federated.source_model import StartModel
from fedwca.results.differing_settings import differing_settings
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.runs.load_data import load


def check_same_source_model(what: object, facts: Mapping[str, Any], model: StartModel) -> None:
    """Refuse to go on from another source model than the one the run began with.

    Args:
        what: what began with it, for the sentence.
        facts: its digests, of a checkpoint or of a record.
        model: the source model there is now.

    Raises:
        CheckpointError: it is another.
    """
    if facts.get("source_digest") not in (None, model.digest):
        raise CheckpointError(
            f"{what}: began from another source model than the one there is now (other torch, other images, "
            "another kind of device or another checkpoint file); run it anew"
        )
    # An earlier release did not keep them.
    if facts.get("source_weights") not in (None, model.weights):
        raise CheckpointError(
            f"{what}: began from a source model that another kind of CPU trained, and this one's differs by more "
            "than last digits; go on there, bring the folder 'sources' of the cache from there, or run it anew"
        )


def check_same_request(path: Path, plan: RunPlan) -> None:
    """Refuse to continue a run of another configuration.

    Raises:
        UsageError: they differ; says in what. For arguments see `differing_request`.
    """
    if different := differing_request(path, plan):
        shown = ", ".join(f"{key} is {there} there, {here} here" for key, (there, here) in list(different.items())[:3])
        raise UsageError(f"{path}: holds a run of another configuration: {shown}; name another folder")


def differing_request(path: Path, plan: RunPlan) -> dict[str, tuple[Any, Any]]:
    """In what a run that was begun differs from what is asked for: dotted keys, with both values.

    Args:
        path: folder of the run that is there.
        plan: what is asked for now; where it names no source and no target, the data set's own is meant.
    """
    about = read_configuration(path)
    plan = with_canonical_domain(plan)
    if plan.domain is None and is_set_up(about):
        plan = plan.at(load(plan.config)[1])
    stored = {**about, "config": without_idle_tables(restore_config(about["config"])).model_dump(mode="json")}
    return differing_settings(stored, plan.described())


def with_canonical_domain(plan: RunPlan) -> RunPlan:
    """A plan whose source, or target, if it is named, is written as in `canonical_domain`, however it was asked for."""
    return plan if plan.domain is None else plan.at(canonical_domain(plan.domain))


def check_same_components(path: Path, about: Mapping[str, Any], plan: RunPlan) -> None:
    """Refuse to go on with methods that have become others.

    Raises:
        UsageError: a component has other fields now than when the run began.
    """
    if different := differing_settings(about, {**plan.described(), "config": about["config"]}):
        key, (there, here) = next(iter(different.items()))
        raise UsageError(
            f"{path}: was begun with other components than are installed now: {key} was {there}, is {here}; run it anew"
        )
