"""How far clients' labels are trusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedwca.core.component_answers import describe_value
from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Offer, Predictions
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.errors import FedwcaError
from fedwca.federated.server import offer_source
from fedwca.functional import mutual_information


def measure_trust(predictions: Sequence[Predictions]) -> Tensor:
    """What a model's outputs on each client's images say of the class ``[K]`` float64, from 0 to 1.

    Args:
        predictions: of the source model, one a client.
    """
    return torch.stack([mutual_information(own.logits.double()) for own in predictions])


def find_trusted(
    labeler: PseudoLabeler,
    engine: Engine,
    offer: Offer,
    rows: Tensor,
    task: Callable[[int], Task],
    clients: Sequence[int],
) -> Tensor | None:
    """How far a labeler trusts clients ``[K]``, 0 to 1, by a pass of the first model they are sent; others it does.

    Args:
        labeler: decides.
        engine: has the clients' images.
        offer: the model that is asked: the source model.
        rows: that the offer is mixtures of ``[R, P]``.
        task: what each client is to do.
        clients: those without labels that take part.

    Returns:
        None where the labeler trusts everybody, so that nobody is asked.

    Raises:
        FedwcaError: the labeler's answer is no number from 0 to 1.
    """
    if not labeler.selects_clients:
        return None

    def ask(work: ClientWork) -> list[Tensor]:
        with torch.no_grad():
            return [to_host_async(torch.as_tensor(labeler.trusts(outputs))) for outputs in work.outputs(work.own)]

    trust = torch.ones(len(engine.images))
    for client, answer in zip(clients, engine.run(SingleStep(offer, rows, task, clients, ask)), strict=True):
        if answer.numel() != 1 or not 0 <= float(answer) <= 1:
            shown = f"{float(answer):g}" if answer.numel() == 1 else describe_value(answer)
            raise FedwcaError(f"pseudo-labeler {labeler.name!r}: trusts gave {shown}; right is one number from 0 to 1")
        trust[client] = float(answer)
    return trust


def find_trusted_alone(labeler: PseudoLabeler, engine: Engine, source: Tensor, task: Task) -> Tensor | None:
    """How far a labeler trusts an engine's only client ``[1]``, 0 to 1, in whichever round it comes.

    Args:
        labeler: decides.
        engine: has the client's images.
        source: the source model ``[P]``.
        task: the client's.

    Returns:
        None where the labeler trusts everybody, so that nobody is asked.

    Raises:
        FedwcaError: see `find_trusted`.
    """
    return find_trusted(labeler, engine, offer_source(1), source[None].to(engine.device), lambda _: task, [0])


def measure_trust_alone(engine: Engine, source: Tensor, task: Task) -> float:
    """What the source model says of the class on the images of an engine's only client, from 0 to 1.

    Args:
        engine: has the client's images.
        source: the source model ``[P]``.
        task: the client's.
    """

    def ask(work: ClientWork) -> list[Tensor]:
        with torch.no_grad():
            return [measure_trust(work.outputs(work.own))]

    ((found,),) = engine.run(SingleStep(offer_source(1), source[None].to(engine.device), lambda _: task, [0], ask))
    return float(found)
