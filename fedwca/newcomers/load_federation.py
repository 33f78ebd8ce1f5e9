"""A trained federation as a newcomer meets it, from a run that was opened again."""

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
from fedwca.runs.choose_device import resolve_device
from fedwca.runs.measure_newcomers import prepare_fresh_models

if TYPE_CHECKING:
    from fedwca.runs.open_run import OpenedRun


@dataclass(frozen=True, eq=False)
class TrainedFederation:
    """A federation after its last round: all that a newcomer meets."""

    method: Method
    network: Network
    """Gives shapes and the classifier."""
    clients: Sequence[ClientImages]
    """Those that were there; only to repeat their round 0 where ``first`` is not there."""
    server: Server
    labels: Tensor
    """Cluster of each client ``[K]``."""
    training: Training
    keys: Keys
    batch_norm: BatchNormPolicy = BatchNormPolicy.MIXED
    device: str = "cpu"
    workers: int | None = None
    precision: Precision = "fp32"
    first: Tensor | None = None
    """Their models after round 0 ``[K, P]``, as clusters were made of them; None: repeated when asked for."""
    round: int = 0
    """The last that was played; an adaptation's steps are those of its learning rates."""
    fresh: FreshModels | None = None
    """What a newcomer begins with where models stay with the clients that train; None: one of the server's."""


def load_federation(opened: OpenedRun) -> TrainedFederation:
    """The federation of a run that was opened again; where its clients have labels, newcomers do as those without did.

    Raises:
        DatasetMissing: its images are not there.
        DataError: they are others than those the run began with.
    """
    config, unit, method = opened.config, opened.unit, opened.method
    training: Training = method.finish_training or method.training_in(config.training)
    if method.finish:
        method = replace(method, objectives=method.finish)
    keys, clients = Keys(config.seed + unit.source_model, unit.trial), opened.federation.clients
    public, fresh = opened.federation.public, None
    if method.public_objective is not None and public is not None:
        # An engine moves its network to where it computes.
        network, seed = copy.deepcopy(opened.network), config.seed + unit.source_model
        fresh = prepare_fresh_models(config, method, network, public, seed, keys, len(clients), [0])
    return TrainedFederation(
        method,
        opened.network,
        clients,
        opened.server,
        opened.labels,
        training,
        keys,
        BatchNormPolicy(config.batch_norm),
        resolve_device(config.device),
        config.workers,
        config.precision,
        round=max(0, opened.round),
        fresh=fresh,
    )
