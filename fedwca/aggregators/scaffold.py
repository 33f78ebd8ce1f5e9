"""SCAFFOLD: one model for everybody, and control variates that correct the drift between clients."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View
from fedwca.functional import scaffold_weights


@register("scaffold")
class Scaffold(Aggregator):
    """The server keeps x, c and c_1 … c_K as its rows; a client is sent x and c, and has its c_i already.

    x moves by server_lr times the mean of y_i - x over the clients that are present, c by 1/K times the changes of all
    c_i. A client's new c_i follows from the model it sends back, so nothing else is sent.
    Source: Karimireddy et al., SCAFFOLD, ICML 2020, Algorithm 1 with option II, eqs. 4 and 5.
    """

    label = "SCAFFOLD"
    paper = "Karimireddy et al., ICML 2020; FedTTA, Table 1"
    grouping = OneGroup()
    references = ("start", "cluster", "source", "control", "own_control")
    rows_are_models: ClassVar[bool] = False
    cached_models: ClassVar[int] = 1
    infers_gradients: ClassVar[bool] = True

    weighting: Literal["uniform"] = "uniform"
    """All clients have the same weight, as in the paper."""
    server_lr: PositiveFloat = 1.5
    """Factor of the mean change of the model (eta_g)."""

    def count_rows(self, clients: int, domains: int) -> int:
        """x, c and the control of each client."""
        return 2 + clients

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """x, c and the client's own c_i."""
        clients = len(state["labels"])
        identity = torch.eye(len(rows), dtype=torch.float64)
        sent = torch.stack([identity[[0, 1, 2 + client]] for client in range(clients)])
        return Offer.of_personal(sent)

    def blend(self, round: int, view: View) -> Blend:
        """Start from the model x, with both controls as references."""
        return Blend(view.own, {"control": view.model(1), "own_control": view.model(2)})

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """The mean model, c and all c_i; a client that is absent or took no step keeps its c_i."""
        moved = state.get("moved", torch.zeros(len(labels), dtype=torch.float64))
        # ``moved`` is steps times learning rate, hence lr=1; the server's rate is applied in `server_step`.
        return scaffold_weights(present, moved, lr=1.0, server_lr=1.0, begun=rows > 1)

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """Move x towards the mean by ``server_lr`` times the change; controls stay as they are."""
        mixed[0] = rows[0] + self.server_lr * (mixed[0] - rows[0])
        return mixed
