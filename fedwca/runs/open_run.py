"""Opens a run's saved models, together with the clients they belong to and an engine to evaluate them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig, restore_config
from fedwca.core.adaptation import Adaptation
from fedwca.core.interfaces import Objective
from fedwca.core.network import Architecture, Network
from fedwca.data.dataset import FederatedDataset
from fedwca.data.federation import ClientImages, Federation
from fedwca.describe_problems import describe_unknown
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.interface import Engine
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import CheckpointError, FedwcaError, InvalidConfig, UnknownComponent, UsageError
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.extra_networks import grow_network
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.registry import canonical_name
from fedwca.results.checkpoints import Checkpoints, NoWholeCheckpoint, SavedCheckpoint, SelectedRound, Unit
from fedwca.results.describe_run import data_name
from fedwca.results.diverged_runs import describe_divergence
from fedwca.results.find_runs import find_run
from fedwca.results.read_run import read_run, run_identity
from fedwca.results.read_run_files import read_configuration, trained_clients
from fedwca.results.trial_key import TrialKey
from fedwca.runs.checkpointer import RoundState, read_round_state
from fedwca.runs.choose_device import has_device, resolve_device
from fedwca.runs.load_data import architecture, build_network
from fedwca.runs.run_images import load_same_images, locate_paths
from fedwca.runs.select_engine import choose_engine
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
        return str(self.about.get("dataset_name") or data_name(self.config.dataset, self.config.data))

    @cached_property
    def method(self) -> Method:
        """The method, composed from its components.

        Raises:
            FedwcaError: a component is not installed, or the run's configuration no longer composes this method.
        """
        methods = {method.name: method for method, _ in compose(self.config)}
        if self.unit.method not in methods:
            raise FedwcaError(
                f"{self.path}: this fedwca composes no method {self.unit.method!r} from the run's configuration"
            )
        return methods[self.unit.method]

    @cached_property
    def _images(self) -> tuple[FederatedDataset, str | None]:
        return load_same_images(self.config, self.about, self.path)

    @property
    def dataset(self) -> FederatedDataset:
        """The data set the run was made on.

        Raises:
            DataError: the images have changed since.
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
            return self.engine.deliver(delivery, rows)
        no_images = torch.zeros(0, 3, self.architecture.stored_side, self.architecture.stored_side, dtype=torch.uint8)
        engine = choose_engine(
            self.config, self.network, [ClientImages(no_images, no_images, no_images)] * len(self.bank)
        )
        engine.bank.copy_(self.bank)
        return engine.deliver(delivery, rows)


def open_run(
    run: str | Path, method: str | None = None, source_model: int = 0, trial: int = 0, round: int | None = None
) -> OpenedRun:
    """Open a run's saved models, without any training and without reading an image before one is needed.

    Args:
        run: run folder, or its name in ``runs/``.
        method: name of a method of the run; None: the composed one.
        source_model: index of the source model, from 0.
        trial: index of the trial, from 0.
        round: number of rounds after which the models are taken; None: the round that was selected on validation images
            and is shown in the table, if it is saved, else the last saved one.

    Warns:
        UserWarning: the method is unfinished or diverged, so its last saved round is opened.

    Raises:
        UsageError: no such run, method, source model, trial or round.
        CheckpointError: its checkpoints were not kept, or the requested one is damaged.
        FedwcaError: its files cannot be read.
    """
    path = find_run(run)
    metadata = read_configuration(path)
    config = locate_paths(restore_config(metadata["config"]), metadata, path)
    if not has_device(config.device):
        config = config.model_copy(update={"device": "auto"})
    if config.precision == "tf32" and not resolve_device(config.device).startswith("cuda"):
        config = config.model_copy(update={"precision": "fp32"})  # models are saved in fp32
    unit = _unit(path, list(metadata["methods"]), config, method, source_model, trial)
    store = Checkpoints(path, run_identity(metadata))
    newest = _kept(store, path, unit, round)
    selected = newest.selected if round is None else None
    saved = (store.at(unit, selected.round) if selected else None) or newest
    tensors = saved.tensors()
    # Runs of earlier releases do not store their class names; only the data set has them.
    classes = tuple(metadata.get("classes", ())) or load_same_images(config, metadata, path)[0].classes
    model = architecture(config)
    network = build_network(config, len(classes), pretrained=False)
    parts = _trained_parts(metadata["methods"][unit.method])
    network = grow_network(network, parts, config.seed, sizes=len(model.size_variants))
    layout = Layout.of(network)
    layout.write(network, tensors["source"])
    extra_tensors = {
        name.removeprefix("network."): tensor for name, tensor in tensors.items() if name.startswith("network.")
    }
    network.load_state_dict(extra_tensors, strict=False)
    network.eval()
    point, bank = read_round_state(saved, trained_clients(metadata), layout.width, resolve_device(config.device))
    last = max(newest.round, *(int(file.stem) - 1 for file in store.files(unit)))
    opened = OpenedRun(path, metadata, config, unit, point, bank, model, network, layout, classes, last, selected)
    if not opened.finished and round is None:
        finished_rounds = newest.round + 1
        divergence = read_run(path).diverged.get(unit.method, {}).get(TrialKey(source_model, trial))
        state = f"{finished_rounds} of {opened.rounds} rounds are done" if finished_rounds else "no round of it is done"
        reason = describe_divergence(divergence) if divergence else "is unfinished"
        warnings.warn(f"{path}: {opened.label} {reason}; {state}, and these are opened", UserWarning, stacklevel=2)
    return opened


