"""What a client is told to do in a round of a method."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.core.training_settings import Training
from fedwca.engine.client_task import Task, client_draws
from fedwca.engine.randomness import Keys
from fedwca.federated.method import Method


def client_task(
    method: Method,
    training: Training,
    round: int,
    keys: Keys,
    client: int,
    shared: Mapping[str, Tensor],
    trusted: float = 1.0,
) -> Task:
    """A client's task in a round, in a simulation, a deployment, or of a client that comes later.

    Args:
        method: what is played.
        training: how clients train, with its schedule; the task has the learning rate of the round.
        round: its number, from 0.
        keys: where random numbers come from.
        client: whose draws it has.
        shared: what the server shares of uploads that are not models.
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
    )
