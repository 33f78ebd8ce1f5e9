"""Base class of engines in one process: the bank of models, mixtures of rows, and labels if there are any."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.check_type import check_type
from fedwca.core.component_answers import describe_value
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import check_precision
from fedwca.errors import UsageError


class LocalEngine(ABC):
    """Holds the network, the bank and the labels of clients; subclasses define how clients train.

    Args:
        network: the source model; every client uses its frozen parts, such as a classifier that is not trained.
        clients: images, and labels if there are any.
        device: where models and images live.
        batch_norm: how BatchNorm's running statistics are treated when models are mixed; see `BatchNormPolicy`.
        precision: in which clients compute.

    Raises:
        UsageError: clients cannot compute in that precision, or an argument is of another type.
    """

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device,
        batch_norm: BatchNormPolicy | str,
        precision: Precision,
    ) -> None:
        check_type("network", network, Network, "that of fedwca.pretrain(...)")
        if not isinstance(clients, Sequence) or any(not isinstance(client, ClientImages) for client in clients):
            example = "such as fedwca.partition(...).clients"
            raise UsageError(f"clients needs a list of ClientImages, {example}, not {describe_value(clients)}")
        self.batch_norm, self.precision = BatchNormPolicy(batch_norm), precision
        self.device = torch.device(device)
        check_precision(precision, network.class_vectors.dtype, self.device)
        self.layout = Layout.of(network)
        self.network = network.to(self.device)
        self.labels = [None if client.labels is None else client.labels.to(self.device) for client in clients]
        self.bank = self.layout.read(self.network).repeat(len(clients), 1)

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""
        return self.batch_norm.gather(weights, rows, self.bank, self.layout)

    def _mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures of models ``[..., R] @ [R, P]``, with BatchNorm statistics as ``batch_norm`` says."""
        return self.batch_norm.mix(weights, rows, self.layout)

    @abstractmethod
    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """See `fedwca.engine.interface.Engine.predict_tests`."""

    def classify(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Predicted classes of each client's test images ``[N_test]``, on the CPU; see `predict_tests`."""
        return [predictions.classes for predictions in self.predict_tests(weights, rows, clients)]
