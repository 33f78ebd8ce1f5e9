"""From a run to a model that can be handed on: whose it is, what it is made of, how good it was."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedwca._version import __version__
from fedwca.core.model_description import ModelDescription, weights_hash
from fedwca.core.network import Architecture, Network
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.newcomers.join import JoinedClient
from fedwca.results.read_run import run_identity
from fedwca.results.run_schemas import read_configuration

if TYPE_CHECKING:
    from fedwca.runs.open_run import OpenedRun


def model_of(
    reopened: OpenedRun, client: int | None = None, cluster: int | None = None
) -> tuple[Network, ModelDescription]:
    """The model that a client was given, or a cluster's, with what is known of it.

    Args:
        reopened: a run after its last round.
        client: 0…K-1.
        cluster: 0…C-1; one of the two.

    Raises:
        UsageError: there is no such client or cluster, or not one of the two is given.
    """
    clients, labels = len(reopened.delivered), reopened.labels.tolist()
    if (client is None) == (cluster is None):
        raise UsageError("say whose model: --client K or --cluster C")
    if client is not None:
        if not 0 <= client < clients:
            raise UsageError(f"--client {client}: this run has clients 0 to {clients - 1}")
        row, members, holder = reopened.delivered[client], [client], f"client {client}"
    else:
        assert cluster is not None
        members = [k for k, label in enumerate(labels) if label == cluster]
        if not members:
            raise UsageError(f"--cluster {cluster}: method {reopened.method.name!r} has clusters 0 to {max(labels)}")
        row, holder = reopened.server.rows[cluster], f"cluster {cluster}"
    network = copy.deepcopy(reopened.network)
    reopened.layout.write(network, row)
    network.eval()
    return network, describe(reopened, network, members, holder)


def describe(reopened: OpenedRun, network: Network, members: Sequence[int], holder: str) -> ModelDescription:
    """What is said of a network that some clients of a run hold, with its accuracy on all their test images."""
    source = copy.deepcopy(reopened.network)
    reopened.layout.write(source, reopened.server.source)
    source.eval()
    images = sum(len(reopened.federation.clients[k].test) for k in members)
    domains = list(dict.fromkeys(reopened.federation.metrics.domains[k] for k in members))
    return describe_model(
        reopened,
        network,
        reopened.method,
        holder=holder,
        domain=", ".join(domains),
        clients=tuple(members),
        accuracy=_accuracy(reopened, network, members),
        source_accuracy=_accuracy(reopened, source, members),
        images=images,
        notes=_notes(reopened, members, holder),
    )


def newcomer_note(reopened: OpenedRun, joined: JoinedClient, images: int) -> ModelDescription:
    """What is said of the model of a client that joined."""
    choice = joined.choice
    how = f"Joined cluster {choice.cluster} (by {choice.by}) after training, with {images} images and no labels"
    return describe_model(
        reopened,
        joined.network,
        reopened.method,
        holder="a newcomer",
        notes=(f"{how}; adapted to them, epochs: {joined.epochs}.",),
    )


def describe_model(reopened: OpenedRun, network: Network, method: Method, **more: object) -> ModelDescription:
    """A description with all that a run says."""
    model = reopened.architecture
    # A file's folder is nobody's business but its owner's.
    fields = {
        name: getattr(model, name).name if isinstance(getattr(model, name), Path) else value
        for name, value in model.model_dump(mode="json").items()
    }
    return ModelDescription.model_validate(
        {
            "fedwca": __version__,
            "classes": reopened.dataset.classes,
            "side": input_side(model),
            "model": {"name": model.name, **fields},
            "method": method.name,
            "label": method.label,
            "dataset": reopened.dataset.name,
            "source": reopened.source,
            "rounds": reopened.round + 1,
            "config_hash": run_identity(read_configuration(reopened.path)),
            "weights_hash": weights_hash(network.state_dict()),
            **more,
        }
    )


def input_side(model: Architecture) -> int:
    """Height and width of the images a network takes: of the stored ones, where it crops them itself."""
    return model.stored


def _notes(reopened: OpenedRun, members: Sequence[int], holder: str) -> tuple[str, ...]:
    if not BatchNormPolicy(reopened.config.batch_norm).one_model and holder.startswith("cluster"):
        return (
            f"BatchNorm statistics are those of the cluster's mean; clients of this run have their own "
            f"({reopened.config.batch_norm}), so a client's model is the better one to hand on.",
        )
    return ()


@torch.no_grad()
def _accuracy(reopened: OpenedRun, network: Network, members: Sequence[int]) -> float | None:
    """Percent of all the members' test images; None without any."""
    right, count = 0.0, 0
    for client in members:
        images = reopened.federation.clients[client].test
        if len(images):
            measured = reopened.federation.metrics.accuracy(client, classify(network, images))
            right, count = right + measured * len(images), count + len(images)
    return right / count if count else None


@torch.no_grad()
def classify(network: Network, images: Tensor) -> Tensor:
    """Predicted classes ``[N]`` of uint8 images ``[N, 3, H, W]``, on the CPU."""
    device = next(network.parameters()).device
    parts = [network(network.prepare(part.to(device)))[0].argmax(1).cpu() for part in images.split(64)]
    return torch.cat(parts)
