"""Accuracy of a run's models on the test images of the clients that hold them, from the run's records or measured."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import matmul_precision
from fedwca.results.read_run_files import read_records
from fedwca.results.shown_records import accuracy_of_all
from fedwca.results.unit import Unit

if TYPE_CHECKING:
    from fedwca.runs.opened_run import OpenedRun


class MeasuredAccuracy(NamedTuple):
    """Accuracy on all test images of some clients of a run."""

    own: float | None
    """The model's accuracy in percent; None without images."""
    source: float | None
    """The source model's accuracy in percent; None without images, or if clients trained the whole network."""
    images: int
    """Number of test images."""


def recorded_accuracy(opened: OpenedRun, members: Sequence[int]) -> MeasuredAccuracy | None:
    """Return the accuracy of models as delivered, before an adaptation's steps, from the run's records.

    None if the records do not hold it.
    """
    records = {record["round"]: record for record in read_records(opened.path) if Unit.of(record) == opened.unit}
    if "test_images" not in records.get(-1, {}) or opened.round not in records:
        return None
    sizes, record = records[-1]["test_images"], records[opened.round]
    accuracy, source = (_pooled(_as_delivered(shown), sizes, members) for shown in (record, records[-1]))
    if opened.network.trains_classifier:  # the clients' start is then no trained source model
        source = None
    return MeasuredAccuracy(accuracy, source, sum(sizes[k] for k in members))


def _as_delivered(record: Mapping[str, Any]) -> Sequence[float] | Mapping[int, float]:
    """Return each client's accuracy in a record, before an adaptation's steps."""
    before: Sequence[float] | None = record.get("adaptation", {}).get("accuracy_before")
    return accuracy_of_all(record) if before is None else before


def measure_accuracy(opened: OpenedRun, network: Network, members: Sequence[int]) -> MeasuredAccuracy:
    """Measure the accuracy of a model on the test images of some clients, which are read again.

    Raises:
        DataError: the images are missing, or are not those of the run.
    """
    source = copy.deepcopy(opened.network)
    opened.layout.write(source, opened.server.source)
    source.eval()
    clients, metrics = opened.federation.clients, opened.federation.metrics
    sizes = metrics.test_images()

    def pooled(model: Network) -> float | None:
        accuracies = {k: metrics.accuracy(k, classify(model, clients[k].test)) for k in members if sizes[k]}
        return _pooled(accuracies, sizes, members)

    source_accuracy = None if source.trains_classifier else pooled(source)
    return MeasuredAccuracy(pooled(network), source_accuracy, sum(sizes[k] for k in members))


def _pooled(
    accuracy: Sequence[float] | Mapping[int, float], sizes: Sequence[int], members: Sequence[int]
) -> float | None:
    """Return the accuracy in percent over all test images of the members; None without images."""
    correct, count = 0.0, 0
    for client in members:
        if sizes[client]:
            correct, count = correct + accuracy[client] * sizes[client], count + sizes[client]
    return correct / count if count else None


def is_delivered(opened: OpenedRun, network: Network, members: Sequence[int]) -> bool:
    """Return whether each of the members was delivered this model, so that the run's records are of it."""
    row, delivered = Layout.of(network).read(network), opened.layout.without_extras(opened.delivered)
    return all(torch.equal(delivered[k].to(row.device), row) for k in members)


@torch.no_grad()
def classify(network: Network, images: Tensor) -> Tensor:
    """Return the predicted classes ``[N]`` of uint8 images ``[N, 3, H, W]``, on the CPU."""
    device = next(network.parameters()).device
    with matmul_precision("fp32", device):
        parts = [network(network.prepare(part.to(device)))[0].argmax(1).cpu() for part in images.split(64)]
    return torch.cat(parts)
