"""What an aggregator answers, taken only where it is mixtures: rows sum to 1, and columns are what there is to mix.

The engine multiplies whatever it is given, so that weights which sum to 2 would double a model and say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedwca.core.describe_value import describe_value
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View
from fedwca.errors import FedwcaError

ROUNDING = 1e-4
"""How far a sum may be from 1, for weights in float32."""


def offer_mixtures(aggregator: Aggregator, state: State, round: int, rows: Tensor) -> Offer:
    """What each client is sent at the start of a round; see `Aggregator.offer`.

    Raises:
        FedwcaError: it is no offer of mixtures of the rows.
    """
    offer = aggregator.offer(state, round, rows)
    if not isinstance(offer, Offer):
        raise FedwcaError(f"{_name(aggregator)}: offer gave {describe_value(offer)}; right is an Offer")
    for part, axes in (("personal", 3), ("shared", 2)):
        _check(aggregator, f"offer's {part}", getattr(offer, part), axes, len(rows), "row of the server")
    return offer


def gather_mixtures(
    aggregator: Aggregator, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int
) -> Tensor:
    """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients); see `Aggregator.gather`.

    Raises:
        FedwcaError: they are no mixtures of these.
    """
    found = aggregator.gather(state, labels, sizes, present, rows)
    _check(aggregator, "gather", found, 2, rows + len(labels), "row of the server and client")
    return found


def regather_mixtures(
    aggregator: Aggregator, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, guests: Tensor
) -> Tensor:
    """The same after clients judged the fresh rows; see `Aggregator.regather`.

    Raises:
        FedwcaError: they are no mixtures of these.
    """
    found = aggregator.regather(answers, gather, present, guests)
    _check(aggregator, "regather", found, 2, gather.shape[1], "row of the server and client")
    return found


def blend_mixtures(aggregator: Aggregator, round: int, view: View) -> Blend:
    """What clients begin from and compare with; see `Aggregator.blend`.

    Raises:
        FedwcaError: it is no blend of what they were sent.
    """
    blend, sent = aggregator.blend(round, view), view.own.shape[1]
    if not isinstance(blend, Blend):
        raise FedwcaError(f"{_name(aggregator)}: blend gave {describe_value(blend)}; right is a Blend")
    for name, mixtures in {"start": blend.start, **blend.references}.items():
        _check(aggregator, f"blend's {name}", mixtures, 2, sent, "model that was sent", models=True)
    return blend


def check_starts(aggregator: Aggregator, weights: Sequence[Tensor]) -> None:
    """See that clients began from mixtures of the server's rows, each ``[R]``.

    Blends that are made on a GPU are looked at here, after the round, when nobody has to wait for their values.

    Raises:
        FedwcaError: they did not.
    """
    if aggregator.rows_are_models:
        _check_sums(aggregator, "blend's start", torch.stack(list(weights)))


def deliver_mixtures(aggregator: Aggregator, state: State, rows: int) -> Tensor:
    """The model each client ends with ``[K, R]``, a mixture of the server's rows; see `Aggregator.deliver`.

    Raises:
        FedwcaError: it is none.
    """
    found = aggregator.deliver(state, rows)
    _check(aggregator, "deliver", found, 2, rows, "row of the server")
    return found


def _check(
    aggregator: Aggregator, where: str, weights: Tensor, axes: int, columns: int, each: str, models: bool = False
) -> None:
    """Refuse what is no matrix of mixtures. Values that are not finite pass: of them the model says that it diverged.

    Args:
        aggregator: whose they are.
        where: they come from.
        weights: to be looked at.
        axes: that they have.
        columns: of the last axis.
        each: what a column stands for.
        models: whether they mix models alone even where the server's rows need not be models.
    """
    right = isinstance(weights, Tensor) and weights.is_floating_point() and weights.dim() == axes
    if not right or weights.shape[-1] != columns:
        raise FedwcaError(
            f"{_name(aggregator)}: {where} gave {describe_value(weights)}; right are weights on {axes} axes, "
            f"the last of length {columns}, one for each {each}"
        )
    if weights.device.type == "cpu":
        _check_sums(aggregator, where, weights if models or aggregator.rows_are_models else weights[..., :1, :])


def _check_sums(aggregator: Aggregator, where: str, weights: Tensor) -> None:
    sums = weights.sum(-1).flatten()
    wrong = sums[(sums - 1).abs() > ROUNDING]
    if len(wrong):
        first = f"{float(wrong[0]):.6g}"
        raise FedwcaError(f"{_name(aggregator)}: {where} gave weights that sum to {first}; each row must sum to 1")


def _name(aggregator: Aggregator) -> str:
    return f"aggregator {aggregator.name!r}"