def _trained_parts(method_entry: Mapping[str, Any]) -> list[Adaptation | Objective]:
    """A method's adaptation and objectives, built from its entry in ``config.json``; see `Method.trained`."""
    parts: list[Adaptation | Objective] = []
    for component in method_entry["components"]:
        if component["kind"] == "adaptation":
            parts.append(
                registry_of("adaptation").build({key: value for key, value in component.items() if key != "kind"})
            )
        elif component["kind"] == "objective":
            # An objective that is no longer installed is left out. If it had trained an extra network, reading the
            # checkpoint fails because the model does not fit.
            with suppress(UnknownComponent, InvalidConfig):
                parts.append(
                    registry_of("objective").build({k: value for k, value in component.items() if k != "kind"})
                )
    return parts


def _unit(path: Path, names: list[str], config: RunConfig, method: str | None, source_model: int, trial: int) -> Unit:
    """The requested unit.

    Raises:
        UsageError: the run has no such method, source model or trial.
    """
    name = (
        names[-1]
        if method is None
        else next((candidate for candidate in names if canonical_name(candidate) == canonical_name(method)), None)
    )
    if name is None:
        raise UsageError(f"{path}: {describe_unknown('method', str(method), names)}")
    for kind, number, count in (
        ("source model", source_model, config.source_models),
        ("trial", trial, config.trials),
    ):
        if not 0 <= number < count:
            raise UsageError(f"{path}: no {kind} {number}; the run has {count}, counted from 0")
    return Unit(source_model, trial, name)


def _kept(store: Checkpoints, path: Path, unit: Unit, round: int | None) -> SavedCheckpoint:
    """A unit's checkpoint after a number of rounds; None: its newest one."""
    if round is not None:
        file = store.path_of(unit, round - 1)
        if not file.is_file():
            kept_rounds = ", ".join(str(int(kept_file.stem)) for kept_file in reversed(store.files(unit))) or "none"
            raise UsageError(
                f"{path}: no checkpoint of {unit.method} after round {round}; those that are kept: {kept_rounds}"
            )
        return store.read(file, unit)
    try:
        saved, damaged = store.latest(unit)
    except NoWholeCheckpoint as error:
        raise CheckpointError(f"{error}; run {unit.method} again in another folder") from None
    if damaged and saved is not None:
        older = saved.round + 1
        raise CheckpointError(
            f"{damaged[0]}; the checkpoint after round {older} is whole, and export and predict take it with "
            f"--round {older}"
        )
    if saved is None:
        hint = "" if read_run(path).state == "done" else f", or continue it with: fedwca resume {quote(str(path))}"
        raise CheckpointError(
            f"{path}: no checkpoint of {unit.method} (source model {unit.source_model}, trial {unit.trial}) is kept; "
            f"run it again with --keep last{hint}"
        )
    return saved
