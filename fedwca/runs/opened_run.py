"""What an opened run holds: one method's saved models, the clients they belong to and an engine to evaluate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.architecture import Architecture
from fedwca.core.network import Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages, Federation
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.precision import matmul_precision
from fedwca.errors import FedwcaError
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.results.describe_run import data_name
from fedwca.results.read_run_files import trained_clients
from fedwca.results.saved_checkpoint import SelectedRound
from fedwca.results.unit import Unit
from fedwca.runs.missing_plugins import naming_missing_plugins
from fedwca.runs.resources.select_engine import choose_engine
from fedwca.runs.resuming.checkpointer import RoundState
from fedwca.runs.run_images import load_same_images
from fedwca.runs.split_trials import split_trial


@dataclass(frozen=True, repr=False, eq=False)
class OpenedRun:
    """One method of a run on one federation, as it was after the opened round.

    Everything comes from the run folder, except what needs the images (`dataset`, `federation`, `engine`) or the
    method's components (`method`): these are loaded at first access.
    """

    path: Path
    """The run folder."""
    about: Mapping[str, Any]
    """Contents of the run's ``config.json``."""
    config: RunConfig
    """The run's configuration, with its paths as they are found now."""
    unit: Unit
    """The source model, trial and method."""
    point: RoundState
    """The saved state: the server's rows and state, clusters, and the mixture delivered to each client."""
    bank: Tensor
    """Every client's own model ``[K, P]``."""
    architecture: Architecture
    network: Network
    """The source model with the method's extra networks; all models share its classifier unless their rows have one."""
    layout: Layout
    """The position of each of the network's tensors in a row."""
    classes: Sequence[str]
    """Names of the M classes."""
    last: int
    """The last round with a saved checkpoint; an earlier one may be opened."""
    selected: SelectedRound | None = None
    """The round that the table shows, if one was selected and no round was requested."""
    download: bool = True
    """Whether images that are not on this machine may be downloaded."""

    def __repr__(self) -> str:
        which = f"source model {self.unit.source_model}, trial {self.unit.trial}"
        return f"<OpenedRun {str(self.path)!r}: {self.label} after {self.round + 1} rounds, {which}>"

    @property
    def label(self) -> str:
        """The method's label in tables."""
        return str(self.about["methods"][self.unit.method]["label"])

    @property
    def rounds(self) -> int:
        """Number of rounds of the method; 0 for one that has none, such as the source model as it is."""
        return int(self.about["methods"][self.unit.method]["rounds"])

    @property
    def round(self) -> int:
        """The opened round; -1 before round 0."""
        return self.point.round

    @property
    def in_last_phase(self) -> bool:
        """Whether the opened round is the method's last phase, which is after its rounds of communication."""
        return self.round == self.rounds - 1 and "finish" in self.about["methods"][self.unit.method]

    @property
    def finished(self) -> bool:
        """Whether the method has done all its rounds."""
        return self.last == self.rounds - 1

    @property
    def choice(self) -> str:
        """A sentence on which of several rounds was opened and why; empty if there was no choice."""
        if self.selected is None or self.selected.round == self.last:
            return ""
        opened = f"{self.label}: the model after {self.round + 1} of {self.last + 1} rounds"
        if self.round == self.selected.round:
            return f"{opened}, which was best on training clients' validation images; the table shows the same"
        return f"{opened}; the table shows that after {self.selected.round + 1}, which --keep selected would have kept"

    @property
    def server(self) -> Server:
        """Rows ``[R, P]``, state, and ``source [P]``, the source model's row."""
        return self.point.server

    @property
    def labels(self) -> Tensor:
        """Cluster of each client ``[K]``; all 0 before round 0."""
        labels = self.point.labels
        return torch.zeros(len(self.bank), dtype=torch.int64) if labels is None else labels

    @property
    def domains(self) -> Sequence[str]:
        """True domain of each of the K clients that train; newcomers are not included."""
        return tuple(self.about["domains"])[: trained_clients(self.about)]

    @property
    def source(self) -> str | None:
        """Name of the source domain; None if clients have labels."""
        if self.network.trains_classifier:
            return None
        return self.config.source or self._images[1]

    @property
    def dataset_name(self) -> str:
        """Name of the data set."""
        return str(self.about.get("dataset_name") or data_name(self.config.model_dump()))

    @cached_property
    def method(self) -> Method:
        """The method, composed from its components.

        Raises:
            FedwcaError: a component is not installed, or the run's configuration no longer composes this method.
        """
        with naming_missing_plugins(self.path):
            methods = {method.name: method for method, _ in compose(self.config)}
        if self.unit.method not in methods:
            raise FedwcaError(
                f"{self.path}: this fedwca composes no method {self.unit.method!r} from the run's configuration"
            )
        return methods[self.unit.method]

    @cached_property
    def _images(self) -> tuple[FederatedDataset, str | None]:
        return load_same_images(self.config, self.about, self.path, pretrained=False, download=self.download)

    @property
    def dataset(self) -> FederatedDataset:
        """The data set the run was made on.

        Raises:
            DataError: the images have changed since, or they may have to be downloaded, and `download` is False.
            DatasetMissing: the images are missing.
        """
        return self._images[0]

    @cached_property
    def federation(self) -> Federation:
        """The clients' images, and metrics with their labels and domains; raises the errors of `dataset`."""
        return split_trial(self.config, *self._images, self.unit.source_model, self.unit.trial)

    @cached_property
    def engine(self) -> Engine:
        """An engine with every client's own model in its bank; raises the errors of `dataset`."""
        engine = choose_engine(self.config, self.network, self.federation.clients)
        engine.bank.copy_(self.bank)
        return engine

    @cached_property
    def delivered(self) -> Tensor:
        """The model each client ends with ``[K, P]``, which the table evaluates.

        Raises:
            DatasetMissing, DataError: BatchNorm statistics must be recalibrated on images that are missing or changed.
        """
        if self.round < 0:
            return self.bank
        models, adapted = self._deliver(), self.point.adapted
        if adapted is not None:
            models[adapted] = self.bank[adapted]
        return models

    def _deliver(self) -> Tensor:
        """The model the server sends each client after the opened round ``[K, P]``."""
        rows, delivery = self.server.rows, self.point.delivery
        if delivery is None:  # saved by an earlier release
            delivery = deliver_mixtures(self.method.aggregator, self.server.state, len(rows))
        if BatchNormPolicy(self.config.batch_norm) is BatchNormPolicy.RECALIBRATED:
            with matmul_precision(self.config.precision, self.engine.device):  # statistics of the clients' images
                return self.engine.deliver(delivery, rows)
        no_images = torch.zeros(0, 3, self.architecture.stored_side, self.architecture.stored_side, dtype=torch.uint8)
        engine = choose_engine(self.config, self.network, [ClientImages(no_images, no_images)] * len(self.bank))
        engine.bank.copy_(self.bank)
        return engine.deliver(delivery, rows)
