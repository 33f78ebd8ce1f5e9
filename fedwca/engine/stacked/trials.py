"""Trials of a comparison that go through each round together: all clients of all of them in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.data.partition import ClientImages
from fedwca.engine.device_copy import synchronize
from fedwca.engine.interface import TrainingRound, TrialsInTurn
from fedwca.engine.layout import Layout
from fedwca.engine.precision import Precision
from fedwca.engine.sequential.engine import Statistics
from fedwca.engine.stacked.engine import StackedEngine
from fedwca.engine.stacked.images import PackedImages
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.engine.stacked.worker import train_together

T = TypeVar("T")


class StackedTrials(TrialsInTurn):
    """T federations of K clients each, trained as K·T models at once; evidence and evaluation stay with each.

    Results are those of each federation alone within rounding.

    Args:
        networks: the source model of each; alike but for their rows and classifiers, see `can_share_step`.
        clients: unlabeled images of each.
        device: where models and images live.
        statistics: as for `StackedEngine`.
        precision: as for `StackedEngine`.
        kernels: as for `StackedEngine`.
    """

    def __init__(
        self,
        networks: Sequence[Network],
        clients: Sequence[Sequence[ClientImages]],
        device: str | torch.device = "cpu",
        statistics: Statistics = "mixed",
        precision: Precision = "fp32",
        kernels: Kernels | None = None,
    ) -> None:
        piles = PackedImages.several([[own.train for own in some] for some in clients], torch.device(device))
        engines = [
            StackedEngine(network, some, device, None, statistics, precision, pile, kernels)
            for network, some, pile in zip(networks, clients, piles, strict=True)
        ]
        for engine in engines:
            # One pool of memory for what is recorded, whichever trials are in a round.
            engine.capture = engines[0].capture
        super().__init__(engines)

    def run(self, rounds: Mapping[int, TrainingRound[T]]) -> dict[int, list[T]]:
        """As `TrialsInTurn.run`; the rounds' ways of training are the same."""
        if len(rounds) < 2:
            return super().run(rounds)
        desks, blends = [], []
        for i, own in rounds.items():
            engine = self.engines[i]
            assert isinstance(engine, StackedEngine)
            desks.append(engine.desk(own))
            blends.append(own.blend(desks[-1]))
        found: dict[int, list[T]] = {}
        answers = zip(rounds.items(), desks, blends, train_together(desks, blends), strict=True)
        for (i, own), desk, blend, targets in answers:
            order = desk.crowd.clients
            by_client = dict(zip(order, own.upload(desk, blend, targets), strict=True))
            found[i] = [by_client[client] for client in own.clients]
            for client in order:
                own.done(client)
        synchronize(self.engines[0].device)
        return found


def can_share_step(networks: Sequence[Network]) -> bool:
    """Whether models can be trained in one step: what is in no row and no classifier is the same in all of them."""
    layouts = [Layout.of(network) for network in networks]
    if any(layout != layouts[0] for layout in layouts):
        return False
    rows = {slot.name for slot in (*layouts[0].parameters, *layouts[0].statistics)}

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
