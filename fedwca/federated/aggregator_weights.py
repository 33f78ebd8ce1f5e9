"""What an aggregator answers, taken only where it is mixtures: rows sum to 1, and columns are what there is to mix.

The engine multiplies whatever it is given, so that weights which sum to 2 would double a model and say nothing. Blends
on a GPU are looked at by their shapes, and what clients began from once the round is over: nobody waits there for
values. Where rows need not be models (`Aggregator.rows_are_models`), sums are asked of `gather`'s first row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedwca.core.component_answers import ROUNDING, describe_value
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View
from fedwca.errors import FedwcaError


def offer_mixtures(aggregator: Aggregator, state: State, round: int, rows: Tensor, clients: int | None = None) -> Offer:
    """What each of K clients is sent at the start of a round; see `Aggregator.offer`.

    Raises:
        FedwcaError: it is no offer of mixtures of the rows.
    """
    before = rows._version
    offer = aggregator.offer(state, round, rows)
    if rows._version != before:
        raise FedwcaError(f"{_name(aggregator)}: offer changed the server's models in place; it may only read them")
    if not isinstance(offer, Offer):
        raise FedwcaError(f"{_name(aggregator)}: offer gave {describe_value(offer)}; right is an Offer")
    _check_server(aggregator, "offer's personal", offer.personal, (clients, None, len(rows)))
    _check_server(aggregator, "offer's shared", offer.shared, (None, len(rows)))
    return offer


def gather_mixtures(
    aggregator: Aggregator, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int
) -> Tensor:
    """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients); see `Aggregator.gather`.

    Raises:
        FedwcaError: they are no mixtures of these.
    """
    found = aggregator.gather(state, labels, sizes, present, rows)
    return _check_gathered(aggregator, "gather", found, rows + len(labels))


def regather_mixtures(
    aggregator: Aggregator, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor
) -> Tensor:
    """The same after clients judged the fresh rows; see `Aggregator.regather`.

    Raises:
        FedwcaError: they are no mixtures of these.
    """
    found = aggregator.regather(answers, gather, present, unlabeled)
    return _check_gathered(aggregator, "regather", found, gather.shape[1])


def blend_mixtures(aggregator: Aggregator, round: int, view: View) -> Blend:
    """What clients begin from and compare with; see `Aggregator.blend`.

    Raises:
        FedwcaError: it is no blend of what they were sent.
    """
    blend, sent = aggregator.blend(round, view), tuple(view.own.shape)
    references: object = getattr(blend, "references", None)
    if not isinstance(references, Mapping):
        shown = describe_value(blend)
        raise FedwcaError(f"{_name(aggregator)}: blend gave {shown}; right is a Blend, with references by name")
    for name, mixtures in {"start": blend.start, **references}.items():
        _check_shape(aggregator, f"blend's {name}", mixtures, sent)
        if mixtures.device.type == "cpu" and aggregator.rows_are_models:
            _check_sums(aggregator, f"blend's {name}", mixtures)
    return blend


def check_starts(aggregator: Aggregator, weights: Sequence[Tensor]) -> None:
    """See that clients began from mixtures of the server's rows, each ``[R]``, after the round.

    Raises:
        FedwcaError: they did not.
    """
    if aggregator.rows_are_models:
        _check_sums(aggregator, "blend's start", torch.stack(list(weights)))


def deliver_mixtures(aggregator: Aggregator, state: State, rows: int, clients: int | None = None) -> Tensor:
    """The model each client ends with ``[K, R]``, a mixture of the server's rows; see `Aggregator.deliver`.

    Raises:
        FedwcaError: it is none.
    """
    return _check_server(aggregator, "deliver", aggregator.deliver(state, rows), (clients, rows))


def newcomer_mixtures(aggregator: Aggregator, rows: int, draws: Tensor) -> Tensor:
    """The model that each newcomer is sent ``[K', R]``, a mixture of the server's rows; see `Aggregator.deliver_new`.

    Raises:
        FedwcaError: it is none.
    """
    return _check_server(aggregator, "deliver_new", aggregator.deliver_new(rows, draws), (len(draws), rows))


def _check_gathered(aggregator: Aggregator, where: str, weights: Tensor, columns: int) -> Tensor:
    _check_shape(aggregator, where, weights, (None, columns))
    _check_sums(aggregator, where, weights if aggregator.rows_are_models else weights[:1])
    return weights


def _check_server(aggregator: Aggregator, where: str, weights: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """Refuse what is no mixtures of the server's rows."""
    _check_shape(aggregator, where, weights, shape)
    if aggregator.rows_are_models:
        _check_sums(aggregator, where, weights)
    return weights


def _check_shape(aggregator: Aggregator, where: str, weights: Tensor, shape: tuple[int | None, ...]) -> None:
    """Refuse what is no tensor of weights of a shape, in which None is any length."""
    right = isinstance(weights, Tensor) and weights.is_floating_point() and weights.dim() == len(shape)
    if not right or any(wanted not in (None, found) for found, wanted in zip(weights.shape, shape, strict=True)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise FedwcaError(
            f"{_name(aggregator)}: {where} gave {describe_value(weights)}; right are floating-point weights of shape "
            f"({wanted})"
        )


def _check_sums(aggregator: Aggregator, where: str, weights: Tensor) -> None:
    """Refuse rows that do not sum to 1; of values that are not finite the model says that it diverged."""
    sums = weights.sum(-1).flatten()
    wrong = sums[((sums - 1).abs() > ROUNDING) & sums.isfinite()]
    if len(wrong):
        first = f"{float(wrong[0]):.6g}"
        raise FedwcaError(f"{_name(aggregator)}: {where} gave weights that sum to {first}; each row must sum to 1")


def _name(aggregator: Aggregator) -> str:
    return f"aggregator {aggregator.name!r}"
