"""Reads a client's or a cluster's model from a run, and describes it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from fedwca._version import __version__
from fedwca.config.component_registries import registry_of
from fedwca.core.model_description import ModelDescription, weights_hash
from fedwca.core.network import Network
from fedwca.datasets import stretches_images
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.errors import FedwcaError, UsageError
from fedwca.export.delivered_accuracy import MeasuredAccuracy, is_delivered, measure_accuracy, recorded_accuracy
from fedwca.federated.extra_networks import remove_extras
from fedwca.newcomers.join import JoinedClient
from fedwca.results.low_trust import name_clients
from fedwca.results.run_identity import run_identity
from fedwca.warn_caller import warn_caller

if TYPE_CHECKING:
    from fedwca.runs.opened_run import OpenedRun


def model_of(
    opened: OpenedRun, client: int | None = None, cluster: int | None = None
) -> tuple[Network, ModelDescription]:
    """Return the model that a client was delivered, or a cluster's model, and its description.

    Exactly one of ``client`` and ``cluster`` must be given.

    Args:
        opened: a run, as it was after one of its rounds.
        client: 0…K-1.
        cluster: 0…C-1.

    Raises:
        UsageError: there is no such client or cluster, it has no model of its own, or not exactly one of the two is
            given.
    """
    clients, labels = len(opened.bank), opened.labels.tolist()
    check_one_holder(client, cluster, _targets_clients(opened))
    if opened.network.is_generated:
        raise UsageError(
            f"method {opened.unit.method!r} generates a model from each client's images, so there is none to hand "
            "on; `fedwca join` makes one for a client's images"
        )
    if client is not None:
        if not 0 <= client < clients:
            new = " that train; new ones are sent the server's model (--cluster 0), which `fedwca join` adapts"
            suffix = new if opened.about.get("newcomers") else ""
            raise UsageError(f"--client {client}: this run has clients 0 to {clients - 1}{suffix}")
        row, members, holder = opened.delivered[client], [client], f"client {client}"
    else:
        assert cluster is not None
        check_no_own_layers(opened, cluster)
        check_cluster(cluster, labels, f"method {opened.unit.method!r}")
        members = [k for k, label in enumerate(labels) if label == cluster]
        row, holder = opened.server.rows[cluster], f"cluster {cluster}"
    network = copy.deepcopy(opened.network)
    opened.layout.write(network, row)
    network = remove_extras(network).eval()
    return network, describe(opened, network, members, holder)


def check_one_holder(client: int | None, cluster: int | None, known: str = "") -> None:
    """Check that either a client or a cluster is given.

    Args:
        client: its number.
        cluster: its number.
        known: what the message says of the clients' numbers.

    Raises:
        UsageError: both are given, or neither.
    """
    if (client is None) == (cluster is None):
        raise UsageError(f"say whose model: --client K or --cluster C{known and '; '}{known}")


def _targets_clients(opened: OpenedRun) -> str:
    """Which clients are the target's, as text; empty if the run has no target."""
    target = opened.config.target
    numbers = [client for client, domain in enumerate(opened.domains) if domain == target]
    return f"the target {target} is {name_clients(numbers)}" if numbers else ""


def check_cluster(cluster: int, labels: Sequence[int], place: str) -> None:
    """Check that a client is in a cluster; IFCA may leave one empty.

    Args:
        cluster: its label.
        labels: of the clients.
        place: what has the clusters, for the message.

    Raises:
        UsageError: nobody is in it.
    """
    clusters = sorted({label for label in labels if label >= 0})
    if cluster not in clusters:
        names = f"0 to {clusters[-1]}" if clusters == list(range(len(clusters))) else ", ".join(map(str, clusters))
        raise UsageError(f"--cluster {cluster}: {place} has clusters {names}")


def check_no_own_layers(opened: OpenedRun, cluster: int) -> None:
    """Refuse a cluster's model if clients keep layers of their own, because the cluster then has no whole model.

    Raises:
        UsageError: clients keep layers of their own.
    """
    try:
        aggregator = opened.method.aggregator
    except FedwcaError:  # the aggregator is a plugin's that is no longer installed, or of another version
        return
    if aggregator.local_layers:
        raise UsageError(
            f"--cluster {cluster}: method {opened.unit.method!r} leaves the last layers with its clients, so no whole "
            "model is a cluster's; take --client K"
        )


