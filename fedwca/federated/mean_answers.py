"""What clients say of the server's fresh mean before it is final."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Bounded, Offer
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.federated.server import stack_by_client
from fedwca.federated.upload_checks import describe_misfit


@dataclass(frozen=True)
class MeanAnswers:
    """Answers of the clients that were asked."""

    answers: Mapping[str, Tensor]
    """By name ``[K, …]``; NaN of clients that were not asked or whose answer is refused."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why a client's answer does not count."""
    values: int = 0
    """Numbers that each client uploaded."""
    asked: Sequence[int] = ()
    """Clients."""

    def counts(self, clients: Tensor) -> Tensor:
        """Those of some clients ``[K]`` bool whose answer counts."""
        heard_from = frozenset(self.asked) - frozenset(self.refused)
        heard = torch.tensor([k in heard_from for k in range(len(clients))])
        return clients & heard


def ask_about_mean(
    task: Callable[[int], Task], aggregator: Aggregator, engine: Engine, labels: Tensor, rows: Tensor, asked: Tensor
) -> MeanAnswers:
    """Show clients their cluster's fresh row, and take what `Aggregator.answer` says of it.

    An answer that is not of the declared shape, or not finite, is refused; the others count.

    Args:
        task: what each client is to do in the round.
        aggregator: asks.
        engine: has the clients' images and labels.
        labels: cluster of each client ``[K]``.
        rows: the fresh ones ``[C, P]``.
        asked: clients ``[K]`` bool.
    """
    clients = asked.nonzero()[:, 0].tolist()
    offer = Offer.of_personal(one_hot(labels, len(rows)).double())

    def answer(work: ClientWork) -> list[dict[str, Tensor]]:
        with torch.no_grad():
            said = zip(work.outputs(work.own), work.labels, strict=True)
            found = [aggregator.answer(predictions, own) for predictions, own in said]
        return [{name: to_host_async(value) for name, value in one.items()} for one in found]

    given = engine.run(SingleStep(offer, rows, task, clients, answer))
    declared = aggregator.declares(engine.network.classifier.out_features, engine.network.features)
    refused = {k: why for k, own in zip(clients, given, strict=True) if (why := mean_answer_problem(own, declared))}
    whole = {name: torch.full(bound.shape, math.nan) for name, bound in declared.items()}
    heard = {k: whole if k in refused else own for k, own in zip(clients, given, strict=True)}
    answers = {name: stack_by_client({k: own[name] for k, own in heard.items()}, len(labels)) for name in declared}
    return MeanAnswers(answers, refused, sum(value.numel() for value in whole.values()), clients)


def mean_answer_problem(answer: Mapping[str, Tensor], declared: Mapping[str, Bounded]) -> str:
    """Why an answer does not count; empty if it does.

    >>> mean_answer_problem({}, {"centroids": Bounded((2, 3), 1.0)})
    'gives no centroids'
    """
    if lacks := sorted(set(declared) - set(answer)):
        return f"gives no {', '.join(lacks)}"
    if strange := sorted(set(answer) - set(declared)):
        return f"gives {strange[0][:80]}, which the aggregator does not declare"
    return next((f"{n[:80]} {why}" for n, x in answer.items() if (why := describe_misfit(x, declared[n], x.dtype))), "")
