"""Checks that an aggregator's answers are mixtures: rows sum to 1, with one column for each model that can be mixed.

The engine multiplies by whatever weights it is given, so weights that sum to 2 would silently double a model. On a GPU
only the shape of a blend is checked at first, and the sums of the starts after the round, so that nothing waits for
values. Where rows need not be models (`Aggregator.rows_are_models`), only the first row of `gather` must sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedwca.core.component_answers import ROUNDING, check_tensors, describe_value, only_reads
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View
from fedwca.errors import Diverged, FedwcaError


def offer_mixtures(aggregator: Aggregator, state: State, round: int, rows: Tensor, clients: int | None = None) -> Offer:
    """What each of K clients is sent at the start of a round; see `Aggregator.offer`.

    Raises:
        FedwcaError: the answer is no `Offer` of mixtures of the rows, or state or rows were changed in place.
    """
    with only_reads(f"{_name(aggregator)}: offer", state, rows):
        offer = aggregator.offer(state, round, rows)
    if not isinstance(offer, Offer):
        raise FedwcaError(f"{_name(aggregator)}: offer gave {describe_value(offer)}; right is an Offer")
    return Offer(
        _check_server(aggregator, "offer's personal", offer.personal, (clients, None, len(rows))),
        _check_server(aggregator, "offer's shared", offer.shared, (None, len(rows))),
    )


def gather_mixtures(
    aggregator: Aggregator, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int
) -> Tensor:
    """Next server rows as mixtures ``[C, R+K]`` of (previous rows, clients); see `Aggregator.gather`.

    Raises:
        Diverged: weights are not finite.
        FedwcaError: the answer is no such mixtures.
    """
    with only_reads(f"{_name(aggregator)}: gather", state, labels, sizes, present):
        weights = aggregator.gather(state, labels, sizes, present, rows)
    return _check_gathered(aggregator, "gather", weights, rows + len(labels))


def regather_mixtures(
    aggregator: Aggregator, answers: Mapping[str, Tensor], gather: Tensor, present: Tensor, unlabeled: Tensor
) -> Tensor:
    """The same mixtures after clients evaluated the new rows; see `Aggregator.regather`.

    Raises:
        Diverged: weights are not finite.
        FedwcaError: the answer is no such mixtures.
    """
    with only_reads(f"{_name(aggregator)}: regather", answers, gather, present, unlabeled):
        weights = aggregator.regather(answers, gather, present, unlabeled)
    return _check_gathered(aggregator, "regather", weights, gather.shape[1])


def blend_mixtures(aggregator: Aggregator, round: int, view: View) -> Blend:
    """What clients begin from and compare with; see `Aggregator.blend`.

    Raises:
        FedwcaError: the answer is no `Blend` of the models that they were sent, or they were changed in place.
    """
    with only_reads(f"{_name(aggregator)}: blend", view.own, view.shared):
        blend = aggregator.blend(round, view)
    sent = tuple(view.own.shape)
    references: object = getattr(blend, "references", None)
    if not isinstance(references, Mapping):
        description = describe_value(blend)
        raise FedwcaError(f"{_name(aggregator)}: blend gave {description}; right is a Blend, with references by name")
    named = {"report": blend.report, "notes": blend.notes}
    if blend.labels is not None:
        named["labels"] = {"of clusters": blend.labels}
    for part, values in named.items():
        for name, value in check_tensors(values, f"{_name(aggregator)}: blend's {part}").items():
            if not value.dim() or len(value) != sent[0]:
                raise FedwcaError(
                    f"{_name(aggregator)}: blend's {part} {name} is {describe_value(value)}; right is an entry for "
                    f"each of {sent[0]} clients, along the first axis"
                )
    for name, mixtures in {"start": blend.start, **references}.items():
        _check_shape(aggregator, f"blend's {name}", mixtures, sent)
        if mixtures.device.type == "cpu" and aggregator.rows_are_models:
            _check_sums(aggregator, f"blend's {name}", mixtures)
    return blend


def check_starts(aggregator: Aggregator, weights: Sequence[Tensor]) -> None:
    """Check after a round that each client's start was a mixture of the server's rows ``[R]``.

    Raises:
        FedwcaError: one was not.
    """
    if aggregator.rows_are_models:
        _check_sums(aggregator, "blend's start", torch.stack(list(weights)))


def deliver_mixtures(aggregator: Aggregator, state: State, rows: int, clients: int | None = None) -> Tensor:
    """The model each client ends with ``[K, R]``, a mixture of the server's rows; see `Aggregator.deliver`.

    Raises:
        FedwcaError: the answer is no such mixtures.
    """
    with only_reads(f"{_name(aggregator)}: deliver", state):
        weights = aggregator.deliver(state, rows)
    return _check_finite(aggregator, "deliver", _check_server(aggregator, "deliver", weights, (clients, rows)))


def newcomer_mixtures(aggregator: Aggregator, rows: int, draws: Tensor) -> Tensor:
    """The model that each newcomer is sent ``[K', R]``, a mixture of the server's rows; see `Aggregator.deliver_new`.

    Raises:
        FedwcaError: the answer is no such mixtures.
    """
    weights = _check_server(aggregator, "deliver_new", aggregator.deliver_new(rows, draws), (len(draws), rows))
    return _check_finite(aggregator, "deliver_new", weights)


def _check_gathered(aggregator: Aggregator, answer_name: str, weights: Tensor, columns: int) -> Tensor:
    _check_shape(aggregator, answer_name, weights, (None, columns))
    _check_sums(aggregator, answer_name, weights if aggregator.rows_are_models else weights[:1])
    # Clients' models and reports were finite, and perhaps very large. The sum is as finite as the weights are.
    if not math.isfinite(float(weights.sum())):
        raise Diverged(f"{_name(aggregator)}: {answer_name} gave weights that are not finite")
    return weights.double()


def _check_server(aggregator: Aggregator, answer_name: str, weights: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """Check that weights are mixtures of the server's rows, and return them in float64."""
    _check_shape(aggregator, answer_name, weights, shape)
    if aggregator.rows_are_models:
        _check_sums(aggregator, answer_name, weights)
    return weights.double()


def _check_shape(aggregator: Aggregator, answer_name: str, weights: Tensor, shape: tuple[int | None, ...]) -> None:
    """Check that weights are a floating-point tensor of a shape, in which None stands for any length."""
    fits = isinstance(weights, Tensor) and weights.is_floating_point() and weights.dim() == len(shape)
    if not fits or any(length not in (None, size) for size, length in zip(weights.shape, shape, strict=True)):
        shape_text = ", ".join("any" if length is None else str(length) for length in shape)
        raise FedwcaError(
            f"{_name(aggregator)}: {answer_name} gave {describe_value(weights)}; right are floating-point weights "
            f"of shape ({shape_text})"
        )


def _check_sums(aggregator: Aggregator, answer_name: str, weights: Tensor) -> None:
    """Check that rows sum to 1; those that are not finite pass, since the models are then reported as diverged."""
    sums = weights.sum(-1).flatten()
    wrong = sums[((sums - 1).abs() > ROUNDING) & sums.isfinite()]
    if len(wrong):
        first = f"{float(wrong[0]):.6g}"
        raise FedwcaError(
            f"{_name(aggregator)}: {answer_name} gave weights that sum to {first}; each row must sum to 1"
        )


def _check_finite(aggregator: Aggregator, answer_name: str, weights: Tensor) -> Tensor:
    """Check the weights of delivered models, whose values nobody checks after that, and return them."""
    if not bool(weights.isfinite().all()):
        raise FedwcaError(f"{_name(aggregator)}: {answer_name} gave weights that are not finite")
    return weights


def _name(aggregator: Aggregator) -> str:
    return f"aggregator {aggregator.name!r}"
