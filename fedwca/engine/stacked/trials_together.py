"""Trials of a comparison that go through each round together: all clients of all of them in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.device_copy import synchronize
from fedwca.engine.interface import TrainingRound, TrialsInTurn
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.engine import StackedEngine
from fedwca.engine.stacked.packed_images import PackedImages
from fedwca.engine.stacked.train import train
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.engine.stacked.worker import StackedWorker

T = TypeVar("T")


class StackedTrials(TrialsInTurn):
    """T federations of K clients each, trained as K·T models at once; evidence and evaluation stay with each.

    Results are those of each federation alone within rounding.

    Args:
        networks: the source model of each; alike but for their rows and classifiers, see `can_share_step`.
        clients: unlabeled images of each.
        device: where models and images live.
        batch_norm: as for `StackedEngine`.
        precision: as for `StackedEngine`.
        kernels: as for `StackedEngine`.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        clients: Sequence[Sequence[ClientImages]],
        device: str | torch.device = "cpu",
        batch_norm: BatchNormPolicy | str = BatchNormPolicy.MIXED,
        precision: Precision = "fp32",
        kernels: Kernels | None = None,
    ) -> None:
        at = torch.device(device)
        packed = PackedImages.several([[own.train for own in some] for some in clients], at, networks[0].to(at))
        engines = [
            StackedEngine(network, some, device, None, batch_norm, precision, own, kernels)
            for network, some, own in zip(networks, clients, packed, strict=True)
        ]
        for engine in engines:
            # One pool of memory for what is recorded, whichever trials are in a round.
            engine.capture = engines[0].capture
        super().__init__(engines)

    def run(self, rounds: Mapping[int, TrainingRound[T]]) -> dict[int, list[T]]:
        """As `TrialsInTurn.run`; the rounds' ways of training are the same.

        In turn where some clients do not train, or where what is shared has other shapes in other trials.
        """
        tasks = [own.task(client) for own in rounds.values() for client in own.clients]
        shared = {tuple((name, value.shape) for name, value in task.shared.items()) for task in tasks}
        if len(rounds) < 2 or len(shared) > 1 or any(task.idle for task in tasks):
            return super().run(rounds)
        workers, blends = [], []
        for i, own in rounds.items():
            engine = self.engines[i]
            assert isinstance(engine, StackedEngine)
            workers.append(engine.worker(own))
            blends.append(own.blend(workers[-1]))
        found: dict[int, list[T]] = {}
        answers = zip(rounds.items(), workers, blends, train_together(workers, blends), strict=True)
        for (i, own), worker, blend, targets in answers:
            order = worker.batch.clients
            by_client = dict(zip(order, own.upload(worker, blend, targets), strict=True))
            found[i] = [by_client[client] for client in own.clients]
            for client in order:
                own.done(client)
        synchronize(self.engines[0].device)
        return found


def train_together(workers: Sequence[StackedWorker], blends: Sequence[Blend]) -> list[list[Targets]]:
    """As `StackedWorker.train` of several trials, all of their clients in every step.

    Args:
        workers: one for each trial; of one method, one way of training, and with images in one tensor.
        blends: where its clients start.

    Returns:
        The targets of the last epoch, for each trial one a client.
    """
    batch = TrialBatch([worker.batch for worker in workers], [worker.tasks for worker in workers])
    pairs = list(zip(workers, blends, strict=True))
    context = batch.context([worker.context(blend) for worker, blend in pairs])
    started = workers[0].mark()
    models = batch.join([worker.received.mix(blend.start) for worker, blend in pairs])

    def relabel(epoch: int, moved: Tensor) -> dict[str, Any]:
        asked = zip(pairs, batch.split(moved), strict=True)
        found = [worker.label(blend, f"partners {epoch}", own) for (worker, blend), own in asked]
        observed = batch.join_named("observations", [seen for _, seen in found])
        return {"targets": batch.join([targets for targets, _ in found]), "observed": observed}

    context = train(batch, models, context, relabel, workers[0].capture)
    left = zip(workers, batch.split(models), batch.split(context.targets), strict=True)
    return [
        worker.keep(own, targets, started, len(worker.batch.sizes) / len(batch.sizes)) for worker, own, targets in left
    ]


def can_share_step(networks: Sequence[Network]) -> bool:
    """Whether models can be trained in one step: what is in no row and no classifier is the same in all of them."""
    layouts = [Layout.of(network) for network in networks]
    if any(layout != layouts[0] for layout in layouts):
        return False
    rows = {slot.name for slot in layouts[0].slots}

    def rest(network: Network) -> dict[str, Tensor]:
        # How many batches BatchNorm has seen decides nothing.
        left_out = ("classifier.", "num_batches_tracked")
        state = network.state_dict()
        return {
            n: x for n, x in state.items() if n not in rows and not (n.startswith(left_out) or n.endswith(left_out))
        }

    first = rest(networks[0])
    others = [rest(network) for network in networks[1:] if network is not networks[0]]
    return all(torch.equal(value, first[name]) for other in others for name, value in other.items())