def describe(opened: OpenedRun, network: Network, members: Sequence[int], holder: str) -> ModelDescription:
    """Describe a network that some clients of a run hold, with its accuracy on all their test images."""
    # If the run's predictions were means over draws of features, the model's own predictions differ from them.
    notes = _notes(opened, holder)
    dealt = bool(opened.about.get("newcomers"))  # images of all domains, so that no client has one of its own
    try:
        recorded = opened.network.draws is None and is_delivered(opened, network, members)
        measured = recorded_accuracy(opened, members) if recorded else None
        measured = measured or measure_accuracy(opened, network, members)
    except FedwcaError as error:  # which may name folders of this machine, and the file is handed on
        warn_caller(f"{opened.path}: the accuracy of the exported model is not measured: {error}")
        unmeasured = "Its accuracy was not measured: where it was exported, its images could not be read."
        measured, notes = MeasuredAccuracy(None, None, 0), (*notes, unmeasured)
    if dealt and measured.own is not None:
        notes = (*notes, "It was measured on validation images, which choose the round that tables show.")
    return describe_model(
        opened,
        network,
        holder=holder,
        domain=None if dealt else ", ".join(dict.fromkeys(opened.domains[k] for k in members)),
        clients=tuple(members),
        last_phase=opened.in_last_phase and {opened.domains[k] for k in members} == {opened.config.target},
        accuracy=measured.own,
        source_accuracy=measured.source,
        images=measured.images,
        notes=notes,
    )


def newcomer_note(opened: OpenedRun, joined: JoinedClient, images: int) -> ModelDescription:
    """Describe the model of a client that joined after training.

    Args:
        opened: the run.
        joined: the client's model and how it was made.
        images: number of the client's images.
    """
    choice, notes = joined.choice, _draws_note(opened)
    membership = f"cluster {choice.cluster} (by {choice.by})" if joined.size is None else "with a model of its own"
    if choice.by == "alone":
        membership = "the only cluster"
    sentence = f"Joined {membership} after training, with {images} images and no labels"
    if joined.size is not None:
        sentence += f"; its model, of size {joined.size}, learned what clients say of public images"
    return describe_model(
        opened, joined.network, holder="a newcomer", notes=(f"{sentence}; {_adaptation_note(joined)}.", *notes)
    )


def _draws_note(opened: OpenedRun) -> tuple[str, ...]:
    draws = opened.network.draws
    if draws is None:
        return ()
    return (f"In the run, predictions were means over {len(draws)} draws of features; here they are of mean features.",)


def _unadapted_note(opened: OpenedRun) -> tuple[str, ...]:
    parts = opened.about["methods"][opened.unit.method]["components"]
    return tuple(
        f"In the run, a client predicted after steps of adaptation {part['name']!r} on the images themselves, and the "
        "table measures that; this model is as it was before them."
        for part in parts
        if part["kind"] == "adaptation"
    )


def _adaptation_note(joined: JoinedClient) -> str:
    if joined.adaptation is not None and joined.adaptation.generates_models:
        return f"its model was generated from them ({joined.adaptation.name})"
    notes = [f"trained on them, epochs: {joined.epochs}"] if joined.epochs else []
    if joined.adaptation is not None and joined.steps is not None:
        notes.append(f"steps on {joined.adaptation.name} of its outputs: {joined.steps.taken}")
    return "; ".join(notes) or "not adapted to them"


def describe_model(opened: OpenedRun, network: Network, **fields: object) -> ModelDescription:
    """Return a description with the values that a run determines; ``fields`` are further fields."""
    model = opened.architecture
    return ModelDescription.model_validate(
        {
            "fedwca": __version__,
            "classes": opened.classes,
            "side": model.stored_side,
            "stretch": stretches_images(opened.config.dataset),
            "model": model.shareable_values(),
            "method": opened.unit.method,
            "label": opened.label,
            "dataset": opened.dataset_name,
            "source": labelled_domains(opened),
            "rounds": opened.round + (not opened.in_last_phase),
            "config_hash": run_identity(opened.about),
            "weights_hash": weights_hash(network.state_dict()),
            **fields,
        }
    )


def labelled_domains(opened: OpenedRun) -> str:
    """Return the names of the domains whose images have labels: the source, else the domains of clients with labels.

    A model that was trained centrally with the target's labels, as an oracle is, knows no other images.
    """
    if opened.source is not None:
        return opened.source
    parts = opened.about["methods"][opened.unit.method]["components"]
    centrals = [{key: part[key] for key in part if key != "kind"} for part in parts if part["kind"] == "central"]
    with suppress(UsageError):  # a plugin that is no longer there
        if opened.config.target is not None and any(registry_of("central").build(part).oracle for part in centrals):
            return opened.config.target
    if opened.about.get("newcomers"):
        return "all domains"
    return ", ".join(dict.fromkeys(name for name in opened.domains if name != opened.config.target))


def _notes(opened: OpenedRun, holder: str) -> tuple[str, ...]:
    notes = (*_draws_note(opened), *_unadapted_note(opened))
    if not BatchNormPolicy(opened.config.batch_norm).one_model and holder.startswith("cluster"):
        return (
            *notes,
            f"BatchNorm statistics are those of the cluster's mean; clients of this run have their own "
            f"({opened.config.batch_norm}), so a client's model is the better one to hand on.",
        )
    return notes
