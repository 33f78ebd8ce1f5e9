"""What clients answer about the server's new mean before it is final."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.component_answers import check_mapping, check_tensors, only_reads
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Bounded, Offer
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_host_async
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.federated.server import stack_by_client
from fedwca.federated.upload_checks import describe_misfit


@dataclass(frozen=True)
class MeanAnswers:
    """Answers of the clients that were asked about the mean."""

    answers: Mapping[str, Tensor]
    """By name ``[K, …]``; NaN for clients that were not asked or whose answer is refused."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why a client's answer does not count."""
    values: int = 0
    """Numbers that each client uploaded."""
    asked: Sequence[int] = ()
    """Clients that were asked."""

    def counts(self, clients: Tensor) -> Tensor:
        """Which of some clients ``[K]`` bool gave an answer that counts."""
        accepted = frozenset(self.asked) - frozenset(self.refused)
        answered = torch.tensor([k in accepted for k in range(len(clients))])
        return clients & answered


def ask_about_mean(
    task: Callable[[int], Task], aggregator: Aggregator, engine: Engine, labels: Tensor, rows: Tensor, asked: Tensor
) -> MeanAnswers:
    """Send clients the new row of their cluster, and collect what `Aggregator.answer` says of it.

    An answer that is not of the declared shape, or not finite, is refused; the others count.

    Args:
        task: what each client is to do in the round.
        aggregator: computes a client's answer.
        engine: has the clients' images and labels.
        labels: cluster of each client ``[K]``.
        rows: the server's new rows ``[C, P]``.
        asked: clients to ask ``[K]`` bool.
    """
    clients = asked.nonzero()[:, 0].tolist()
    offer = Offer.of_personal(one_hot(labels, len(rows)).double())

    def answer(work: ClientWork) -> list[dict[str, Tensor]]:
        part, outputs = f"aggregator {aggregator.name!r}: answer", work.outputs(work.own)
        with torch.no_grad(), only_reads(part, *outputs, *(x for x in work.labels if x is not None)):
            group_answers = [
                check_tensors(aggregator.answer(predictions, client_labels), part)
                for predictions, client_labels in zip(outputs, work.labels, strict=True)
            ]
        return [{name: to_host_async(value) for name, value in values.items()} for values in group_answers]

    client_answers = engine.run(SingleStep(offer, rows, task, clients, answer))
    sizes = engine.network.classifier.out_features, engine.network.features
    part = f"aggregator {aggregator.name!r}: answer_bounds"
    declared = check_mapping(aggregator.answer_bounds(*sizes), Bounded, "Bounded", part)
    refused = {
        k: problem
        for k, own_answer in zip(clients, client_answers, strict=True)
        if (problem := mean_answer_problem(own_answer, declared))
    }
    no_answer = {name: torch.full(bound.shape, math.nan) for name, bound in declared.items()}
    by_client = {k: no_answer if k in refused else x for k, x in zip(clients, client_answers, strict=True)}
    answers = {name: stack_by_client({k: x[name] for k, x in by_client.items()}, len(labels)) for name in declared}
    return MeanAnswers(answers, refused, sum(value.numel() for value in no_answer.values()), clients)


def mean_answer_problem(answer: Mapping[str, Tensor], declared: Mapping[str, Bounded]) -> str:
    """Why an answer does not count; empty if it does.

    >>> mean_answer_problem({}, {"centroids": Bounded((2, 3), 1.0)})
    'gives no centroids'
    """
    if missing := sorted(set(declared) - set(answer)):
        return f"gives no {', '.join(missing)}"
    if undeclared := sorted(set(answer) - set(declared)):
        return f"gives {undeclared[0][:80]}, which the aggregator does not declare"
    for name, value in answer.items():
        dtype = value.dtype if value.is_floating_point() else torch.float32
        if problem := describe_misfit(value, declared[name], dtype):
            return f"{name[:80]} {problem}"
    return ""
