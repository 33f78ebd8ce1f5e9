"""A trained federation as a newcomer meets it, from a run that was opened again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from fedwca.core.network import Network
from fedwca.data.partition import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.client_task import Training
from fedwca.engine.precision import Precision
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.runs.choose_device import resolve_device

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


def load_federation(reopened: OpenedRun) -> TrainedFederation:
    """The federation of a run that was opened again; where its clients have labels, newcomers do as guests did."""
    config, unit, method = reopened.config, reopened.unit, reopened.method
    training: Training = method.finish_training or method.training or config.training
    if method.finish:
        method = replace(method, objectives=method.finish)
    return TrainedFederation(
        method,
        reopened.network,
        reopened.federation.clients,
        reopened.server,
        reopened.labels,
        training,
        Keys(config.seed + unit.source_model, unit.trial),
        BatchNormPolicy(config.batch_norm),
        resolve_device(config.device),
        config.workers,
        config.precision,
        round=max(0, reopened.round),
    )
