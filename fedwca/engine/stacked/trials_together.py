"""Trials of a comparison that go through each round together: all clients of all trials in every step."""

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
    """T federations of K clients each, trained as K·T models at once; evidence and evaluation are separate for each.

    Results equal those of each federation alone, within rounding.

    Args:
        networks: the source model of each; they differ only in rows and classifiers, see `can_share_step`.
        clients: images of each, and labels if there are any.
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
        torch_device = torch.device(device)
        packed = PackedImages.several(
            [[c.train for c in trial] for trial in clients], torch_device, networks[0].to(torch_device)
        )
        engines = [
            StackedEngine(network, trial, device, None, batch_norm, precision, images, kernels)
            for network, trial, images in zip(networks, clients, packed, strict=True)
        ]
        for engine in engines:
            # One pool of memory for what is recorded, whichever trials are in a round.
            engine.capture = engines[0].capture
        super().__init__(engines)

    def run(self, rounds: Mapping[int, TrainingRound[T]]) -> dict[int, list[T]]:
        """As `TrialsInTurn.run`; all rounds must train in the same way.

        Trials run in turn if some clients do not train, or if shared values have different shapes in different trials.
        """
        tasks = [trial_round.task(client) for trial_round in rounds.values() for client in trial_round.clients]
        shared = {tuple((name, value.shape) for name, value in task.shared.items()) for task in tasks}
        if len(rounds) < 2 or len(shared) > 1 or any(task.idle for task in tasks):
            return super().run(rounds)
        workers, blends = [], []
        for i, trial_round in rounds.items():
            engine = self.engines[i]
            assert isinstance(engine, StackedEngine)
            workers.append(engine.worker(trial_round))
            blends.append(trial_round.blend(workers[-1]))
        results: dict[int, list[T]] = {}
        finished = zip(rounds.items(), workers, blends, train_together(workers, blends), strict=True)
        for (i, trial_round), worker, blend, targets in finished:
            batch_clients = worker.batch.clients
            by_client = dict(zip(batch_clients, trial_round.upload(worker, blend, targets), strict=True))
            results[i] = [by_client[client] for client in trial_round.clients]
            for client in batch_clients:
                trial_round.done(client)
        synchronize(self.engines[0].device)
        return results


def train_together(workers: Sequence[StackedWorker], blends: Sequence[Blend]) -> list[list[Targets]]:
    """As `StackedWorker.train` for several trials, with all of their clients in every step.

    Args:
        workers: one for each trial; all of one method and the same training, with images in one tensor.
        blends: for each trial, the models that its clients start from.

    Returns:
        The targets of the last epoch: for each trial, one entry per client.
    """
    batch = TrialBatch([worker.batch for worker in workers], [worker.tasks for worker in workers])
    pairs = list(zip(workers, blends, strict=True))
    context = batch.context([worker.context(blend) for worker, blend in pairs])
    started = workers[0].mark()
    models = batch.join([worker.received.mix(blend.start) for worker, blend in pairs])

    def relabel(epoch: int, moved: Tensor) -> dict[str, Any]:
        trials = zip(pairs, batch.split(moved), strict=True)
        labelled = [worker.label(blend, f"partners {epoch}", trial_models) for (worker, blend), trial_models in trials]
        observed = batch.join_named("observations", [values for _, values in labelled])
        return {"targets": batch.join_targets([targets for targets, _ in labelled]), "observed": observed}

    context = train(batch, models, context, relabel, workers[0].capture)
    trained = zip(workers, batch.split(models), batch.split(context.targets), strict=True)
    return [
        worker.keep(trial_models, targets, started, len(worker.batch.sizes) / len(batch.sizes))
        for worker, trial_models, targets in trained
    ]


def can_share_step(networks: Sequence[Network]) -> bool:
    """Whether models can be trained in one step: all tensors outside of rows and classifiers must be equal."""
    layouts = [Layout.of(network) for network in networks]
    if any(layout != layouts[0] for layout in layouts):
        return False

    def shared_state(network: Network) -> dict[str, Tensor]:
        # BatchNorm's count of batches has no effect.
        left_out = ("classifier.", "num_batches_tracked")
        others = layouts[0].read_others(network)
        return {n: x for n, x in others.items() if not (n.startswith(left_out) or n.endswith(left_out))}

    first_state = shared_state(networks[0])
    other_states = [shared_state(network) for network in networks[1:] if network is not networks[0]]
    return all(torch.equal(value, first_state[name]) for state in other_states for name, value in state.items())
