"""Makes the task of a client in a round of a method."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.core.messages import Blend, Targets
from fedwca.core.training_settings import Training
from fedwca.engine.client_task import Task, adaptation_lr, client_draws
from fedwca.engine.interface import ClientWork
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method


def train_own(work: ClientWork) -> list[Targets]:
    """Train from the first model that was sent."""
    return work.train(Blend(work.own))


def client_task(
    method: Method,
    training: Training,
    round: int,
    keys: Keys,
    client: int,
    shared: Mapping[str, Tensor],
    trusted: float = 1.0,
) -> Task:
    """A client's task in a round: in a simulation, in a deployment, or for a newcomer.

    Args:
        method: the method of the federation.
        training: how clients train, with its schedule; the task has the learning rate of the round.
        round: its number, from 0.
        keys: where random numbers come from.
        client: its number, which selects its random draws.
        shared: what the server made of uploads that are not models; see `pool_collected`.
        trusted: how far its labels are trusted, 0 to 1.
    """
    return Task(
        labeler=method.pseudo_labeler,
        objectives=method.own_objectives,
        training=training.at(round),
        keys=client_draws(keys, round, client, training),
        shared=shared,
        part=training.part(round),
        trusted=trusted,
        adaptation=method.adaptation,
        factor=training.factor(round),
        inner_lr=adaptation_lr(method.adaptation, training, round),
    )
