"""Checks before a stopped run is resumed: request, components and source model must be those it began with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedwca.config.added_fields import with_added_fields, with_added_settings
from fedwca.config.resolve_config import RunPlan
from fedwca.config.run_config import RunConfig
from fedwca.data.dataset import canonical_domain
from fedwca.errors import CheckpointError, UsageError
from fedwca.federated.source_model import StartModel
from fedwca.results.differing_settings import describe_values, differing_settings
from fedwca.results.read_run_files import is_set_up, read_configuration
from fedwca.runs.load_data import load
from fedwca.runs.missing_plugins import naming_missing_plugins
from fedwca.runs.resuming.start_files import digest_start_files, start_files


def check_same_source_model(subject: object, facts: Mapping[str, Any], model: StartModel) -> None:
    """Check that the source model is the one the run began with.

    Args:
        subject: what began with it, for the error message.
        facts: a checkpoint's or record's digests of the original source model.
        model: the current source model.

    Raises:
        CheckpointError: the source model differs.
    """
    if facts.get("source_digest") not in (None, model.digest):
        raise CheckpointError(
            f"{subject}: began from another source model than the one there is now (other torch, other images, "
            "another kind of device, other code of a plugin's model or another checkpoint file); run it anew"
        )
    # Earlier releases did not save the weights' checksum.
    if facts.get("source_weights") not in (None, model.weights):
        raise CheckpointError(
            f"{subject}: began from a source model that another kind of processor trained, and this one's differs by "
            "more than last digits; go on there, bring the folder 'sources' of the cache from there, or run it anew"
        )


def check_same_request(path: Path, plan: RunPlan) -> None:
    """Check that a folder's run has the requested configuration; arguments as for `differing_request`.

    Raises:
        UsageError: it has another; the message names up to three differences.
        FedwcaError: the run's configuration does not fit this fedwca.
    """
    with naming_missing_plugins(path):  # the request is read below, whose errors are the user's
        with_added_settings(read_configuration(path))
    if differences := differing_request(path, plan):
        first_three = {key: describe_values(*values) for key, values in list(differences.items())[:3]}
        description = ", ".join(f"{key} is {there} there, {here} here" for key, (there, here) in first_three.items())
        raise UsageError(f"{path}: holds a run of another configuration: {description}; name another folder")


def differing_request(path: Path, plan: RunPlan) -> dict[str, tuple[Any, Any]]:
    """Differences between an existing run and a requested one: dotted key to (stored value, requested value).

    Args:
        path: folder of the existing run.
        plan: the requested run; if it names no source or target, the data set's default is meant.
    """
    about = read_configuration(path)
    plan = with_canonical_domain(plan)
    if plan.domain_role is not None and plan.domain is None and is_set_up(about):
        plan = plan.at(load(plan.config)[1])
    return differing_settings(with_added_settings(about), plan.described())


def with_canonical_domain(plan: RunPlan) -> RunPlan:
    """The plan with the name of its source or target, if it has one, spelled as by `canonical_domain`."""
    return plan if plan.domain is None else plan.at(canonical_domain(plan.domain))


def check_same_start_files(path: Path, about: Mapping[str, Any], config: RunConfig) -> None:
    """Check that the files a run starts from still hold the same weights; one that is missing is not looked at.

    Raises:
        CheckpointError: a file has been replaced.
    """
    digests = digest_start_files(config)
    for key, file in start_files(config).items():
        if key in digests and about.get(key) not in (None, digests[key]):
            raise CheckpointError(f"{path}: began from another model than {file} holds now; put that one back")


def check_same_components(path: Path, about: Mapping[str, Any], plan: RunPlan) -> None:
    """Check that a run's methods are still made of the same components.

    Raises:
        UsageError: a component has other fields now than when the run began.
    """
    begun = {"config": about["config"], "methods": with_added_fields(about["methods"])}
    if differences := differing_settings(begun, {**plan.described(), "config": about["config"]}):
        key, values = next(iter(differences.items()))
        stored, installed = describe_values(*values)
        raise UsageError(
            f"{path}: was begun with other components than are installed now: {key} was {stored}, is {installed}; run "
            "it anew"
        )
