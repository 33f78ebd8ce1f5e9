"""What simulated clients send back, and what stays with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedwca.core.messages import Blend, Targets
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork
from fedwca.federated.upload_checks import Upload


@dataclass(frozen=True, kw_only=True)
class SimulatedUpload(Upload):
    """An upload, and values that stay with its client; only metrics and records read these."""

    weights: Tensor
    """``[R]``: its start as a mixture of the server's rows (v_k of eq. 8)."""
    targets: Targets
    """Of its last epoch."""
    seconds: Mapping[str, float]
    """By phase."""
    passes: int
    """Evaluation passes over the client's images, and over public ones."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """``trust`` of a client without labels, in round 0 or in the last phase: see `measure_trust`."""


def make_uploads(
    blend: Blend, work: ClientWork, targets: Sequence[Targets], collected: Sequence[Mapping[str, Tensor]]
) -> list[SimulatedUpload]:
    """One upload for each of the clients that worked together; their time is shared out evenly.

    Values are copied to the host in the background: read them only after the engine has finished the round.
    """
    clients = len(targets)
    weights = to_host_async((blend.start.double()[:, None] @ work.weights)[:, 0]).unbind()
    report = {name: to_host_async(value).unbind() for name, value in blend.report.items()}
    labels = None if blend.labels is None else to_host_async(blend.labels).split(1)
    notes = {name: to_host_async(value).unbind() for name, value in blend.notes.items()}
    seconds = work.seconds.shared(clients)
    return [
        SimulatedUpload(
            report={name: value[i] for name, value in report.items()},
            label=None if labels is None else labels[i],
            collected=collected[i],
            weights=weights[i],
            targets=targets[i].map(to_host_async),
            seconds=seconds,
            passes=work.passes,
            notes={name: value[i] for name, value in notes.items()},
        )
        for i in range(clients)
    ]
