"""How far clients' labels are trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.core.component_answers import describe_value, only_reads
from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Offer, Predictions
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.errors import FedwcaError
from fedwca.federated.server import offer_source
from fedwca.functional import mutual_information


def measure_trust(predictions: Sequence[Predictions]) -> Tensor:
    """Mutual information of image and predicted class for each client, over log M ``[K]`` float64, from 0 to 1.

    Args:
        predictions: of the source model, one for each client.
    """
    return torch.stack([mutual_information(x.logits.double()) for x in predictions])


def labeler_trust(
    labeler: PseudoLabeler,
    engine: Engine,
    offer: Offer,
    rows: Tensor,
    task: Callable[[int], Task],
    clients: Sequence[int],
) -> Tensor | None:
    """How far a labeler trusts clients ``[K]``, 0 to 1, by the outputs of the first model they are sent; 1 for others.

    Args:
        labeler: decides how far.
        engine: has the clients' images.
        offer: its first model is the one whose outputs are read: the source model.
        rows: the server's, which the offer's models are mixtures of ``[R, P]``.
        task: what each client is to do.
        clients: those without labels that take part.

    Returns:
        None where nobody is asked: the labeler trusts everybody, or all clients have labels.

    Raises:
        FedwcaError: the labeler's answer is no number from 0 to 1.
    """
    if not labeler.selects_clients or not clients:
        return None
    refusal = f"pseudo-labeler {labeler.name!r}: trust gave"

    def as_tensor(answer: Any) -> Tensor:
        try:
            return torch.as_tensor(answer)
        except (TypeError, ValueError, RuntimeError):
            raise FedwcaError(f"{refusal} {describe_value(answer)}; right is one number from 0 to 1") from None

    def ask(work: ClientWork) -> list[Tensor]:
        with torch.no_grad():
            outputs = work.outputs(work.own)
            with only_reads(f"pseudo-labeler {labeler.name!r}: trust", *outputs):
                return [to_host_async(as_tensor(labeler.trust(client_outputs))) for client_outputs in outputs]

    trust = torch.ones(len(engine.images))
    for client, answer in zip(clients, engine.run(SingleStep(offer, rows, task, clients, ask)), strict=True):
        if answer.numel() != 1 or not 0 <= float(answer) <= 1:
            description = f"{float(answer):g}" if answer.numel() == 1 else describe_value(answer)
            raise FedwcaError(f"{refusal} {description}; right is one number from 0 to 1")
        trust[client] = float(answer)
    return trust


def labeler_trust_alone(labeler: PseudoLabeler, engine: Engine, source: Tensor, task: Task) -> Tensor | None:
    """How far a labeler trusts the only client of an engine ``[1]``, 0 to 1, in whichever round it joins.

    Args:
        labeler: decides how far.
        engine: has the client's images.
        source: the source model ``[P]``.
        task: the client's.

    Returns:
        None where the labeler trusts everybody, so that nobody is asked.

    Raises:
        FedwcaError: see `labeler_trust`.
    """
    return labeler_trust(labeler, engine, offer_source(1), source[None].to(engine.device), lambda _: task, [0])


def measure_trust_alone(engine: Engine, source: Tensor, task: Task) -> float:
    """`measure_trust` by the source model for the only client of an engine, from 0 to 1.

    Args:
        engine: has the client's images.
        source: the source model ``[P]``.
        task: the client's.
    """

    def ask(work: ClientWork) -> list[Tensor]:
        with torch.no_grad():
            return [measure_trust(work.outputs(work.own))]

    ((trust,),) = engine.run(SingleStep(offer_source(1), source[None].to(engine.device), lambda _: task, [0], ask))
    return float(trust)
