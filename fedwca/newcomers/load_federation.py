"""A trained federation as a newcomer needs it, from an opened run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.training_settings import Precision, Training
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method
from fedwca.federated.public_images import FreshModels
from fedwca.federated.server import Server
from fedwca.runs.records.measure_newcomers import prepare_fresh_models
from fedwca.runs.resources.choose_device import resolve_device

if TYPE_CHECKING:
    from fedwca.runs.opened_run import OpenedRun


@dataclass(frozen=True, eq=False)
class TrainedFederation:
    """A federation after its last round, with all that a newcomer needs."""

    method: Method
    network: Network
    """Gives shapes and the classifier."""
    clients: Sequence[ClientImages]
    """Clients that trained; only used to repeat their round 0."""
    server: Server
    labels: Tensor
    """Cluster of each client ``[K]``."""
    training: Training
    keys: Keys
    batch_norm: BatchNormPolicy = BatchNormPolicy.MIXED
    device: str = "cpu"
    workers: int | None = None
    precision: Precision = "fp32"
    round: int = 0
    """The last round; its learning rates are those of an adaptation's steps."""
    fresh: FreshModels | None = None
    """Initial models of newcomers where models stay with the clients that train; None: they get one of the server's."""


def load_federation(opened: OpenedRun) -> TrainedFederation:
    """The federation of an opened run; if it has a last phase, newcomers do what its clients without labels did.

    Raises:
        DatasetMissing: the images of the run are not there.
        DataError: they are not the images that the run began with.
    """
    config, unit, method = opened.config, opened.unit, opened.method
    training: Training = method.finish_training or method.training_in(config.training)
    if method.finish:
        method = replace(method, objectives=method.finish)
    keys, clients = Keys(config.seed + unit.source_model, unit.trial), opened.federation.clients
    public, fresh = opened.federation.public_images, None
    if method.public_objective is not None and public is not None:
        network = copy.deepcopy(opened.network)  # an engine moves its network to where it computes
        fresh = prepare_fresh_models(config, method, network, public, keys, len(clients), [0])
    device = resolve_device(config.device)
    return TrainedFederation(
        method,
        opened.network,
        clients,
        opened.server,
        opened.labels,
        training,
        keys,
        BatchNormPolicy(config.batch_norm),
        device,
        config.workers if device == "cpu" else None,  # on a GPU they are clients of one step, not threads
        config.precision,
        round=max(0, opened.round),
        fresh=fresh,
    )
